//! The judge of how a world went: [`judge`].

use crate::{
    faults::Severity,
    machine::Outcome,
    world::{Came, World},
};

/// What is wrong with how a world went; nothing, where all promises were kept.
pub(crate) fn judge(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Outcome::Stuck(threads) = &world.outcome {
        wrong.push(format!("somebody waits for ever: {}", threads.join("; ")));
    }
    for (rank, story) in (0..).zip(&world.stories) {
        if story.ended.is_none() && !world.killed[rank as usize] {
            wrong.push(format!("rank {rank} has not ended"));
        }
        for (call, came) in (0..).zip(&story.calls) {
            if let Came::Result(result) = came
                && *result != world.script.expected(rank, call)
            {
                wrong.push(format!("rank {rank} got something else in call {call}"));
            }
        }
    }
    if world.script.severity == Severity::Nothing {
        wrong.extend(late(world));
    }
    if world.is_survivable() {
        wrong.extend(survived(world));
    }
    if world.is_tidy() {
        wrong.extend(left_behind(world));
    }
    wrong
}

/// Calls that were over for all only long after the last rank had come to them, although nothing went wrong: somebody was not told.
fn late(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for call in 0..world.script.calls as usize {
        let times = world
            .stories
            .iter()
            .filter_map(|story| story.times.get(call));
        let came = times.clone().map(|(came, _)| *came).max();
        let ended = times.map(|(_, ended)| *ended).max();
        let took = ended.unwrap_or(0).saturating_sub(came.unwrap_or(0));
        if u128::from(took) > world.script.profile.promptness.as_nanos() {
            wrong.push(format!(
                "call {call} took {:.3} s after all had come",
                took as f64 / 1e9
            ));
        }
    }
    wrong
}

/// What has failed although nothing came that may make it fail.
fn survived(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for (rank, story) in world.stories.iter().enumerate() {
        match &story.joined {
            Some(Ok(())) => {}
            other => wrong.push(format!("rank {rank} has not joined: {other:?}")),
        }
        for (call, came) in story.calls.iter().enumerate() {
            if let Came::Failed(why) = came {
                wrong.push(format!("call {call} of rank {rank} failed: {why}"));
            }
        }
        match &story.closed {
            Some(Ok(())) => {}
            // The last words may be the ones that are lost.
            _ if !world.is_tidy() => {}
            other => wrong.push(format!("rank {rank} has not closed: {other:?}")),
        }
    }
    wrong
}

/// What is still there although nothing may be.
fn left_behind(world: &World) -> Vec<String> {
    let is_allowed = |path: &&String| {
        matches!(path.as_str(), "all_gather_via_filesys/")
            || path.starts_with("fsgather-") && path.ends_with('/') && !path.contains("gather-2")
    };
    let mut wrong = Vec::new();
    for (mount, paths) in world.left.iter().enumerate() {
        let left: Vec<&String> = paths.iter().filter(|path| !is_allowed(path)).collect();
        if !left.is_empty() {
            wrong.push(format!("left on file system {mount}: {left:?}"));
        }
    }
    wrong
}
