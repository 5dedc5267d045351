//! The verb `ps`: what the ranks of jobs that run are at, from any host that sees their directory.

mod forming;
mod patience;
pub(super) mod report;
mod text;

use std::{
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use clap::Args;
use fsgather::Rank;
use fsgather_core::{ProcessId, RollCall};
use fsgather_observe::trace::{
    black_box::{BlackBox, Extent, World},
    now::{Standing, standings},
    roll_call,
    timeline::Timeline,
};
use fsgather_store::{calls::Question, this_process};

use self::patience::Patience;
use super::{
    inspect::{directories, frames::Frames, is_read, settings, word},
    trace::{calendar, worlds_of},
};
use crate::{
    duration::positive_duration,
    exit,
    failure::Failure,
    invocation::Invocation,
    output,
    table::{TableStyle, plain},
};

const EXAMPLES: &str = "\
Examples:
  fsgather ps /shared/scratch
      what each rank of the jobs that run there is at, and whom it waits for
  fsgather ps --stacks /shared/scratch
      also what they are doing: functions, lines, system calls
  fsgather ps --watch
      again every 2 seconds, of jobs in the directories used by default
  fsgather ps --json | jq '.jobs[].ranks[] | select(.doing == \"waiting\")'
      for programs

It needs to see the directory and to be the same user, on a login node or on a
rank's host. Where the directory is on a file server, calls of the first 30 to
40 seconds are not seen from elsewhere, and later ones up to 10 seconds old.
`5?` is a rank that others may wait for: nothing is known of it from here.

--stacks asks rank 0, which asks all: that takes 2 to 10 seconds. The job goes
on meanwhile. FSGATHER_TRACE=off in a job hides it, FSGATHER_STACKS=0 its
stacks.

With --json, standard output carries
  {schema_version, jobs: [{job, communicator, world_size, ranks, stacks,
    stacks_left_out}],
   forming: [{host, pid, world_size, age_seconds}]}";

/// Show what the ranks of running jobs are at, and whom they wait for.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PsArguments {
    /// Where to look; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories, and what this host alone has.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Ask the ranks what they are doing.
    #[arg(long)]
    stacks: bool,

    /// Show a row for each rank; without it, of many ranks those that are alike share one.
    #[arg(long)]
    long: bool,

    /// Look again and again until interrupted.
    #[arg(long)]
    watch: bool,

    /// How often to look again.
    #[arg(long, value_name = "D", value_parser = positive_duration, default_value = "2s", requires = "watch")]
    interval: Duration,
}

/// How long rank 0 has to answer.
const ANSWER: Duration = Duration::from_secs(15);

/// Why nobody answers who did run.
const OVER: &str = "no rank has answered: the job has ended or failed meanwhile";

/// A job that was seen.
struct Seen {
    world: World,
    standings: Vec<Standing>,
    /// How long ago its ranks met, in nanoseconds.
    age: u64,
    stacks: Option<RollCall>,
    /// Why there are none.
    problem: Option<String>,
}

