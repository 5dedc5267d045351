//! Errors name the file that a missing rank waits for.

use crate::common::{Stage, double_mount::DoubleMount};

#[test]
fn a_rank_whose_file_server_hangs_is_told_with_the_file() {
    let mount = DoubleMount::new();
    for control in ["tcp", "markers"] {
        let file = mount.directory().join("data.h5");
        std::fs::write(mount.behind().join("data.h5"), "data").expect("a file");
        mount.rules(2, "read data.h5 hang");
        let world = mount
            .world()
            .with("FSGATHER_TIMEOUT", "3s")
            .with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        let steps = format!("join barrier read:{} barrier", file.display());
        stage.start(&mut mount.rank(&world, 0, "join barrier barrier"));
        stage.start(&mut mount.rank(&world, 1, &steps));
        let end = stage.end(0);
        mount.rules(2, "");
        let late = stage.end(1);
        assert_eq!(late.error(), end.error(), "{}", stage.transcript());
        let told = format!("in read on {}", file.display());
        let mut lines = end.stderr.iter();
        assert!(
            lines.any(|line| line.starts_with("  rank 1: ") && line.contains(&told)),
            "{}",
            stage.transcript()
        );
    }
}
