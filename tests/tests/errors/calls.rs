//! Errors of calls: of ranks that are late, lost, or in other calls, and of values that cannot be used.

use std::{path::Path, time::Duration};

use rustix::process::Signal;

use crate::{
    common::{PEER_FAILED, STORAGE, Stage, World, everybody, payloads, place},
    page::confirm,
    said::{all_say, all_tools_say, input, new_stage, text, two, two_tools},
};

#[test]
fn a_rank_that_stands_still() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TIMEOUT", "2s");
    let mut stage = two(
        &world,
        "join barrier barrier",
        "join barrier at:here barrier",
    );
    stage.wait_at([1], "here");
    stage.signal(1, Signal::STOP);
    all_say(&mut stage, [0], "a_rank_that_stands_still");
    stage.signal(1, Signal::CONT);
    stage.go(1);
    all_say(&mut stage, [1], "a_rank_that_stands_still");
}

/// The argument that makes a gather write one file.
fn whole(directory: &Path) -> String {
    format!("--concat={}", text(&directory.join("whole")))
}

#[test]
fn an_input_that_does_not_end() {
    let (place, work) = (place(), place());
    let world = World::new(2, place.path());
    let input = input(work.path(), 300_000);
    let whole = whole(work.path());
    let mut stage = two_tools(
        &world,
        &["gather", "--timeout", "2s", &input, &whole],
        &["gather", "--timeout", "2s", "-", &whole],
    );
    all_tools_say(&mut stage, 0..2, "an_input_that_does_not_end");
}

#[test]
fn a_rank_that_is_killed() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = new_stage();
    stage.start_all(&world, |rank| {
        let stop = if rank == 1 { "at:here" } else { "" };
        format!("join barrier {stop} barrier close")
    });
    stage.wait_at([1], "here");
    stage.kill(1);
    all_say(&mut stage, [0, 2], "a_rank_that_is_killed");
}

/// Three ranks gather with the tool; `late` waits for the end of its input, the others have contributed.
fn a_gather_that_waits_for(late: usize, directory: &Path, work: &Path) -> Stage {
    let world = World::new(3, directory);
    let input = input(work, 300_000);
    let mut stage = new_stage();
    for rank in 0..3 {
        let file = if rank as usize == late { "-" } else { &input };
        let out = work.join("got");
        let arguments = ["gather", file, "--out", text(&out)];
        stage.start(&mut world.tool(rank, &arguments));
    }
    stage.wait_until("two payloads", || payloads(directory) == 2);
    stage
}

#[test]
fn a_tool_that_is_killed() {
    let (place, work) = (place(), place());
    let mut stage = a_gather_that_waits_for(1, place.path(), work.path());
    stage.kill(1);
    all_tools_say(&mut stage, [0, 2], "a_tool_that_is_killed");
}

#[test]
fn a_tool_that_is_ended() {
    let (place, work) = (place(), place());
    let mut stage = a_gather_that_waits_for(1, place.path(), work.path());
    stage.signal(1, Signal::TERM);
    all_tools_say(&mut stage, [0, 2], "a_tool_that_is_ended");
}

#[test]
fn a_rank_0_that_is_killed_during_a_call() {
    let place = place();
    let test = "a_rank_0_that_is_killed_during_a_call";
    let mut stage = new_stage();
    stage.start_all(&World::new(3, place.path()), |rank| {
        let stop = if rank == 0 { "at:here" } else { "" };
        format!("join {stop} all_gather_bytes:100000 close")
    });
    stage.wait_at([0], "here");
    stage.wait_until("two payloads", || payloads(place.path()) == 2);
    // They have announced it a moment later.
    stage.let_pass(Duration::from_millis(300));
    stage.kill(0);
    all_say(&mut stage, 1..3, test);
}

#[test]
fn a_rank_0_that_is_killed_between_calls() {
    let place = place();
    let mut stage = new_stage();
    stage.start_all(&World::new(3, place.path()), |_| {
        "join barrier at:here barrier".into()
    });
    stage.wait_at(0..3, "here");
    stage.kill(0);
    stage.end(0);
    // They notice it between calls, where this test cannot see it.
    stage.let_pass(Duration::from_secs(2));
    stage.go_all(1..3);
    all_say(&mut stage, 1..3, "a_rank_0_that_is_killed_between_calls");
}

