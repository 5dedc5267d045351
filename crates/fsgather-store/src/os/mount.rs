//! Finds the mount of a path in `/proc/self/mountinfo`: [`Mount`].
//!
//! For messages only: other code tests the capabilities of a directory, and proves that it is shared.

use std::{
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// A mount of this process's mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Mount point.
    pub point: PathBuf,
    /// The mounted source: `server:/export`, a device, or a name without a meaning.
    pub source: String,
    /// Type of the file system, more precise than a magic number: `nfs4`, `fuse.glusterfs`.
    pub kind: String,
    /// All options, of the mount and of the file system, in the order of the kernel.
    pub options: Vec<String>,
}

impl Mount {
    /// Returns the mount of an existing path; `None` if it is unknown.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        let table = fs::read("/proc/self/mountinfo").ok()?;
        Self::in_table(&table, &path)
    }

    /// Returns the mount of an absolute path without links: the last one at the longest matching mount point.
    fn in_table(table: &[u8], path: &Path) -> Option<Self> {
        let mounts = table.split(|byte| *byte == b'\n').filter_map(Self::parse);
        mounts
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.components().count())
    }

    /// Parses one line; see proc(5).
    fn parse(line: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        // Optional fields, of which there may be any number, end with a hyphen.
        let hyphen = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
        let text = |at: usize| Some(unescape(fields.get(at)?));
        let of_mount = text(5)?;
        let of_system = text(hyphen + 3).unwrap_or_default();
        let options = [lossy(&of_mount), lossy(&of_system)];
        let mut names: Vec<String> = Vec::new();
        for name in options.iter().flat_map(|options| options.split(',')) {
            if !name.is_empty() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Some(Self {
            point: PathBuf::from(std::ffi::OsString::from_vec(text(4)?)),
            source: lossy(&text(hyphen + 2)?),
            kind: lossy(&text(hyphen + 1)?),
            options: names,
        })
    }

    /// Returns true if an option is set, by its exact text.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }
}

/// Parses arbitrary bytes as a line of the table, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_reading(line: &[u8]) {
    let _ = Mount::parse(line).map(|mount| format!("{mount:?}"));
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Decodes spaces, tabs, line breaks and backslashes, which are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'\\')
            .then(|| after.split_at_checked(3))
            .flatten()
            .and_then(|(digits, after)| Some((octal(digits)?, after)));
        let (byte, after) = escaped.unwrap_or((first, after));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:44 / /shared rw,relatime shared:7 master:2 - nfs4 srv:/export\\040one rw,vers=4.2,soft,proto=tcp
41 22 0:45 / /shared/fast rw - tmpfs none rw,size=1024k
42 22 0:46 / /shared/fast rw - fuse.glusterfs gl:/vol rw,user_id=0
43 22 0:47 / /with\\134odd\\040name rw - tmpfs none
damaged line
";

    fn of(path: &str) -> Mount {
        Mount::in_table(TABLE.as_bytes(), Path::new(path)).unwrap()
    }

    #[test]
    fn a_path_belongs_to_the_deepest_mount_and_there_to_the_latest() {
        for (path, point, kind) in [
            ("/", "/", "ext4"),
            ("/shared2/x", "/", "ext4"),
            ("/shared/x/y", "/shared", "nfs4"),
            ("/shared/fast/x", "/shared/fast", "fuse.glusterfs"),
            ("/with\\odd name/x", "/with\\odd name", "tmpfs"),
        ] {
            let mount = of(path);
            assert_eq!(
                (mount.point.as_path(), mount.kind.as_str()),
                (Path::new(point), kind)
            );
        }
    }

    #[test]
    fn source_and_options_are_told_once_and_in_order() {
        let mount = of("/shared");
        assert_eq!(mount.source, "srv:/export one");
        assert_eq!(
            mount.options,
            ["rw", "relatime", "vers=4.2", "soft", "proto=tcp"]
        );
        assert!(mount.has("soft") && !mount.has("hard") && !mount.has("vers"));
    }

    #[test]
    fn real_paths_have_a_mount() {
        let place = tempfile::tempdir().unwrap();
        let mount = Mount::of(place.path()).unwrap();
        let real = fs::canonicalize(place.path()).unwrap();
        assert!(real.starts_with(&mount.point));
        assert_eq!(Mount::of(&place.path().join("nothing")), None);
    }

    proptest! {
        #[test]
        fn no_table_makes_the_parser_panic(table in prop::collection::vec(any::<u8>(), 0..200), text in "[ 0-7\\\\-]{0,60}") {
            let _ = Mount::in_table(&table, Path::new("/x"));
            let _ = Mount::in_table(text.as_bytes(), Path::new("/x"));
        }
    }
}
