//! Tests the features that bindings to other languages rely on: payloads in pieces, writable memory, calls with options of their own,
//! leaving with a reason.

#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail with it"
)]

use std::{fs, path::Path, time::Duration};

use crate::common::{
    PEER_FAILED, Stage, World, assert_nothing_left, everybody, in_step, others, payload_files,
    place,
};

/// Runs ranks that take the same steps and check all results.
fn succeed(ranks: u32, steps: &str, variables: &[(&str, &str)]) {
    let place = place();
    let mut world = World::new(ranks, place.path());
    for (name, value) in variables {
        world = world.with(name, value);
    }
    let mut stage = Stage::new();
    stage.start_all(&world, |_| format!("join {steps} close"));
    stage.succeed(everybody(ranks));
    assert_nothing_left(place.path());
}

/// Every call that sends pieces of this length.
fn every_call(len: &str) -> String {
    format!(
        "all_gather_pieces:{len} gather_pieces:0:{len} gather_pieces:2:{len} broadcast_pieces:1:{len} \
         start_pieces:3:{len}"
    )
}

#[test]
fn pieces_arrive_through_files_as_one_writable_payload() {
    let steps = [every_call("5000000"), every_call("400000*")].join(" ");
    succeed(4, &steps, &[("FSGATHER_TRANSPORT", "filesys")]);
}

#[test]
fn pieces_arrive_as_one_payload_through_compressed_files() {
    let variables = [
        ("FSGATHER_TRANSPORT", "filesys"),
        ("FSGATHER_COMPRESS", "zstd"),
    ];
    succeed(4, &every_call("9000000"), &variables);
}

#[test]
fn pieces_arrive_as_one_payload_through_memory() {
    let steps = [every_call("5000000"), every_call("400000*")].join(" ");
    succeed(4, &steps, &[("FSGATHER_TRANSPORT", "memory")]);
}

#[test]
fn small_and_empty_pieces_arrive_with_the_control_messages() {
    let steps = [every_call("0"), every_call("1"), every_call("1000*")].join(" ");
    succeed(4, &steps, &[]);
}

#[test]
fn a_world_of_one_gets_its_own_pieces_back() {
    let steps =
        "all_gather_pieces:5000000 gather_pieces:0:5000000 broadcast_pieces:0:100 barrier_with";
    succeed(1, steps, &[]);
}

#[test]
fn a_call_may_take_another_way_and_another_directory() {
    let elsewhere = place();
    let steps = format!(
        "by:memory:/nowhere:300000 by:filesys:{0}:300000 all_gather_pieces:300000 by:filesys:{0}:300001",
        in_step(elsewhere.path())
    );
    succeed(4, &steps, &[]);
    assert_nothing_left(elsewhere.path());
}

#[test]
fn the_encoding_is_in_the_header_of_a_payload_file() {
    let place = place();
    let world = World::new(4, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join gather_pieces:0:1000000:read close".into());
    stage.wait_at([0], "reading");
    let files = payload_files(place.path());
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let header = fs::read(&file).expect("a payload");
        // The encoding of Python, as in docs/design/on-disk-format.md.
        assert_eq!(header[10], 32, "{}", file.display());
    }
    stage.go(0);
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}

#[test]
fn the_bound_of_one_call_holds_for_pieces_whatever_the_way() {
    for transport in ["filesys", "memory"] {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            let len = if rank == 1 { 100_001 } else { 100_000 };
            format!("join bounded_pieces:100000:100000 bounded_pieces:100000:{len} close")
        });
        let (error, _) = stage.fail_alike(everybody(3), 1);
        assert!(error.contains("rank 1"), "{error}");
        assert!(error.contains("100001"), "{error}");
        assert_nothing_left(place.path());
    }
}

#[test]
fn groups_and_barriers_with_options_work_as_those_without() {
    succeed(4, "group_with:3,1,0,2 split_with:2 barrier_with", &[]);
}

#[test]
fn messages_name_the_place_that_the_caller_gave() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        if rank == 0 {
            "join barrier_with close".into()
        } else {
            "join all_gather_pieces:10 close".to_string()
        }
    });
    let (error, _) = stage.fail_alike(everybody(2), crate::common::DESYNC);
    assert!(error.contains("barrier at script.py:7"), "{error}");
    assert!(error.contains("all_gather at script.py:7"), "{error}");
}

#[test]
fn a_root_with_nothing_to_broadcast_blocks_no_rank() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join rootless_broadcast:1 close".into());
    let (error, _) = stage.fail_alike(everybody(3), PEER_FAILED);
    assert!(error.contains("rank 1"), "{error}");
    assert!(error.contains("nothing to hand over"), "{error}");
}

