//! Ranks with contradictory world sizes.

use crate::common::{RENDEZVOUS, Stage, World, assert_nothing_left, place, strangers::free_port};

#[test]
fn different_world_sizes_at_one_address_fail_at_once() {
    let place = place();
    let mut stage = Stage::new();
    let rendezvous = format!("tcp://127.0.0.1:{}", free_port());
    for (rank, ranks) in [(0, 3), (1, 4), (2, 3)] {
        let world = World::new(ranks, place.path()).with("FSGATHER_RENDEZVOUS", &rendezvous);
        stage.start(&mut world.rank(rank, "join close"));
    }
    let (error, _) = stage.fail_alike(0..3, RENDEZVOUS);
    for said in [
        "rank 1 (",
        &format!("pid {}) was told that there are 4 ranks, ", stage.pid(1)),
        &format!("pid {}) that there are 3;", stage.pid(0)),
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    assert_nothing_left(place.path());
}
