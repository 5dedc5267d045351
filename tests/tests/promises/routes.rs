//! Every kind of call with every transport, on the world and on groups of all shapes: each rank gets the exact data of each rank of the
//! call, and nothing is left.

use fsgather_testkit::pace::cases;

use crate::common::{Stage, World, assert_nothing_left, everybody, left_in, place};

const RANKS: u32 = 4;

/// The first to make a call with a transport: the world or groups.
const ORDERS: [&str; 2] = ["groups_first", "world_first"];

/// Calls of a job: one kind with each transport, or all kinds with one transport.
const WAYS: [&str; 5] = ["each", "default", "memory", "filesys", "directory"];

/// Runs a job for each of these orders and transports.
fn every_combination(orders: &[&str], variables: &[(&str, &str)]) {
    let (orders, ways) = (&orders[..cases(1, orders.len())], &WAYS[..cases(1, 5)]);
    for (order, way) in orders
        .iter()
        .flat_map(|order| ways.iter().map(move |way| (order, way)))
    {
        let place = place();
        let mut world = World::new(RANKS, place.path());
        for (name, value) in variables {
            world = world.with(name, value);
        }
        let mut stage = Stage::new();
        stage.start_all(&world, |_| format!("join routes:{order}:{way} close"));
        stage.succeed(everybody(RANKS));
        // Directories that calls have named belong to the program, and stay.
        for named in left_in(place.path()) {
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
    // Without a network between ranks, payloads in memory go through rank 0.
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
        &ORDERS[..1],
        &[
            ("FSGATHER_COMPRESS", "zstd"),
            ("FSGATHER_INLINE_LIMIT", "0"),
        ],
    );
}

#[test]
fn each_gets_what_each_has_handed_in_if_sent_inline() {
    every_combination(&ORDERS[..1], &[("FSGATHER_INLINE_LIMIT", "1MiB")]);
}

#[test]
fn each_gets_what_each_has_handed_in_between_threads() {
    for way in &WAYS[..cases(1, 5)] {
        let place = place();
        let steps = format!("routes_in_threads:{RANKS}:{}:{way}", ORDERS[0]);
        let mut stage = Stage::new();
        stage.start(&mut World::new(1, place.path()).rank(0, &steps));
        stage.succeed([0]);
    }
}
