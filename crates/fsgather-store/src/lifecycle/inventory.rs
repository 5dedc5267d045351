//! Lists our names in a gather directory: the one table for counting, judging and removing. Pure.
//!
//! A name that is not in the table is foreign: it is reported, never opened, never removed. A file or subdirectory that is
//! added to the format must be added here; everything else follows.

use crate::{
    layout::{self, GatherEntry, PayloadName},
    messages::names::{HostName, MarkerName},
};

/// Meaning of a name in a gather directory, or below it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownEntry {
    /// A directory, with the table of its entries.
    Directory(Table),
    /// A file.
    File(KnownFile),
}

/// Meaning of each name in one directory; `None` for foreign names.
pub(crate) type Table = fn(&str) -> Option<KnownEntry>;

/// Purpose of a file, as far as processes other than its writer need it.
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
    /// Returns true if the file is about the whole directory, so that it stays until all else is gone.
    pub(crate) const fn is_about_the_directory(self) -> bool {
        matches!(
            self,
            Self::Owner | Self::Beat(_) | Self::Finished | Self::Aborted
        )
    }
}

/// Returns the meaning of a name in the gather directory itself.
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

/// Returns true if this is the name of a removed file that a FUSE client keeps while it is open, or for good if it was closed
/// at the moment of its removal. Removing it again is harmless: if necessary, the client hides it again.
pub(crate) fn is_hidden_by_fuse(name: &str) -> bool {
    name.starts_with(".fuse_hidden")
}

/// Returns true if a client keeps a removed file under this name while a process has it open.
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
