//! Ranks of one host that share memory: their results are right, stay right, need no file, and take another path where necessary.

use crate::common::{
    Stage, World, assert_nothing_left, everybody, others, payloads, place,
    shared_memory::{LEN, arenas_of, calls, every_kind_of_call},
};

#[test]
fn parts_kept_from_an_abandoned_gather_do_not_change() {
    let place = place();
    let world = World::new(3, place.path()).sharing_memory();
    let mut stage = Stage::new();
    let others = calls(6, LEN);
    stage.start_all(&world, |_| {
        let some = |job: u32| format!("job:{job} keep_some:0:{LEN}:2 barrier {}", calls(1, LEN));
        let some: Vec<String> = (60..66).map(some).collect();
        format!(
            "join {others} {} right {others} right close",
            some.join(" ")
        )
    });
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn more_than_there_is_room_for_goes_another_way() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_SHARED_MEMORY", "1MiB");
    let mut stage = Stage::new();
    let each = |job| format!("job:{job} keep:{LEN}");
    let keeping = (1..=8).map(each).collect::<Vec<_>>().join(" ");
    stage.start_all(&world, |_| {
        format!(
            "join {keeping} right at:kept let_go {} close",
            calls(5, LEN)
        )
    });
    stage.wait_at(everybody(3), "kept");
    // Three slots hold the payloads from the third call on.
    assert!(payloads(place.path()) <= 3 * 5, "{}", stage.transcript());
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn every_kind_of_call_is_right_again_and_again() {
    let place = place();
    let world = World::new(5, place.path()).sharing_memory();
    let mut stage = Stage::new();
    stage.start_all(&world, |_| format!("join {} close", every_kind_of_call()));
    stage.succeed(everybody(5));
    assert_nothing_left(place.path());
}

#[test]
fn calls_that_are_given_up_free_their_places() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_SHARED_MEMORY", "1MiB");
    let mut stage = Stage::new();
    let each = |number| format!("start_all_gather:{LEN} abandon:{number} barrier");
    let given_up = (0..12).map(each).collect::<Vec<_>>().join(" ");
    stage.start_all(&world, |_| {
        format!(
            "join {} {given_up} at:end keep:{LEN} at:kept right close",
            calls(3, LEN)
        )
    });
    stage.wait_at(everybody(3), "end");
    stage.wait_until("no file is left", || payloads(place.path()) == 0);
    stage.go_all(everybody(3));
    stage.wait_at(everybody(3), "kept");
    assert_eq!(payloads(place.path()), 0, "there is room for it");
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_that_is_killed_gives_its_leases_back() {
    let place = place();
    let world = World::new(4, place.path()).with("FSGATHER_SHARED_MEMORY", "1MiB");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        let before = format!("join {} keep:{LEN} at:all", calls(3, LEN));
        match rank {
            3 => before,
            _ => format!(
                "join {} keep:{LEN} group:0,1,2 {} at:all let_go {} keep:{LEN} at:kept right drop",
                calls(3, LEN),
                calls(3, LEN),
                calls(4, LEN)
            )
            .replacen(" group:0,1,2", " at:three group:0,1,2", 1),
        }
    });
    stage.wait_at(0..3, "three");
    stage.wait_at([3], "all");
    stage.kill(3);
    stage.go_all(0..3);
    stage.wait_at(0..3, "all");
    stage.wait_until("no file is left", || payloads(place.path()) == 0);
    stage.go_all(0..3);
    stage.wait_at(0..3, "kept");
    assert_eq!(payloads(place.path()), 0, "there is room for it");
    stage.go_all(0..3);
    for end in stage.end_all(0..3) {
        assert!(
            end.error().is_empty() || end.error().contains("rank 3"),
            "{end:?}"
        );
    }
}

#[test]
fn one_rank_that_shares_nothing_has_all_go_the_other_way() {
    let place = place();
    let world = World::new(3, place.path()).sharing_memory();
    let alone = world.clone().with("FSGATHER_SHARED_MEMORY", "0");
    go_the_other_way(&world, &alone);
    assert_nothing_left(place.path());
}

#[test]
fn one_verifying_rank_moves_all_off_shared_memory() {
    let place = place();
    let world = World::new(3, place.path()).sharing_memory();
    let alone = world.clone().with("FSGATHER_VERIFY", "always");
    go_the_other_way(&world, &alone);
    assert_nothing_left(place.path());
}

/// Runs ranks 0 and 2 of one world, and rank 1 of another, which shares nothing.
fn go_the_other_way(world: &World, alone: &World) {
    let mut stage = Stage::new();
    let steps = format!("join {} at:end close", calls(5, LEN));
    for rank in 0..3 {
        let world = if rank == 1 { alone } else { world };
        stage.start(&mut world.rank(rank, &steps));
    }
    stage.wait_at(everybody(3), "end");
    for rank in others(3, 1) {
        assert!(arenas_of(stage.pid(rank)) <= 1);
    }
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
}

#[test]
fn who_asks_for_files_gets_files() {
    let place = place();
    let world = World::new(3, place.path())
        .sharing_memory()
        .with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| format!("join {} at:end close", calls(5, LEN)));
    stage.wait_at(everybody(3), "end");
    for rank in 0..3 {
        assert_eq!(arenas_of(stage.pid(rank)), 0);
    }
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
}

#[test]
fn a_narrow_address_space_is_respected() {
    let place = place();
    let world = World::new(3, place.path()).sharing_memory();
    let mut stage = Stage::new();
    let limited: Vec<String> = ["prlimit", "--as=3000000000"].map(Into::into).to_vec();
    for rank in 0..3 {
        stage.start(&mut world.rank_behind(
            &limited,
            rank,
            &format!("join {} close", calls(5, LEN)),
        ));
    }
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}
