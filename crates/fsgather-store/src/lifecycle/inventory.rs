//! Lists the names in a gather directory that are ours: the one table for counting, judging and removing. Pure.
//!
//! A name that is not here is a stranger's: it is reported, never opened, never removed. Whoever adds a
//! file or a sub-directory to the format adds it here, and everything else follows.

use crate::{
    layout::{self, GatherEntry, PayloadName},
    messages::names::{HostName, MarkerName},
};

/// What a name in a gather directory, or below it, stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownEntry {
    /// A directory, and the table of what lies in it.
    Directory(Table),
    /// A file.
    File(KnownFile),
}

/// What each name in one directory stands for; `None` for strangers.
pub(crate) type Table = fn(&str) -> Option<KnownEntry>;

/// What a file is for, as far as others than its writer have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownFile {
    /// The owner record; the last to be removed.
    Owner,
    /// Proof of life.
    Beat(u64),
    /// The mark `finished`.
    Finished,
    /// The mark `aborted`.
    Aborted,
    /// A payload being written.
    Staged(PayloadName),
    /// A published payload.
    Payload(PayloadName),
    /// A message between ranks, or a host's sign of life.
    Message,
    /// Anything else of ours.
    Other,
}

impl KnownFile {
    /// Whether the file says something of the whole directory, so that it stays until all else is gone.
    pub(crate) const fn is_about_the_directory(self) -> bool {
        matches!(
            self,
            Self::Owner | Self::Beat(_) | Self::Finished | Self::Aborted
        )
    }
}

/// What lies in a gather directory itself.
pub(crate) fn gather_directory(name: &str) -> Option<KnownEntry> {
    Some(match GatherEntry::parse(name)? {
        GatherEntry::Owner => KnownEntry::File(KnownFile::Owner),
        GatherEntry::Beat(counter) => KnownEntry::File(KnownFile::Beat(counter)),
        GatherEntry::Finished => KnownEntry::File(KnownFile::Finished),
        GatherEntry::Aborted => KnownEntry::File(KnownFile::Aborted),
        GatherEntry::Staging => KnownEntry::Directory(staging),
        GatherEntry::Payloads => KnownEntry::Directory(payloads),
        GatherEntry::Probes => KnownEntry::Directory(probes),
        GatherEntry::Out => KnownEntry::Directory(messages),
        GatherEntry::In | GatherEntry::Live => KnownEntry::Directory(hosts),
    })
}

fn hosts(name: &str) -> Option<KnownEntry> {
    HostName::parse(name).map(|_| KnownEntry::Directory(messages))
}

fn messages(name: &str) -> Option<KnownEntry> {
    MarkerName::parse(name).map(|_| KnownEntry::File(KnownFile::Message))
}

fn staging(name: &str) -> Option<KnownEntry> {
    payload(name, KnownFile::Staged)
}

fn payloads(name: &str) -> Option<KnownEntry> {
    payload(name, KnownFile::Payload)
}

fn payload(name: &str, kind: fn(PayloadName) -> KnownFile) -> Option<KnownEntry> {
    if layout::is_capability_name(name) {
        return Some(KnownEntry::File(KnownFile::Other));
    }
    PayloadName::parse(name).map(|name| KnownEntry::File(kind(name)))
}

fn probes(name: &str) -> Option<KnownEntry> {
    layout::parse_nonce_name(name).map(|_| KnownEntry::File(KnownFile::Other))
}

/// Whether a name is that of a removed file which a FUSE client keeps for whoever has it open, and, where it was closed
/// in the moment of its removal, for good. Removing it once more harms nobody: the client hides it again if need be.
pub(crate) fn is_hidden_by_fuse(name: &str) -> bool {
    name.starts_with(".fuse_hidden")
}

/// Whether a client keeps a removed file under this name as long as somebody has it open.
pub(crate) fn is_lingering(name: &str) -> bool {
    [".nfs", ".fuse_hidden", ".smb"]
        .iter()
        .any(|stem| name.starts_with(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_place_and_no_other() {
        let payload = "payload-c0000000000000000-e00000000000000000012-r00003-0000beef";
        for (table, ours) in [
            (gather_directory as Table, "owner"),
            (gather_directory, "beat-00000000000000000007"),
            (staging, payload),
            (payloads, payload),
            (payloads, "capability-0000beef"),
            (probes, "nonce-0000000000000007"),
            (messages, "bulletin-n00000000000000000007-all-0000beef"),
        ] {
            assert!(matches!(table(ours), Some(KnownEntry::File(_))), "{ours}");
        }
        for (table, strange) in [
            (gather_directory as Table, payload),
            (gather_directory, "owner.bak"),
            (payloads, "owner"),
            (staging, "thesis.tex"),
            (probes, payload),
        ] {
            assert!(table(strange).is_none(), "{strange}");
        }
        for directory in ["payloads", "in", "out", "live"] {
            assert!(
                matches!(gather_directory(directory), Some(KnownEntry::Directory(_))),
                "{directory}"
            );
        }
        assert!(matches!(
            hosts("host-0000000000000007"),
            Some(KnownEntry::Directory(_))
        ));
    }

    #[test]
    fn names_of_removed_files_that_are_open_are_no_strangers() {
        assert!(is_lingering(".nfs0000000000a1") && !is_lingering("nfs"));
    }
}
