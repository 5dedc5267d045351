//! Tests which payload files have checksums, and which damage is noticed with and without them.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail with it"
)]

use std::{fs, os::unix::fs::FileExt, path::Path};

use crate::common::{CORRUPT, Stage, World, assert_nothing_left, everybody, payload_files, place};
use fsgather_store::FileSystem;

/// The position in a payload file of the mark for checksums: 0 if it has them.
const CHECKSUMS: usize = 60;

/// All payloads except rank 0's are in files, and rank 0 waits before it reads them.
const STEPS: &str = "join gather_bytes:0:1500000:read close";

/// Starts three ranks of one host with a setting each, until rank 0 is about to read.
fn started(directory: &Path, settings: [&str; 3]) -> Stage {
    let mut stage = Stage::new();
    for (rank, verify) in (0..).zip(settings) {
        let world = World::new(3, directory)
            .with("FSGATHER_TRANSPORT", "filesys")
            .with("FSGATHER_VERIFY", verify);
        stage.start(&mut world.rank(rank, STEPS));
    }
    stage.wait_at([0], "reading");
    stage
}

/// The payload file of a rank.
fn payload_of(rank: u32, directory: &Path) -> std::path::PathBuf {
    let name = format!("-r{rank:05}-");
    let mut files = payload_files(directory).into_iter();
    let found = files.find(|path| path.to_string_lossy().contains(&name));
    found.expect("a payload of that rank")
}

#[test]
fn payload_files_of_one_host_have_checksums_if_any_rank_asks() {
    for (settings, are_asked_for) in [
        (["", "off", "host"], false),
        (["host", "off", "always"], true),
    ] {
        let place = place();
        let is_of_this_host = FileSystem::of(place.path()).is_ok_and(|kind| kind.is_mappable());
        let expected = u8::from(is_of_this_host && !are_asked_for);
        let mut stage = started(place.path(), settings);
        for rank in 1..3 {
            let file = fs::read(payload_of(rank, place.path())).expect("a payload");
            assert_eq!(file[CHECKSUMS], expected, "{settings:?}");
        }
        // Rank 0 reads one payload after the other.
        stage.go(0);
        stage.go(0);
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn on_one_host_a_foreign_or_truncated_file_is_refused() {
    let replace = |directory: &Path| {
        fs::copy(payload_of(2, directory), payload_of(1, directory)).expect("a payload");
    };
    let cut = |directory: &Path| {
        let file = fs::File::options()
            .write(true)
            .open(payload_of(1, directory));
        file.and_then(|file| file.set_len(1_000_000))
            .expect("a payload");
    };
    for (harm, expected) in [
        (&replace as &dyn Fn(&Path), "its name is"),
        (&cut, "its length is"),
    ] {
        let place = place();
        let mut stage = started(place.path(), ["host"; 3]);
        harm(place.path());
        stage.go(0);
        let end = stage.end(0);
        assert_eq!(end.code, CORRUPT, "{}", stage.transcript());
        assert!(end.error().contains(expected), "{}", end.error());
    }
}

#[test]
fn a_changed_byte_is_found_where_all_is_to_be_verified() {
    let place = place();
    let mut stage = started(place.path(), ["host", "host", "always"]);
    let file = fs::File::options()
        .write(true)
        .open(payload_of(1, place.path()));
    let file = file.expect("a payload");
    let mut byte = [0];
    fs::File::open(payload_of(1, place.path()))
        .and_then(|file| file.read_exact_at(&mut byte, 1_200_000))
        .expect("a payload");
    file.write_all_at(&[byte[0] ^ 4], 1_200_000)
        .expect("a payload");
    stage.go(0);
    let end = stage.end(0);
    assert_eq!(end.code, CORRUPT, "{}", stage.transcript());
    assert!(end.error().contains("chunk 1 of 2"), "{}", end.error());
}
