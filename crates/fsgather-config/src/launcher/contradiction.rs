//! Variables of several launchers that contradict each other: [`check`] and [`warning`].
//!
//! Launchers nest, so that different numbers are no contradiction by themselves. A world of one beside a launcher of
//! several ranks is suspicious: if its variables are left over, each rank works alone.

use fsgather_core::{Error, Rank, WorldSize};

use super::{
    claim::{Claim, asks_for_one, claim, rank_without_a_size},
    detection::Detection,
    family::{Family, LauncherRow, ROWS},
    slurm,
};
use crate::environment::{self, Variables};

/// Refuses a choice that is certainly wrong, as one that goes by left-over variables.
pub(super) fn check(
    variables: &Variables,
    row: &LauncherRow,
    rank: Rank,
    world_size: WorldSize,
) -> Result<(), Error> {
    let is_bare = row.family == Family::Torchrun && !is_of_an_agent(variables);
    if is_bare && !(world_size.is_solo() && asks_for_one(variables)) {
        check_against_mpi(variables, row, rank, world_size)?;
        if world_size.is_solo()
            && let Some(proof) = proof_of_several(variables, row)
        {
            return Err(contradiction(row, rank, world_size, &proof));
        }
    }
    check_against_inner_torchrun(variables, row, rank)
}

/// The warning that a launcher has started one rank inside one of several of another launcher.
///
/// Such a launcher can be meant, as an `mpiexec -n 1` whose agents Slurm has started, one on each node.
pub(super) fn warning(
    variables: &Variables,
    row: &LauncherRow,
    detection: &Detection,
) -> Option<String> {
    let is_suspicious = detection.world_size.is_solo()
        && !matches!(row.family, Family::Fsgather | Family::Torchrun)
        && !asks_for_one(variables);
    let proof = is_suspicious.then(|| proof_of_several(variables, row))??;
    Some(format!(
        "this process works alone, in a world of one, by {} ({} and {}), yet {proof}; unset those that are left over; if \
         one process is meant, {}=1 silences this warning",
        row.family,
        row.rank,
        row.world_size,
        environment::WORLD_SIZE
    ))
}

/// Whether an agent of torchrun has set `RANK` and `WORLD_SIZE`.
fn is_of_an_agent(variables: &Variables) -> bool {
    variables.get("TORCHELASTIC_RUN_ID").is_some()
}

/// A text that names the variables of another launcher that show more than one rank.
///
/// Half of ours is no launcher: a warning of its own says that it has no effect.
fn proof_of_several(variables: &Variables, chosen: &LauncherRow) -> Option<String> {
    let mut others = ROWS
        .iter()
        .filter(|row| row.family != chosen.family && row.family != Family::Fsgather);
    let proof = others.find_map(|row| match claim(variables, row).ok()? {
        Claim::Complete(rank, world_size) if !world_size.is_solo() => {
            Some(says(row, rank, world_size))
        }
        Claim::Half(half) if half.speaks_of_several() => Some(half.text()),
        _ => None,
    });
    proof.or_else(|| Some(rank_without_a_size(variables)?.1))
}

fn says(row: &LauncherRow, rank: Rank, world_size: WorldSize) -> String {
    format!(
        "{} says {}={rank} and {}={world_size}",
        row.family, row.rank, row.world_size
    )
}

fn contradiction(row: &LauncherRow, rank: Rank, world_size: WorldSize, other: &str) -> Error {
    Error::config(format!(
        "{}={rank} and {}={world_size}, which no torchrun has set, contradict other variables: {other}; unset those that are \
         left over, or set {} and {}",
        row.rank,
        row.world_size,
        environment::RANK,
        environment::WORLD_SIZE
    ))
}

/// Refuses `RANK` and `WORLD_SIZE` that no torchrun set and that contradict the MPI launcher.
///
/// Slurm is no such launcher, not even by `srun --mpi=pmi2`: one agent for each node, which then starts
/// ranks of its own, is a common way to use it.
fn check_against_mpi(
    variables: &Variables,
    row: &LauncherRow,
    rank: Rank,
    world_size: WorldSize,
) -> Result<(), Error> {
    for mpi in ROWS.iter().filter(|other| other.family.is_mpi()) {
        if mpi.family == Family::Pmi && slurm::pmi_step(variables).is_some() {
            continue;
        }
        let Claim::Complete(mpi_rank, mpi_size) = claim(variables, mpi)? else {
            continue;
        };
        if (mpi_rank, mpi_size) == (rank, world_size) {
            return Ok(());
        }
        let says = says(mpi, mpi_rank, mpi_size);
        return Err(contradiction(row, rank, world_size, &says));
    }
    Ok(())
}

/// Refuses ranks of a torchrun that `fsgather run` has started: several of them would be the same rank of the run.
fn check_against_inner_torchrun(
    variables: &Variables,
    row: &LauncherRow,
    rank: Rank,
) -> Result<(), Error> {
    let is_of_run =
        row.family == Family::Fsgather && variables.get(environment::ERROR_FILE).is_some();
    let id = variables.get("TORCHELASTIC_RUN_ID");
    // The run gives its own name as this id.
    if !is_of_run || id.is_none() || id == variables.get(environment::JOB) {
        return Ok(());
    }
    let number = |name: &str| {
        variables
            .get(name)
            .and_then(|text| text.trim().parse::<u32>().ok())
    };
    match (number("RANK"), number("WORLD_SIZE")) {
        (Some(inner), Some(inner_size)) if inner_size > 1 => Err(Error::config(format!(
            "this is rank {rank} of `fsgather run`, and also rank {inner} of {inner_size} of a torchrun in it, whose ranks would all be the \
             same rank; start torchrun alone, or `fsgather run` alone"
        ))),
        _ => Ok(()),
    }
}
