//! Beyond single calls of the world: groups, pending calls, bounds, streams; over files and
//! over connections between ranks.

use crate::common::{
    CONFIG, PEER_FAILED, Stage, World, assert_nothing_left, everybody, name_of, others, payloads,
    place,
};

const TRANSPORTS: [&str; 2] = ["filesys", "memory"];

/// Runs the script of each rank, with both transports, and checks that nothing is left.
fn everywhere(ranks: u32, script: impl Fn(u32) -> String) {
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(ranks, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| format!("join {} close", script(rank)));
        stage.succeed(everybody(ranks));
        assert_nothing_left(place.path());
    }
}

#[test]
fn groups_gather_by_their_own_ranks() {
    // Three colors of different sizes, ordered backwards; then the even ones of a group of four.
    everywhere(8, |rank| {
        let calls = "all_gather:200000* gather:1:200000 broadcast:0:90000 barrier \
                     all_gather:10 stream:0:150000*";
        let nested = if rank >= 4 {
            "close_group group:4,5,6,7 ".to_owned()
                + if rank % 2 == 0 {
                    "group:2,0 all_gather_bytes:100000 leave_group close_group"
                } else {
                    "close_group"
                }
        } else {
            "close_group".into()
        };
        format!("split:3 {calls} {nested} all_gather:70000")
    });
}

#[test]
fn a_group_of_one_makes_no_file() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        format!("join group:{rank} start_all_gather:1000000 at:alone wait:0 leave_group close")
    });
    stage.wait_at([0, 1], "alone");
    assert_eq!(payloads(place.path()), 0);
    stage.go_all([0, 1]);
    stage.succeed(everybody(2));
    assert_nothing_left(place.path());
}

#[test]
fn a_failure_in_one_group_does_not_concern_another() {
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(4, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            let pair = if rank < 2 { "0,1" } else { "2,3" };
            let calls = match rank {
                2 => "encode_fails",
                3 => "all_gather:10",
                _ => "all_gather:200000 at:paired all_gather:200000 close_group barrier",
            };
            format!("join group:{pair} {calls}")
        });
        let (error, _) = stage.fail_alike([2, 3], PEER_FAILED);
        assert!(error.contains("cannot be encoded"), "{error}");
        stage.wait_at([0, 1], "paired");
        stage.go_all([0, 1]);
        // Their own group continues; the world does not, because two of its ranks have left.
        stage.wait_for(0, "done close_group");
        stage.wait_for(1, "done close_group");
        stage.fail_alike([0, 1], PEER_FAILED);
    }
}

#[test]
fn a_lost_rank_fails_the_groups_that_it_is_in() {
    let place = place();
    let world = World::new(4, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        1 => "join group:1,3 at:gone".into(),
        3 => "join group:1,3 at:ready barrier".into(),
        _ => "join group:0,2 at:ready all_gather:100000 at:still all_gather:100000 close_group"
            .into(),
    });
    stage.wait_at([1], "gone");
    stage.wait_at([0, 2, 3], "ready");
    stage.kill(1);
    stage.go_all([0, 2, 3]);
    let end = stage.end(3);
    assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
    let lost = name_of(1, stage.pid(1));
    assert!(end.error().contains(&lost), "{}", end.error());
    stage.wait_at([0, 2], "still");
    stage.go_all([0, 2]);
    stage.succeed([0, 2]);
}

#[test]
fn pending_calls_are_waited_for_in_any_order() {
    everywhere(4, |rank| {
        let starts = "start_all_gather:300000* start_gather:2:200000 start_all_gather:10 \
                      start_all_gather:100000 start_gather:1:300000*";
        let waits = match rank {
            0 => "wait:4 wait:0 wait:3 wait:1 wait:2",
            1 => "wait:0 wait:1 wait:2 wait:3 wait:4",
            2 => "wait:2 wait:1 wait:4 wait:3 wait:0",
            _ => "wait:3 wait:4 wait:2 wait:0 wait:1",
        };
        format!("{starts} {waits} all_gather:100000")
    });
}

