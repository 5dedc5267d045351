//! The verb `broadcast`: sends the bytes of one rank to all ranks.

use fsgather::Stream;
use std::{path::PathBuf, time::Instant};

use clap::Args;
use serde::Serialize;

use crate::{
    delivery::{self, NewFile},
    exit,
    failure::Failure,
    input::Input,
    invocation::Invocation,
    membership::{JoinArguments, Membership, for_rank, needs_name, needs_rank},
    output,
};

const EXAMPLES: &str = "\
Examples:
  srun sh -c 'fsgather broadcast config.json --out /tmp/config.{rank}.json'
      rank 0's file goes to every rank; what the others name is not read
  fsgather run -n 4 -- fsgather broadcast --root 2 seeds.txt
      every rank prints rank 2's file

The root reads FILE, or standard input. With --out, which must contain {rank},
each rank writes a file, which appears whole; without it, standard output.
Ranks must agree on --root, --out and --name.

With --json and --out, standard output carries
  {schema_version, rank, world_size, root, bytes, file, seconds}.";

/// Hand one rank's file or standard input to every rank.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BroadcastArguments {
    /// What the root hands over; standard input if it is `-` or left out.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// The rank that hands over (the root).
    #[arg(long, value_name = "R", default_value_t = 0)]
    root: u32,

    /// The file that each rank writes; `{rank}` in it is replaced by the rank's number.
    #[arg(long, value_name = "FILE")]
    out: Option<String>,

    /// Replace a file that exists.
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    join: JoinArguments,
}

#[derive(Serialize)]
struct BroadcastReport {
    rank: u32,
    world_size: u32,
    root: u32,
    bytes: usize,
    file: Option<PathBuf>,
    seconds: f64,
}

/// Sends the root's input to every rank.
///
/// # Errors
///
/// Returns an error if the ranks do not meet, a rank is lost or late, or a file or stream cannot be read or written.
pub(crate) fn broadcast(
    arguments: &BroadcastArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let started = Instant::now();
    needs_name("--out", arguments.out.as_deref())?;
    if let Some(out) = &arguments.out {
        needs_rank("--out", out)?;
    } else if json {
        return Err(Failure::usage(
            "--json needs --out: standard output cannot carry the payload as well",
        ));
    }
    let membership = Membership::join(&arguments.join, invocation)?;
    let verb = format!("broadcast from {}", arguments.root);
    let purpose = arguments.join.purpose(verb, arguments.out.as_deref());
    let report = membership.complete_as(purpose, |communicator| {
        let rank = communicator.rank();
        let is_root = rank.get() == arguments.root;
        // Only the root reads its input.
        let mut input = if is_root {
            Input::of(arguments.file.as_deref())
        } else {
            Input::of(Some("-".as_ref()))
        }?;
        let out = arguments.out.as_ref().map(|out| for_rank(out, rank));
        let payload = communicator
            .broadcast(Stream::new(&mut input), arguments.root)
            .map_err(|error| input.explain(error, rank))?;
        let file = match out {
            None => {
                delivery::print(&payload)?;
                None
            }
            Some(path) => {
                let mut file = NewFile::begin(&path, arguments.force)?;
                file.write(&payload)?;
                Some(file.finish()?)
            }
        };
        Ok(BroadcastReport {
            rank: rank.get(),
            world_size: communicator.world_size().get(),
            root: arguments.root,
            bytes: payload.len(),
            file,
            seconds: started.elapsed().as_secs_f64(),
        })
    })?;
    if json {
        output::json(&report).map_err(Failure::system("write standard output"))?;
    }
    Ok(exit::DONE)
}
