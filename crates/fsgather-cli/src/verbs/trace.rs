//! The verb `trace`: who came last how often, and a picture of all ranks' last calls.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Args;
use fsgather::Error;
use fsgather_core::ProcessId;
use fsgather_observe::trace::{
    black_box::{self, BlackBox, Extent, World},
    drawing::drawing,
    jobs::Jobs,
    losses::{Loss, losses},
    now::standings,
    text,
    timeline::Timeline,
};
use fsgather_store::{calls, layout::rendezvous_path, this_process};
use serde::Serialize;

use super::{
    inspect::{directories, is_read, settings, word},
    ps::report::{StandingReport, standing},
};
use crate::{
    exit,
    failure::Failure,
    output::{self, Stream},
};

const EXAMPLES: &str = "\
Examples:
  fsgather trace /shared/scratch
      who came last how often, and what that cost the others
  fsgather trace /shared/scratch --to trace.html
      a page with a picture of all ranks' calls, for any browser
  fsgather trace /shared/scratch --to trace.json
      the same for chrome://tracing and https://ui.perfetto.dev
  fsgather trace --job 4711 --to trace.html --to trace.json
      of that job, in the directories that jobs use by default

Each rank keeps its last 1000 calls in a file, while its job runs; with
FSGATHER_TRACE=failed, the default, the files stay when the job fails. An error
says where. DIR is the directory that the job gathered through, or one of those
files, whose ranks alone are shown then. Without --job it is the job that was
started last. Where the ranks of a job have met several times, it is all of it.

Clocks of hosts are compared by the calls that their ranks have in common.
`fsgather run --trace FILE` makes such a file when its ranks have ended.

With --json, standard output carries
  {schema_version, job, world_size, worlds, ranks, compared_calls, losses}
with the ranks of the last of the worlds that they have met in.";

/// Show who came last in a job's calls, how long that took, and draw it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TraceArguments {
    /// Where to look; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories, and what this host alone has.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Of which job.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,

    /// Write it to a file: a page where its name ends in `.html`, else for Perfetto and Chrome, as `.json`.
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

#[derive(Serialize)]
struct TraceReport {
    job: Option<String>,
    world_size: u32,
    /// How often its ranks have met.
    worlds: usize,
    /// Those of the last time.
    ranks: Vec<StandingReport>,
    compared_calls: usize,
    losses: Vec<LossReport>,
}

#[derive(Serialize)]
struct LossReport {
    rank: u32,
    came_last: usize,
    cost_seconds: f64,
    from: Option<String>,
    to: Option<String>,
}

/// Shows what ranks have left of their calls.
///
/// # Errors
///
/// When nothing is there, or it cannot be written.
pub(crate) fn trace(arguments: &TraceArguments, json: bool) -> Result<u8, Failure> {
    let me = this_process()?;
    let named = directories(&arguments.directories, &settings()?)?;
    let worlds = worlds_of(&named, &arguments.directories, &me, Extent::All)?;
    let unread: Vec<String> = worlds
        .iter()
        .filter(|world| world.boxes.is_empty())
        .flat_map(|world| world.unread.clone())
        .collect();
    let jobs = Jobs::of(worlds);
    let Some((worlds, others)) = jobs.chosen(arguments.job.as_deref()) else {
        let places: Vec<String> = named
            .iter()
            .map(|place| word(&place.display().to_string()))
            .collect();
        let job = arguments.job.as_deref();
        let text = none_of(&jobs, job, &places.join(", "), &unread);
        return Err(Error::config(text).into());
    };
    let trace = Trace::of(worlds, &me);
    for file in &arguments.to {
        trace.write(file)?;
    }
    let shown = if json {
        output::json(&trace.report())
    } else {
        output::write(Stream::Stdout, trace.summary.as_bytes())
    };
    is_read(shown)?;
    if !json && arguments.to.is_empty() {
        output::say("`fsgather trace --to trace.html` draws a picture of it");
    }
    match others {
        0 => {}
        1 => output::say("an earlier job has left calls there; --job names one"),
        others => output::say(&format!(
            "{others} earlier jobs have left calls there; --job names one"
        )),
    }
    Ok(exit::DONE)
}

