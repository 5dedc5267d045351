//! The verb `ps`: shows the activity of the ranks of running jobs, from any host that sees their directory.

mod forming;
mod job;
mod pauses;
mod text;

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use clap::Args;
use fsgather_observe::trace::{black_box::Extent, world::World};
use serde_json::{Value, json};

use self::{forming::FormingWorlds, job::ObservedJob, pauses::Pauses};
use super::{
    calls_search::CallsSearch,
    inspect::{frames::Frames, is_read},
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
      what each rank of the jobs there does, and for which ranks it waits
  fsgather ps --stacks /shared/scratch
      also functions, lines and system calls
  fsgather ps --watch
      again every 2 seconds, all jobs of this host
  fsgather ps --json | jq '.jobs[].ranks[] | select(.doing == \"waiting\")'
      for programs

Any host that sees the directory will do, such as a login node, for the same
user or root. If the directory is on a file server, other hosts see calls
after 30 to 40 seconds, and later ones up to 10 seconds old. `5?` is a rank
that others may wait for: it has left no calls here. A world whose ranks have
not met is shown only to its own user, and if its directory is named or is
FSGATHER_DIR or a default one.

--stacks asks rank 0, which asks all: that takes 2 to 10 seconds. The job
continues meanwhile. FSGATHER_TRACE=off in a job hides it, FSGATHER_STACKS=0 its
stacks.

With --json, standard output carries
  {schema_version, jobs: [{job, directory, communicator, world_size, ranks,
    stacks, stacks_left_out, problem}],
   forming: [{directory, host, pid, world_size, age_seconds}]}";

/// Show what the ranks of running jobs do, and for which ranks they wait.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PsArguments {
    /// Where to look; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories and all jobs of this host.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Ask the ranks for their functions, lines and system calls.
    #[arg(long)]
    stacks: bool,

    /// Show a row for each rank; without it, many ranks that do the same share a row.
    #[arg(long)]
    long: bool,

    /// Repeat until interrupted.
    #[arg(long)]
    watch: bool,

    /// How often to repeat.
    #[arg(long, value_name = "D", value_parser = positive_duration, default_value = "2s", requires = "watch")]
    interval: Duration,
}

/// Shows the activity of the ranks of running jobs.
///
/// # Errors
///
/// Returns an error if a directory cannot be read, or the output cannot be written.
pub(crate) fn ps(
    arguments: &PsArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let search = CallsSearch::of_arguments(&arguments.directories)?;
    let mut frames = Frames::new(arguments.watch.then_some(arguments.interval));
    let pauses = if arguments.stacks {
        // Questions must be withdrawn.
        Pauses::until_signal(invocation)?
    } else {
        Pauses::default()
    };
    let mut is_said = false;
    loop {
        let mut seen = Sighting::of(&search)?;
        if arguments.stacks {
            job::ask(&mut seen.jobs, &search.me, &pauses);
            if let Some(code) = pauses.ended() {
                return Ok(code);
            }
        }
        let shown = if json {
            if seen.jobs.is_empty() && !seen.unread.is_empty() && !is_said {
                output::say(text::unread(&seen.unread).trim_end());
                is_said = true;
            }
            output::json(&seen.to_json())
        } else {
            let text = seen.text(&plain(&search.text()), arguments.long);
            frames.show(&text, &[], SystemTime::now())
        };
        if !(is_read(shown)? && arguments.watch) {
            return Ok(exit::DONE);
        }
        pauses.pause(arguments.interval);
        if let Some(code) = pauses.ended() {
            return Ok(code);
        }
    }
}

/// The jobs that run at one moment.
struct Sighting {
    jobs: Vec<ObservedJob>,
    /// The reason for each job that cannot be read.
    unread: Vec<String>,
    forming: FormingWorlds,
}

impl Sighting {
    fn of(search: &CallsSearch) -> Result<Self, Failure> {
        let seen = Self::with(search, Extent::Last)?;
        let mut statuses = seen.jobs.iter().flat_map(|job| &job.statuses);
        if statuses.any(|one| one.is_unclear) {
            // Older calls may show the members of a group.
            return Self::with(search, Extent::All);
        }
        Ok(seen)
    }

    fn with(search: &CallsSearch, extent: Extent) -> Result<Self, Failure> {
        let forming = FormingWorlds::find(search.directories());
        let worlds = search.worlds(extent)?;
        let forming = forming.without(&worlds);
        let (unread, read): (Vec<_>, Vec<_>) =
            worlds.into_iter().partition(|world| world.boxes.is_empty());
        let running = read.into_iter().filter(World::may_run);
        Ok(Self {
            jobs: running
                .map(|world| ObservedJob::new(world, &search.me))
                .collect(),
            unread: unread.iter().filter_map(unread_text).collect(),
            forming,
        })
    }

    fn text(&self, places: &str, long: bool) -> String {
        let mut text = text::text(&self.jobs, long, &TableStyle::of_output());
        if self.jobs.is_empty() {
            text = match self.unread.len() {
                0 => format!("no job runs in {places}\n"),
                _ => format!("no job is seen in {places}, but calls of ranks are there\n"),
            };
            text += &text::unread(&self.unread);
        }
        text + &self.forming.text()
    }

    fn to_json(&self) -> Value {
        json!({
            "jobs": self.jobs.iter().map(ObservedJob::to_json).collect::<Vec<Value>>(),
            "forming": self.forming.to_json(),
        })
    }
}

/// The reason why a world cannot be read, for one of its ranks.
fn unread_text(world: &World) -> Option<String> {
    let (first, others) = world.unread.split_first()?;
    Some(match others.len() {
        0 => first.clone(),
        more => format!("{first}; nor {more} more of that job"),
    })
}
