//! The verb `trace`: shows the calls that have failed and the ranks that came last, and draws the last calls of all ranks.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Args;
use fsgather::Error;
use fsgather_core::ProcessId;
use fsgather_observe::trace::{
    black_box::{BlackBox, Extent},
    drawing::drawing,
    jobs::Jobs,
    losses::{RankLoss, losses},
    status::{RankStatus, statuses},
    text,
    timeline::Timeline,
    world::World,
};
use fsgather_store::calls;
use serde_json::{Value, json};

use super::{calls_search::CallsSearch, inspect::is_read};
use crate::{
    exit,
    failure::Failure,
    output::{self, Stream},
    shell_word::shell_word,
};

const EXAMPLES: &str = "\
Examples:
  fsgather trace /shared/scratch
      calls that have failed, and ranks that came last
  fsgather trace /shared/scratch --to trace.html
      a page with a picture of all ranks' calls, for any browser
  fsgather trace /shared/scratch --to trace.json
      the same for chrome://tracing and https://ui.perfetto.dev
  fsgather trace --job 4711 --to trace.html --to trace.json
      of that job, in the directories that jobs use by default

Each rank keeps its last 1000 calls in a file, while its job runs; with
FSGATHER_TRACE=failed, the default, the files stay when the job fails. An error
says where. DIR is the directory that the job gathered through, or one of those
files. Without --job the last job is shown, with all worlds in which its ranks
have met.

Clocks of hosts are compared by the calls that their ranks have in common.
`fsgather run --trace FILE` makes such a file when its ranks have ended.

With --json, standard output carries
  {schema_version, job, directory, world_size, worlds, ranks, compared_calls,
   losses}
with the ranks of the last world in which they have met.";

/// Show failed calls of a job and the ranks that came last; draw all calls.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TraceArguments {
    /// Where to look; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories and running jobs of this host.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// The id of the job.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,

    /// Write a file: a page if its name ends in `.html`, or `.json` for Perfetto and Chrome.
    #[arg(long, value_name = "FILE", value_parser = trace_file)]
    to: Vec<PathBuf>,
}

/// Reads the name of a file for a trace.
pub(crate) fn trace_file(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    match path.extension().and_then(|end| end.to_str()) {
        Some("html" | "json") => Ok(path),
        _ => Err("a name that ends in .html or .json is needed".to_owned()),
    }
}

/// Shows the calls that ranks have recorded.
///
/// # Errors
///
/// Returns an error if there are none, or a file cannot be written.
pub(crate) fn trace(arguments: &TraceArguments, json: bool) -> Result<u8, Failure> {
    let search = CallsSearch::of_arguments(&arguments.directories)?;
    let worlds = search.worlds(Extent::All)?;
    let unread = worlds.iter().filter(|world| world.boxes.is_empty());
    let unread: Vec<String> = unread.flat_map(|world| world.unread.clone()).collect();
    let jobs = Jobs::of(worlds);
    let job = arguments.job.as_deref();
    let Some((worlds, others)) = jobs.chosen(job) else {
        return Err(Error::config(no_job(&jobs, job, &search.text(), &unread)).into());
    };
    let trace = JobTrace::new(worlds, &search.me);
    for file in &arguments.to {
        trace.write(file)?;
    }
    let shown = if json {
        output::json(&trace.to_json())
    } else {
        output::write(Stream::Stdout, trace.summary.as_bytes())
    };
    is_read(shown)?;
    if !json && arguments.to.is_empty() {
        output::say("`fsgather trace --to trace.html` draws a picture of it");
    }
    if others > 0 {
        let ids = listed(&jobs);
        output::say(&format!(
            "--job shows another one of the jobs that have left calls: {ids}"
        ));
    }
    Ok(exit::DONE)
}

/// Maximum number of files that a message lists.
const MAX_LISTED: usize = 10;

/// Maximum number of jobs that a message lists.
const MAX_LISTED_JOBS: usize = 3;