/// How many jobs are named in a message.
const MOST_NAMED: usize = 10;

/// What is said where there is no job to show.
fn none_of(jobs: &Jobs, job: Option<&str>, places: &str, unread: &[String]) -> String {
    let ids = jobs.ids();
    let more = ids.len().saturating_sub(MOST_NAMED);
    let ids = ids.into_iter().rev().take(MOST_NAMED);
    let mut named: Vec<String> = ids
        .map(|id| id.map_or_else(|| "one without an id".to_owned(), word))
        .collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    match (job, named.as_slice()) {
        (Some(job), [_, ..]) => format!(
            "no calls of job {} lie in {places}; there are calls of: {}",
            word(job),
            named.join(", ")
        ),
        _ if !unread.is_empty() => {
            let shown = unread.iter().take(MOST_NAMED);
            let shown: Vec<String> = shown.map(|why| format!("\n  not read: {why}")).collect();
            let more = match unread.len().saturating_sub(MOST_NAMED) {
                0 => String::new(),
                more => format!("\n  and {more} more"),
            };
            format!(
                "the calls of ranks that lie in {places} cannot be read:{}{more}",
                shown.concat()
            )
        }
        _ => format!(
            "no calls of ranks lie in {places}; they stay where a job fails, or with FSGATHER_TRACE=always"
        ),
    }
}

/// The worlds whose calls lie in these directories, each once; and, where the user has named none, those of this host whose
/// directory is on a server, which they have not been copied to.
pub(super) fn worlds_of(
    directories: &[PathBuf],
    given: &[PathBuf],
    me: &ProcessId,
    extent: Extent,
) -> Result<Vec<World>, Failure> {
    let mut worlds: Vec<World> = Vec::new();
    let mut places: Vec<PathBuf> = Vec::new();
    for directory in directories {
        if let Some((parent, world)) = file_of_calls(directory) {
            let mut of_file = black_box::worlds(&[parent], false, me, extent)?;
            of_file.retain(|found| found.communicator.simple().to_string() == world);
            worlds.extend(of_file);
        } else {
            places.extend(rendezvous_of(directory)?);
        }
    }
    let found = black_box::worlds(&places, given.is_empty(), me, extent)?;
    for world in found {
        let is_known = |known: &World| known.communicator == world.communicator;
        if !worlds.iter().any(is_known) {
            worlds.push(world);
        }
    }
    Ok(worlds)
}

/// Where a file lies, and the world that its name tells; nothing if it is none.
fn file_of_calls(path: &Path) -> Option<(PathBuf, String)> {
    let (parent, name) = (path.parent()?, path.file_name()?.to_str()?);
    let world = name.strip_prefix("calls-")?.split('-').next()?;
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    path.is_file()
        .then(|| (parent.to_owned(), world.to_owned()))
}

/// The rendezvous directory that a user means by a directory, if anybody has gathered through it.
fn rendezvous_of(directory: &Path) -> Result<Option<PathBuf>, Failure> {
    if directory.file_name() == rendezvous_path(Path::new("")).file_name() {
        return Ok(Some(directory.to_owned()));
    }
    let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let rendezvous = rendezvous_path(directory);
    match std::fs::symlink_metadata(&rendezvous) {
        Ok(_) => return Ok(Some(rendezvous)),
        Err(error) if is_absent(&error) => {}
        Err(error) => return Err(Error::storage("list", directory, &error).into()),
    }
    // That it is no directory is worth a word; that nobody has gathered through it is not.
    match std::fs::metadata(directory) {
        Ok(_) => Ok(None),
        Err(error) => Err(Error::storage("list", directory, &error).into()),
    }
}

