//! Rings of payloads.

use std::sync::Mutex;

use fsgather_control::mesh::{Mesh, RingPart, neighbours};
use fsgather_core::Rank;
use fsgather_testkit::pace::cases;
use proptest::prelude::*;

use crate::bed::{Bed, call, check, ignore, in_bytes, on_all, on_channel, payload, ranks, ring};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2, 16)))]

    #[test]
    fn a_ring_brings_everything_to_everybody(
        lens in proptest::collection::vec(
            prop_oneof![Just(0), 1..1000_usize, 1_048_570..1_048_580_usize, 0..cases(300_000, 3_000_000_usize)],
            1..=6,
        ),
    ) {
        let meshes = Bed::new(u32::try_from(lens.len()).unwrap()).meshes();
        for (rank, got) in ring(&meshes, call(0), &lens).into_iter().enumerate() {
            check(rank, &lens, &got.unwrap());
        }
    }
}

#[test]
fn a_ring_without_checksums_brings_the_same() {
    let meshes = Bed::new(3).meshes();
    let (members, lens) = ([0, 1, 2].map(Rank::new), [2_500_000, 0, 70]);
    let announced = lens.map(|len| len as u64);
    let got = on_all(&meshes, |rank, mesh| {
        let part = RingPart {
            members: &members,
            hosts: &[0; 3],
            own: &payload(rank, lens[rank as usize]),
            lens: &announced,
            has_checksums: false,
            host_memory: None,
        };
        in_bytes(mesh.ring_within(mesh.timeout(), call(0), &part, Vec::new(), &mut ignore))
    });
    for (rank, got) in got.into_iter().enumerate() {
        check(rank, &lens, &got.unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2, 12)))]

    #[test]
    fn a_ring_of_hosts_reaches_all_and_enters_each_host_once(
        hosts in proptest::collection::vec(
            proptest::collection::vec(
                prop_oneof![Just(0), 1..1000_usize, 1_048_570..1_048_580_usize, 0..cases(300_000, 3_000_000_usize)],
                1..=3,
            ),
            1..=4,
        ),
    ) {
        let lens: Vec<usize> = hosts.concat();
        let hosts = (0..).zip(&hosts).flat_map(|(host, its)| vec![host; its.len()]);
        let hosts: Vec<usize> = hosts.collect();
        let meshes = Bed::new(u32::try_from(lens.len()).unwrap()).meshes();
        let (members, announced) = (ranks(lens.len()), lens.iter().map(|len| *len as u64));
        let announced: Vec<u64> = announced.collect();
        for epoch in 0..2 {
            let got = on_all(&meshes, |rank, mesh| {
                let part = RingPart {
                    members: &members,
                    hosts: &hosts,
                    own: &payload(rank, lens[rank as usize]),
                    lens: &announced,
                    has_checksums: true,
                    host_memory: None,
                };
                in_bytes(mesh.ring_within(mesh.timeout(), call(epoch), &part, Vec::new(), &mut ignore))
            });
            for (rank, got) in got.into_iter().enumerate() {
                check(rank, &lens, &got.unwrap());
            }
        }
        // One link from the host before, one from a member of its own.
        for (place, mesh) in meshes.iter().enumerate() {
            let is_first = place == 0 || hosts[place - 1] != hosts[place];
            let has_others = hosts.iter().filter(|host| **host == hosts[place]).count() > 1;
            let has_other_hosts = hosts[0] != hosts[hosts.len() - 1];
            let most = u64::from(has_others) + u64::from(is_first && has_other_hosts);
            prop_assert!(mesh.links_accepted() <= most);
        }
    }
}

#[test]
fn links_are_used_again() {
    let meshes = Bed::new(3).meshes();
    let lens = [3 << 20, 1 << 20, 17];
    for epoch in 0..5 {
        for (rank, got) in ring(&meshes, call(epoch), &lens).into_iter().enumerate() {
            check(rank, &lens, &got.unwrap());
        }
    }
    for mesh in &meshes {
        assert_eq!(mesh.links_accepted(), 1);
    }
}

