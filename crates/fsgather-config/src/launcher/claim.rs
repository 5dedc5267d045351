//! The rank and world size that one family of launchers states: [`claim`].

use fsgather_core::{Error, Rank, WorldSize};

use super::{
    detection::Detection,
    family::{Family, LauncherRow, RANKS_WITHOUT_A_SIZE},
    slurm::{self, SlurmPlace},
};
use crate::environment::{self, Variables, refusal};

/// Returns true if the user says that this process is the only one.
pub(super) fn asks_for_one(variables: &Variables) -> bool {
    let size = variables.get(environment::WORLD_SIZE);
    size.is_some_and(|size| size.trim() == "1")
}

/// The statement of one family.
pub(super) enum Claim {
    /// Nothing.
    Absent,
    /// A rank or a world size, but not both.
    Half(Half),
    /// That this process is no rank of it, and how that shows.
    NotARank(String),
    /// Both.
    Complete(Rank, WorldSize),
}

/// One variable of a family that does not say everything.
pub(super) struct Half {
    pub(super) row: &'static LauncherRow,
    set: &'static str,
    value: String,
    lack: String,
}

impl Half {
    pub(super) fn new(
        row: &'static LauncherRow,
        set: &'static str,
        value: &str,
        lack: String,
    ) -> Self {
        let value = value.to_owned();
        Self {
            row,
            set,
            value,
            lack,
        }
    }

    /// Returns true if the one variable alone shows that there is more than one rank.
    pub(super) fn speaks_of_several(&self) -> bool {
        let is_size = self.set == self.row.world_size;
        let number = self.value.trim().parse::<u64>().unwrap_or(0);
        number > u64::from(is_size)
    }

    pub(super) fn missing(&self) -> &'static str {
        if self.set == self.row.world_size {
            self.row.rank
        } else {
            self.row.world_size
        }
    }

    pub(super) fn text(&self) -> String {
        format!("{}={} is set {}", self.set, self.value, self.lack)
    }

    /// The warning that this variable of the user, which says something else than a launcher, has no effect.
    pub(super) fn warning_beside(&self, launched: &Detection) -> Option<String> {
        let is_size = self.set == self.row.world_size;
        let number = if is_size {
            launched.world_size.get()
        } else {
            launched.rank.get()
        };
        let is_obeyed = self.value.trim().parse() == Ok(number);
        let (set, missing) = (self.set, self.missing());
        let choice = launched.notes.first().map_or("", String::as_str);
        (!is_obeyed).then(|| {
            format!(
                "{set}={} has no effect without {missing}: this process is {choice}. Set {missing} as well, or unset {set}",
                self.value
            )
        })
    }

    pub(super) fn error(&self) -> Error {
        let missing = self.missing();
        let way_out = if self.row.family == Family::Kubernetes {
            format!("set {missing} to the number of completions")
        } else if self.row.family == Family::Fsgather {
            format!("set {missing} too, or unset {}", self.set)
        } else {
            ways_to_say_both(self.set)
        };
        one_of_several(&self.text(), &way_out)
    }
}

/// A variable whose launcher names no world size and has given this process another rank than 0, and a text that says so.
pub(super) fn rank_without_a_size(variables: &Variables) -> Option<(&'static str, String)> {
    let is_later = |text: &str| text.trim().parse().is_ok_and(|rank: u32| rank > 0);
    RANKS_WITHOUT_A_SIZE.into_iter().find_map(|name| {
        let rank = variables.get(name).filter(|text| is_later(text))?;
        let text = format!("{name}={rank} is set, whose launcher says no world size");
        Some((name, text))
    })
}

pub(super) fn ways_to_say_both(set: &str) -> String {
    format!(
        "start the program by a launcher that sets both, and hand all its variables on, or set {} and {}; if this process \
         works alone, unset {set} or set {}=1",
        environment::RANK,
        environment::WORLD_SIZE,
        environment::WORLD_SIZE,
    )
}

pub(super) fn one_of_several(half: &str, way_out: &str) -> Error {
    Error::config(format!(
        "this process is one of several, but which one of how many is not known: {half}, and no \
         other launcher says both; {way_out}"
    ))
}

pub(super) fn claim(variables: &Variables, row: &'static LauncherRow) -> Result<Claim, Error> {
    match row.family {
        Family::Slurm => match slurm::place(variables) {
            SlurmPlace::Outside => return Ok(Claim::Absent),
            SlurmPlace::Shell(how) => {
                if let Some((name, value)) = slurm::proof_of_a_task(variables) {
                    let lack = format!("in what looks like a shell, because {how}");
                    return Ok(Claim::Half(Half::new(row, name, value, lack)));
                }
                return Ok(Claim::NotARank(format!(
                    "this is a batch or interactive shell, not a task of a step, because {how}"
                )));
            }
            SlurmPlace::Task => {}
        },
        Family::Pmi => {
            if let Some(left_over) = left_over_from_another_job(variables) {
                return Ok(Claim::NotARank(left_over));
            }
        }
        _ => {}
    }
    let half = |set, value: &str, missing: &str| {
        let lack = format!("without {missing}");
        Ok(Claim::Half(Half::new(row, set, value, lack)))
    };
    match (variables.get(row.rank), variables.get(row.world_size)) {
        (None, None) => Ok(Claim::Absent),
        (None, Some(_)) if !row.owns_world_size => Ok(Claim::Absent),
        (None, Some(size)) => half(row.world_size, size, row.rank),
        (Some(rank), None) => half(row.rank, rank, row.world_size),
        (Some(rank), Some(size)) => {
            let (rank, world_size) = checked(row, rank, size)?;
            Ok(Claim::Complete(rank, world_size))
        }
    }
}

fn checked(
    row: &LauncherRow,
    rank_text: &str,
    size_text: &str,
) -> Result<(Rank, WorldSize), Error> {
    let world_size = size_text
        .trim()
        .parse()
        .ok()
        .and_then(|size| WorldSize::new(size).ok())
        .ok_or_else(|| {
            let wrong = format!("is not a world size between 1 and {}", WorldSize::MAX);
            refusal(row.world_size, size_text, &wrong, "4")
        })?;
    let rank = rank_text
        .trim()
        .parse()
        .map_err(|_| refusal(row.rank, rank_text, "is not a rank", "0"))?;
    let rank = world_size.rank(rank).map_err(|_| {
        let wrong = format!(
            "is outside of the world of {}={world_size}, whose ranks go from 0 to {}",
            row.world_size,
            world_size.get() - 1
        );
        refusal(row.rank, rank_text, &wrong, "0")
    })?;
    Ok((rank, world_size))
}

/// `sbatch` called inside a step of `srun --mpi=pmi2` hands that step's variables on to its batch shell.
fn left_over_from_another_job(variables: &Variables) -> Option<String> {
    let step = slurm::pmi_step(variables)?;
    let job = variables.get("SLURM_JOB_ID")?;
    let of_this_job = step.split('.').next() == Some(job);
    (!of_this_job).then(|| format!("PMI_JOBID={step} is left over, for this is SLURM_JOB_ID={job}"))
}
