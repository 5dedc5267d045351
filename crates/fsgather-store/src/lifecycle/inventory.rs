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
pub(crate) enum Part {
    /// A directory, and the table of what lies in it.
    Directory(Table),
    /// A file.
    File(Kind),
}

/// What each name in one directory stands for; `None` for strangers.
pub(crate) type Table = fn(&str) -> Option<Part>;

/// What a file is for, as far as others than its writer have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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

impl Kind {
    /// Whether the file says something of the whole directory, so that it stays until all else is gone.
    pub(crate) const fn is_about_the_directory(self) -> bool {
        matches!(
            self,
            Self::Owner | Self::Beat(_) | Self::Finished | Self::Aborted
        )
    }
}

/// What lies in a gather directory itself.
pub(crate) fn gather_directory(name: &str) -> Option<Part> {
    Some(match GatherEntry::parse(name)? {
        GatherEntry::Owner => Part::File(Kind::Owner),
        GatherEntry::Beat(counter) => Part::File(Kind::Beat(counter)),
        GatherEntry::Finished => Part::File(Kind::Finished),
        GatherEntry::Aborted => Part::File(Kind::Aborted),
        GatherEntry::Staging => Part::Directory(staging),
        GatherEntry::Payloads => Part::Directory(payloads),
        GatherEntry::Probes => Part::Directory(probes),
        GatherEntry::Out => Part::Directory(messages),
        GatherEntry::In | GatherEntry::Live => Part::Directory(hosts),
    })
}

fn hosts(name: &str) -> Option<Part> {
    HostName::parse(name).map(|_| Part::Directory(messages))
}

fn messages(name: &str) -> Option<Part> {
    MarkerName::parse(name).map(|_| Part::File(Kind::Message))
}

fn staging(name: &str) -> Option<Part> {
    payload(name, Kind::Staged)
}

fn payloads(name: &str) -> Option<Part> {
    payload(name, Kind::Payload)
}

fn payload(name: &str, kind: fn(PayloadName) -> Kind) -> Option<Part> {
    if layout::is_capability_name(name) {
        return Some(Part::File(Kind::Other));
    }
    PayloadName::parse(name).map(|name| Part::File(kind(name)))
}

fn probes(name: &str) -> Option<Part> {
    layout::parse_nonce_name(name).map(|_| Part::File(Kind::Other))
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
            assert!(matches!(table(ours), Some(Part::File(_))), "{ours}");
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
                matches!(gather_directory(directory), Some(Part::Directory(_))),
                "{directory}"
            );
        }
        assert!(matches!(
            hosts("host-0000000000000007"),
            Some(Part::Directory(_))
        ));
    }

    #[test]
    fn names_of_removed_files_that_are_open_are_no_strangers() {
        assert!(is_lingering(".nfs0000000000a1") && !is_lingering("nfs"));
    }
}
