//! Disks that are full or read-only: every rank reports that with the same words, and nothing is left.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{fs, io::ErrorKind};

use crate::common::{End, STORAGE, Stage, World, everybody, left_in, mounts::Mounted, place};

/// The common error of four ranks that see a file system made for the purpose; nothing new is left on it.
fn on_a_mount(options: &str, then: &str, step: &str) -> String {
    let mut errors = each_on_a_mount(options, then, step);
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors.swap_remove(0)
}

/// The errors of these ranks.
fn each_on_a_mount(options: &str, then: &str, step: &str) -> Vec<String> {
    let place = place();
    let mounted = Mounted::over(place.path(), options, then);
    let before = left_in(&mounted.directory());
    let mut stage = Stage::new();
    let world = World::new(4, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    for rank in 0..4 {
        stage.start(&mut mounted.rank(&world, rank, &format!("join {step} close")));
    }
    let ends = stage.end_all(everybody(4));
    let named = place.path().to_str().expect("text");
    for end in &ends {
        assert_eq!(end.code, STORAGE, "{}", stage.transcript());
        assert!(end.error().contains(named), "{}", stage.transcript());
    }
    assert_eq!(left_in(&mounted.directory()), before);
    ends.iter().map(|end| end.error().to_owned()).collect()
}

#[test]
fn a_read_only_file_system_is_refused_by_all() {
    let error = on_a_mount("ro", "true", "");
    assert!(error.contains("ead-only file system"), "{error}");
}

#[test]
fn a_disk_that_fills_up_fails_the_call_on_all() {
    let error = on_a_mount("size=1m", "true", "all_gather_bytes:600000");
    assert!(error.contains("o space left"), "{error}");
    // It names a rank and its activity.
    assert!(
        error.contains("rank ") && error.contains("all_gather #"),
        "{error}"
    );
}

#[test]
fn a_disk_that_fills_up_under_a_source_fails_the_call_on_all() {
    let error = on_a_mount("size=1m", "true", "all_gather_from:600000");
    assert!(error.contains("o space left"), "{error}");
}

#[test]
fn a_disk_that_is_full_is_refused_by_all() {
    let fill = "cat /dev/zero 2>/dev/null >filler; true";
    let error = on_a_mount("size=64k", fill, "all_gather_bytes:600000");
    assert!(error.contains("o space left"), "{error}");
}

#[test]
fn inodes_that_run_out_are_an_error_on_all() {
    // Few enough that several ranks may run out at the same moment, over marker files even while they meet: each reports its own error.
    let errors = each_on_a_mount("nr_inodes=6", "true", "all_gather_bytes:600000");
    for error in errors {
        assert!(error.contains("o space left"), "{error}");
    }
}

/// Runs a world over marker files that waits on a small disk of its own, while `happens` changes the disk; returns the ends of the ranks.
fn waiting_while(
    options: &str,
    happens: impl FnOnce(&Mounted),
) -> (Vec<End>, tempfile::TempDir, Mounted) {
    let place = place();
    let mounted = Mounted::over(place.path(), options, "true");
    let mut stage = Stage::new();
    let world = World::new(4, place.path()).with("FSGATHER_CONTROL", "markers");
    for rank in 0..4 {
        let script = "join all_gather_bytes:300000 at:ready all_gather_bytes:300000 close";
        stage.start(&mut mounted.rank(&world, rank, script));
    }
    stage.wait_at(everybody(4), "ready");
    happens(&mounted);
    stage.go_all(everybody(4));
    let ends = stage.end_all(everybody(4));
    for end in &ends {
        assert_eq!(end.code, STORAGE, "{}", stage.transcript());
    }
    (ends, place, mounted)
}

#[test]
fn running_out_of_inodes_over_markers_gives_one_error() {
    let use_up = |mounted: &Mounted| {
        let filler = |n: &u32| mounted.directory().join(format!("filler-{n}"));
        let made = (0..).take_while(|n| fs::write(filler(n), b"").is_ok());
        assert!(made.count() > 0);
    };
    let (ends, place, mounted) = waiting_while("size=16m,nr_inodes=90", use_up);
    let error = ends[0].error();
    assert!(error.contains("o space left"), "{error}");
    assert!(ends.iter().all(|end| end.error() == error), "{ends:?}");
    // The leftovers can be removed.
    let mut stage = Stage::new();
    let named = place.path().to_str().expect("text").to_owned();
    let world = World::new(1, place.path());
    stage.start(&mut mounted.tool(&world, 0, &["clean", &named, "--execute"]));
    stage.succeed([0]);
    let left = mounted.directory().join("all_gather_via_filesys");
    assert!(
        !left.exists(),
        "{:?}\n{}\n{ends:?}",
        left_in(&mounted.directory()),
        stage.transcript()
    );
}

#[expect(clippy::disallowed_methods, reason = "what an administrator does")]
#[test]
fn a_directory_removed_over_markers_fails_all_at_once() {
    let remove = |mounted: &Mounted| {
        let rendezvous = mounted.directory().join("all_gather_via_filesys");
        // Ranks continue to write into it until it is gone.
        while let Err(error) = fs::remove_dir_all(&rendezvous) {
            assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty, "{error}");
        }
    };
    waiting_while("size=16m", remove);
}
