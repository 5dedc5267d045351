//! Finds rank and world size in what launchers leave in the environment: [`detect`].
//!
//! Launchers nest: torchrun or `mpirun` under Slurm leave ranks with the Slurm variables of whatever
//! started *them*. So the families are tried from the inside out, and the first that says both rank and
//! world size is the one.

mod claim;
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

use self::claim::{
    Claim, asks_for_one, claim, one_of_several, rank_without_a_size, ways_to_say_both,
};
use crate::environment::Variables;

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
