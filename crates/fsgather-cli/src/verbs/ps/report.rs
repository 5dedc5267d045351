//! Tells programs what ranks are at, as JSON.

use std::time::Duration;

use fsgather_core::{RollCall, Whereabouts, WorldSize};
use fsgather_observe::trace::{black_box::World, now::Standing};
use fsgather_store::Meeting;
use serde::Serialize;

use super::Seen;

#[derive(Serialize)]
pub(super) struct PsReport {
    jobs: Vec<JobReport>,
    /// Worlds that have not met, or keep no calls.
    forming: Vec<FormingReport>,
}

/// A world of which its rank 0 alone is known.
#[derive(Serialize)]
struct FormingReport {
    host: String,
    pid: u32,
    world_size: Option<u32>,
    age_seconds: f64,
}

#[derive(Serialize)]
struct JobReport {
    job: Option<String>,
    communicator: String,
    world_size: u32,
    ranks: Vec<StandingReport>,
    stacks: Option<Vec<StackReport>>,
    /// How many ranks do something else, for which there was no room.
    stacks_left_out: u32,
}

/// What a rank is at.
#[derive(Serialize)]
pub(in crate::verbs) struct StandingReport {
    rank: u32,
    host: String,
    pid: u32,
    doing: &'static str,
    call: Option<CallReport>,
    since_seconds: f64,
    moved_bytes: u64,
    waits_for: Vec<u32>,
    /// Of these nothing is known.
    may_wait_for: Vec<u32>,
}

#[derive(Serialize)]
struct CallReport {
    name: String,
    at: String,
    count: u64,
    outcome: &'static str,
    last_rank: Option<u32>,
}

#[derive(Serialize)]
struct StackReport {
    ranks: Vec<u32>,
    text: String,
    frames: Vec<String>,
}

/// All jobs that were seen, and worlds that are forming.
pub(super) fn report(seen: &[Seen], forming: &[Meeting]) -> PsReport {
    let job = |seen: &Seen| {
        let world: &World = &seen.world;
        JobReport {
            job: world.job().map(str::to_owned),
            communicator: world.communicator.to_string(),
            world_size: world.size(),
            ranks: seen.standings.iter().map(standing).collect(),
            stacks: seen.stacks.as_ref().map(stacks),
            stacks_left_out: seen.stacks.as_ref().map_or(0, |told| told.left_out),
        }
    };
    let world = |meeting: &Meeting| FormingReport {
        host: meeting.writer.host.clone(),
        pid: meeting.writer.pid,
        world_size: meeting.world_size.map(WorldSize::get),
        age_seconds: meeting.age.as_secs_f64(),
    };
    PsReport {
        jobs: seen.iter().map(job).collect(),
        forming: forming.iter().map(world).collect(),
    }
}

/// One rank.
pub(in crate::verbs) fn standing(one: &Standing) -> StandingReport {
    StandingReport {
        rank: one.rank.get(),
        host: one.process.host.clone(),
        pid: one.process.pid,
        doing: one.doing.word(),
        call: one.call.as_ref().map(|call| CallReport {
            name: call.name(),
            at: call.site.clone(),
            count: call.count,
            outcome: call.outcome.word(),
            last_rank: call.last,
        }),
        since_seconds: Duration::from_nanos(one.since).as_secs_f64(),
        moved_bytes: one.moved,
        waits_for: one.waits_for.iter().map(|rank| rank.get()).collect(),
        may_wait_for: one.may_wait_for.iter().map(|rank| rank.get()).collect(),
    }
}

fn stacks(told: &RollCall) -> Vec<StackReport> {
    let frames = |its: &Whereabouts| its.frames.iter().map(ToString::to_string).collect();
    told.groups
        .iter()
        .map(|(ranks, its)| StackReport {
            ranks: ranks.iter().map(|rank| rank.get()).collect(),
            text: its.to_string(),
            frames: frames(its),
        })
        .collect()
}
