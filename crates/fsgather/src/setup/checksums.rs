//! The choice of the payloads that checksums verify: those that travel.
//!
//! Data that one process writes into a file and another maps or reads under the same kernel is the same pages of the
//! page cache, if the file system is local to the host: the data has not travelled. Then it is enough to know that a
//! file is the announced one, by its name, header, length and footer. Between hosts, and on file systems of servers,
//! bytes go through disks, networks and caches of others.

use crate::join::sharing::Talk;
use bytes::Bytes;
use fsgather_config::settings::Verify;
use fsgather_core::{Error, ProcessId, error_form::SentError};
use fsgather_store::{Class, GatherDir};

use super::{SetUp, decode};

impl SetUp<'_> {
    /// Returns true if all members see the directory on a file system of their host, or the reason why one cannot use
    /// it.
    pub(super) fn all_able(&self, told: &[Bytes]) -> Result<Result<bool, Error>, Error> {
        let able = told.iter().map(|able| decode(Some(able)));
        let able: Result<Vec<Result<bool, SentError>>, Error> = able.collect();
        let able: Result<Vec<bool>, Error> = match able {
            Ok(able) => able
                .into_iter()
                .map(|able| able.map_err(|SentError(error)| error))
                .collect(),
            Err(error) => return Err(self.fail(error)),
        };
        Ok(able.map(|stay_here| stay_here.into_iter().all(|stays| stays)))
    }
}

/// Returns true if payloads need checksums. `stays`: they stay on the host that makes them.
pub(super) const fn are_needed(verify: Verify, stays: bool) -> bool {
    match verify {
        Verify::Always => true,
        Verify::Host => !stays,
        Verify::Off => false,
    }
}

/// Returns true if files of a directory stay within the host of this process, as far as it can see.
///
/// Ranks that see the same directory by another mount may see another file system, so all are asked.
pub(super) fn stays_on_its_host(directory: &GatherDir) -> bool {
    let file_system = directory.file_system();
    file_system.class() == Class::Local && file_system.is_mappable()
}

/// Returns true if all processes are known to run under one kernel.
pub(super) fn share_a_host(processes: &[ProcessId]) -> bool {
    let first = processes.first();
    first.is_some_and(|first| {
        processes
            .iter()
            .all(|process| process.shares_kernel_with(first))
    })
}

#[cfg(test)]
mod tests {
    use fsgather_store::this_process;

    use super::*;
    use crate::payload::path::tests::gather_dir;

    #[test]
    fn what_lies_in_a_directory_of_this_machine_stays_on_its_host() {
        let place = tempfile::tempdir().unwrap();
        let directory = gather_dir(place.path(), this_process().unwrap());
        assert!(stays_on_its_host(&directory));
    }

    fn on(boot: &str) -> ProcessId {
        ProcessId {
            boot_id: boot.into(),
            ..ProcessId::default()
        }
    }

    #[test]
    fn a_host_is_one_known_boot() {
        assert!(share_a_host(&[on("a"), on("a")]));
        assert!(!share_a_host(&[on("a"), on("a"), on("b")]));
        assert!(!share_a_host(&[on(""), on("")]));
        assert!(!share_a_host(&[]));
    }

    #[test]
    fn what_travels_is_verified_unless_nothing_is() {
        for stays in [false, true] {
            assert!(are_needed(Verify::Always, stays));
            assert_eq!(are_needed(Verify::Host, stays), !stays);
            assert!(!are_needed(Verify::Off, stays));
        }
    }
}
