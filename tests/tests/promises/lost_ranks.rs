//! Ranks that are killed or fail: all others name them, and the directory can be used again at once.

use std::path::Path;

use crate::common::{
    OVER_MARKERS, PEER_FAILED, Stage, World, assert_nothing_left, everybody, left_in, name_of,
    others, payloads, place,
};

const RANKS: u32 = 4;

/// Asserts that all these ranks have ended with one error, which says that a rank was lost during `doing`.
fn all_name(stage: &mut Stage, survivors: &[usize], rank: u32, doing: &[&str]) {
    let (error, _) = stage.fail_alike(survivors.iter().copied(), PEER_FAILED);
    let name = name_of(rank, stage.pid(rank as usize));
    assert!(
        error.starts_with(&name) && error.contains("was lost"),
        "{error}, rather than {name} was lost"
    );
    assert!(doing.iter().any(|doing| error.contains(doing)), "{error}");
}

/// Asserts that these ranks have ended with an error that says that rank 0 was lost. Each names its own activity.
fn each_names_rank_0(stage: &mut Stage, survivors: &[usize]) {
    let name = name_of(0, stage.pid(0));
    for end in stage.end_all(survivors.iter().copied()) {
        assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
        let error = end.error();
        assert!(
            error.starts_with(&name) && error.contains("was lost"),
            "{error}, rather than {name} was lost"
        );
    }
}

/// Asserts that a new run in the same directory succeeds, and leaves nothing behind.
fn works_again(directory: &Path) {
    let before = left_in(directory);
    let mut stage = Stage::new();
    stage.start_all(&World::new(RANKS, directory), |_| {
        "join all_gather_bytes:100000 close".into()
    });
    stage.succeed(everybody(RANKS));
    for left in left_in(directory) {
        assert!(before.contains(&left), "{} is new", left.display());
    }
}

#[test]
fn a_rank_killed_while_others_still_join_is_named_by_all() {
    let place = place();
    // One rank is not started, so that the world cannot form.
    let world = World::new(RANKS, place.path());
    let mut stage = Stage::new();
    for rank in 0..RANKS - 1 {
        stage.start(&mut world.rank(rank, "join close"));
    }
    for rank in [1, 2] {
        stage.wait_until_taken_in(rank);
    }
    stage.kill(1);
    all_name(&mut stage, &[0, 2], 1, &["while joining"]);
    assert_nothing_left(place.path());
    works_again(place.path());
}

/// Starts a world in which one rank computes and all others wait for it.
fn while_one_computes(directory: &Path, one: u32) -> Stage {
    let mut stage = Stage::new();
    stage.start_all(&World::new(RANKS, directory), |rank| {
        let computes = if rank == one { "at:computing" } else { "" };
        format!("join barrier {computes} barrier close")
    });
    stage.wait_at([one as usize], "computing");
    for rank in others(RANKS, one as usize) {
        stage.wait_for(rank, "done barrier");
    }
    stage
}

#[test]
fn a_rank_killed_while_it_computes_is_named_by_all() {
    let place = place();
    let mut stage = while_one_computes(place.path(), 3);
    stage.kill(3);
    let doing = ["while computing after barrier #"];
    all_name(&mut stage, &others(RANKS, 3), 3, &doing);
    assert_nothing_left(place.path());
    works_again(place.path());
}

#[test]
fn rank_0_killed_while_it_computes_is_named_by_all() {
    let place = place();
    let mut stage = while_one_computes(place.path(), 0);
    stage.kill(0);
    each_names_rank_0(&mut stage, &others(RANKS, 0));
    works_again(place.path());
}

/// The end of a process may be noticed over marker files before its last message is read.
const BEFORE_ITS_CALL: &str = if OVER_MARKERS {
    "while computing after set-up at "
} else {
    "while publishing its payload in all_gather #"
};

#[test]
fn a_rank_killed_while_it_publishes_is_named_by_all() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(RANKS, place.path()), |rank| {
        let half = if rank == 3 { ":half" } else { "" };
        format!("join all_gather_from:4000000{half} close")
    });
    stage.wait_at([3], "publishing");
    stage.settle();
    stage.kill(3);
    let doing = [
        "while publishing its payload in all_gather #",
        BEFORE_ITS_CALL,
    ];
    all_name(&mut stage, &others(RANKS, 3), 3, &doing);
    assert_nothing_left(place.path());
    works_again(place.path());
}

#[test]
fn a_rank_killed_after_it_has_contributed_is_named_by_all() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(RANKS, place.path()), |rank| {
        let late = if rank == 3 { "at:late" } else { "" };
        format!("join {late} all_gather_bytes:100000 close")
    });
    stage.wait_at([3], "late");
    stage.wait_until("three payloads", || payloads(place.path()) == 3);
    stage.settle();
    stage.kill(1);
    let doing = [
        "while waiting for the others in all_gather #",
        BEFORE_ITS_CALL,
    ];
    all_name(&mut stage, &[0, 2], 1, &doing);
    stage.go(3);
    all_name(&mut stage, &[0, 2, 3], 1, &doing);
    assert_nothing_left(place.path());
}

/// Rank 2 of three fails in this step of its second call, and ends with this code.
fn fails_by_itself(step: &str, message: &str, code: i32) {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |rank| {
        let step = if rank == 2 {
            step
        } else {
            "all_gather_bytes:10"
        };
        format!("join all_gather_bytes:10 {step} close")
    });
    let (error, _) = stage.fail_alike([0, 1], PEER_FAILED);
    assert!(error.starts_with(&name_of(2, stage.pid(2))), "{error}");
    assert!(error.contains(message), "{error}");
    let own = stage.end(2);
    assert_eq!(own.code, code, "{}", stage.transcript());
    assert!(own.error() == error || code != PEER_FAILED, "{own:?}");
    assert_nothing_left(place.path());
}

#[test]
fn a_panic_while_a_value_is_encoded_is_told_to_all() {
    const PANICKED: i32 = 101;
    fails_by_itself("encode_panics", "failed (it panicked)", PANICKED);
}

#[test]
fn a_value_that_cannot_be_encoded_is_told_to_all() {
    fails_by_itself("encode_fails", "Awkward cannot be encoded", PEER_FAILED);
}
