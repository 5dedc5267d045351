//! What was decided can be read until its readers are done or dead, whatever the others do meanwhile.

mod common;

use common::{PEER_FAILED, Stage, World, name_of, place};

#[test]
fn a_loss_after_the_verdict_does_not_disturb_those_who_still_read() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join start_all_gather:300000 wait:0 barrier".into(),
        1 => "join start_all_gather:300000 at:late wait:0 at:read barrier".into(),
        _ => "join start_all_gather:300000 wait:0 at:done barrier".into(),
    });
    stage.wait_at([1], "late");
    stage.wait_at([2], "done");
    stage.kill(2);
    let lost = name_of(2, stage.pid(2));
    let (error, _) = stage.fail_alike([0], PEER_FAILED);
    assert!(error.starts_with(&lost), "{error}");
    // It knows by now, or will while it reads; what rank 2 has published is there.
    stage.go(1);
    stage.wait_at([1], "read");
    stage.go(1);
    let (error, _) = stage.fail_alike([1], PEER_FAILED);
    assert!(error.starts_with(&lost), "{error}");
}
