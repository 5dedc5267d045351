//! Last calls of ranks whose directory is on a file server.

use std::path::PathBuf;

use crate::common::{
    Stage,
    double_mount::DoubleMount,
    everybody,
    tracing::{calls_in, document, said},
};

#[test]
fn calls_are_kept_on_this_host_and_copied_after_a_failure() {
    let mount = DoubleMount::new();
    let world = mount.world();
    let mut stage = Stage::new();
    for rank in 0..2 {
        let script = if rank == 1 {
            "join barrier at:here barrier"
        } else {
            "join barrier barrier"
        };
        stage.start(&mut mount.rank(&world, rank, script));
    }
    stage.wait_at([1], "here");
    assert_eq!(calls_in(&mount.behind()), [""; 0].map(PathBuf::from));
    let seen = document(&["ps", "--json"], &mount.directory());
    assert_eq!(seen["jobs"].as_array().map(Vec::len), Some(1), "{seen}");
    let directory = mount.directory();
    assert_eq!(
        seen["jobs"][0]["directory"],
        directory.to_str().expect("text")
    );
    stage.kill(1);
    stage.end_all(everybody(2));
    // Rank 0 has copied the calls of rank 1.
    let left = calls_in(&mount.behind());
    assert_eq!(left.len(), 2, "{left:?}\n{}", stage.transcript());
    let text = said(&["trace"], &mount.behind());
    assert!(
        text.contains("rank 1: ended after barrier #1 at "),
        "{text}"
    );
}
