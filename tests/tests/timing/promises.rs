//! The promises in seconds, and the jobs that measure them: [`PROMISES`].

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::common::{Stage, World, everybody, in_step, name_of, others, payloads, place};

/// One promise of the documentation.
pub(crate) struct Promise {
    pub(crate) name: &'static str,
    /// The event that all ranks report.
    pub(crate) event: &'static str,
    /// The documented limit.
    pub(crate) limit: Duration,
    /// One round counts as this many rounds, because it takes longer.
    pub(crate) quick_rounds: usize,
    /// Runs one job; returns the time from the event to the report of each rank.
    pub(crate) measure: fn(usize) -> Vec<Duration>,
}

/// All promises that are measured.
pub(crate) const PROMISES: [Promise; 9] = [
    Promise {
        name: "killed-computing",
        event: "a rank is killed between two calls",
        limit: Duration::from_secs(2),
        quick_rounds: 1,
        measure: killed_computing,
    },
    Promise {
        name: "killed-publishing",
        event: "a rank is killed while it writes its payload",
        limit: Duration::from_secs(2),
        quick_rounds: 1,
        measure: killed_publishing,
    },
    Promise {
        name: "killed-in-ring",
        event: "a rank is killed while payloads pass from rank to rank",
        limit: Duration::from_secs(2),
        quick_rounds: 1,
        measure: killed_in_ring,
    },
    Promise {
        name: "killed-meeting",
        event: "a rank is killed before all have joined",
        limit: Duration::from_secs(2),
        quick_rounds: 1,
        measure: killed_meeting,
    },
    Promise {
        name: "killed-over-markers",
        event: "a rank is killed in a job that uses marker files alone",
        limit: Duration::from_secs(2),
        quick_rounds: 1,
        measure: killed_over_markers,
    },
    Promise {
        name: "terminated",
        event: "SIGTERM ends a rank of `fsgather gather`",
        limit: Duration::from_secs(2),
        quick_rounds: 1,
        measure: terminated,
    },
    Promise {
        name: "interrupted",
        event: "a program asks a rank that waits to stop",
        limit: Duration::from_secs(2),
        quick_rounds: 1,
        measure: interrupted,
    },
    Promise {
        name: "timed-out",
        event: "a call has been without progress for its time-out",
        limit: Duration::from_secs(10),
        quick_rounds: 2,
        measure: timed_out,
    },
    Promise {
        name: "stall-warning",
        event: "a rank was stopped 30 s ago while others wait for it",
        limit: Duration::from_secs(15),
        quick_rounds: 25,
        measure: stall_warnings,
    },
];

const RANKS: u32 = 8;

/// A waiting rank warns after this time.
const WARNING_DELAY: Duration = Duration::from_secs(30);

/// The rank that a round kills: rank 0 in every fourth round.
fn victim_of(round: usize) -> usize {
    [3, 5, 7, 0][round % 4]
}

fn is_error(line: &str) -> bool {
    line.starts_with("error: ")
}

/// The time from `event` to the error with `text` of each of these processes.
fn report_times(
    stage: &mut Stage,
    processes: impl IntoIterator<Item = usize>,
    text: &str,
    event: Instant,
) -> Vec<Duration> {
    let mut times = Vec::new();
    for index in processes {
        let at = stage.time_of(index, "an error", is_error);
        let end = stage.end(index);
        assert!(
            end.error().contains(text),
            "no `{text}` in the error of process {index}\n{}",
            stage.transcript()
        );
        times.push(at.saturating_duration_since(event));
    }
    times
}

/// Kills a rank; returns the time until the others named it.
fn kill(stage: &mut Stage, victim: usize, ranks: u32) -> Vec<Duration> {
    let rank = u32::try_from(victim).expect("few ranks");
    let name = format!("{} was lost", name_of(rank, stage.pid(victim)));
    let killed = stage.kill(victim);
    report_times(stage, others(ranks, victim), &name, killed)
}

fn between_calls(world: &World, victim: usize) -> Vec<Duration> {
    let mut stage = Stage::new();
    stage.start_all(world, |rank| {
        let computes = if rank as usize == victim {
            "at:computing"
        } else {
            ""
        };
        format!("join barrier {computes} barrier close")
    });
    stage.wait_at([victim], "computing");
    for rank in others(RANKS, victim) {
        stage.wait_for(rank, "done barrier");
    }
    kill(&mut stage, victim, RANKS)
}

fn killed_computing(round: usize) -> Vec<Duration> {
    let place = place();
    between_calls(&World::new(RANKS, place.path()), victim_of(round))
}

fn killed_over_markers(round: usize) -> Vec<Duration> {
    let place = place();
    let world = World::new(RANKS, place.path()).with("FSGATHER_CONTROL", "markers");
    between_calls(&world, victim_of(round))
}