/// The calls of a job's worlds, and what they come to.
pub(crate) struct Trace {
    timeline: Timeline,
    job: Option<String>,
    world_size: u32,
    /// What time it is on its axis, or when it ended.
    end: i64,
    pub(crate) summary: String,
}

impl Trace {
    /// That of some worlds, the oldest first, as this process sees it now.
    pub(crate) fn of(worlds: &[World], me: &ProcessId) -> Self {
        let boxes = worlds.iter().flat_map(|world| world.boxes.clone());
        let timeline = Timeline::new(boxes.collect());
        let last = worlds.last();
        let end = if last.is_some_and(|last| last.boxes.iter().any(BlackBox::may_run)) {
            timeline.now(me, calendar()).max(timeline.end())
        } else {
            timeline.end()
        };
        Self {
            job: last.and_then(World::job).map(str::to_owned),
            world_size: last.map_or(0, World::size),
            end,
            summary: text::summary(worlds, &timeline, end),
            timeline,
        }
    }

    /// Writes it in the form that the end of the name says.
    pub(crate) fn write(&self, file: &Path) -> Result<(), Failure> {
        let text = drawing(file, &self.timeline, self.end, &self.summary);
        std::fs::write(file, text).map_err(Failure::file("write", file))
    }

    fn report(&self) -> TraceReport {
        let losses = losses(&self.timeline);
        let loss = |loss: &Loss| {
            let between = loss.between.clone();
            let (from, to) = between.map(|(from, to, _)| (from, to)).unzip();
            LossReport {
                rank: loss.rank.get(),
                came_last: loss.last,
                cost_seconds: std::time::Duration::from_nanos(loss.cost).as_secs_f64(),
                from,
                to,
            }
        };
        TraceReport {
            job: self.job.clone(),
            world_size: self.world_size,
            worlds: self.timeline.worlds(),
            ranks: standings(&self.timeline, self.end)
                .iter()
                .filter(|one| one.world + 1 == self.timeline.worlds())
                .map(standing)
                .collect(),
            compared_calls: losses.calls,
            losses: losses.ranks.iter().map(loss).collect(),
        }
    }
}

/// Writes what the ranks of a job have called to a file, and removes what they have left for that.
///
/// # Errors
///
/// When the directory cannot be read, or the file not be written.
pub(crate) fn write_trace(directory: &Path, job: &str, file: &Path) -> Result<(), Failure> {
    let me = this_process()?;
    let places: Vec<PathBuf> = rendezvous_of(directory)?.into_iter().collect();
    let mut worlds = black_box::worlds(&places, true, &me, Extent::All)?;
    worlds.retain(|world| world.job() == Some(job));
    if worlds.is_empty() {
        output::say("fsgather run: no rank has left its calls; there is no trace");
        return Ok(());
    }
    let trace = Trace::of(&worlds, &me);
    trace.write(file)?;
    for line in trace.summary.lines() {
        output::say(&format!("fsgather run: {line}"));
    }
    for path in worlds.iter().flat_map(|world| &world.paths) {
        calls::remove(path);
    }
    Ok(())
}

/// What time it is by the calendar, in nanoseconds since 1970.
pub(super) fn calendar() -> i128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i128::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_which_nothing_can_be_seen_is_an_error_and_an_empty_one_is_none() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(rendezvous_of(place.path()).unwrap(), None);
        assert!(rendezvous_of(&place.path().join("missing")).is_err());
        let file = place.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        assert!(rendezvous_of(&file).is_err());
        let rendezvous = rendezvous_path(place.path());
        std::fs::create_dir(&rendezvous).unwrap();
        assert_eq!(
            rendezvous_of(place.path()).unwrap(),
            Some(rendezvous.clone())
        );
        assert_eq!(rendezvous_of(&rendezvous).unwrap(), Some(rendezvous));
    }
}
