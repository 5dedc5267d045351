//! Groups agree on the path of their payloads with any settings of their members, and with any other groups.

use crate::common::{Stage, World, assert_nothing_left, everybody, left_in, place};

const RANKS: u32 = 4;

#[test]
fn groups_of_a_late_set_up_world_agree_on_payload_paths() {
    let ways = [
        &[][..],
        &[("FSGATHER_TRANSPORT", "memory")],
        &[("FSGATHER_CONTROL", "markers")],
    ];
    for variables in ways {
        let place = place();
        let mut world = World::new(RANKS, place.path()).with("FSGATHER_INLINE_LIMIT", "1KiB");
        for (name, value) in variables {
            world = world.with(name, value);
        }
        let mut stage = Stage::new();
        stage.start_all(&world, |_| {
            "join_to_set_up_later numbered_groups close".into()
        });
        stage.succeed(everybody(RANKS));
        for named in left_in(place.path()) {
            assert_nothing_left(&named);
        }
    }
}

/// Some members know from another group how to connect, and the first member is not rank 0.
#[test]
fn a_group_without_rank_0_at_its_head_connects_like_any_other() {
    let place = place();
    let world = World::new(RANKS, place.path()).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        let calls = "all_gather_bytes:200000* close_group";
        let pair = if rank < 2 {
            format!("group:0,1 {calls}")
        } else {
            format!("group:3,2 {calls}")
        };
        format!("join_to_set_up_later {pair} group:2,1,0,3 {calls} close")
    });
    stage.succeed(everybody(RANKS));
    // Payloads do not go through rank 0 either, which would cause warnings.
    for end in stage.end_all(everybody(RANKS)) {
        assert_eq!(end.warnings(), [""; 0]);
    }
    assert_nothing_left(place.path());
}

#[test]
fn late_set_up_ranks_with_unlike_transports_use_rank_0s() {
    let place = place();
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        let told = if rank == 1 { "filesys" } else { "memory" };
        let world = World::new(RANKS, place.path()).with("FSGATHER_TRANSPORT", told);
        let steps = "join_to_set_up_later numbered_groups close";
        stage.start(&mut world.rank(rank, steps));
    }
    for (rank, end) in stage.end_all(everybody(RANKS)).iter().enumerate() {
        assert_eq!(end.code, 0, "{}", stage.transcript());
        let warning = "FSGATHER_TRANSPORT differs: rank 0 was told memory";
        let is_warned = end.stderr.iter().any(|line| line.contains(warning));
        assert_eq!(is_warned, rank == 1, "{}", stage.transcript());
    }
}
