//! The verb `trace`: who came last how often, and a picture of all ranks' last calls.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use clap::Args;
use fsgather::Error;
use fsgather_core::ProcessId;
use fsgather_store::{calls, has_rendezvous, layout::rendezvous_path, this_process};
use fsgather_trace::{
    black_box::{self, BlackBox, World},
    drawing::drawing,
    losses::{Loss, losses},
    now::standings,
    text,
    timeline::Timeline,
};
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
files. Without --job it is the job that was started last.

Clocks of hosts are compared by the calls that their ranks have in common.
`fsgather run --trace FILE` makes such a file when its ranks have ended.

With --json, standard output carries
  {schema_version, job, world_size, ranks, compared_calls, losses}";

/// Show who came last in a job's calls, how long that took, and draw it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TraceArguments {
    /// Where to look; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories.
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
    let worlds = worlds_of(&named, &arguments.directories, &me)?;
    let found = chosen(worlds, arguments.job.as_deref());
    let Some((world, others)) = found else {
        let places: Vec<String> = named
            .iter()
            .map(|place| word(&place.display().to_string()))
            .collect();
        return Err(Error::config(format!(
            "no calls of ranks lie in {}; they stay where a job fails, or with FSGATHER_TRACE=always",
            places.join(", ")
        ))
        .into());
    };
    let trace = Trace::of(&world, &me);
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
    if others > 0 {
        output::say(&format!(
            "{others} earlier jobs have left calls there; --job names one"
        ));
    }
    Ok(exit::DONE)
}

/// The worlds whose calls lie in these directories, each once; and, where the user has named none, those of this host whose
/// directory is on a server, which they have not been copied to.
pub(super) fn worlds_of(
    directories: &[PathBuf],
    given: &[PathBuf],
    me: &ProcessId,
) -> Result<Vec<World>, Failure> {
    let mut worlds: Vec<World> = Vec::new();
    let own = calls::known_local_rendezvous();
    let own = Some(own).filter(|own| given.is_empty() && own.is_dir());
    for directory in directories.iter().cloned().chain(own) {
        for world in worlds_in(&directory, me)? {
            let known = worlds
                .iter_mut()
                .find(|known| known.communicator == world.communicator);
            match known {
                Some(known) if known.boxes.len() >= world.boxes.len() => {}
                Some(known) => *known = world,
                None => worlds.push(world),
            }
        }
    }
    Ok(worlds)
}

/// The worlds whose calls lie in a directory; of a file, its own.
fn worlds_in(directory: &Path, me: &ProcessId) -> Result<Vec<World>, Failure> {
    let told = |error: std::io::Error| Error::storage("list", directory, &error);
    if directory.is_file()
        && let (Some(parent), Some(name)) = (directory.parent(), directory.file_name())
    {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let mut worlds = black_box::worlds(parent, me).map_err(told)?;
        worlds.retain(|world| {
            let its = format!("calls-{}-", world.communicator.simple());
            name.to_str().is_some_and(|name| name.starts_with(&its))
        });
        return Ok(worlds);
    }
    let rendezvous = if directory.file_name() == rendezvous_path(Path::new("")).file_name() {
        directory.to_owned()
    } else if has_rendezvous(directory) {
        rendezvous_path(directory)
    } else {
        // That it is no directory is worth a word; that nobody has gathered through it is not.
        std::fs::metadata(directory).map_err(told)?;
        return Ok(Vec::new());
    };
    Ok(black_box::worlds(&rendezvous, me).map_err(told)?)
}

/// The world to show, the last one, and how many jobs there are besides.
fn chosen(worlds: Vec<World>, job: Option<&str>) -> Option<(World, usize)> {
    let mut worlds: Vec<World> = worlds
        .into_iter()
        .filter(|world| !world.boxes.is_empty() && (job.is_none() || world.job() == job))
        .collect();
    worlds.sort_by_key(|world| world.boxes.iter().map(|one| one.header.began).min());
    let last = worlds.pop()?;
    Some((last, worlds.len()))
}

/// A world's calls, and what they come to.
pub(crate) struct Trace {
    timeline: Timeline,
    job: Option<String>,
    world_size: u32,
    /// What time it is on its axis, or when it ended.
    end: i64,
    pub(crate) summary: String,
}

impl Trace {
    /// That of a world, as this process sees it now.
    pub(crate) fn of(world: &World, me: &ProcessId) -> Self {
        let timeline = Timeline::new(world.boxes.clone());
        let end = if world.boxes.iter().any(BlackBox::may_run) {
            timeline.now(me, calendar()).max(timeline.end())
        } else {
            timeline.end()
        };
        Self {
            job: world.job().map(str::to_owned),
            world_size: world.size(),
            end,
            summary: text::summary(world, &timeline, end),
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
            ranks: standings(&self.timeline, self.end)
                .iter()
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
    let mut worlds = worlds_in(directory, &me)?;
    let local = calls::known_local_rendezvous();
    if local.is_dir() {
        worlds.extend(worlds_in(&local, &me)?);
    }
    worlds.retain(|world| world.job() == Some(job));
    let mut boxes: Vec<BlackBox> = Vec::new();
    for found in worlds.into_iter().flat_map(|world| world.boxes) {
        if boxes.iter().all(|known| known.header != found.header) {
            boxes.push(found);
        }
    }
    let Some(communicator) = boxes.first().map(|one| one.header.communicator) else {
        output::say("fsgather run: no rank has left its calls; there is no trace");
        return Ok(());
    };
    let left: Vec<PathBuf> = boxes.iter().map(|one| one.path.clone()).collect();
    let world = World {
        communicator,
        boxes,
        unread: Vec::new(),
    };
    let trace = Trace::of(&world, &me);
    trace.write(file)?;
    for line in trace.summary.lines() {
        output::say(&format!("fsgather run: {line}"));
    }
    for path in left {
        calls::remove(&path);
    }
    Ok(())
}

/// What time it is by the calendar, in nanoseconds since 1970.
pub(super) fn calendar() -> i128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i128::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(i128::MAX)
}
