//! Tests of gathers whose root gets parts as they come, and of deadlines.

use std::path::Path;

use crate::common::{
    End, PEER_FAILED, Stage, World, assert_nothing_left, everybody, name_of, place,
};
use rustix::process::Signal;

/// Longer than what travels with the messages.
const LEN: u32 = 300_000;

/// The ways by which large payloads travel.
const WAYS: [(&str, &str); 3] = [("filesys", "0"), ("memory", "0"), ("auto", "64MiB")];

fn world(ranks: u32, directory: &Path, (transport, shared): (&str, &str)) -> World {
    World::new(ranks, directory)
        .with("FSGATHER_TRANSPORT", transport)
        .with("FSGATHER_SHARED_MEMORY", shared)
}

/// What a process says after a word, in the order in which it does.
fn said<'a>(end: &'a End, word: &str) -> Vec<&'a str> {
    let lines = end.stdout.iter();
    lines.filter_map(|line| line.strip_prefix(word)).collect()
}

#[test]
fn each_part_comes_by_every_way_in_the_order_in_which_it_is_handed_in() {
    for way in WAYS {
        let place = place();
        let mut stage = Stage::new();
        stage.start_all(&world(3, place.path(), way), |rank| {
            let in_group =
                format!("group:2,0 completed:1:{LEN}:never partial:0:{LEN}:60000 close_group");
            let in_group = if rank == 1 { "" } else { &in_group };
            let world = format!("completed:0:{LEN}:never completed:2:10:never two_completed:{LEN}");
            format!("join at:go{rank} {world} {in_group} barrier close").replace("  ", " ")
        });
        stage.wait_at([0], "go0");
        stage.go(0);
        stage.go(2);
        stage.wait_for(0, "part 2");
        stage.go(1);
        let ends = stage.end_all(everybody(3));
        for end in &ends {
            assert_eq!(end.code, 0, "{way:?}\n{}", stage.transcript());
            assert!(
                said(end, "missing ")
                    .iter()
                    .all(|missing| *missing == "none")
            );
        }
        assert_eq!(said(&ends[0], "part ")[2], "1");
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_rank_killed_before_it_hands_in_is_named_after_the_parts_that_are_in() {
    for way in WAYS {
        assert_eq!(parts_before_a_loss(way), ["0", "1", "2"], "{way:?}");
    }
}

/// The parts that a root gets which looks at them once a rank was killed that was still to hand in.
fn parts_before_a_loss(way: (&str, &str)) -> Vec<String> {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&world(4, place.path(), way), |rank| match rank {
        0 => format!("join completed:0:{LEN}:never:each close"),
        3 => format!("join at:late completed:0:{LEN}:never close"),
        _ => format!("join completed:0:{LEN}:never close"),
    });
    stage.wait_at([3], "late");
    stage.wait_at([0], "part");
    stage.settle();
    stage.kill(3);
    let lost = name_of(3, stage.pid(3));
    // The others have it by now, or will; what they have handed in stays for the root.
    for rank in [1, 2] {
        stage.wait_for(rank, "kind: PeerFailed");
    }
    stage.end_input(0);
    let (error, ends) = stage.fail_alike([0, 1, 2], PEER_FAILED);
    assert!(error.starts_with(&lost), "{error}");
    assert_nothing_left(place.path());
    let mut parts: Vec<String> = said(&ends[0], "part ")
        .into_iter()
        .map(ToOwned::to_owned)
        .collect();
    parts.sort_unstable();
    parts
}

#[test]
fn a_part_that_went_with_its_owner_does_not_hide_those_after_it() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&world(4, place.path(), WAYS[1]), |rank| match rank {
        0 => format!("join completed:0:{LEN}:never:each close"),
        _ => format!("join at:go{rank} completed:0:{LEN}:never close"),
    });
    stage.wait_at([0], "part");
    for rank in [1, 2] {
        stage.wait_at([rank], &format!("go{rank}"));
        stage.go(rank);
        // It has handed in, and waits.
        stage.settle();
    }
    stage.wait_at([3], "go3");
    stage.kill(1);
    let lost = name_of(1, stage.pid(1));
    stage.wait_for(2, "kind: PeerFailed");
    stage.end_input(0);
    stage.go(3);
    let (error, ends) = stage.fail_alike([0, 2, 3], PEER_FAILED);
    assert!(error.starts_with(&lost), "{error}");
    assert_eq!(
        said(&ends[0], "part "),
        ["0", "2"],
        "{}",
        stage.transcript()
    );
}

#[test]
fn a_rank_killed_after_it_has_handed_in_fails_the_call() {
    for way in WAYS {
        let place = place();
        let mut stage = Stage::new();
        stage.start_all(&world(3, place.path(), way), |rank| match rank {
            2 => format!("join at:late completed:0:{LEN}:never close"),
            _ => format!("join completed:0:{LEN}:never close"),
        });
        stage.wait_at([2], "late");
        stage.wait_for(0, "part 0");
        stage.wait_for(0, "part 1");
        stage.kill(1);
        let lost = name_of(1, stage.pid(1));
        stage.wait_for_where(0, "its error", |line| line.starts_with("error: "));
        stage.go(2);
        let (error, _) = stage.fail_alike([0, 2], PEER_FAILED);
        assert!(error.starts_with(&lost), "{error}");
    }
}

