//! The verb `gather`: collects the bytes of all ranks on one rank, or on all.

use std::{
    ffi::OsString,
    io::{ErrorKind, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use fsgather::{Communicator, Rank, Stream};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::{
    delivery::{self, NewFile},
    exit,
    failure::Failure,
    input::Input,
    invocation::Invocation,
    kept_names,
    membership::{JoinArguments, Membership, for_rank, needs_name, needs_rank},
    output, progress,
    purpose::CommandPurpose,
    standard_streams,
};

const EXAMPLES: &str = "\
Examples:
  srun sh -c './evaluate | fsgather gather --out all'
      rank 0 gets all/rank-00000, all/rank-00001, ...
  mpirun -np 8 sh -c './score >s.$$; fsgather gather s.$$ --concat=scores.txt'
      rank 0 gets one file, parts in rank order
  fsgather run -n 4 -- fsgather gather --all --out 'got.{rank}' data.bin
      every rank gets everything, in a directory of its own

Each rank hands over FILE, or its standard input. Files appear whole, by rename.
If a script has several gathers, begin it with `set -e`, so that it ends where
one fails. Otherwise the next gather of this rank meets the one in which the
other ranks still wait. Ranks with different --name, --out or --concat= are
told so; gathers to standard output are told apart by --name alone.

With --all, --out and --concat= must contain {rank}, which is replaced by the
rank's number, so that no two ranks write to the same place.

Beware: srun hands its standard input to every rank. Use `srun --input=0`, give
each rank a FILE, or redirect the input of each rank's own command as above.

With --json, standard output of each rank carries
  {schema_version, rank, world_size, root, bytes_given, bytes_received, files,
   seconds}
  `root` is null with --all; `files` lists what this rank has written.";

const PROGRESS: &str =
    "received {bytes} of {total_bytes} ({percent} %), {bytes_per_sec}, {eta} left";

/// Gather every rank's file or standard input, on one rank or on all.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GatherArguments {
    /// What this rank hands over; standard input if it is `-` or left out.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// The rank that receives.
    #[arg(long, value_name = "R", default_value_t = 0, conflicts_with = "all")]
    root: u32,

    /// Give everything to every rank.
    #[arg(long)]
    all: bool,

    /// Write one file from each rank into this directory: rank-00000, rank-00001, ...
    #[arg(long, value_name = "DIR", conflicts_with = "concat")]
    out: Option<String>,

    /// Put all parts together in rank order: into FILE, or to standard output without one. This is the default.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    concat: Option<String>,

    /// Keep the name that each FILE had, in --out, instead of rank-00000, ...
    #[arg(long, requires = "out")]
    keep_names: bool,

    /// Replace files that exist.
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    join: JoinArguments,
}

/// The destination of the received bytes.
enum Destination {
    /// One file for each rank, by rank.
    Files(Vec<PathBuf>),
    /// One file.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

#[derive(Serialize)]
struct GatherReport {
    rank: u32,
    world_size: u32,
    root: Option<u32>,
    bytes_given: u64,
    bytes_received: u64,
    files: Vec<PathBuf>,
    seconds: f64,
}

/// Gathers every rank's input.
///
/// # Errors
///
/// Returns an error if the ranks do not meet, a rank is lost or late, or a file or stream cannot be read or written.
pub(crate) fn gather(
    arguments: &GatherArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let started = Instant::now();
    arguments.check(json)?;
    let mut input = Input::of(arguments.file.as_deref())?;
    let progress = progress::bar(0, PROGRESS)?;
    let membership = Membership::join(&arguments.join, invocation)?;
    let report = membership.complete_as(arguments.purpose(), |communicator| {
        let rank = communicator.rank();
        let receives = arguments.all || rank.get() == arguments.root;
        let names = arguments.names(communicator, &input)?;
        let destination = arguments.destination(rank, communicator, names);
        if receives && let Some(objection) = destination.objection(arguments.force) {
            // Reported inside the call, so that no rank waits for this one.
            input.refuse(objection);
        }
        let mut sink = Sink::new(&destination, arguments.force, progress);
        if arguments.all {
            let parts = communicator.all_gather(Stream::new(&mut input));
            let parts = parts.map_err(|error| input.explain(error, rank))?;
            let bytes = parts.iter().map(|part| part.len() as u64).sum();
            sink.progress.set_length(bytes);
            for (index, payload) in parts.into_iter().enumerate() {
                sink.take(index, &mut &*payload)?;
            }
        } else if let Some(parts) = communicator
            .gather(Stream::new(&mut input), arguments.root)
            .map_err(|error| input.explain(error, rank))?
        {
            // Read as streams, so that the largest part need not fit into memory.
            sink.progress.set_length(parts.bytes_left());
            for (index, part) in parts.into_readers().enumerate() {
                let mut part = part?;
                sink.take(index, &mut part)
                    .map_err(|failure| match part.take_error() {
                        Some(error) => error.into(),
                        None => failure,
                    })?;
            }
        }
        let (bytes_received, files) = sink.finish()?;
        Ok(GatherReport {
            rank: rank.get(),
            world_size: communicator.world_size().get(),
            root: (!arguments.all).then_some(arguments.root),
            bytes_given: input.bytes_read(),
            bytes_received,
            files,
            seconds: started.elapsed().as_secs_f64(),
        })
    })?;
    if json {
        output::json(&report).map_err(Failure::system("write standard output"))?;
    }
    Ok(exit::DONE)
}

impl GatherArguments {
    fn purpose(&self) -> CommandPurpose {
        let verb = if self.all {
            "gather to all".to_owned()
        } else {
            format!("gather to {}", self.root)
        };
        let concat = self.concat.as_deref().filter(|concat| *concat != "-");
        self.join.purpose(verb, self.out.as_deref().or(concat))
    }

    fn check(&self, json: bool) -> Result<(), Failure> {
        needs_name("--out", self.out.as_deref())?;
        needs_name("--concat=", self.concat.as_deref())?;
        if self.all {
            match (&self.out, self.concat.as_deref()) {
                (Some(out), _) => needs_rank("--out", out)?,
                (None, Some(concat)) if concat != "-" => needs_rank("--concat", concat)?,
                _ => {
                    return Err(Failure::usage(
                        "--all to standard output would print everything once for each rank; use --out or \
                         --concat=FILE, with {rank} in it",
                    ));
                }
            }
        }
        let prints = self.out.is_none() && matches!(self.concat.as_deref(), None | Some("-"));
        if json && prints {
            return Err(Failure::usage(
                "--json needs --out or --concat=FILE: standard output cannot carry the payloads as well",
            ));
        }
        if self.keep_names
            && self
                .file
                .as_deref()
                .is_none_or(|file| file == Path::new("-"))
        {
            return Err(Failure::usage(
                "--keep-names needs a FILE: standard input has no name",
            ));
        }
        Ok(())
    }

    /// The file name of each rank, if names are kept.
    fn names(
        &self,
        communicator: &Communicator,
        input: &Input,
    ) -> Result<Option<Vec<OsString>>, Failure> {
        if !self.keep_names {
            return Ok(None);
        }
        let own = input.file_name().unwrap_or_default();
        let names = communicator.all_gather(&own.as_bytes().to_vec())?;
        kept_names::agree(names).map(Some)
    }

    fn destination(
        &self,
        rank: Rank,
        communicator: &Communicator,
        names: Option<Vec<OsString>>,
    ) -> Destination {
        let expand = |template: &str| {
            if self.all {
                for_rank(template, rank)
            } else {
                PathBuf::from(template)
            }
        };
        match (&self.out, self.concat.as_deref()) {
            (Some(out), _) => {
                let directory = expand(out);
                let names = names.unwrap_or_else(|| {
                    communicator
                        .world_size()
                        .ranks()
                        .map(|rank| format!("rank-{:05}", rank.get()).into())
                        .collect()
                });
                Destination::Files(names.iter().map(|name| directory.join(name)).collect())
            }
            (None, Some(concat)) if concat != "-" => Destination::File(expand(concat)),
            _ => Destination::Stdout,
        }
    }
}

impl Destination {
    fn objection(&self, force: bool) -> Option<String> {
        match self {
            Self::Files(paths) => paths
                .iter()
                .find_map(|path| delivery::objection(path, force)),
            Self::File(path) => delivery::objection(path, force),
            Self::Stdout => standard_streams::output_objection().map(str::to_owned),
        }
    }
}

/// Writes payloads to their destination, in rank order.
struct Sink<'a> {
    progress: ProgressBar,
    destination: &'a Destination,
    force: bool,
    open: Option<NewFile>,
    files: Vec<PathBuf>,
}

impl<'a> Sink<'a> {
    fn new(destination: &'a Destination, force: bool, progress: ProgressBar) -> Self {
        Self {
            progress,
            destination,
            force,
            open: None,
            files: Vec::new(),
        }
    }

    fn take(&mut self, index: usize, payload: &mut dyn Read) -> Result<(), Failure> {
        let progress = &self.progress;
        match self.destination {
            Destination::Stdout => {
                copy(payload, progress, delivery::print)?;
            }
            Destination::File(path) => {
                let file = match self.open.take() {
                    Some(file) => file,
                    None => NewFile::begin(path, self.force)?,
                };
                let file = self.open.insert(file);
                copy(payload, progress, |piece| file.write(piece))?;
            }
            Destination::Files(paths) => {
                if let Some(path) = paths.get(index) {
                    let mut file = NewFile::begin(path, self.force)?;
                    copy(payload, progress, |piece| file.write(piece))?;
                    self.files.push(file.finish()?);
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(u64, Vec<PathBuf>), Failure> {
        if let Some(file) = self.open.take() {
            self.files.push(file.finish()?);
        }
        self.progress.finish_and_clear();
        Ok((self.progress.position(), self.files))
    }
}

/// Copies a stream to its destination, piece by piece.
fn copy(
    stream: &mut dyn Read,
    progress: &ProgressBar,
    mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    const BUFFER_BYTES: usize = 1 << 20;
    let mut piece = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                write(&piece[..read])?;
                progress.inc(read as u64);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::system("read a payload")(error)),
        }
    }
}
