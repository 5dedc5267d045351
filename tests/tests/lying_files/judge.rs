//! Judges the history of a world: [`judge`].

use bytes::Bytes;
use fsgather_core::Rank;
use fsgather_testkit::call_results::{Part, check_bodies, check_verdict};

use crate::{
    faults::Severity,
    machine::Outcome,
    world::{Came, World},
};

/// The broken promises of a world; empty if all were kept.
pub(crate) fn judge(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Outcome::Stuck(threads) = &world.outcome {
        wrong.push(format!("somebody waits for ever: {}", threads.join("; ")));
    }
    for (rank, story) in world.stories.iter().enumerate() {
        if story.ended.is_none() && !world.killed[rank] {
            wrong.push(format!("rank {rank} has not ended"));
        }
    }
    wrong.extend((0..world.script.calls).flat_map(|call| wrong_in_call(world, call)));
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

/// The errors in the results of one call.
fn wrong_in_call(world: &World, call: u32) -> Vec<String> {
    let script = &world.script;
    let bodies: Vec<Bytes> = (0..script.ranks)
        .map(|rank| script.body(rank, call))
        .collect();
    let came = |rank: usize| world.stories[rank].calls.get(call as usize);
    let parts = || {
        bodies.iter().enumerate().map(|(rank, body)| {
            // A rank may have been killed after it had contributed its body.
            let has_come = came(rank).is_some() || world.killed[rank];
            if has_come {
                Part::Contributed(body)
            } else {
                Part::Missing
            }
        })
    };
    let ranks = || (0..script.ranks).filter_map(|rank| Some((rank, came(rank as usize)?)));
    let mut wrong: Vec<String> = ranks()
        .filter_map(|(rank, came)| match came {
            Came::Result(result) => {
                let receives = script.receives(rank, call);
                let checked = check_bodies(parts(), receives, result.as_deref());
                checked.err().map(|wrong| format!("rank {rank}: {wrong}"))
            }
            Came::Failed(_) => None,
        })
        .collect();
    // If any fault may happen, a rank may fail alone.
    if world.is_survivable() {
        let succeeded = ranks().filter(|(_, came)| matches!(came, Came::Result(_)));
        let failed = ranks().filter_map(|(rank, came)| match came {
            Came::Failed(why) => Some((Rank::new(rank), why)),
            Came::Result(_) => None,
        });
        let succeeded = succeeded.map(|(rank, _)| Rank::new(rank));
        wrong.extend(check_verdict(succeeded, failed).err());
    }
    wrong
        .iter()
        .map(|wrong| format!("call {call}: {wrong}"))
        .collect()
}

/// Calls that ended for all ranks only long after the last rank had reached them, although no fault happened: a rank has missed an event.
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

/// Failures that no fault explains.
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
            // The message of the close may be the one that is lost.
            _ if !world.is_tidy() => {}
            other => wrong.push(format!("rank {rank} has not closed: {other:?}")),
        }
    }
    wrong
}

/// Leftovers that should not exist.
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
