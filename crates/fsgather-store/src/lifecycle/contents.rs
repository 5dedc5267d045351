//! Counts the contents of a gather directory, without following a link or opening a file: [`Contents`].

use std::{
    collections::BTreeSet,
    io,
    os::fd::OwnedFd,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use fsgather_core::Rank;
use rustix::fs::{CWD, FileType};

use crate::{
    directory::gather_dir::is_not_seen,
    lifecycle::inventory::{self, KnownEntry, KnownFile, Table},
    os::listing::{self, Facts},
};

/// The contents of a directory, as seen at one time.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// The user who owns it, as the server shows it.
    pub(crate) uid: u32,
    /// The last change of any entry.
    pub(crate) changed: SystemTime,
    /// The latest heartbeat and its time.
    pub(crate) beat: Option<(u64, SystemTime)>,
    pub(crate) finished: bool,
    pub(crate) aborted: bool,
    pub(crate) payload_files: u64,
    pub(crate) payload_bytes: u64,
    /// Payloads that may have been announced, or that ranks other than 0 may be writing. Payloads that rank 0 was writing do
    /// not count: once rank 0 is gone, they cannot be announced.
    pub(crate) payloads_in_use: u64,
    /// Ranks that have payloads here.
    pub(crate) ranks: BTreeSet<Rank>,
    /// Messages between ranks.
    pub(crate) messages: u64,
    /// True if there are only directories and, perhaps, an owner record.
    pub(crate) is_bare: bool,
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Description of an entry that is not ours.
    pub(crate) stranger: Option<String>,
}