#[test]
fn a_rank_leaving_with_a_reason_is_quoted_by_all_others() {
    for leaver in [0_usize, 2] {
        let place = place();
        let world = World::new(3, place.path());
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| {
            if rank as usize == leaver {
                "join at:leaving leave_with:OutOfMemoryError at:gone".into()
            } else {
                "join barrier close".to_string()
            }
        });
        stage.wait_at([leaver], "leaving");
        stage.go(leaver);
        stage.wait_at([leaver], "gone");
        let (error, _) = stage.fail_alike(others(3, leaver), PEER_FAILED);
        assert!(error.contains(&format!("rank {leaver}")), "{error}");
        assert!(error.contains("OutOfMemoryError"), "{error}");
        stage.go(leaver);
        stage.succeed([leaver]);
        assert_nothing_left(place.path());
    }
}

/// Makes the file that a rank checks for while it waits.
fn throw(asked: &Path) {
    fs::write(asked, "").expect("a place to write to");
}

#[test]
fn a_rank_that_asks_while_it_waits_ends_the_call_on_all_ranks() {
    let (place, aside) = (place(), place());
    let asked = aside.path().join("asked");
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        1 => format!("join_asking:{} barrier close", in_step(&asked)),
        _ => "join at:computing barrier close".to_string(),
    });
    stage.wait_at([0, 2], "computing");
    stage.wait_for_where(1, "the call", |line| line.starts_with("calls barrier"));
    throw(&asked);
    let end = stage.end(1);
    assert!(end.error().contains("KeyboardInterrupt"), "{end:?}");
    stage.go_all([0, 2]);
    let (error, _) = stage.fail_alike([0, 2], PEER_FAILED);
    assert!(
        error.contains("rank 1") && error.contains("KeyboardInterrupt"),
        "{error}"
    );
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_that_asks_while_it_reads_stops_reading() {
    for transport in ["filesys", "memory"] {
        let (place, aside) = (place(), place());
        let asked = aside.path().join("asked");
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| match rank {
            0 => format!(
                "join_asking:{} gather_pieces:0:5000000:read close",
                in_step(&asked)
            ),
            _ => "join gather_pieces:0:5000000 at:returned barrier close".to_string(),
        });
        stage.wait_at([0], "reading");
        stage.wait_at([1, 2], "returned");
        throw(&asked);
        // Enough time for the next check.
        stage.let_pass(Duration::from_millis(150));
        stage.go(0);
        let end = stage.end(0);
        assert!(end.error().contains("KeyboardInterrupt"), "{end:?}");
        stage.go_all([1, 2]);
        let (error, _) = stage.fail_alike([1, 2], PEER_FAILED);
        assert!(
            error.contains("rank 0") && error.contains("KeyboardInterrupt"),
            "{error}"
        );
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_rank_that_asks_while_it_meets_the_others_gives_up() {
    let (place, aside) = (place(), place());
    let asked = aside.path().join("asked");
    let world = World::new(2, place.path());
    for rank in [0, 1] {
        let mut stage = Stage::new();
        let script = format!("join_asking:{} close", in_step(&asked));
        stage.start(&mut world.rank(rank, &script));
        stage.let_pass(Duration::from_millis(300));
        throw(&asked);
        let end = stage.end(0);
        assert!(end.error().contains("KeyboardInterrupt"), "{end:?}");
        fs::remove_file(&asked).expect("it is there");
    }
    assert_nothing_left(place.path());
}

#[test]
fn the_time_out_of_one_call_holds_whatever_carries_messages() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(3, place.path())
            .with("FSGATHER_CONTROL", control)
            .with("FSGATHER_TIMEOUT", "1s");
        let mut stage = Stage::new();
        // Longer than the time-out of the world for the first call, shorter for the second.
        stage.start_all(&world, |rank| match rank {
            2 => "join at:late timed_barrier:60000 at:later".into(),
            _ => "join timed_barrier:60000 timed_barrier:300 close".to_string(),
        });
        stage.wait_at([2], "late");
        stage.let_pass(Duration::from_millis(1500));
        stage.go(2);
        stage.wait_at([2], "later");
        let (error, _) = stage.fail_alike([0, 1], crate::common::TIMED_OUT);
        assert!(
            error.contains("300 ms") && error.contains("rank 2"),
            "{error}"
        );
        stage.go(2);
        stage.succeed([2]);
    }
}

#[test]
fn a_time_out_of_nothing_is_refused() {
    let place = place();
    let world = World::new(1, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join timed_barrier:0".into());
    let (error, _) = stage.fail_alike([0], crate::common::CONFIG);
    assert!(error.contains("time-out of 0"), "{error}");
}
