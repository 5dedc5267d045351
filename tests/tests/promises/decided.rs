//! Results of decided calls: they can be read until their readers are done or dead, although other ranks fail, die, or end without `close`.

use crate::common::{
    OVER_MARKERS, PEER_FAILED, Stage, World, assert_nothing_left, everybody, name_of, place,
};

/// The transports of payloads for which a process has to stay. Over marker files, payloads in memory go through rank 0, and no rank
/// keeps any.
const BY_FILES_OR_MEMORY: &[&str] = if OVER_MARKERS {
    &["filesys"]
} else {
    &["filesys", "memory"]
};

#[test]
fn a_loss_after_the_verdict_does_not_disturb_readers() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join start_all_gather:300000 wait:0 barrier".into(),
        1 => "join start_all_gather:300000 at:late wait:0 at:read barrier".into(),
        _ => "join start_all_gather:300000 wait:0 at:done barrier".into(),
    });
    stage.wait_at([1], "late");
    stage.wait_at([2], "done");
    stage.kill(2);
    let lost = name_of(2, stage.pid(2));
    // Rank 1 knows that now; what rank 2 has published is still there.
    stage.settle();
    stage.go(1);
    stage.wait_at([1], "read");
    stage.go(1);
    let (error, _) = stage.fail_alike([0, 1], PEER_FAILED);
    assert!(error.starts_with(&lost), "{error}");
    assert_nothing_left(place.path());
}

/// Starts three ranks, of which rank 1 reads the payloads late; the others end without a close.
fn with_a_late_reader(transport: &str, directory: &std::path::Path) -> Stage {
    let world = World::new(3, directory).with("FSGATHER_TRANSPORT", transport);
    let calls = "join start_gather:1:300000 start_all_gather:300000 barrier";
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => format!("{calls} abandon:0 wait:1 drop"),
        1 => format!("{calls} at:late wait:1 wait:0 drop"),
        _ => format!("{calls} wait:0 wait:1 drop"),
    });
    stage.wait_at([1], "late");
    for rank in [0, 2] {
        stage.wait_for(rank, "done wait:1");
    }
    stage.settle();
    stage
}

#[test]
fn a_rank_that_ends_without_close_stays_until_others_have_read() {
    for transport in BY_FILES_OR_MEMORY {
        let place = place();
        let mut stage = with_a_late_reader(transport, place.path());
        assert!(stage.runs(0), "{}", stage.transcript());
        // With files the others need not stay; only rank 0 stays.
        assert_eq!(stage.runs(2), *transport == "memory");
        stage.go(1);
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_dead_reader_keeps_nobody() {
    for transport in BY_FILES_OR_MEMORY {
        let place = place();
        let mut stage = with_a_late_reader(transport, place.path());
        stage.kill(1);
        stage.succeed([0, 2]);
        assert_nothing_left(place.path());
    }
}