/// Rank 1 of three fails by itself; checks the errors of the others.
fn fails_by_itself(step: &str, test: &str) {
    let place = place();
    let mut stage = new_stage();
    stage.start_all(&World::new(3, place.path()), |rank| {
        let step = if rank == 1 {
            step
        } else {
            "all_gather:10 close"
        };
        format!("join {step}")
    });
    all_say(&mut stage, [0, 2], test);
}

#[test]
fn a_rank_that_panics() {
    fails_by_itself("panic", "a_rank_that_panics");
}

#[test]
fn a_value_that_cannot_be_encoded() {
    fails_by_itself("encode_fails", "a_value_that_cannot_be_encoded");
}

#[test]
fn a_rank_that_leaves() {
    fails_by_itself("drop", "a_rank_that_leaves");
}

#[test]
fn an_input_that_is_not_there() {
    let (place, work) = (place(), place());
    let input = input(work.path(), 10);
    let missing = work.path().join("missing");
    let world = World::new(2, place.path());
    let mut stage = two_tools(
        &world,
        &["gather", &input, &whole(work.path())],
        &["gather", text(&missing), &whole(work.path())],
    );
    let ends = stage.end_all(0..2);
    let (said, own) = (ends[0].told_by_tool(), ends[1].told_by_tool());
    // The rank itself reports the cause, in its own words.
    let is_own = own.starts_with("cannot read ") && said.contains(&format!("failed ({own})"));
    assert!(is_own, "{}", stage.transcript());
    confirm("an_input_that_is_not_there", "", ends[0].code, said);
    assert_eq!(ends[1].code, STORAGE, "{}", stage.transcript());
}

#[test]
fn different_calls() {
    let place = place();
    let world = World::new(2, place.path());
    all_say(
        &mut two(&world, "join barrier", "join gather:0:10"),
        0..2,
        "different_calls",
    );
}

#[test]
fn different_transports() {
    // The world is made with files, so that only the rank that asks for memory has to set something up.
    let place = place();
    let world = World::new(2, place.path());
    let by = |transport| format!("join by:{transport}:-:300000");
    let mut stage = two(&world, &by("memory"), &by("filesys"));
    all_say(&mut stage, 0..2, "different_transports");
}

#[test]
fn different_directories() {
    let (place, one, other) = (place(), place(), place());
    let world = World::new(2, place.path());
    let by = |directory: &Path| format!("join by:filesys:{}:300000", text(directory));
    let mut stage = two(&world, &by(one.path()), &by(other.path()));
    all_say(&mut stage, 0..2, "different_directories");
}

#[test]
fn different_verbs() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two_tools(
        &world,
        &["barrier"],
        &["broadcast", "--root", "1", "/dev/null"],
    );
    all_tools_say(&mut stage, 0..2, "different_verbs");
}

#[test]
fn different_roots() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join gather_bytes:0:10", "join gather_bytes:1:10");
    all_say(&mut stage, 0..2, "different_roots");
}

#[test]
fn different_tags() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join tagged:bleu", "join tagged:rouge");
    all_say(&mut stage, 0..2, "different_tags");
}

#[test]
fn different_types() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join all_gather:10", "join all_gather_bytes:10");
    all_say(&mut stage, 0..2, "different_types");
}

#[test]
fn a_value_over_the_bound() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join list:1000:10", "join list:1000:2000");
    all_say(&mut stage, 0..2, "a_value_over_the_bound");
}

#[test]
fn a_communicator_that_has_failed() {
    let place = place();
    let world = World::new(2, place.path());
    let steps = |step: &str| format!("join fails:{step} barrier");
    let mut stage = two(&world, &steps("all_gather:10"), &steps("source_fails"));
    let ends = stage.end_all(everybody(2));
    for end in &ends {
        let code = end.code;
        assert_eq!(code, PEER_FAILED, "{}", stage.transcript());
        confirm(
            "a_communicator_that_has_failed",
            end.kind(),
            code,
            end.error(),
        );
    }
}
