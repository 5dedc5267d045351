//! Tells a task of a Slurm step from a shell that only looks like one.

use super::hosts::count_of_node;
use crate::environment::Variables;

/// Ids from here on are Slurm's own steps: the batch script, the interactive shell, and others.
const FIRST_SPECIAL_STEP: u64 = 4_294_967_290;

/// What Slurm's variables say of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlurmPlace {
    /// Not in a Slurm job.
    Outside,
    /// In a job, but one process of its own: a batch or interactive shell. The text says how that shows.
    Shell(String),
    /// A task of a step.
    Task,
}

/// Tells a task from a shell.
///
/// A variable that an installation does not set at all is not held against it: to take a task for a shell
/// would split the job into worlds of one, without a word.
pub(super) fn place(variables: &Variables) -> SlurmPlace {
    let get = |name| variables.get(name);
    let proofs = ["SLURM_JOB_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"];
    if proofs.into_iter().all(|name| get(name).is_none()) {
        return SlurmPlace::Outside;
    }
    for name in [
        "SLURM_PROCID",
        "SLURM_STEP_NODELIST",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
    ] {
        if get(name).is_none() {
            return SlurmPlace::Shell(format!("{name} is not set"));
        }
    }
    let step = number(variables, "SLURM_STEP_ID");
    if step.is_none_or(|step| step >= FIRST_SPECIAL_STEP) {
        return SlurmPlace::Shell("its step is an interactive shell".into());
    }
    let (step_tasks, tasks) = (get("SLURM_STEP_NUM_TASKS"), get("SLURM_NTASKS"));
    if tasks.is_some() && tasks != step_tasks {
        return SlurmPlace::Shell(format!(
            "SLURM_STEP_NUM_TASKS={} is left over, for SLURM_NTASKS={}",
            step_tasks.unwrap_or_default(),
            tasks.unwrap_or_default()
        ));
    }
    if let (Some(here), Some(expected)) = (tasks_here(variables), tasks_expected_here(variables))
        && here != expected
    {
        return SlurmPlace::Shell(format!(
            "SLURM_STEP_TASKS_PER_NODE is left over, for SLURM_GTIDS has {here} entries where it \
             says {expected}"
        ));
    }
    SlurmPlace::Task
}

/// What to say where a shell of a job of several tasks is a world of one.
pub(super) fn warning_for_a_shell(variables: &Variables) -> Option<String> {
    let SlurmPlace::Shell(how) = place(variables) else {
        return None;
    };
    let tasks = number(variables, "SLURM_NTASKS").filter(|tasks| *tasks > 1)?;
    Some(format!(
        "SLURM_NTASKS={tasks}, but this process is no task of a Slurm step ({how}), so it is a world of one; start it \
         with srun to have {tasks} ranks"
    ))
}

/// A variable that no shell has, only a task of several: Slurm's number of a shell is 0, and no shell in a step lacks it.
pub(super) fn proof_of_a_task(variables: &Variables) -> Option<(&'static str, &str)> {
    let step_without_number = match variables.get("SLURM_PROCID") {
        None => Some(("SLURM_STEP_NUM_TASKS", 1)),
        Some(_) => None,
    };
    [("SLURM_PROCID", 0), ("SLURM_LOCALID", 0)]
        .into_iter()
        .chain(step_without_number)
        .filter(|(name, of_one)| number(variables, name).is_some_and(|number| number > *of_one))
        .find_map(|(name, _)| Some((name, variables.get(name)?)))
}

/// How many tasks of the step run on this node.
///
/// Tasks need not be spread evenly, so that this cannot be had from the number of nodes.
pub(super) fn tasks_here(variables: &Variables) -> Option<usize> {
    let tasks = variables.get("SLURM_GTIDS")?;
    Some(tasks.split(',').count())
}

/// How many tasks of the step run on this node by the step's layout.
fn tasks_expected_here(variables: &Variables) -> Option<usize> {
    // The parts of a heterogeneous step count nodes and layouts each in their own way.
    if variables.get("SLURM_HET_SIZE").is_some() {
        return None;
    }
    let node = number(variables, "SLURM_NODEID")?;
    let layout = variables.get("SLURM_STEP_TASKS_PER_NODE")?;
    count_of_node(layout, usize::try_from(node).ok()?)
}

fn number(variables: &Variables, name: &str) -> Option<u64> {
    variables.get(name)?.trim().parse().ok()
}

/// The step of `srun --mpi=pmi2` that this process is a task of, as `JOB.STEP`.
///
/// Ranks of an `mpiexec` inside such a step inherit the variable, but have local ranks of their own.
pub(super) fn pmi_step(variables: &Variables) -> Option<&str> {
    match variables.get("MPI_LOCALRANKID") {
        Some(_) => None,
        None => variables.get("PMI_JOBID"),
    }
}