fn killed_publishing(round: usize) -> Vec<Duration> {
    let place = place();
    let victim = victim_of(round);
    let mut stage = Stage::new();
    stage.start_all(&World::new(RANKS, place.path()), |rank| {
        let half = if rank as usize == victim { ":half" } else { "" };
        format!("join all_gather_from:4000000{half} close")
    });
    stage.wait_at([victim], "publishing");
    kill(&mut stage, victim, RANKS)
}

fn killed_in_ring(round: usize) -> Vec<Duration> {
    let place = place();
    let victim = victim_of(round);
    let world = World::new(RANKS, place.path()).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        // The victim does not reach the barrier, so that no rank succeeds.
        let stop = if rank as usize == victim {
            "at:end"
        } else {
            ""
        };
        let rings = ["all_gather_bytes:3000000"; 6].join(" ");
        format!("join {rings} {stop} barrier close")
    });
    stage.wait_for_where(victim, "a ring", |line| line.starts_with("done all_gather"));
    kill(&mut stage, victim, RANKS)
}

fn killed_meeting(round: usize) -> Vec<Duration> {
    let place = place();
    let victim = [3, 0][round % 2];
    // One rank is not started, so that the world cannot form.
    let world = World::new(RANKS, place.path());
    let mut stage = Stage::new();
    for rank in 0..RANKS - 1 {
        stage.start(&mut world.rank(rank, "join close"));
    }
    for rank in 1..RANKS as usize - 1 {
        stage.wait_until_taken_in(rank);
    }
    kill(&mut stage, victim, RANKS - 1)
}

fn terminated(round: usize) -> Vec<Duration> {
    let (directory, work) = (place(), place());
    let world = World::new(3, directory.path());
    let mut stage = Stage::new();
    for rank in 0..3 {
        let part = work.path().join(format!("part.{rank}"));
        fs::write(&part, vec![1; 300_000]).expect("a file");
        let part = part.to_str().expect("text");
        // Rank 2 waits for its standard input.
        let arguments = ["gather", part, "--out", "got"];
        let arguments: &[&str] = if rank == 2 {
            &["gather", "--out", "got"]
        } else {
            &arguments
        };
        stage.start(world.tool(rank, arguments).current_dir(work.path()));
    }
    stage.wait_until("two payloads", || payloads(directory.path()) == 2);
    let ended = [1, 0][round % 2];
    let sent = stage.signal(ended, Signal::TERM);
    let mut times = Vec::new();
    for index in [1 - ended, 2] {
        let is_named = |line: &str| line.contains("ended by SIGTERM");
        let at = stage.time_of(index, "the rank that was ended", is_named);
        times.push(at.saturating_duration_since(sent));
    }
    times
}

fn interrupted(_: usize) -> Vec<Duration> {
    let (place, aside) = (place(), place());
    let asked = aside.path().join("asked");
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        1 => format!("join_asking:{} barrier close", in_step(&asked)),
        2 => "join at:computing barrier close".into(),
        _ => "join barrier close".to_string(),
    });
    stage.wait_at([2], "computing");
    stage.wait_for_where(1, "the call", |line| line.starts_with("calls barrier"));
    let asked_at = Instant::now();
    fs::write(&asked, "").expect("a file");
    report_times(&mut stage, [0, 1], "KeyboardInterrupt", asked_at)
}

fn timed_out(_: usize) -> Vec<Duration> {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", "1s");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        2 => "join at:late barrier".into(),
        _ => "join barrier close".to_string(),
    });
    stage.wait_at([2], "late");
    let called = [0, 1]
        .map(|rank| stage.time_of(rank, "the call", |line| line.starts_with("calls barrier")));
    let due = called.into_iter().max().expect("two") + TIMEOUT;
    report_times(&mut stage, [0, 1], "rank 2", due)
}

/// Several jobs at once, as each waits for half a minute.
fn stall_warnings(_: usize) -> Vec<Duration> {
    const JOBS: usize = 8;
    let stopped = 1;
    let mut jobs: Vec<_> = (0..JOBS)
        .map(|_| {
            let place = place();
            let mut stage = Stage::new();
            stage.start_all(&World::new(3, place.path()), |_| {
                "join at:stop barrier close".into()
            });
            stage.wait_at(everybody(3), "stop");
            let since = stage.signal(stopped, Signal::STOP);
            stage.go_all(others(3, stopped));
            (place, stage, since)
        })
        .collect();
    let measured = jobs.iter_mut().map(|(_, stage, since)| {
        let name = name_of(1, stage.pid(stopped));
        // The warning continues with the last call of that rank.
        let name = name.trim_end_matches(')').to_owned();
        let at = stage.time_of(0, "a warning", move |line| {
            line.contains("WARN") && line.contains("is still waiting for") && line.contains(&name)
        });
        at.saturating_duration_since(*since + WARNING_DELAY)
    });
    measured.collect()
}
