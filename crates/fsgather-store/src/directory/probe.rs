//! Verifies that all hosts see the same directory: one process per mount namespace writes a [`ProbeNonce`], the others read it.

use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

use fsgather_core::{Error, ProcessId, Progress};
use serde::{Deserialize, Serialize};

use crate::{
    directory::{
        gather_dir::{GatherDir, is_not_seen},
        keep_alive::TouchSchedule,
    },
    layout,
    os::{
        directory, file,
        filesystem::{Class, FileSystem},
        listing, remove,
        retry_budget::RetryBudget,
        reveal,
    },
};

/// A random number that one process writes into the directory, and that other processes must find there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProbeNonce(u128);

impl ProbeNonce {
    /// Draws a new nonce.
    #[must_use]
    pub fn random() -> Self {
        Self(fsgather_core::sys::random::fresh())
    }

    /// Returns the file's name, which contains half of the nonce. The file contains all of it, so that a listing does not count
    /// as reading.
    fn file_name(self) -> String {
        layout::nonce_name((self.0 >> 64) as u64)
    }
}

impl fmt::Display for ProbeNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A nonce that was written; see [`Planted::tend`].
#[derive(Debug)]
pub struct Planted {
    directory: std::path::PathBuf,
    schedule: TouchSchedule,
}

impl Planted {
    /// Keeps the nonce visible while other processes look for it, `elapsed` after it was written. Cheap; call it often.
    pub fn tend(&mut self, elapsed: Duration) {
        if self.schedule.is_due(elapsed)
            && let Err(error) = directory::touch(&self.directory)
        {
            tracing::debug!(path = %self.directory.display(), %error, "cannot touch");
        }
    }
}

impl GatherDir {
    /// Writes a nonce for other processes, after a test that this process can publish payloads here.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be written, or a payload could not be published.
    pub fn plant(&self, nonce: ProbeNonce, who: &ProcessId) -> Result<Planted, Error> {
        reveal::rehearse(
            self.facts().publish,
            &self.staging(),
            &self.payloads(),
            fsgather_core::sys::random::fresh(),
        )?;
        let probes = self.probes();
        self.make_directory(&probes)?;
        let path = probes.join(nonce.file_name());
        let host: String = who.host.chars().filter(|c| !c.is_control()).collect();
        let contents = format!("{nonce} from {host}\n");
        file::write_new(
            &path,
            self.file_mode(),
            contents.as_bytes(),
            self.must_sync(),
        )
        .map_err(|error| Error::storage("write", &path, self.explain(&error)))?;
        Ok(Planted {
            directory: probes,
            schedule: TouchSchedule::default(),
        })
    }

