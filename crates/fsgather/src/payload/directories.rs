//! The gather directories that this process uses: [`Directories`].

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fsgather_core::{BackgroundThreads, ChannelId, Epoch, Error, GatherId, Rank, lock};
use fsgather_store::{Care, GatherDir, Janitor, PayloadId};

use crate::payload::path::FilesPath;

/// The gather directories that this process uses, of the world and of all groups, and the one thread that maintains
/// them.
#[derive(Default)]
pub(crate) struct Directories {
    /// Never locked during a call of the exchange: reclaiming, which locks it, may happen inside of such a call.
    all: Mutex<Vec<Arc<FilesPath>>>,
    janitor: Mutex<Option<Janitor>>,
}

/// The end of this rank's part in directories.
pub(crate) struct Ending<'a> {
    /// The rank of this process in the world.
    pub(crate) me: Rank,
    /// True if all ranks of the world have closed it together, so that no rank uses anything any more.
    pub(crate) closed: bool,
    /// On rank 0, true if no other rank is left; elsewhere, true if rank 0 is still there.
    pub(crate) in_good_hands: bool,
    /// Returns true if a call has failed, as far as this rank knows.
    pub(crate) is_undecided: &'a dyn Fn(ChannelId, Epoch) -> bool,
    /// Returns true if a rank is known to be lost.
    pub(crate) is_lost: &'a dyn Fn(Rank) -> bool,
}

impl Directories {
    /// Starts the upkeep of a directory; its owner gives the period of its heartbeat.
    pub(crate) fn care_for(
        &self,
        directory: &GatherDir,
        beat: Option<Duration>,
        threads: &BackgroundThreads,
    ) -> Result<Care, Error> {
        let mut janitor = lock(&self.janitor);
        let janitor = match &mut *janitor {
            Some(janitor) => janitor,
            none => none.insert(Janitor::start(directory, threads)?),
        };
        Ok(janitor.care_for(directory.clone(), beat))
    }

    /// Adds a directory that ranks have agreed on.
    pub(crate) fn add(&self, files: Arc<FilesPath>) {
        lock(&self.all).push(files);
    }

    /// Returns the gather directory of this id, if this process uses it.
    pub(crate) fn of(&self, id: GatherId) -> Option<Arc<FilesPath>> {
        let all = lock(&self.all);
        all.iter()
            .find(|files| files.directory().facts().id == id)
            .map(Arc::clone)
    }

    /// Removes a payload that no rank needs any more.
    pub(crate) fn reclaim(&self, id: PayloadId, is_own: bool) {
        for files in lock(&self.all).iter() {
            if is_own {
                files.reclaim_own(id.channel, id.epoch);
            } else {
                files.reclaim_of(id);
            }
        }
    }

    /// Ends the directories of a group that all its members have closed together.
    pub(crate) fn end_closed(&self, channel: ChannelId, me: Rank) {
        let ended: Vec<_> = lock(&self.all)
            .extract_if(.., |files| files.channel() == channel)
            .collect();
        for files in ended {
            files.finish();
            if files.owner() == me {
                remove(files.directory());
            }
        }
    }

    /// Ends all directories, together with the world.
    pub(crate) fn end_all(&self, ending: &Ending<'_>) {
        let all = std::mem::take(&mut *lock(&self.all));
        for files in all {
            files.finish();
            ending.end(&files);
        }
        let janitor = lock(&self.janitor).take();
        drop(janitor);
    }
}

impl Ending<'_> {
    /// Removes the files that this rank must remove, or leaves a mark for the ranks that must.
    fn end(&self, files: &FilesPath) {
        let (directory, owner) = (files.directory(), files.owner());
        // The coordinator makes rank 0 leave last if possible; the order of other ranks is unknown.
        let is_safe = self.closed || (owner == Rank::ZERO && self.in_good_hands);
        let marked = match (owner == self.me, is_safe) {
            (true, true) => {
                remove(directory);
                Ok(())
            }
            (false, true) => Ok(()),
            (true, false) => {
                directory.discard_undecided(self.is_undecided);
                // The mark comes before the check for use: a rank that ends later sees the mark, or has been seen.
                let marked = directory.mark_finished();
                if owner != Rank::ZERO && directory.remove_if_unused(owner) {
                    return;
                }
                marked
            }
            (false, false) if owner == Rank::ZERO => survive(directory, owner),
            (false, false) if (self.is_lost)(owner) => survive(directory, owner),
            (false, false) => {
                // Its owner may end later, and checks then.
                if directory.is_finished() {
                    let _ = directory.remove_if_unused(owner);
                }
                Ok(())
            }
        };
        match marked {
            Ok(()) => {}
            // Its owner was taken for lost, and has removed it nevertheless.
            Err(_) if !directory.path().exists() => {}
            Err(error) => fsgather_core::warn!("the gather directory stays: {error}"),
        }
    }
}

fn remove(directory: &GatherDir) {
    let removal = directory.remove();
    if !removal.is_complete() {
        fsgather_core::warn!("{removal}");
    }
}

/// Removes a directory whose owner is gone, or leaves a tombstone, so that later processes need not guess if it is
/// still in use.
fn survive(directory: &GatherDir, owner: Rank) -> Result<(), Error> {
    if directory.remove_if_unused(owner) {
        return Ok(());
    }
    directory.mark_aborted(&format!("rank {owner} was lost or has left"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{heard::heard, payload::path::tests::in_use};

    /// Returns the warnings when rank 0 ends alone, while others are still there.
    fn warned_of(files: &FilesPath) -> Vec<String> {
        let ending = Ending {
            me: Rank::ZERO,
            closed: false,
            in_good_hands: false,
            is_undecided: &|_, _| false,
            is_lost: &|_| false,
        };
        heard(|| ending.end(files))
    }

    #[test]
    fn a_directory_that_stays_is_warned_of_unless_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let files = in_use(place.path(), None);
        assert_eq!(warned_of(&files), [""; 0]);
        assert!(files.directory().is_finished());
        fs::rename(files.directory().path(), place.path().join("gone")).unwrap();
        assert_eq!(warned_of(&files), [""; 0]);
        // A directory of another process in its place.
        fs::create_dir(files.directory().path()).unwrap();
        let warnings = warned_of(&files);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("stays"), "{warnings:?}");
    }
}
