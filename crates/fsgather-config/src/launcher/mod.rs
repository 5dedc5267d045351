//! Finds rank and world size in what launchers leave in the environment: [`detect`].
//!
//! Launchers nest: torchrun or `mpirun` under Slurm leave ranks with the Slurm variables of whatever
//! started *them*. So the families are tried from the inside out, and the first that says both rank and
//! world size is the one.

mod contradiction;
mod detection;
mod family;
mod hosts;
mod slurm;
#[cfg(test)]
mod tests;

pub use detection::{Detection, Master};
pub use family::{Family, LauncherRow, ROWS};

use fsgather_core::{Error, Rank, WorldSize};

use self::{family::RANKS_WITHOUT_A_SIZE, slurm::SlurmPlace};
use crate::environment::{self, Variables, refusal};

/// Finds out who this rank is: the first family of launchers that says both rank and world size.
///
/// A family that says only half of it is passed over with a note, and so are all families after the first
/// complete one, which are not even read. If there is none, this is a world of one, with a
/// [warning](Detection::warning) unless `FSGATHER_WORLD_SIZE=1` asks for it. Half of ours that contradicts the launcher is one as well.
///
/// ```
/// use fsgather_config::{environment::Variables, launcher::{Family, detect}};
///
/// let me = detect(&Variables::from_iter([
///     ("RANK", "2"),
///     ("WORLD_SIZE", "4"),
///     ("SLURM_PROCID", "1"),
/// ]))?;
/// assert_eq!((me.family, me.rank.get(), me.world_size.get()), (Family::Torchrun, 2, 4));
/// assert_eq!(me.others, [Family::Slurm]);
/// # Ok::<(), fsgather_core::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Config`] when a value is not a number, or a rank lies outside of its world; when no family is
/// complete, yet a variable of one proves that there is more than one rank; and when `RANK` and `WORLD_SIZE` come
/// from no torchrun and contradict an MPI launcher, or name one rank where another launcher has started several.
pub fn detect(variables: &Variables) -> Result<Detection, Error> {
    let mut skipped = Vec::new();
    let mut halves = Vec::new();
    let mut rows = ROWS.iter();
    let mut found = None;
    for row in rows.by_ref() {
        match claim(variables, row)? {
            Claim::Absent => {}
            Claim::Half(half) => halves.push(half),
            Claim::NotARank(why) => {
                skipped.push(format!("ignored {}: {why}", row.family));
            }
            Claim::Complete(rank, world_size) => {
                found = Some((row, rank, world_size));
                break;
            }
        }
    }

    let mut detection = match found {
        None => Detection::alone(),
        Some((row, rank, world_size)) => {
            contradiction::check(variables, row, rank, world_size)?;
            let mut detection = Detection::claimed(variables, row, rank, world_size);
            detection.warning = contradiction::warning(variables, row, &detection);
            detection
        }
    };
    if detection.family == Family::Kubernetes {
        // The world size that it goes by is ours: nothing is half-set then.
        halves.retain(|half| half.row.family != Family::Fsgather);
    }
    if detection.family == Family::Alone && !asks_for_one(variables) {
        if let Some(half) = halves.iter().find(|half| half.speaks_of_several()) {
            return Err(half.error());
        }
        if let Some((name, text)) = rank_without_a_size(variables) {
            return Err(one_of_several(&text, &ways_to_say_both(name)));
        }
        let shell = slurm::warning_for_a_shell(variables);
        detection.warning = Some(shell.unwrap_or_else(|| ALONE.into()));
    }
    if detection.family != Family::Alone {
        let mut ours = halves
            .iter()
            .filter(|half| half.row.family == Family::Fsgather);
        let without_effect = ours.find_map(|half| half.warning_beside(&detection));
        detection.warning = without_effect.or(detection.warning);
    }
    for half in &halves {
        skipped.push(format!("ignored {}: {}", half.row.family, half.text()));
    }
    detection.notes.append(&mut skipped);
    detection.see_others(variables, rows.clone());
    if matches!(detection.family, Family::Fsgather | Family::Torchrun) {
        for row in rows {
            if let Ok(Claim::Complete(rank, world_size)) = claim(variables, row) {
                let launched = Detection::claimed(variables, row, rank, world_size);
                detection.take_id_of(&launched, variables);
            }
        }
    }
    detection.take_local(variables)?;
    Ok(detection)
}

