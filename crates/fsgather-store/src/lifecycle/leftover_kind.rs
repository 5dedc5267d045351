//! Kinds of entries that may be left beside gather directories, also by other programs: [`LeftoverKind`]. Pure.

use crate::lifecycle::inventory::{KnownEntry, KnownFile};

/// The kind of a file or directory that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftoverKind {
    /// A record of rank 0 of a world that never formed, or that crashed while forming.
    Record,
    /// A file that tests if files can be written.
    Probe,
    /// A mark whose gather directory is gone.
    Mark,
    /// A final message that could not be written to its gather directory.
    Message,
    /// The last calls of a rank whose process has ended.
    Calls,
    /// `data_to_gather_*.pkl`: a payload of the Python original, whose ranks have crashed.
    PythonOriginal,
    /// `.dist_test`: temporary files of mmengine.
    Mmengine,
    /// `torchrun-*`: rendezvous directories of torchrun agents that have crashed.
    Torchrun,
    /// An entry that fsgather does not write, in fsgather's own directories: it is reported, and never touched.
    Stranger,
}

impl LeftoverKind {
    /// Returns the word for it: `record`, `probe`, `mark`, `message`, `calls`, `python-original`, `mmengine`, `torchrun` or
    /// `stranger`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Probe => "probe",
            Self::Mark => "mark",
            Self::Message => "message",
            Self::Calls => "calls",
            Self::PythonOriginal => "python-original",
            Self::Mmengine => "mmengine",
            Self::Torchrun => "torchrun",
            Self::Stranger => "stranger",
        }
    }
}

/// Directory in the working directory in which mmengine keeps temporary files.
pub(crate) const DIST_TEST: &str = ".dist_test";

/// Returns true if `name` is `data_to_gather_<seconds>_<salt>_<rank>.pkl`.
pub(crate) fn is_of_python_original(name: &str) -> bool {
    let Some(numbers) = name
        .strip_prefix("data_to_gather_")
        .and_then(|rest| rest.strip_suffix(".pkl"))
    else {
        return false;
    };
    numbers.split('_').count() == 3 && numbers.split('_').all(is_number)
}

/// Entries of `.dist_test`: directories `tmp` and eight characters, as `tempfile.mkdtemp` makes them.
pub(crate) fn dist_test(name: &str) -> Option<KnownEntry> {
    let salt = name.strip_prefix("tmp")?;
    let is_salt = salt
        .bytes()
        .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    (is_salt && salt.len() == 8).then_some(KnownEntry::Directory(parts))
}

/// Returns true if `name` is a rendezvous directory of torchrun agents (`fsgather/_torchrun/directory.py`).
pub(crate) fn is_of_torchrun(name: &str) -> bool {
    name.strip_prefix("torchrun-")
        .is_some_and(|key| is_hex(key, 16))
}

/// Entries of such a directory.
pub(crate) fn torchrun(name: &str) -> Option<KnownEntry> {
    let (kind, rest) = name.split_once('-')?;
    let is_known = match kind {
        "state" => rest.len() == 20 && is_number(rest),
        "here" | "draft" | "value" => is_hex(rest, 32),
        _ => false,
    };
    is_known.then_some(KnownEntry::File(KnownFile::Other))
}

fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    text.len() == digits && text.bytes().all(is_digit)
}

/// Entries of those directories: `part_<rank>.pkl`.
fn parts(name: &str) -> Option<KnownEntry> {
    let rank = name.strip_prefix("part_")?.strip_suffix(".pkl")?;
    is_number(rank).then_some(KnownEntry::File(KnownFile::Other))
}

fn is_number(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_told_exactly() {
        assert!(is_of_python_original(
            "data_to_gather_1795232016_1598263297_12.pkl"
        ));
        for strange in [
            "data_to_gather_1_2.pkl",
            "data_to_gather_1_2_3_4.pkl",
            "data_to_gather_1_2_x.pkl",
            "data_to_gather_1_2_3.pkl.bak",
            "data_to_gather_1__3.pkl",
            "my_data_to_gather_1_2_3.pkl",
        ] {
            assert!(!is_of_python_original(strange), "{strange}");
        }
        assert!(dist_test("tmpab12_xyz").is_some() && parts("part_3.pkl").is_some());
        for strange in ["tmpAB12_xyz", "tmpab12_xy", "tmp", "results"] {
            assert!(dist_test(strange).is_none(), "{strange}");
        }
        assert!(is_of_torchrun("torchrun-0123456789abcdef"));
        let nonce = "0123456789abcdef0123456789abcdef";
        for known in ["here", "draft", "value"] {
            assert!(torchrun(&format!("{known}-{nonce}")).is_some());
        }
        assert!(torchrun("state-00000000000000000012").is_some());
        for strange in ["state-12", "here-12", "results", &format!("best-{nonce}")] {
            assert!(torchrun(strange).is_none(), "{strange}");
        }
        for strange in ["torchrun-", "torchrun-0123456789abcdeF", "torchrun"] {
            assert!(!is_of_torchrun(strange), "{strange}");
        }
        for strange in ["part_.pkl", "part_3.pkl.tmp", "best.pkl"] {
            assert!(parts(strange).is_none(), "{strange}");
        }
    }
}