impl Contents {
    /// Examines a gather directory.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Self::with_table(path, inventory::gather_directory)
    }

    /// Examines any directory whose entries are in a table.
    pub(crate) fn with_table(path: &Path, table: Table) -> io::Result<Self> {
        let directory = listing::open(CWD, path)?;
        let found = listing::examine_open(&directory)?;
        let mut contents = Self {
            uid: found.uid,
            changed: UNIX_EPOCH,
            beat: None,
            finished: false,
            aborted: false,
            payload_files: 0,
            messages: 0,
            is_bare: true,
            payload_bytes: 0,
            payloads_in_use: 0,
            ranks: BTreeSet::new(),
            bytes: 0,
            inodes: 0,
            stranger: None,
        };
        contents.count(&found);
        contents.look(&directory, table)?;
        Ok(contents)
    }

    fn look(&mut self, directory: &OwnedFd, table: Table) -> io::Result<()> {
        for name in listing::names_of(directory)? {
            let part = match &name {
                Ok(name) => table(name),
                Err(_) => None,
            };
            let name = name.unwrap_or_else(|shown| shown);
            let Some(part) = part else {
                self.is_bare = false;
                if inventory::is_lingering(&name) {
                    self.record_lingering(directory, &name);
                } else {
                    self.stranger = Some(format!("{name:?}, which fsgather has not written"));
                }
                continue;
            };
            let found = match listing::examine(directory, Path::new(&name)) {
                Ok(found) => found,
                // It was removed after it was listed.
                Err(error) if is_not_seen(&error) => continue,
                Err(error) => return Err(error),
            };
            let (wanted, what) = match part {
                KnownEntry::Directory(_) => (FileType::Directory, "directory"),
                KnownEntry::File(_) => (FileType::RegularFile, "file"),
            };
            if found.kind != wanted || found.uid != self.uid {
                let uid = self.uid;
                self.stranger = Some(format!("{name:?}, which is no {what} of uid {uid}"));
                continue;
            }
            self.count(&found);
            match part {
                KnownEntry::Directory(table) => match listing::open(directory, Path::new(&name)) {
                    Ok(below) => self.look(&below, table)?,
                    Err(error) if is_not_seen(&error) => {}
                    Err(error) => return Err(error),
                },
                KnownEntry::File(kind) => self.record(kind, &found),
            }
        }
        Ok(())
    }

    /// Counts a file that a client has hidden instead of removing it. A process may have it open, so it counts as a payload in
    /// use.
    fn record_lingering(&mut self, directory: &OwnedFd, name: &str) {
        let found = listing::examine(directory, Path::new(name));
        if let Ok(found) = found
            && found.kind == FileType::RegularFile
            && found.uid == self.uid
        {
            self.count(&found);
            self.payloads_in_use += 1;
        }
    }

    fn count(&mut self, found: &Facts) {
        self.inodes += 1;
        self.changed = self.changed.max(found.changed);
        if found.kind == FileType::RegularFile {
            self.bytes += found.len;
        }
    }

    fn record(&mut self, kind: KnownFile, found: &Facts) {
        self.is_bare &= kind == KnownFile::Owner;
        match kind {
            KnownFile::Beat(counter) => {
                self.beat = self.beat.max(Some((counter, found.changed)));
            }
            KnownFile::Finished => self.finished = true,
            KnownFile::Aborted => self.aborted = true,
            KnownFile::Staged(name) | KnownFile::Payload(name) => {
                self.payload_files += 1;
                self.payload_bytes += found.len;
                self.ranks.insert(name.rank());
                if matches!(kind, KnownFile::Payload(_)) || name.rank() != Rank::ZERO {
                    self.payloads_in_use += 1;
                }
            }
            KnownFile::Message => self.messages += 1,
            KnownFile::Owner | KnownFile::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use fsgather_core::{ChannelId, Epoch};

    use crate::{
        layout::{self, PayloadName},
        messages::names::MarkerName,
        payload::collect::tests::gather_dir,
    };

    use super::*;

    fn name(rank: u32) -> String {
        PayloadName::new(ChannelId::WORLD, Epoch::FIRST, Rank::new(rank), 9).to_string()
    }

    #[test]
    fn what_is_there_is_counted() {
        let (_place, directory) = gather_dir();
        let (staging, payloads) = (directory.staging(), directory.payloads());
        for (path, len) in [
            (payloads.join(name(0)), 100),
            (payloads.join(name(2)), 50),
            (staging.join(name(0)), 7),
            (staging.join(name(2)), 3),
            (directory.path().join("beat-00000000000000000004"), 0),
            (directory.path().join("beat-00000000000000000005"), 0),
        ] {
            std::fs::write(path, vec![0; len]).unwrap();
        }
        let fresh = Contents::of(gather_dir().1.path()).unwrap();
        assert!(fresh.is_bare, "an owner record alone");
        let out = directory.path().join(layout::GatherEntry::Out.to_string());
        std::fs::create_dir(&out).unwrap();
        for nonce in 0..3 {
            let bulletin = MarkerName::Bulletin {
                number: 1,
                to: None,
                nonce,
            };
            std::fs::write(out.join(bulletin.to_string()), b"").unwrap();
        }
        directory.mark_finished().unwrap();
        let seen = Contents::of(directory.path()).unwrap();
        assert_eq!((seen.payload_files, seen.payload_bytes), (4, 160));
        assert_eq!(seen.payloads_in_use, 3, "all but what rank 0 writes");
        assert_eq!(seen.ranks.len(), 2);
        assert_eq!(seen.beat.unwrap().0, 5);
        assert!(seen.finished && !seen.aborted && !seen.is_bare);
        assert_eq!(seen.messages, 3);
        // The directory, three in it, the owner record, four payloads, two beats, three messages, one mark.
        assert_eq!(seen.inodes, 15);
        assert_eq!(seen.stranger, None);
    }

    #[test]
    fn strangers_are_noticed_and_not_looked_into() {
        let (_place, directory) = gather_dir();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join(name(1)), b"12345").unwrap();
        for (target, link) in [
            (elsewhere.path().join(name(1)), name(3)),
            (elsewhere.path().to_owned(), "thesis".into()),
        ] {
            let link = directory.payloads().join(link);
            symlink(target, &link).unwrap();
            let seen = Contents::of(directory.path()).unwrap();
            assert!(seen.stranger.is_some());
            assert_eq!(seen.payload_files, 0);
            std::fs::remove_file(link).unwrap();
        }
        std::fs::create_dir(directory.payloads().join(name(1))).unwrap();
        let seen = Contents::of(directory.path()).unwrap();
        assert!(seen.stranger.unwrap().contains("no file of uid"));
    }
}