/// The detection of a program that names rank and world size itself: no launcher is believed or read.
///
/// Our own variables for the local rank and size still count.
///
/// # Errors
///
/// [`Error::Config`] when `rank` lies outside of the world, or a local variable of ours is wrong.
pub fn explicit(
    variables: &Variables,
    rank: Rank,
    world_size: WorldSize,
) -> Result<Detection, Error> {
    let mut detection = Detection::explicit(world_size.rank(rank.get())?, world_size);
    detection.see_others(variables, ROWS.iter());
    // Local numbers of the launcher's world say nothing of a smaller one, such as a group of torch.
    if detection.take_local(variables).is_err() {
        detection.notes.push("local rank and size of fsgather's variables do not fit into this world and were dropped".into());
        detection.take_local(&Variables::default())?;
    }
    // Who names ranks in the program has mostly been started by a launcher all the same, as those of torch have.
    if let Ok(launched) = detect(variables)
        && !world_size.is_solo()
    {
        if detection.local_size.is_none()
            && launched.is_on_one_host()
            && launched.world_size >= world_size
        {
            detection.local_size = Some(world_size.get());
        }
        detection.take_id_of(&launched, variables);
    }
    Ok(detection)
}

/// The warning of a world of one that no variable asks for.
const ALONE: &str = "this process works alone, in a world of one: no launcher's variables say a rank and a world size. Start \
     ranks with srun, mpirun, torchrun or fsgather run, or set FSGATHER_RANK and FSGATHER_WORLD_SIZE; if one process is meant, \
     FSGATHER_WORLD_SIZE=1 silences this warning";

/// Whether the user says that this process is the only one.
fn asks_for_one(variables: &Variables) -> bool {
    let size = variables.get(environment::WORLD_SIZE);
    size.is_some_and(|size| size.trim() == "1")
}

/// What one family says.
enum Claim {
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
struct Half {
    row: &'static LauncherRow,
    set: &'static str,
    value: String,
    lack: String,
}

impl Half {
    fn new(row: &'static LauncherRow, set: &'static str, value: &str, lack: String) -> Self {
        let value = value.to_owned();
        Self {
            row,
            set,
            value,
            lack,
        }
    }

    /// Whether the one variable alone shows that there is more than one rank.
    fn speaks_of_several(&self) -> bool {
        let is_size = self.set == self.row.world_size;
        let number = self.value.trim().parse::<u64>().unwrap_or(0);
        number > u64::from(is_size)
    }

    fn missing(&self) -> &'static str {
        if self.set == self.row.world_size {
            self.row.rank
        } else {
            self.row.world_size
        }
    }

    fn text(&self) -> String {
        format!("{}={} is set {}", self.set, self.value, self.lack)
    }

    /// The warning that this variable of the user, which says something else than a launcher, has no effect.
    fn warning_beside(&self, launched: &Detection) -> Option<String> {
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

    fn error(&self) -> Error {
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
fn rank_without_a_size(variables: &Variables) -> Option<(&'static str, String)> {
    let is_later = |text: &str| text.trim().parse().is_ok_and(|rank: u32| rank > 0);
    RANKS_WITHOUT_A_SIZE.into_iter().find_map(|name| {
        let rank = variables.get(name).filter(|text| is_later(text))?;
        let text = format!("{name}={rank} is set, whose launcher says no world size");
        Some((name, text))
    })
}

fn ways_to_say_both(set: &str) -> String {
    format!(
        "start the program by a launcher that sets both, and hand all its variables on, or set {} and {}; if this process \
         works alone, unset {set} or set {}=1",
        environment::RANK,
        environment::WORLD_SIZE,
        environment::WORLD_SIZE,
    )
}

fn one_of_several(half: &str, way_out: &str) -> Error {
    Error::config(format!(
        "this process is one of several, but which one of how many is not known: {half}, and no \
         other launcher says both; {way_out}"
    ))
}

fn claim(variables: &Variables, row: &'static LauncherRow) -> Result<Claim, Error> {
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
    let step = pmi_step_of_srun(variables)?;
    let job = variables.get("SLURM_JOB_ID")?;
    let of_this_job = step.split('.').next() == Some(job);
    (!of_this_job).then(|| format!("PMI_JOBID={step} is left over, for this is SLURM_JOB_ID={job}"))
}

/// The step of `srun --mpi=pmi2` that this process is a task of, as `JOB.STEP`.
///
/// Ranks of an `mpiexec` inside such a step inherit the variable, but have local ranks of their own.
fn pmi_step_of_srun(variables: &Variables) -> Option<&str> {
    match variables.get("MPI_LOCALRANKID") {
        Some(_) => None,
        None => variables.get("PMI_JOBID"),
    }
}
