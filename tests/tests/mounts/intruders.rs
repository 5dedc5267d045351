//! Tests that jobs with encryption write nothing into files that others transfer between hosts.

use crate::common::{CONFIG, Stage, double_mount::DoubleMount, everybody};

#[test]
fn encryption_keeps_a_job_from_unencrypted_shared_files() {
    let mounts = DoubleMount::new();
    let world = mounts.world().with("FSGATHER_ENCRYPT", "1");
    // Marker files, by request.
    let markers = world.clone().with("FSGATHER_CONTROL", "markers");
    // Payload files, by request.
    let files = world
        .clone()
        .with("FSGATHER_TRANSPORT", "filesys")
        .with("FSGATHER_CONTROL", "tcp");
    for (world, code) in [(markers, CONFIG), (files, CONFIG)] {
        let mut stage = Stage::new();
        for rank in 0..2 {
            stage.start(&mut mounts.rank(&world, rank, "join all_gather_bytes:1000000 close"));
        }
        for end in stage.end_all(everybody(2)) {
            assert!(end.error().contains("FSGATHER_ENCRYPT=1"), "{end:?}");
            assert_eq!(end.code, code, "{}", stage.transcript());
        }
    }
    // By default, payloads take the path that is encrypted.
    let world = world.with("FSGATHER_TRANSPORT", "auto");
    let mut stage = Stage::new();
    for rank in 0..2 {
        stage.start(&mut mounts.rank(&world, rank, "join all_gather_bytes:1000000 close"));
    }
    stage.succeed(everybody(2));
    let warnings = stage.end(0).warnings().join("\n");
    assert!(warnings.contains("FSGATHER_ENCRYPT=1"), "{warnings}");
    assert!(warnings.contains("through memory"), "{warnings}");
}
