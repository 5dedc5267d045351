//! Directories without space that no setting has named: payloads take another path, and one rank warns.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::common::{
    Stage, World, assert_nothing_left, everybody, left_in, mounts::Mounted, payload_files, place,
    strangers::store,
};

const RANKS: u32 = 3;

/// A world without a named directory.
fn unnamed() -> World {
    World::new(RANKS, Path::new("")).with("FSGATHER_LOCAL_WORLD_SIZE", &RANKS.to_string())
}

const CALLS: &str = "all_gather_bytes:300000 gather:1:300000 all_gather:200000 barrier close";

/// Runs a world with such a file system in the place of the default directory; returns its warnings, and the contents of its working
/// directory afterwards.
fn with_default(options: &str, join: &str) -> (Vec<String>, Vec<PathBuf>) {
    let default = fsgather::bindings::local_directory().expect("a default directory");
    let mounted = Mounted::over(&default, options, "true");
    let work = place();
    // The same process starts other jobs of this kind at the same time.
    let world = unnamed().with("FSGATHER_JOB", &work.path().to_string_lossy());
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        let script = format!("{join} {CALLS}");
        stage.start(&mut mounted.rank_at(work.path(), &world, rank, &script));
    }
    stage.succeed(everybody(RANKS));
    let ends = stage.end_all(everybody(RANKS));
    let warnings = ends.iter().flat_map(crate::common::End::warnings);
    let warnings = warnings.map(str::to_owned).collect();
    (warnings, left_in(work.path()))
}

#[test]
fn introduced_ranks_skip_a_read_only_default_directory() {
    let join = format!("introduce:store:{}", store());
    let (warnings, left) = with_default("ro,mode=0700", &join);
    let [warning] = &warnings[..] else {
        panic!("one warning: {warnings:?}");
    };
    for said in ["/tmp/fsgather-", "ead-only file system", "through memory"] {
        assert!(warning.contains(said), "{said}: {warning}");
    }
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn ranks_do_without_a_default_directory_that_is_open_to_others() {
    for join in [format!("introduce:store:{}", store()), "join".into()] {
        let (warnings, left) = with_default("mode=0755", &join);
        let [warning] = &warnings[..] else {
            panic!("one warning: {warnings:?}");
        };
        for said in ["others may use it (mode 755)", "through memory"] {
            assert!(warning.contains(said), "{said}: {warning}");
        }
        // They may have met in the working directory, but have left nothing else.
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_default_directory_without_room_is_done_without() {
    let join = format!("introduce:store:{}", store());
    let (warnings, left) = with_default("size=8k,nr_inodes=3,mode=0700", &join);
    let [warning] = &warnings[..] else {
        panic!("one warning: {warnings:?}");
    };
    assert!(warning.contains("o space left"), "{warning}");
    assert!(left.is_empty(), "{left:?}");
}

/// Runs calls of ranks in a directory that is too small for them; returns their warnings.
fn in_little_room(calls: &str) -> Vec<String> {
    let place = place();
    let mounted = Mounted::over(place.path(), "size=4m", "true");
    let world = World::new(RANKS, place.path());
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        stage.start(&mut mounted.rank(&world, rank, &format!("join {calls} close")));
    }
    stage.succeed(everybody(RANKS));
    assert_nothing_left(&mounted.directory());
    let ends = stage.end_all(everybody(RANKS));
    let warnings = ends.iter().flat_map(crate::common::End::warnings);
    warnings.map(str::to_owned).collect()
}

#[test]
fn payloads_that_do_not_fit_go_through_memory_with_one_warning() {
    // Bytes, encoded values, a stream, several pieces; from the second time on, the lack of space is known.
    for call in [
        "all_gather_bytes:3000000",
        "all_gather:3000000",
        "all_gather_from:3000000",
        "all_gather_pieces:3000000",
        "gather:0:3000000",
        "gather_from:0:3000000",
        "broadcast:0:5000000",
    ] {
        let warnings = in_little_room(&format!("{call} {call}"));
        let [warning] = &warnings[..] else {
            panic!("one warning in {call}: {warnings:?}");
        };
        for said in ["rank ", "o space left", "through memory", "FSGATHER_DIR"] {
            assert!(warning.contains(said), "{said} in {call}: {warning}");
        }
    }
}

#[test]
fn a_long_stream_that_grows_in_memory_is_told_of_where_it_grows() {
    let warnings = in_little_room("gather_from:1:20000000");
    let told = warnings.iter().filter(|warning| {
        let grows = "holds what it hands in bit by bit in memory, ";
        warning.contains(grows) && warning.contains("o space left")
    });
    assert_eq!(told.count(), RANKS as usize, "{warnings:?}");
}

#[test]
fn payloads_without_room_go_through_memory_beside_files() {
    let calls =
        "all_gather_bytes:900000* all_gather_bytes:300000 gather:2:900000* start_pieces:2:900000";
    let warnings = in_little_room(&format!("{calls} {calls}"));
    assert!(warnings.len() <= 2, "{warnings:?}");
}

#[test]
fn a_directory_that_has_room_again_is_used_again() {
    let place = place();
    let mounted = Mounted::over(place.path(), "size=4m", "true");
    let filler = mounted.directory().join("filler");
    fs::write(&filler, vec![1; 3_600_000]).expect("room");
    let world = World::new(2, place.path());
    let mut stage = Stage::new();
    for rank in 0..2 {
        let script = "join gather_bytes:0:900000 at:full gather_bytes:0:900000:read close";
        stage.start(&mut mounted.rank(&world, rank, script));
    }
    stage.wait_at(everybody(2), "full");
    fs::remove_file(&filler).expect("the filler");
    stage.go_all(everybody(2));
    stage.wait_at([0], "reading");
    assert!(!payload_files(&mounted.directory()).is_empty());
    stage.go(0);
    stage.succeed(everybody(2));
    assert_nothing_left(&mounted.directory());
}
