//! Calls that succeed: every rank gets the contributions of all ranks, by every path, and nothing is left.

use crate::common::{Stage, World, assert_nothing_left, everybody, place};

/// Runs four ranks that take the same steps, and check all results.
fn four_ranks(steps: &str, variables: &[(&str, &str)]) {
    let place = place();
    let mut world = World::new(4, place.path());
    for (name, value) in variables {
        world = world.with(name, value);
    }
    let mut stage = Stage::new();
    stage.start_all(&world, |_| format!("join {steps} close"));
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}

/// Every call that delivers payloads of this length.
fn every_call(len: &str) -> String {
    format!(
        "all_gather_bytes:{len} all_gather:{len} all_gather_from:{len} \
         gather:0:{len} gather_bytes:3:{len} gather_from:2:{len} broadcast:1:{len}"
    )
}

#[test]
fn large_and_empty_payloads_arrive_whole_and_nothing_stays() {
    for transport in ["filesys", "memory"] {
        four_ranks(&every_call("300000*"), &[("FSGATHER_TRANSPORT", transport)]);
    }
}

#[test]
fn small_and_empty_payloads_arrive_with_the_control_messages() {
    let steps = [every_call("1000*"), every_call("0"), every_call("1")].join(" ");
    four_ranks(&steps, &[]);
}

#[test]
fn payloads_of_one_call_may_take_different_ways() {
    // With this limit rank 1 sends its payload along, and ranks 2 and 3 write files.
    four_ranks(&every_call("30000*"), &[("FSGATHER_INLINE_LIMIT", "32KiB")]);
}

#[test]
fn compressed_payloads_arrive_by_every_call_and_nothing_stays() {
    let variables = [
        ("FSGATHER_TRANSPORT", "filesys"),
        ("FSGATHER_COMPRESS", "zstd"),
    ];
    four_ranks(&every_call("400000*"), &variables);
}

#[test]
fn hundreds_of_calls_in_a_row_leave_nothing() {
    let steps = "all_gather_bytes:100 barrier gather_bytes:1:70000 ".repeat(100);
    four_ranks(&steps, &[]);
}

#[test]
fn others_return_from_a_gather_before_the_root_has_read() {
    let place = place();
    let world = World::new(4, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        "join gather_bytes:0:1000000:read at:returned barrier close".into()
    });
    stage.wait_at([0], "reading");
    // The root has stopped, before it has read three payloads.
    stage.wait_at([1, 2, 3], "returned");
    stage.go_all([1, 2, 3]);
    stage.go(0);
    stage.wait_at([0], "returned");
    stage.go(0);
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}