    /// Looks for nonces until all expected ones have been read or `visibility` is used up. Returns those that were read.
    ///
    /// # Errors
    ///
    /// Only an error of the progress hook, which is called while waiting. A nonce that cannot be read, for any reason, counts
    /// as not visible.
    pub fn visible_nonces(
        &self,
        expected: &[ProbeNonce],
        visibility: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<BTreeSet<ProbeNonce>, Error> {
        let probes = self.probes();
        let mut retries = RetryBudget::new(visibility);
        let mut seen = BTreeSet::new();
        loop {
            let names = listing::names(&probes).unwrap_or_else(|error| {
                tracing::debug!(path = %probes.display(), %error, "cannot list");
                Vec::new()
            });
            for &nonce in expected {
                let name = nonce.file_name();
                if !seen.contains(&nonce)
                    && names.contains(&name)
                    && holds(&probes.join(&name), nonce, self.own().0)
                {
                    seen.insert(nonce);
                }
            }
            let is_complete = expected.iter().all(|nonce| seen.contains(nonce));
            if is_complete || !retries.pause(progress)? {
                return Ok(seen);
            }
        }
    }

    /// Removes all nonces and their directory, once the proof is done. Rank 0 does this.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if an entry cannot be removed.
    pub fn clear_probes(&self) -> Result<(), Error> {
        let probes = self.probes();
        let names = match listing::names(&probes) {
            Ok(names) => names,
            Err(error) if is_not_seen(&error) => return Ok(()),
            Err(error) => return Err(Error::storage("list", probes, &error)),
        };
        for name in names {
            if layout::parse_nonce_name(&name).is_some() {
                let path = probes.join(name);
                remove::unlink(&path).map_err(|error| Error::storage("remove", path, &error))?;
            }
        }
        remove::rmdir(&probes).map_err(|error| Error::storage("remove", probes, &error))
    }
}

/// Maximum length in bytes of a file with a nonce and a host name.
const MAX_LEN: u64 = 4096;

fn holds(path: &Path, nonce: ProbeNonce, uid: u32) -> bool {
    let found = file::read_small(path, &[uid], MAX_LEN);
    found.is_ok_and(|found| found.starts_with(nonce.to_string().as_bytes()))
}

/// Selects the processes that write nonces: the first of each boot and mount namespace, as indexes into `processes`. Pure.
///
/// A process with an unknown mount namespace counts as the only one in its namespace.
#[must_use]
pub fn probers(processes: &[ProcessId]) -> Vec<usize> {
    (0..processes.len())
        .filter(|&index| {
            let (before, process) = (&processes[..index], &processes[index]);
            !before.iter().any(|earlier| earlier.sees_mounts_of(process))
        })
        .collect()
}

/// Returns the hosts of a job if the type of the file system alone proves that they do not share it: a local one under two
/// boots. Pure.
///
/// ```
/// use fsgather_core::ProcessId;
/// use fsgather_store::{FileSystem, cannot_be_shared};
///
/// let on = |host: &str| ProcessId { host: host.into(), boot_id: host.into(), ..Default::default() };
/// let job = [on("n1"), on("n1"), on("n2")];
/// let tmpfs = FileSystem::from_magic(0x0102_1994);
/// assert_eq!(cannot_be_shared(&tmpfs, &job), Some(vec!["n1".into(), "n2".into()]));
/// assert_eq!(cannot_be_shared(&tmpfs, &job[..2]), None);
/// ```
#[must_use]
pub fn cannot_be_shared(file_system: &FileSystem, processes: &[ProcessId]) -> Option<Vec<String>> {
    let boots: BTreeSet<&str> = processes
        .iter()
        .map(|process| process.boot_id.as_str())
        .filter(|boot| !boot.is_empty())
        .collect();
    if file_system.class() != Class::Local || boots.len() < 2 {
        return None;
    }
    let hosts: BTreeSet<&str> = processes.iter().map(|p| p.host.as_str()).collect();
    Some(hosts.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        os::{process::this_process, reveal::PublishMode},
        payload::collect::tests::gather_dir,
    };

    #[test]
    fn planted_nonces_are_read_and_cleared() {
        let (_place, directory) = gather_dir();
        let me = this_process().unwrap();
        let nonces = [ProbeNonce::random(), ProbeNonce::random()];
        for nonce in nonces {
            directory.plant(nonce, &me).unwrap();
        }
        let seen = directory
            .visible_nonces(&nonces, Duration::ZERO, &mut |_| Ok(()))
            .unwrap();
        assert_eq!(seen, nonces.into());
        directory.clear_probes().unwrap();
        directory.clear_probes().unwrap();
        assert!(!directory.probes().exists());
    }

    #[test]
    fn a_planted_nonce_is_kept_visible() {
        let (_place, directory) = gather_dir();
        let me = this_process().unwrap();
        let mut planted = directory.plant(ProbeNonce::random(), &me).unwrap();
        let probes = std::fs::File::open(directory.probes()).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        probes.set_modified(long_ago).unwrap();
        planted.tend(Duration::from_secs(60));
        assert!(probes.metadata().unwrap().modified().unwrap() > long_ago);
        // Each touch happens only once.
        probes.set_modified(long_ago).unwrap();
        planted.tend(Duration::from_secs(60));
        assert_eq!(probes.metadata().unwrap().modified().unwrap(), long_ago);
    }

    #[test]
    fn whoever_could_not_publish_a_payload_plants_nothing() {
        // An empty directory that one host has made is missing on another host.
        let (_place, directory) = gather_dir();
        std::fs::remove_dir(directory.staging()).unwrap();
        let refused = directory.plant(ProbeNonce::random(), &this_process().unwrap());
        let problem = refused.unwrap_err().to_string();
        assert!(
            problem.contains("staging") && problem.contains("empty directory"),
            "{problem}"
        );
        assert!(!directory.probes().exists());

        let mut facts = directory.facts().clone();
        facts.publish = PublishMode::Direct;
        let directory = directory.with_facts(facts);
        directory
            .plant(ProbeNonce::random(), &this_process().unwrap())
            .unwrap();
        std::fs::remove_dir(directory.payloads()).unwrap();
        directory
            .plant(ProbeNonce::random(), &this_process().unwrap())
            .unwrap_err();
    }

    #[test]
    fn a_nonce_counts_only_with_the_right_content() {
        let (_place, directory) = gather_dir();
        let nonce = ProbeNonce::random();
        let namesake = ProbeNonce(nonce.0 ^ 1);
        directory.plant(namesake, &this_process().unwrap()).unwrap();
        let seen = directory
            .visible_nonces(&[nonce, namesake], Duration::ZERO, &mut |_| Ok(()))
            .unwrap();
        assert_eq!(seen, [namesake].into());
    }

    #[test]
    fn a_late_nonce_is_awaited_and_a_missing_one_left_out() {
        let (_place, directory) = gather_dir();
        let me = this_process().unwrap();
        let (late, missing) = (ProbeNonce::random(), ProbeNonce::random());
        let mut waited = 0;
        let seen = directory
            .visible_nonces(&[late], Duration::from_secs(60), &mut |_| {
                waited += 1;
                if waited == 2 {
                    directory.plant(late, &me)?;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, [late].into());
        let seen = directory
            .visible_nonces(&[late, missing], Duration::from_millis(30), &mut |_| Ok(()))
            .unwrap();
        assert_eq!(seen, [late].into());
    }

    #[test]
    fn one_process_of_each_mount_namespace_plants() {
        let on = |boot: &str, namespace| ProcessId {
            boot_id: boot.into(),
            mount_namespace: namespace,
            ..ProcessId::default()
        };
        let job = [
            on("a", 1),
            on("a", 1),
            on("a", 2),
            on("b", 1),
            on("b", 1),
            on("b", 0),
        ];
        assert_eq!(probers(&job), [0, 2, 3, 5]);
    }

    #[test]
    fn network_and_unknown_file_systems_may_be_shared() {
        let on = |boot: &str| ProcessId {
            boot_id: boot.into(),
            ..ProcessId::default()
        };
        let job = [on("a"), on("b")];
        for magic in [0x6969, 0x6573_5546, 1] {
            assert_eq!(cannot_be_shared(&FileSystem::from_magic(magic), &job), None);
        }
    }
}
