//! Proves that ranks see one and the same directory, by its content and not by its name: [`prove`].
//!
//! One prober for each mount namespace leaves a nonce in the gather directory and sends it to all ranks. Then each
//! prober looks for all nonces, and sends those that it sees.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use fsgather_core::{Error, ProcessId, Rank};
use fsgather_store::{
    Class, FileSystem, GatherDir, GatherFacts, OwnUid, Planted, ProbeNonce, probers,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Time for which a prober looks for files that another host has written to a network file system.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);

/// The messages in which ranks exchange their findings.
pub(crate) trait Talk {
    /// Sends the finding of this rank to all. Returns the findings of all ranks, in rank order.
    ///
    /// # Errors
    ///
    /// Those of a collective call.
    fn gather_all<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>, Error>;

    /// Makes the common work fail because this rank cannot continue. Returns the error that all ranks agree on.
    fn fail(&self, cause: Error) -> Error;

    /// Returns an error if this rank must stop.
    ///
    /// # Errors
    ///
    /// [`Error::PeerFailed`] with the reason.
    fn heed(&self) -> Result<(), Error>;
}

/// The nonce that a prober has left for the others to find, or the reason why a rank cannot use the directory.
type Planting = Result<Option<ProbeNonce>, String>;

/// The reason why a directory is not shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blindness {
    /// The ranks that do not see the files of rank 0, or whose files it does not see.
    pub ranks: Vec<usize>,
    /// The evidence.
    pub reason: String,
}

impl Blindness {
    /// Returns it as an error for all ranks.
    #[must_use]
    pub(crate) fn into_error(self, directory: &Path, processes: &[ProcessId]) -> Error {
        let mut hosts: Vec<String> = self
            .ranks
            .iter()
            .map(|&rank| processes[rank].host.clone())
            .collect();
        hosts.dedup();
        Error::not_shared(directory.to_owned(), hosts, self.reason)
    }
}

