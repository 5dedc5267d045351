//! The verb `barrier`: waits until all ranks have reached it.

use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::{
    exit,
    failure::Failure,
    invocation::Invocation,
    membership::{JoinArguments, Membership},
    output,
};

const EXAMPLES: &str = "\
Examples:
  srun sh -c './prepare && fsgather barrier && ./compute'
      no rank computes before all have prepared
  fsgather run -n 4 -- fsgather barrier --timeout 30s
      four ranks on this machine; a rank that does not come is named

With --json, standard output carries
  {schema_version, rank, world_size, seconds}.";

/// Wait until every rank has come to this point.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BarrierArguments {
    #[command(flatten)]
    join: JoinArguments,
}

#[derive(Serialize)]
struct BarrierReport {
    rank: u32,
    world_size: u32,
    seconds: f64,
}

/// Waits until every rank has reached this point.
///
/// # Errors
///
/// Returns an error if the ranks do not meet, or a rank is lost or late.
pub(crate) fn barrier(
    arguments: &BarrierArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let started = Instant::now();
    let membership = Membership::join_without_payloads(&arguments.join, invocation)?;
    let report =
        membership.complete_as(arguments.join.purpose("barrier", None), |communicator| {
            communicator.barrier()?;
            Ok(BarrierReport {
                rank: communicator.rank().get(),
                world_size: communicator.world_size().get(),
                seconds: started.elapsed().as_secs_f64(),
            })
        })?;
    if json {
        output::json(&report).map_err(Failure::system("write standard output"))?;
    }
    Ok(exit::DONE)
}
