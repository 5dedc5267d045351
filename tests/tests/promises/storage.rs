//! Directories and disks that cannot be used: every rank reports that with the same words, and nothing is left.

use std::process::Command;

use crate::common::{STORAGE, Stage, World, assert_nothing_left, build, everybody, place};

#[test]
fn a_directory_that_is_not_there_is_refused_by_all() {
    let place = place();
    let directory = place.path().join("nowhere");
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, &directory), |_| "join close".into());
    let (error, _) = stage.fail_alike(everybody(3), STORAGE);
    for said in [
        directory.to_str().expect("text"),
        "o such file or directory",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    assert_nothing_left(place.path());
}

/// A limit to the length of files stands in for a full disk, which only root can make.
#[test]
fn a_payload_that_cannot_be_written_fails_the_call_on_all() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    for rank in 0..3 {
        let script = "join all_gather_bytes:600000 close";
        if rank == 1 {
            let mut limited = Command::new("sh");
            limited.args(["-c", "ulimit -f 400; exec \"$0\" \"$@\""]);
            limited.arg(build::rank_program());
            stage.start(&mut world.set_up(limited, rank, script));
        } else {
            stage.start(&mut world.rank(rank, script));
        }
    }
    let (error, _) = stage.fail_alike(everybody(3), STORAGE);
    for said in [
        place.path().to_str().expect("text"),
        "rank 1 on",
        "all_gather #",
        "see `ulimit -f`",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    assert_nothing_left(place.path());
}
