//! Payload files as they are on disk, and the memory that a gather needs.

use crate::common::{Stage, World, assert_nothing_left, everybody, name_of, payload_files, place};

#[test]
fn the_setting_for_compression_reaches_the_payload_files() {
    let place = place();
    let world = World::new(4, place.path()).with("FSGATHER_COMPRESS", "zstd");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join gather_bytes:0:1000000:read close".into());
    stage.wait_at([0], "reading");
    let files = payload_files(place.path());
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let header = std::fs::read(&file).expect("a payload");
        // The compression, as in docs/design/on-disk-format.md.
        assert_eq!(header[11], 2, "{}", file.display());
    }
    stage.go(0);
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}

#[test]
fn ranks_warn_once_that_links_do_not_compress() {
    let place = place();
    let world = World::new(2, place.path())
        .with("FSGATHER_COMPRESS", "zstd")
        .with("FSGATHER_TRANSPORT", "memory");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        "join all_gather_bytes:3000000 gather_bytes:1:3000000 all_gather_bytes:3000000 close".into()
    });
    for (rank, end) in stage.end_all(everybody(2)).into_iter().enumerate() {
        assert_eq!(end.code, 0, "{}", stage.transcript());
        let name = name_of(u32::try_from(rank).expect("a rank"), stage.pid(rank));
        let warning = format!("{name} sends payloads by TCP");
        let warnings = end.stderr.iter().filter(|line| line.contains(&warning));
        assert_eq!(warnings.count(), 1, "{}", stage.transcript());
    }
}

#[test]
fn the_root_of_a_gather_holds_one_payload_at_a_time() {
    const MIB: u64 = 1 << 20;
    const PAYLOAD: u64 = 64 * MIB;
    let place = place();
    // Rank 0 sends nothing, and the four others do.
    let world = World::new(5, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        format!("join gather_from:0:{PAYLOAD}- peak close")
    });
    let ends = stage.end_all(everybody(5));
    stage.succeed(everybody(5));
    let peaks = ends.iter().map(|end| {
        let mut lines = end.stdout.iter();
        let peak = lines.find_map(|line| line.strip_prefix("peak "));
        peak.and_then(|kib| kib.parse::<u64>().ok())
            .expect("a peak")
            * 1024
    });
    let peaks: Vec<u64> = peaks.collect();
    let bound = PAYLOAD + 32 * MIB;
    assert!(peaks[0] < bound, "the root had {} bytes", peaks[0]);
    // Ranks that only send use much less memory than their payload.
    for peak in &peaks[1..] {
        assert!(*peak < 32 * MIB, "a rank had {peak} bytes");
    }
    assert_nothing_left(place.path());
}
