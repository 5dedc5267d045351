//! All-gathers from memory to memory over several hosts: payloads enter each host once, and are forwarded there in shared memory, if its
//! ranks share any. Hosts are namespaces, which only root can make.

use crate::common::{
    End, Stage, assert_nothing_left, everybody,
    hosts::{Hosts, PLAIN, through_memory},
    place,
};

#[test]
fn a_payload_enters_each_host_once_for_any_rank_placement() {
    const LEN: u64 = 3_000_000;
    let hosts = Hosts::with(3, "", PLAIN);
    let place = place();
    let world = through_memory(9, place.path());
    let mut stage = Stage::new();
    // Like launchers that deal ranks out to hosts in turn.
    for rank in 0..world.ranks {
        let steps = format!("join all_gather_bytes:{LEN} barrier close");
        stage.start(&mut hosts.rank(rank % 3 + 1, &world, rank, &steps));
    }
    stage.succeed(everybody(world.ranks));
    stage.end_all(everybody(world.ranks));
    for host in hosts.all() {
        let sent = hosts.sent_by(host);
        // Each host sends the next one the payloads that it lacks: those of six ranks.
        assert!(
            sent > 6 * LEN && sent < 6 * LEN + LEN / 2,
            "host {host}: {sent} bytes"
        );
    }
}

/// Payloads in the shared memory of a host do not go through its loopback device.
#[test]
fn payloads_received_by_a_host_are_shared_in_its_memory() {
    const LEN: u64 = 3_000_000;
    const CALLS: u64 = 4;
    let hosts = Hosts::with(3, "", PLAIN);
    let mut through_loopback = Vec::new();
    for shares in [true, false] {
        let before: Vec<[u64; 2]> = hosts
            .all()
            .map(|host| [hosts.sent_by(host), hosts.looped_by(host)])
            .collect();
        let place = place();
        let mut world = through_memory(9, place.path());
        if shares {
            world = world.sharing_memory();
        }
        let mut stage = Stage::new();
        for rank in 0..world.ranks {
            let calls = format!("all_gather_bytes:{LEN} ").repeat(4);
            let steps = format!("join {calls}barrier close");
            stage.start(&mut hosts.rank(rank % 3 + 1, &world, rank, &steps));
        }
        stage.succeed(everybody(world.ranks));
        stage.end_all(everybody(world.ranks));
        for (host, [sent, looped]) in hosts.all().zip(before) {
            let sent = hosts.sent_by(host) - sent;
            assert!(
                sent > CALLS * 6 * LEN && sent < CALLS * 6 * LEN + 2 * LEN,
                "host {host}: {sent} bytes, sharing memory: {shares}"
            );
            through_loopback.push((shares, hosts.looped_by(host) - looped));
        }
        assert_nothing_left(place.path());
    }
    // In each call six payloads of others go to two more members, and three of its own to two each, except those of the first call that
    // have no slot yet.
    for (shares, looped) in through_loopback {
        let expected = if shares {
            0..19 * LEN
        } else {
            CALLS * 18 * LEN..u64::MAX
        };
        assert!(
            expected.contains(&looped),
            "{looped} bytes, sharing memory: {shares}"
        );
    }
}

#[test]
fn all_payloads_arrive_though_memory_has_room_for_some() {
    let hosts = Hosts::with(2, "", PLAIN);
    for room in ["64KiB", "2MiB", "5MiB", "20MiB"] {
        let place = place();
        let world = through_memory(6, place.path()).with("FSGATHER_SHARED_MEMORY", room);
        let calls =
            "all_gather_bytes:1500000* all_gather:70000* all_gather_bytes:300000 ".repeat(3);
        let held = "keep:900000 keep:900000 right all_gather:900000 keep:900000* right let_go ";
        let mut stage = Stage::new();
        for rank in 0..world.ranks {
            let steps = format!("join {calls}{held}storm:20:5 close");
            stage.start(&mut hosts.rank(rank % 2 + 1, &world, rank, &steps));
        }
        stage.succeed(everybody(world.ranks));
        let ends = stage.end_all(everybody(world.ranks));
        assert_eq!(ends.iter().flat_map(End::warnings).next(), None);
        assert_nothing_left(place.path());
    }
}

/// A group has other positions than the world, and its members are on hosts in another order.
#[test]
fn a_payload_of_a_group_enters_each_host_once_as_well() {
    const LEN: u64 = 2_000_000;
    // On hosts 3, 3, 1, 2, 1, 2.
    const GROUP: [u32; 6] = [8, 5, 6, 7, 3, 4];
    let hosts = Hosts::with(3, "", PLAIN);
    for world_first in [true, false] {
        let place = place();
        let world = through_memory(9, place.path());
        let before = hosts.all().map(|host| hosts.sent_by(host));
        let before: Vec<u64> = before.collect();
        let mut stage = Stage::new();
        let join = if world_first {
            "join"
        } else {
            "join_to_set_up_later"
        };
        for rank in 0..world.ranks {
            let calls = if GROUP.contains(&rank) {
                let group = GROUP.map(|member| member.to_string()).join(",");
                // Then a group of some of these, in an order of their own.
                let nested = if [8, 3, 4].contains(&rank) {
                    "group:5,0,4 all_gather_bytes:50000* gather_bytes:2:50000 close_group "
                } else {
                    ""
                };
                format!("group:{group} all_gather_bytes:{LEN} {nested}close_group ")
            } else {
                String::new()
            };
            let steps = format!("{join} {calls}barrier close");
            stage.start(&mut hosts.rank(rank % 3 + 1, &world, rank, &steps));
        }
        stage.succeed(everybody(world.ranks));
        stage.end_all(everybody(world.ranks));
        for (host, before) in hosts.all().zip(before) {
            let sent = hosts.sent_by(host) - before;
            // Each host sends the next one the payloads that it lacks: those of four members.
            assert!(
                sent > 4 * LEN && sent < 4 * LEN + LEN / 2,
                "host {host}: {sent} bytes"
            );
        }
    }
}

/// Every kind of call, the world first and groups first, from one thread and from two threads.
#[test]
fn groups_of_any_shape_over_hosts_get_the_right_parts() {
    let hosts = Hosts::with(3, "", PLAIN);
    let several = [
        "join routes:world_first:memory close",
        "join routes:groups_first:default close",
        "join_to_set_up_later numbered_groups close",
    ];
    for (steps, shares) in several
        .iter()
        .flat_map(|steps| [(steps, false), (steps, true)])
    {
        let place = place();
        let mut world = through_memory(6, place.path());
        if shares {
            world = world.sharing_memory();
        }
        let mut stage = Stage::new();
        // Two ranks of the first host, one of the second, three of the third, mixed.
        for (rank, host) in (0..world.ranks).zip([3, 1, 3, 2, 1, 3]) {
            stage.start(&mut hosts.rank(host, &world, rank, steps));
        }
        stage.succeed(everybody(world.ranks));
        assert_nothing_left(place.path());
    }
}