#[test]
fn a_root_that_is_killed_half_way_or_gives_up_keeps_nobody() {
    for way in WAYS {
        let place = place();
        let mut stage = Stage::new();
        stage.start_all(&world(3, place.path(), way), |rank| match rank {
            1 => format!("join drop_completed:1:{LEN}:1 barrier completed:1:10:never:each close"),
            2 => {
                format!("join drop_completed:1:{LEN}:0 barrier at:late completed:1:10:never close")
            }
            _ => format!("join drop_completed:1:{LEN}:0 barrier completed:1:10:never close"),
        });
        stage.wait_at([2], "late");
        stage.wait_at([1], "part");
        stage.kill(1);
        let lost = name_of(1, stage.pid(1));
        stage.wait_for_where(0, "its error", |line| line.starts_with("error: "));
        stage.go(2);
        let (error, _) = stage.fail_alike([0, 2], PEER_FAILED);
        assert!(error.starts_with(&lost), "{error}");
    }
}

#[test]
fn at_the_deadline_all_are_told_who_is_missing_and_a_late_rank_goes_on() {
    for way in WAYS {
        let place = place();
        let mut stage = Stage::new();
        let calls = format!("completed:0:{LEN}:1500 partial:0:{LEN}:60000 completed:0:{LEN}:never");
        stage.start_all(&world(4, place.path(), way), |rank| match rank {
            0 | 1 => format!("join barrier {calls} close"),
            _ => format!("join barrier at:late {calls} close"),
        });
        stage.wait_at([2, 3], "late");
        stage.signal(3, Signal::STOP);
        for rank in [0, 1] {
            stage.wait_for(rank, "missing 2,3");
        }
        stage.go_all([2, 3]);
        stage.wait_for(2, "missing 2,3");
        stage.signal(3, Signal::CONT);
        stage.wait_for(3, "missing 2,3");
        let ends = stage.end_all(everybody(4));
        for end in &ends {
            assert_eq!(end.code, 0, "{way:?}\n{}", stage.transcript());
            assert_eq!(said(end, "missing "), ["2,3", "none", "none"]);
        }
        let names = said(&ends[1], "late ");
        for (told, rank) in names.iter().zip([2_u32, 3]) {
            assert!(
                told.starts_with(name_of(rank, stage.pid(rank as usize)).trim_end_matches(')')),
                "{told}"
            );
        }
        // With where they run and how long ago they were heard of, as they were known then.
        assert!(ends.iter().all(|end| said(end, "late ") == names));
        let parts = said(&ends[0], "part ");
        assert_eq!(parts.len(), 6, "{}", stage.transcript());
        assert_eq!(said(&ends[0], "parts "), ["0,1,2,3"]);
        assert_nothing_left(place.path());
    }
}

#[test]
fn who_is_missing_in_a_group_has_the_rank_that_it_has_there() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&world(3, place.path(), WAYS[0]), |rank| {
        let late = if rank == 1 { " at:late" } else { "" };
        format!(
            "join group:2,0,1 barrier{late} partial:0:10:500 completed:1:10:never close_group close"
        )
    });
    stage.wait_at([1], "late");
    for rank in [0, 2] {
        stage.wait_for(rank, "missing 2");
    }
    stage.go(1);
    let ends = stage.end_all(everybody(3));
    for end in &ends {
        assert_eq!(end.code, 0, "{}", stage.transcript());
        assert_eq!(said(end, "missing "), ["2", "none"]);
    }
    assert_eq!(said(&ends[2], "parts "), ["0,1"]);
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_that_is_lost_or_raises_is_an_error_before_a_deadline_and_after_it() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&world(3, place.path(), WAYS[0]), |rank| match rank {
        2 => "join at:late partial:0:10:60000".into(),
        _ => "join partial:0:10:60000 close".into(),
    });
    stage.wait_at([2], "late");
    stage.kill(2);
    let lost = name_of(2, stage.pid(2));
    let (error, _) = stage.fail_alike([0, 1], PEER_FAILED);
    assert!(error.starts_with(&lost), "{error}");

    let place = crate::common::place();
    let mut stage = Stage::new();
    stage.start_all(&world(3, place.path(), WAYS[0]), |rank| match rank {
        2 => "join barrier at:late encode_fails".into(),
        _ => "join barrier partial:0:10:1500 at:next barrier".into(),
    });
    stage.wait_at([2], "late");
    for rank in [0, 1] {
        stage.wait_for(rank, "missing 2");
        stage.wait_at([rank], "next");
    }
    stage.go(2);
    let failed = stage.end(2);
    assert_eq!(failed.code, PEER_FAILED, "{}", stage.transcript());
    stage.go_all([0, 1]);
    let (error, _) = stage.fail_alike([0, 1], PEER_FAILED);
    assert!(error.starts_with(&name_of(2, stage.pid(2))), "{error}");
}