#[test]
fn what_was_begun_before_all_were_known_to_come_is_gone_on_with() {
    let meshes = Bed::new(4).meshes();
    let (lens, hosts) = ([3_000_000, 100, 1_048_576, 1], [7, 7, 7, 8]);
    let announced = lens.map(|len| len as u64);
    for epoch in 0..3 {
        let all_have_begun = std::sync::Barrier::new(4);
        let got = on_all(&meshes, |rank, mesh| {
            let own = payload(rank, lens[rank as usize]);
            let begun = neighbours(rank as usize, &hosts).into_iter().map(|to| {
                let to = ranks(4)[to];
                let prepared = mesh.prepare_for(call(epoch), to, mesh.timeout(), &mut ignore);
                prepared.unwrap();
                mesh.begin_ring(call(epoch), to, &own, true).unwrap()
            });
            let begun = begun.collect();
            all_have_begun.wait();
            let part = RingPart {
                members: &ranks(4),
                hosts: &hosts,
                own: &own,
                lens: &announced,
                has_checksums: true,
                host_memory: None,
            };
            in_bytes(mesh.ring_within(mesh.timeout(), call(epoch), &part, begun, &mut ignore))
        });
        for (rank, got) in got.into_iter().enumerate() {
            check(rank, &lens, &got.unwrap());
        }
    }
    let accepted: u64 = meshes.iter().map(Mesh::links_accepted).sum();
    assert_eq!(accepted, 5);
}

#[test]
fn what_was_begun_in_vain_costs_a_link_and_nothing_else() {
    let meshes = Bed::new(2).meshes();
    let (members, lens) = (ranks(2), [2_000_000, 70]);
    for mesh in &meshes {
        let to = members[1 - usize::from(mesh.address() == meshes[1].address())];
        let own = payload(1 - to.get(), lens[1 - to.index()]);
        mesh.prepare_for(call(0), to, mesh.timeout(), &mut ignore)
            .unwrap();
        drop(mesh.begin_ring(call(0), to, &own, true).unwrap());
    }
    for (rank, got) in ring(&meshes, call(1), &lens).into_iter().enumerate() {
        check(rank, &lens, &got.unwrap());
    }
}

#[test]
fn who_has_sent_everything_does_not_wait_for_it_to_be_taken() {
    let meshes = Bed::new(2).meshes();
    let lens = [1_200_000, 10];
    let has_returned = std::sync::Barrier::new(2);
    let got = on_all(&meshes, |rank, mesh| {
        let own = payload(rank, lens[rank as usize]);
        let (members, announced) = (ranks(2), lens.map(|len| len as u64));
        let mut has_stopped = false;
        let got = mesh.ring(call(0), &members, &own, &announced, &mut |moved| {
            // It has sent its payload, and not taken all that arrives.
            if rank == 1 && moved > 0 && !has_stopped {
                has_stopped = true;
                has_returned.wait();
            }
            Ok(())
        });
        if rank == 0 {
            has_returned.wait();
        }
        got
    });
    for (rank, got) in got.into_iter().enumerate() {
        check(rank, &lens, &got.unwrap());
    }
    for (rank, got) in ring(&meshes, call(1), &lens).into_iter().enumerate() {
        check(rank, &lens, &got.unwrap());
    }
    // No rank has given the link up, and a call of another channel finds it as well.
    let others = on_all(&meshes, |rank, mesh| {
        let own = payload(rank, lens[rank as usize]);
        let announced = lens.map(|len| len as u64);
        mesh.ring(on_channel(1, 0), &ranks(2), &own, &announced, &mut ignore)
    });
    for (rank, got) in others.into_iter().enumerate() {
        check(rank, &lens, &got.unwrap());
    }
    assert!(meshes.iter().all(|mesh| mesh.links_accepted() == 1));
}