#[test]
fn a_pending_call_is_announced_before_its_start_returns() {
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| match rank {
            // It computes, and has nothing to do with the others any more.
            0 => "join start_gather:1:500000 start_all_gather:500000 at:computing wait:1 wait:0 close".into(),
            1 => "join start_gather:1:500000 start_all_gather:500000 wait:0 at:gathered wait:1 close".into(),
            _ => "join at:late start_gather:1:500000 start_all_gather:500000 wait:0 wait:1 close".into(),
        });
        stage.wait_at([0], "computing");
        stage.wait_at([2], "late");
        assert!(stage.runs(1));
        stage.go(2);
        stage.wait_at([1], "gathered");
        stage.go(1);
        // Ranks 1 and 2 have all results although rank 0 has not waited.
        stage.wait_for(2, "done wait:1");
        stage.wait_for(1, "done wait:1");
        stage.go(0);
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_limit_on_waiting_changes_nothing() {
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(2, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| match rank {
            0 => "join start_all_gather:200000 not_yet:0:20 not_yet:0:0 at:waited wait:0 close"
                .into(),
            _ => "join at:late start_all_gather:200000 wait:0 close".into(),
        });
        stage.wait_at([1], "late");
        stage.wait_at([0], "waited");
        stage.go_all([0, 1]);
        stage.succeed(everybody(2));
        assert_nothing_left(place.path());
    }
}

#[test]
fn abandoned_calls_still_reach_others_and_leave_nothing() {
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            let starts = "start_all_gather:400000 start_gather:0:400000 start_all_gather:400000";
            let waits = match rank {
                0 => "abandon:0 abandon:1 wait:2",
                1 => "wait:0 wait:1 abandon:2",
                _ => "wait:2 wait:0 wait:1",
            };
            format!("join {starts} {waits} barrier at:done close")
        });
        stage.wait_at(everybody(3).collect::<Vec<_>>(), "done");
        stage.wait_until("payloads to go", || payloads(place.path()) == 0);
        stage.go_all(everybody(3));
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_value_over_the_bound_fails_all_before_data_moves() {
    everywhere(3, |_| "list:300000:200000 list:5000:0 list:100:10".into());
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(4, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        // Only the payload of rank 3 is too large.
        stage.start_all(&world, |_| "join list:250000:100000* close".into());
        let (error, _) = stage.fail_alike(everybody(4), 1);
        let name = name_of(3, stage.pid(3));
        let told = format!("the payload of {name} needs 300017 bytes, but the call allows 250000");
        assert_eq!(error, told);
        assert_nothing_left(place.path());
    }
}

#[test]
fn streams_need_memory_for_a_piece_on_both_sides() {
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |_| "join stream:0:80000000 peak close".into());
        for rank in 0..3 {
            let line = stage.wait_for_where(rank, "its peak", |line| line.starts_with("peak "));
            let peak: u64 = line["peak ".len()..].parse().unwrap_or(u64::MAX);
            assert!(peak < 64 << 10, "rank {rank}: {peak} KiB ({transport})");
        }
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn random_calls_on_four_groups_at_the_same_time_are_all_right() {
    everywhere(4, |_| "storm:80:7".into());
}

#[test]
fn who_is_not_in_a_list_cannot_make_the_group() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(2, place.path()), |_| "join group:0".into());
    let end = stage.end(1);
    assert_eq!(end.code, CONFIG);
    assert!(end.error().contains("not in the list"), "{}", end.error());
    let _ = stage.end_all(others(2, 1));
}

#[test]
fn what_a_rank_has_handed_over_outlives_its_communicator() {
    for transport in TRANSPORTS {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| match rank {
            0 => "join gather_bytes:0:3000000:read".into(),
            _ => "join gather_bytes:0:3000000 drop at:gone".into(),
        });
        // Rank 0 has read its own payload only; the others leave without `close`.
        stage.wait_at([0], "reading");
        stage.wait_for(1, "done gather_bytes:0:3000000");
        stage.wait_for(2, "done gather_bytes:0:3000000");
        stage.go(0);
        stage.succeed([0]);
        stage.wait_at([1, 2], "gone");
        stage.go_all([1, 2]);
        stage.succeed([1, 2]);
    }
}