/// Finds out, together with all other ranks, if all mount namespaces see the same directory. Returns the ranks that do
/// not, if any.
///
/// Its files stay until [`GatherDir::clear_probes`].
///
/// # Errors
///
/// Those of the messages between ranks, and those of [`Talk::heed`].
pub(crate) fn prove(
    talk: &impl Talk,
    rank: Rank,
    processes: &[ProcessId],
    rendezvous: &Path,
    opened: Result<&GatherDir, &Error>,
) -> Result<Option<Blindness>, Error> {
    let all = probers(processes);
    let is_prober = all.contains(&rank.index());
    let mut planted = None;
    let own = match opened {
        Ok(directory) if is_prober => plant(directory, processes.get(rank.index()), &mut planted),
        Ok(_) => Ok(None),
        Err(problem) => Err(brief(problem)),
    };
    let plantings: Vec<Planting> = talk.gather_all(&own)?;
    let nonces: Vec<ProbeNonce> = plantings
        .iter()
        .flatten()
        .filter_map(|nonce| *nonce)
        .collect();
    // All probers look at the same time, and keep their nonces visible meanwhile.
    let seen: Vec<ProbeNonce> = match opened {
        Ok(directory) if is_prober && plantings.iter().all(Result::is_ok) => {
            let started = Instant::now();
            let mut tend = |_| {
                if let Some(planted) = &mut planted {
                    planted.tend(started.elapsed());
                }
                talk.heed()
            };
            directory
                .visible_nonces(&nonces, visibility_for(rendezvous), &mut tend)
                .map_err(|error| talk.fail(error))?
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    };
    let sights: Vec<Vec<ProbeNonce>> = talk.gather_all(&seen)?;
    Ok(judge(&all, &plantings, &sights))
}

/// Returns the ranks that do not share the directory with rank 0. Pure.
fn judge(
    probers: &[usize],
    plantings: &[Planting],
    sights: &[Vec<ProbeNonce>],
) -> Option<Blindness> {
    let nonce_of = |rank: usize| plantings.get(rank)?.as_ref().ok().copied().flatten();
    let all_planted = plantings.iter().all(Result::is_ok);
    let ranks: Vec<usize> = probers
        .iter()
        .copied()
        .filter(|&prober| {
            let sees_root = nonce_of(0).is_some_and(|nonce| sights[prober].contains(&nonce));
            let is_seen = nonce_of(prober).is_some_and(|nonce| sights[0].contains(&nonce));
            !(all_planted && sees_root && is_seen)
        })
        .filter(|&prober| all_planted || plantings[prober].is_err())
        .collect();
    if ranks.is_empty() {
        return None;
    }
    let reason = ranks
        .iter()
        .find_map(|&prober| plantings[prober].clone().err())
        .unwrap_or_else(|| {
            "files written by rank 0 are not seen there, or the other way round".into()
        });
    Some(Blindness { ranks, reason })
}

/// Opens the gather directory that rank `owner` of the world has made.
///
/// # Errors
///
/// [`Error::Storage`] if it is not visible in time or is not the one that rank 0 has made, and those of [`Talk::heed`].
pub(crate) fn open(
    talk: &impl Talk,
    rendezvous: &Path,
    facts: GatherFacts,
    owner: Rank,
    own: OwnUid,
) -> Result<GatherDir, Error> {
    let visibility = visibility_for(rendezvous);
    GatherDir::open(rendezvous, facts, owner, own, visibility, &mut |_| {
        talk.heed()
    })
}

/// Returns the time to look for files of another process: files of a process on this host are visible at once.
#[must_use]
fn visibility_for(path: &Path) -> Duration {
    match FileSystem::of(path) {
        Ok(found) if found.class() == Class::Local => Duration::ZERO,
        _ => VISIBLE_WITHIN,
    }
}

/// Leaves a nonce; `planted` keeps it visible.
fn plant(
    directory: &GatherDir,
    process: Option<&ProcessId>,
    planted: &mut Option<Planted>,
) -> Planting {
    let nonce = ProbeNonce::random();
    let process = process.cloned().unwrap_or_default();
    let made = directory.plant(nonce, &process);
    *planted = Some(made.map_err(|problem| brief(&problem))?);
    Ok(Some(nonce))
}

/// Returns the reason why a rank cannot use the directory, without its advice: the message that contains the reason has
/// advice of its own.
#[must_use]
pub(crate) fn brief(problem: &Error) -> String {
    match problem {
        Error::Storage {
            operation, cause, ..
        } => {
            let cause = cause.to_string();
            let (cause, _advice) = cause.split_once("; ").unwrap_or((&cause, ""));
            format!("cannot {operation} it there: {cause}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blind(plantings: &[Planting], sees: &[&[usize]]) -> Option<Vec<usize>> {
        let probers: Vec<usize> = (0..plantings.len()).collect();
        let nonce = |rank: &usize| plantings[*rank].clone().unwrap().unwrap();
        let sights: Vec<Vec<ProbeNonce>> = sees
            .iter()
            .map(|ranks| ranks.iter().map(nonce).collect())
            .collect();
        judge(&probers, plantings, &sights).map(|blindness| blindness.ranks)
    }

    fn nonces(count: usize) -> Vec<Planting> {
        (0..count).map(|_| Ok(Some(ProbeNonce::random()))).collect()
    }

    #[test]
    fn a_rank_that_cannot_see_rank_0_or_be_seen_is_blind() {
        let all = nonces(3);
        assert_eq!(blind(&all, &[&[0, 1, 2], &[0, 1, 2], &[0, 1, 2]]), None);
        // The ranks' view of each other does not matter.
        assert_eq!(blind(&all, &[&[0, 1, 2], &[0], &[0]]), None);
        assert_eq!(blind(&all, &[&[0, 1], &[0, 1], &[2]]), Some(vec![2]));
        assert_eq!(blind(&all, &[&[0, 1], &[0], &[0]]), Some(vec![2]));
        assert_eq!(blind(&all, &[&[0], &[1], &[2]]), Some(vec![1, 2]));
    }

    #[test]
    fn whoever_cannot_write_is_named_and_nobody_else() {
        let mut all = nonces(3);
        all[1] = Err("cannot write it there: Read-only file system".into());
        let sights = [vec![], vec![], vec![]];
        let blindness = judge(&[0, 1, 2], &all, &sights).unwrap();
        assert_eq!(blindness.ranks, [1]);
        assert!(blindness.reason.contains("Read-only"), "{blindness:?}");
    }

    #[test]
    fn hosts_are_named_once() {
        let on = |host: &str| ProcessId {
            host: host.into(),
            ..ProcessId::default()
        };
        let processes = [on("n1"), on("n2"), on("n2"), on("n3")];
        let blindness = Blindness {
            ranks: vec![1, 2, 3],
            reason: "so".into(),
        };
        let error = blindness.into_error(Path::new("/x"), &processes);
        assert!(matches!(error, Error::NotShared { hosts, .. } if hosts == ["n2", "n3"]));
    }
}
