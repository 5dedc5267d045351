//! Rings.

use std::sync::Mutex;

use fsgather_control::mesh::RingPart;
use fsgather_core::Rank;
use proptest::prelude::*;

use crate::bed::{Bed, call, check, ignore, on_all, on_channel, payload, ring};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_ring_brings_everything_to_everybody(
        lens in proptest::collection::vec(
            prop_oneof![Just(0), 1..1000_usize, 1_048_570..1_048_580_usize, 0..3_000_000_usize],
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
            own: &payload(rank, lens[rank as usize]),
            lens: &announced,
            has_checksums: false,
        };
        mesh.ring_within(mesh.timeout(), call(0), &part, &mut ignore)
    });
    for (rank, got) in got.into_iter().enumerate() {
        check(rank, &lens, &got.unwrap());
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
fn empty_payloads_need_no_links() {
    let meshes = Bed::new(3).meshes();
    for (rank, got) in ring(&meshes, call(0), &[0, 0, 0]).into_iter().enumerate() {
        check(rank, &[0, 0, 0], &got.unwrap());
    }
    assert!(meshes.iter().all(|mesh| mesh.links_accepted() == 0));
}

#[test]
fn a_group_has_its_own_order() {
    let meshes = Bed::new(5).meshes();
    let members = [4, 0, 3].map(Rank::new);
    let lens = [5, 2_000_000, 1_048_576];
    let announced = lens.map(|len| len as u64);
    let got = on_all(&meshes, |rank, mesh| {
        let place = members.iter().position(|member| member.get() == rank)?;
        let own = payload(rank, lens[place]);
        Some(mesh.ring(on_channel(9, 0), &members, &own, &announced, &mut ignore))
    });
    for (rank, got) in (0..).zip(got) {
        let Some(got) = got else { continue };
        for ((member, len), got) in members.iter().zip(lens).zip(got.unwrap()) {
            let expected = if member.get() == rank { 0 } else { len };
            assert!(got == payload(member.get(), expected));
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
    // It was told now and then that nothing moved.
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
        // Two payloads in, two out, and what goes with them.
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
}