#[test]
fn empty_payloads_need_no_links() {
    let meshes = Bed::new(3).meshes();
    for (rank, got) in ring(&meshes, call(0), &[0, 0, 0]).into_iter().enumerate() {
        check(rank, &[0, 0, 0], &got.unwrap());
    }
    assert!(meshes.iter().all(|mesh| mesh.links_accepted() == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2, 12)))]

    #[test]
    fn a_group_has_its_own_order(
        (members, hosts) in prop::collection::vec(0..4_usize, 1..=6).prop_flat_map(|mut hosts| {
            hosts.sort_unstable();
            let all: Vec<u32> = (0..7).collect();
            (prop::sample::subsequence(all, hosts.len()).prop_shuffle(), Just(hosts))
        }),
        lens in prop::collection::vec(prop_oneof![Just(0), 1..1000_usize, 1_048_576..cases(1_048_580, 2_000_000_usize)], 6),
    ) {
        let meshes = Bed::new(7).meshes();
        let members: Vec<Rank> = members.into_iter().map(Rank::new).collect();
        let lens = &lens[..members.len()];
        let announced: Vec<u64> = lens.iter().map(|len| *len as u64).collect();
        for epoch in 0..2 {
            let got = on_all(&meshes, |rank, mesh| {
                let place = members.iter().position(|member| member.get() == rank)?;
                let part = RingPart {
                    members: &members,
                    hosts: &hosts,
                    own: &payload(rank, lens[place]),
                    lens: &announced,
                    has_checksums: true,
                    host_memory: None,
                };
                Some(in_bytes(mesh.ring_within(mesh.timeout(), on_channel(9, epoch), &part, Vec::new(), &mut ignore)))
            });
            for (rank, got) in (0..).zip(got) {
                let Some(got) = got else { continue };
                for ((member, len), got) in members.iter().zip(lens).zip(got.unwrap()) {
                    let expected = if member.get() == rank { 0 } else { *len };
                    prop_assert!(got == payload(member.get(), expected));
                }
            }
        }
    }
}

#[test]
fn several_calls_at_the_same_time_do_not_mix() {
    let meshes = Bed::new(3).meshes();
    let lens = [3_000_000, 100, 1_500_000];
    let meshes = &meshes;
    std::thread::scope(|scope| {
        for channel in 0..4 {
            scope.spawn(move || {
                for epoch in 0..3 {
                    let call = on_channel(channel, epoch);
                    for (rank, got) in ring(meshes, call, &lens).into_iter().enumerate() {
                        check(rank, &lens, &got.unwrap());
                    }
                }
            });
        }
    });
}

#[test]
fn who_comes_early_waits_for_the_others() {
    let meshes = Bed::new(2).meshes();
    let waits = Mutex::new(0);
    let late = std::sync::Barrier::new(2);
    let got = on_all(&meshes, |rank, mesh| {
        let own = payload(rank, 100);
        let members = [0, 1].map(Rank::new);
        if rank == 1 {
            late.wait();
        }
        let mut told = false;
        mesh.ring(call(0), &members, &own, &[100, 100], &mut |_| {
            *waits.lock().unwrap() += 1;
            if rank == 0 && !told && *waits.lock().unwrap() > 3 {
                told = true;
                late.wait();
            }
            Ok(())
        })
    });
    for (rank, got) in got.into_iter().enumerate() {
        check(rank, &[100, 100], &got.unwrap());
    }
    // Progress was called now and then while nothing moved.
    assert!(*waits.lock().unwrap() > 3);
}

#[test]
fn moved_bytes_are_reported_in_full() {
    let meshes = Bed::new(3).meshes();
    let len = 5_000_000_u64;
    let moved = on_all(&meshes, |rank, mesh| {
        let own = payload(rank, 5_000_000);
        let members = [0, 1, 2].map(Rank::new);
        let mut moved = 0;
        mesh.ring(call(0), &members, &own, &[len; 3], &mut |bytes| {
            moved += bytes;
            Ok(())
        })
        .unwrap();
        moved
    });
    for moved in moved {
        // Two payloads in, two out, and their checks.
        assert!((4 * len..4 * len + 1000).contains(&moved), "{moved}");
    }
}

#[test]
fn a_call_that_does_not_fit_is_refused() {
    let mesh = Bed::new(3).listen(1);
    let refused = |members: &[u32], lens: &[u64]| {
        let members: Vec<Rank> = members.iter().copied().map(Rank::new).collect();
        mesh.ring(call(0), &members, b"abc", lens, &mut ignore)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&[0, 2], &[3, 3]).contains("does not belong"));
    assert!(refused(&[0, 1], &[3]).contains("does not belong"));
    assert!(refused(&[1, 7], &[3, 3]).contains("does not belong"));
    assert!(refused(&[0, 1], &[3, 4]).contains("announced 4 bytes"));
    let mixed = RingPart {
        members: &[0, 1, 2].map(Rank::new),
        hosts: &[0, 1, 0],
        own: b"abc",
        lens: &[3; 3],
        has_checksums: true,
        host_memory: None,
    };
    let halted = mesh.ring_within(mesh.timeout(), call(0), &mixed, Vec::new(), &mut ignore);
    let refused = halted.unwrap_err().cause.to_string();
    assert!(refused.contains("host by host"), "{refused}");
}