/// Shows what the ranks of jobs that run are at.
///
/// # Errors
///
/// When a directory cannot be read, or nothing can be shown.
pub(crate) fn ps(
    arguments: &PsArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let me = this_process()?;
    let named = directories(&arguments.directories, &settings()?)?;
    let mut frames = Frames::new(arguments.watch.then_some(arguments.interval));
    let patience = if arguments.stacks {
        // A question is not to be left behind.
        Patience::that_heeds_signals(invocation)?
    } else {
        Patience::default()
    };
    let look_at = |extent| -> Result<(Vec<Seen>, Vec<String>), Failure> {
        let worlds = worlds_of(&named, &arguments.directories, &me, extent)?;
        let (unread, read) = worlds
            .into_iter()
            .partition::<Vec<World>, _>(|world| world.boxes.is_empty());
        let running = read.into_iter().filter(World::may_run);
        Ok((
            running.map(|world| look(world, &me)).collect(),
            unread.iter().filter_map(of_unread).collect(),
        ))
    };
    let mut is_said = false;
    loop {
        let (mut seen, unread) = look_at(Extent::Last)?;
        let is_unclear = |seen: &Seen| seen.standings.iter().any(|one| one.is_unclear);
        if seen.iter().any(is_unclear) {
            // Who is in a group, calls of long ago may tell.
            (seen, _) = look_at(Extent::All)?;
        }
        if arguments.stacks {
            ask(&mut seen, &me, &patience);
            if let Some(code) = patience.ended() {
                return Ok(code);
            }
        }
        let meetings = forming::forming(&named, &me);
        let shown = if json {
            if seen.is_empty() && !unread.is_empty() && !is_said {
                output::say(text::unread(&unread).trim_end());
                is_said = true;
            }
            output::json(&report::report(&seen, &meetings))
        } else {
            let mut text = text::text(&seen, arguments.long, &TableStyle::of_output());
            if seen.is_empty() {
                let places: Vec<String> = named
                    .iter()
                    .map(|place| word(&place.display().to_string()))
                    .collect();
                let places = plain(&places.join(", "));
                text = match unread.len() {
                    0 => format!("no job runs in {places}\n"),
                    _ => format!("no job is seen in {places}, where calls of ranks lie\n"),
                };
                text += &text::unread(&unread);
            }
            text += &forming::text(&meetings);
            frames.show(&text, &[], SystemTime::now())
        };
        if !(is_read(shown)? && arguments.watch) {
            return Ok(exit::DONE);
        }
        patience.pause(arguments.interval);
        if let Some(code) = patience.ended() {
            return Ok(code);
        }
    }
}

/// Why nothing of a world can be read, by one of its ranks.
fn of_unread(world: &World) -> Option<String> {
    let (first, others) = world.unread.split_first()?;
    Some(match others.len() {
        0 => first.clone(),
        more => format!("{first}; nor {more} more of that job"),
    })
}

fn look(world: World, me: &ProcessId) -> Seen {
    let timeline = Timeline::new(world.boxes.clone());
    let now = timeline.now(me, calendar());
    let age = calendar() - world.began().map_or(0, i128::from);
    Seen {
        standings: standings(&timeline, now),
        age: u64::try_from(age).unwrap_or_default(),
        stacks: None,
        problem: None,
        world,
    }
}

/// A question that is taken back however its asking ends.
struct Asked(Question);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// Asks all jobs at the same time what their ranks are doing.
fn ask(seen: &mut [Seen], me: &ProcessId, patience: &Patience) {
    let mut asked: Vec<(&mut Seen, Asked)> = Vec::new();
    for job in seen {
        let root = job
            .world
            .boxes
            .iter()
            .find(|one| one.header.rank == Rank::ZERO);
        let place = root.and_then(|root: &BlackBox| Some((root, root.path.parent()?)));
        job.problem = match place {
            None => Some("rank 0, which could ask the others, is not seen from here".into()),
            Some((root, _)) if root.is_running == Some(false) => Some(format!(
                "rank {}, which could ask the others, has ended",
                root.rank()
            )),
            Some((_, place)) => match Question::ask(place, job.world.communicator) {
                Ok(question) => {
                    asked.push((job, Asked(question)));
                    continue;
                }
                Err(error) => Some(plain(&error.to_string())),
            },
        };
    }
    let begun = Instant::now();
    while !asked.is_empty() && begun.elapsed() < ANSWER {
        asked.retain_mut(|(job, question)| {
            let Some(answer) = question.0.look_for_answer() else {
                return true;
            };
            job.stacks = roll_call::from_text(&answer);
            if job.stacks.as_ref().is_some_and(RollCall::is_empty) && job.world.is_over(me) {
                job.stacks = None;
                job.problem = Some(OVER.into());
            }
            false
        });
        if !asked.is_empty() {
            patience.pause(Duration::from_millis(100));
            if patience.ended().is_some() {
                return;
            }
        }
    }
    for (job, _) in asked {
        if job.world.is_over(me) {
            job.problem = Some(OVER.into());
            continue;
        }
        let root = job
            .world
            .boxes
            .iter()
            .find(|one| one.header.rank == Rank::ZERO);
        let called = root.map_or(Rank::ZERO, BlackBox::rank);
        job.problem = Some(format!("rank {called} does not answer: it may be stopped"));
    }
}
