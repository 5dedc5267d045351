//! Every kind of call by every way, on the world and on groups of all shapes: each rank gets what each rank of the
//! call has handed in, to the byte, and nothing stays.

use crate::common::{Stage, World, assert_nothing_left, everybody, place};

const RANKS: u32 = 4;

/// Which of world and groups takes a way first.
const ORDERS: [&str; 2] = ["world_first", "groups_first"];

/// What a job goes through: all kinds of calls by one way, or one kind by each.
const WAYS: [&str; 5] = ["default", "memory", "filesys", "directory", "each"];

/// All combinations, in a job for each order and way.
fn every_combination(orders: &[&str], variables: &[(&str, &str)]) {
    for (order, way) in orders.iter().flat_map(|order| WAYS.map(|way| (order, way))) {
        let place = place();
        let mut world = World::new(RANKS, place.path());
        for (name, value) in variables {
            world = world.with(name, value);
        }
        let mut stage = Stage::new();
        stage.start_all(&world, |_| format!("join routes:{order}:{way} close"));
        stage.succeed(everybody(RANKS));
        // Directories that calls have named are the program's own, and stay.
        for named in crate::common::left_in(place.path()) {
            assert_eq!(named.parent(), Some(place.path()), "{}", named.display());
            assert_nothing_left(&named);
        }
    }
}

#[test]
fn each_gets_what_each_has_handed_in_where_files_are_the_way() {
    every_combination(&ORDERS, &[]);
}

#[test]
fn each_gets_what_each_has_handed_in_where_memory_is_the_way() {
    every_combination(&ORDERS, &[("FSGATHER_TRANSPORT", "memory")]);
}

#[test]
fn each_gets_what_each_has_handed_in_where_rank_0_is_the_way() {
    // Without a network between ranks, memory leads through rank 0.
    every_combination(
        &ORDERS,
        &[
            ("FSGATHER_CONTROL", "markers"),
            ("FSGATHER_INLINE_LIMIT", "1KiB"),
        ],
    );
}

#[test]
fn each_gets_what_each_has_handed_in_where_it_is_compressed() {
    every_combination(
        &ORDERS[1..],
        &[("FSGATHER_COMPRESS", "lz4"), ("FSGATHER_INLINE_LIMIT", "0")],
    );
}

#[test]
fn each_gets_what_each_has_handed_in_where_it_travels_with_the_control_messages() {
    every_combination(&ORDERS[..1], &[("FSGATHER_INLINE_LIMIT", "1MiB")]);
}

#[test]
fn each_gets_what_each_has_handed_in_between_threads() {
    for way in WAYS {
        let place = place();
        let steps = format!("routes_in_threads:{RANKS}:{}:{way}", ORDERS[1]);
        let mut stage = Stage::new();
        stage.start(&mut World::new(1, place.path()).rank(0, &steps));
        stage.succeed([0]);
    }
}

#[test]
fn groups_of_a_world_that_sets_up_later_agree_on_where_payloads_go() {
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
        for named in crate::common::left_in(place.path()) {
            assert_nothing_left(&named);
        }
    }
}

/// Some members know from another group what it takes to connect, and the first member is not rank 0.
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
    // Nor do payloads go through rank 0, of which all would be warned.
    for end in stage.end_all(everybody(RANKS)) {
        assert_eq!(end.warnings(), [""; 0]);
    }
    assert_nothing_left(place.path());
}

#[test]
fn ranks_that_set_up_later_and_were_told_different_ways_take_that_of_rank_0() {
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
