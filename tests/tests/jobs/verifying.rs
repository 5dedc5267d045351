//! Tests which payload files have checksums, and what is noticed of them either way.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail with it"
)]

use std::{fs, os::unix::fs::FileExt, path::Path};

use crate::common::{
    CORRUPT, Stage, World, assert_nothing_left, everybody, mounts::say, payload_files, place,
};
use fsgather_store::FileSystem;

/// Where a payload file says whether it has checksums: 0 if so.
const CHECKSUMS: usize = 60;

/// All payloads but rank 0's lie in files, and rank 0 waits before it reads them.
const STEPS: &str = "join gather_bytes:0:1500000:read close";

/// Four ranks of one host, each told what to verify.
fn started(directory: &Path, told: [&str; 4]) -> Stage {
    let mut stage = Stage::new();
    for (rank, verify) in (0..).zip(told) {
        let world = World::new(4, directory)
            .with("FSGATHER_TRANSPORT", "filesys")
            .with("FSGATHER_VERIFY", verify);
        stage.start(&mut world.rank(rank, STEPS));
    }
    stage.wait_at([0], "reading");
    stage
}

/// Lets rank 0 read the others' payloads, one after the other.
fn let_read(stage: &mut Stage) {
    for _ in 0..3 {
        stage.go(0);
    }
}

/// The payload file of a rank.
fn payload_of(rank: u32, directory: &Path) -> std::path::PathBuf {
    let name = format!("-r{rank:05}-");
    let mut files = payload_files(directory).into_iter();
    let found = files.find(|path| path.to_string_lossy().contains(&name));
    found.expect("a payload of that rank")
}

fn is_of_this_host(directory: &Path) -> bool {
    let is_so = FileSystem::of(directory).is_ok_and(|kind| kind.is_mappable());
    if !is_so {
        say("skipped: the temporary directory is not on a file system of this host");
    }
    is_so
}

#[test]
fn on_one_host_payload_files_have_checksums_if_any_rank_asks_for_them() {
    for (told, expected) in [
        (["host"; 4], 1),
        (["", "off", "host", ""], 1),
        (["off"; 4], 1),
        (["always", "host", "off", "host"], 0),
        (["host", "host", "off", "always"], 0),
    ] {
        let place = place();
        if !is_of_this_host(place.path()) {
            return;
        }
        let mut stage = started(place.path(), told);
        for rank in 1..4 {
            let file = fs::read(payload_of(rank, place.path())).expect("a payload");
            assert_eq!(file[CHECKSUMS], expected, "{told:?}");
        }
        let_read(&mut stage);
        stage.succeed(everybody(4));
        assert_nothing_left(place.path());
    }
}

#[test]
fn on_one_host_the_file_of_another_rank_or_a_part_of_one_is_refused() {
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
        let mut stage = started(place.path(), ["host"; 4]);
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
    let mut stage = started(place.path(), ["host", "host", "always", "host"]);
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
