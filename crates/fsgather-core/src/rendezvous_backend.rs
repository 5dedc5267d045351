//! The place where rank 0 leaves a record for the others: [`RendezvousBackend`].

use std::time::Duration;

use crate::{Error, ProcessId};

/// A place where rank 0 posts a record and the other ranks find it.
///
/// A record found here proves nothing: it may be left over from a crashed run. Only a live process that knows the
/// record's secret and answers for this world proves that the record is valid. So implementations must not judge which
/// record is the right one; they return all records that they find.
///
/// Calls may block for as long as a file server is away. They run on threads of their own, except [`post`](Self::post),
/// which runs on the thread that makes the ranks meet.
pub trait RendezvousBackend: Send + Sync {
    /// Returns true if something that knows the rank of each process passes the record on: then no process finds it by
    /// the name of a job.
    fn introduces(&self) -> bool {
        false
    }

    /// Posts rank 0's record, whole or not at all.
    ///
    /// # Errors
    ///
    /// If the record cannot be posted in any place where the others look.
    fn post(&self, record: &[u8]) -> Result<(), Error>;

    /// Keeps the record visible while the world forms, `elapsed` after it was posted. Returns the records of others for
    /// the same key, in which rank 0 recognises a second rank 0.
    ///
    /// # Errors
    ///
    /// If the place can no longer be read.
    fn tend(&self, elapsed: Duration) -> Result<Vec<Vec<u8>>, Error> {
        let _ = elapsed;
        Ok(Vec::new())
    }

    /// Returns all visible records for this world's key.
    ///
    /// # Errors
    ///
    /// If the place cannot be read. An empty place is not an error.
    fn records(&self) -> Result<Vec<Vec<u8>>, Error>;

    /// Returns the visible records of other processes for this world's key, each with the process that has posted it.
    /// Empty if that is unknown.
    fn posted_by_others(&self) -> Vec<(ProcessId, Vec<u8>)> {
        Vec::new()
    }

    /// Leaves a report beside rank 0's record that this rank cannot reach it.
    ///
    /// # Errors
    ///
    /// If that is not possible here.
    fn report_unreachable(&self, report: &[u8]) -> Result<(), Error> {
        let _ = report;
        Err(Error::rendezvous(
            "this way of meeting has no place for objections",
        ))
    }

    /// Returns all visible reports of that kind from ranks of this world's key.
    ///
    /// # Errors
    ///
    /// If the place cannot be read.
    fn unreachable_reports(&self) -> Result<Vec<Vec<u8>>, Error> {
        Ok(Vec::new())
    }

    /// Leaves a record of a refusal, that there will be no world, for ranks that arrive later. Unlike other records it
    /// stays when this rank removes its own. [`records`](Self::records) and [`tend`](Self::tend) return it only to
    /// processes that already ran when it was left: a process that was started later belongs to another attempt.
    ///
    /// # Errors
    ///
    /// If that is not possible here.
    fn refuse(&self, record: &[u8]) -> Result<(), Error> {
        let _ = record;
        Err(Error::rendezvous(
            "this way of meeting has no place for refusals that stay",
        ))
    }

    /// Returns the refusals that [`refuse`](Self::refuse) left in the minutes before this process was started, the
    /// latest first, for messages: another attempt at this world has failed, or this process arrives too late for the
    /// only one.
    fn earlier_refusals(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Returns the visible records of worlds whose keys differ from this one's only in the world size, for messages:
    /// some ranks of one job may have another world size in their settings.
    fn records_of_other_sizes(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Removes records of crashed runs; rank 0 calls this once its world has formed.
    fn sweep(&self) {}

    /// Removes this rank's own record and reports.
    fn take_down(&self) {}

    /// Returns the location of the place, for messages: `/shared/all_gather_via_filesys`.
    fn place(&self) -> String;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place that can do no more than it must.
    struct Bare;

    impl RendezvousBackend for Bare {
        fn post(&self, _record: &[u8]) -> Result<(), Error> {
            Ok(())
        }

        fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
            Ok(Vec::new())
        }

        fn place(&self) -> String {
            "here".into()
        }
    }

    #[test]
    fn a_minimal_backend_shows_no_others_and_refuses_reports() {
        let nothing: Vec<Vec<u8>> = Vec::new();
        assert!(!Bare.introduces());
        assert_eq!(Bare.tend(Duration::ZERO).unwrap(), nothing);
        assert_eq!(Bare.unreachable_reports().unwrap(), nothing);
        assert_eq!(Bare.earlier_refusals(), nothing);
        assert_eq!(Bare.records_of_other_sizes(), nothing);
        assert!(Bare.report_unreachable(b"x").is_err());
        assert!(Bare.refuse(b"x").is_err());
    }
}