/// Returns the ids of the last jobs.
fn listed(jobs: &Jobs) -> String {
    let ids = jobs.ids();
    let more = ids.len().saturating_sub(MAX_LISTED_JOBS);
    let ids = ids.into_iter().rev().take(MAX_LISTED_JOBS);
    let mut listed: Vec<String> = ids
        .map(|id| id.map_or_else(|| "one without an id".to_owned(), shell_word))
        .collect();
    if more > 0 {
        listed.push(format!("{more} more"));
    }
    listed.join(", ")
}

/// Returns the message if there is no job to show.
fn no_job(jobs: &Jobs, job: Option<&str>, places: &str, unread: &[String]) -> String {
    match job {
        Some(job) if !jobs.ids().is_empty() => format!(
            "no calls of job {} are in {places}; there are calls of: {}",
            shell_word(job),
            listed(jobs)
        ),
        _ if unread.is_empty() => format!(
            "no calls of ranks are in {places}; they stay if a job fails, or with FSGATHER_TRACE=always"
        ),
        _ => {
            let listed = unread.iter().take(MAX_LISTED);
            let mut listed: Vec<String> =
                listed.map(|why| format!("\n  not read: {why}")).collect();
            if let more @ 1.. = unread.len().saturating_sub(MAX_LISTED) {
                listed.push(format!("\n  and {more} more"));
            }
            format!(
                "the calls of ranks in {places} cannot be read:{}",
                listed.concat()
            )
        }
    }
}

/// The calls of all worlds of a job.
struct JobTrace<'a> {
    worlds: &'a [World],
    timeline: Timeline,
    /// The time on the axis now, or the end of a job that is over.
    end: i64,
    summary: String,
}

impl<'a> JobTrace<'a> {
    /// Puts the calls of some worlds, the oldest first, on one axis, as this process sees them now.
    fn new(worlds: &'a [World], me: &ProcessId) -> Self {
        let boxes = worlds.iter().flat_map(|world| world.boxes.clone());
        let timeline = Timeline::new(boxes.collect());
        let mut last = worlds.last().into_iter().flat_map(|last| &last.boxes);
        let end = if last.any(BlackBox::may_run) {
            timeline.now(me, calendar()).max(timeline.end())
        } else {
            timeline.end()
        };
        Self {
            summary: text::summary(worlds, &timeline, end),
            worlds,
            timeline,
            end,
        }
    }

    /// Writes a file in the format of its extension.
    fn write(&self, file: &Path) -> Result<(), Failure> {
        let text = drawing(file, &self.timeline, self.end, &self.summary);
        std::fs::write(file, text).map_err(Failure::file("write", file))
    }

    fn to_json(&self) -> Value {
        let last = self.worlds.last();
        let losses = losses(&self.timeline);
        let statuses = statuses(&self.timeline, self.end);
        let current = statuses
            .iter()
            .filter(|one| one.world + 1 == self.timeline.worlds());
        json!({
            "job": last.and_then(World::job),
            "directory": last.and_then(World::directory),
            "world_size": last.map_or(0, World::size),
            "worlds": self.timeline.worlds(),
            "ranks": current.map(RankStatus::to_json).collect::<Vec<Value>>(),
            "compared_calls": losses.calls,
            "losses": losses.ranks.iter().map(RankLoss::to_json).collect::<Vec<Value>>(),
        })
    }
}

/// Writes the calls of a job that `fsgather run` has started to a file, and removes the files that its ranks have left for that.
///
/// # Errors
///
/// Returns an error if the directory cannot be read, or the file cannot be written.
pub(crate) fn write_trace(directory: &Path, job: &str, file: &Path) -> Result<(), Failure> {
    let search = CallsSearch::of_run(directory)?;
    let mut worlds = search.worlds(Extent::All)?;
    worlds.retain(|world| world.job() == Some(job));
    if worlds.is_empty() {
        output::say("fsgather run: no rank has left its calls; there is no trace");
        return Ok(());
    }
    let trace = JobTrace::new(&worlds, &search.me);
    trace.write(file)?;
    for line in trace.summary.lines() {
        output::say(&format!("fsgather run: {line}"));
    }
    for path in worlds.iter().flat_map(|world| &world.paths) {
        calls::remove(path);
    }
    Ok(())
}

/// Returns the time by the calendar, in nanoseconds since 1970.
pub(super) fn calendar() -> i128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i128::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(i128::MAX)
}
