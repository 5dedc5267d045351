//! Names the kind of file system of a path: [`FileSystem`], the one owner of `statfs`.
//!
//! The kernel's magic number identifies the type. It affects only speed (mapping, skipping a sync) and messages; correctness
//! never depends on it, because all FUSE file systems show the same number.

use std::{io, os::fd::AsFd, path::Path};

use fsgather_core::{Error, sys::files};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::layout;

/// The place of a file system's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// On this host: no other host can see it.
    Local,
    /// On a server or on shared disks.
    Network,
    /// Unknown: FUSE, or a type that is not in the table. Treated like a network file system.
    Unknown,
}

/// A file system's type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileSystem {
    name: String,
    class: Class,
    mappable: bool,
}

/// Magic number, name, class.
const TABLE: &[(u32, &str, Class)] = &[
    (0x0000_ef53, "ext4", Class::Local),
    (0x5846_5342, "xfs", Class::Local),
    (0x9123_683e, "btrfs", Class::Local),
    (0x0102_1994, "tmpfs", Class::Local),
    (0x794c_7630, "overlay", Class::Local),
    (0x8584_58f6, "ramfs", Class::Local),
    (0xf2f5_2010, "f2fs", Class::Local),
    (0x2fc1_2fc1, "zfs", Class::Local),
    (0xca45_1a4e, "bcachefs", Class::Local),
    (0x5265_4973, "reiserfs", Class::Local),
    (0x3153_464a, "jfs", Class::Local),
    (0x0000_4d44, "vfat", Class::Local),
    (0x2011_bab0, "exfat", Class::Local),
    (0x0000_9fa0, "proc", Class::Local),
    (0x6265_6572, "sysfs", Class::Local),
    (0x0000_6969, "nfs", Class::Network),
    (0x0000_517b, "smb", Class::Network),
    (0xff53_4d42, "cifs", Class::Network),
    (0xfe53_4d42, "smb3", Class::Network),
    (0x00c3_6400, "ceph", Class::Network),
    (0x0bd0_0bd0, "lustre", Class::Network),
    (0x4750_4653, "gpfs", Class::Network),
    (0x1983_0326, "beegfs", Class::Network),
    (0xaad7_aaea, "panfs", Class::Network),
    (0x2003_0528, "orangefs", Class::Network),
    (0x0116_1970, "gfs2", Class::Network),
    (0x7461_636f, "ocfs2", Class::Network),
    (0x5346_414f, "afs", Class::Network),
    (0x6b41_4653, "afs", Class::Network),
    (0x7375_7245, "coda", Class::Network),
    (0x0102_1997, "9p", Class::Network),
    (0x6573_5546, "fuse", Class::Unknown),
];

/// Local types on which the mount determines the owner of files, not the process that made them.
const WITHOUT_OWNERS: [&str; 2] = ["vfat", "exfat"];

/// Types on which a mapped file cannot shrink or vanish while it is read.
const MAPPABLE: [&str; 5] = ["ext4", "xfs", "btrfs", "tmpfs", "overlay"];

/// Types that overwrite data in place, so that reserved space is always sufficient. On other types, a page of a mapped file
/// that cannot be written back for lack of space kills the process with a signal. The file system below an overlay is unknown.
const WRITTEN_IN_PLACE: [&str; 3] = ["ext4", "xfs", "tmpfs"];

impl FileSystem {
    /// Returns the type of a magic number. Pure.
    ///
    /// ```
    /// use fsgather_store::{Class, FileSystem};
    ///
    /// let nfs = FileSystem::from_magic(0x6969);
    /// assert_eq!((nfs.name(), nfs.class(), nfs.is_mappable()), ("nfs", Class::Network, false));
    /// assert_eq!(FileSystem::from_magic(7).name(), "type 0x7");
    /// ```
    #[must_use]
    pub fn from_magic(magic: u32) -> Self {
        match TABLE.iter().find(|(number, ..)| *number == magic) {
            Some(&(_, name, class)) => Self {
                name: name.to_owned(),
                class,
                mappable: MAPPABLE.contains(&name),
            },
            None if magic == 0 => Self {
                name: "unknown".to_owned(),
                class: Class::Unknown,
                mappable: false,
            },
            None => Self {
                name: format!("type {magic:#x}"),
                class: Class::Unknown,
                mappable: false,
            },
        }
    }

    /// Returns the type of the file system of an existing path.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the path does not exist or cannot be examined.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let magic = files::kind(path)
            .or_else(|errno| match path.parent() {
                // An empty rendezvous directory may be removed at any moment, and is made again when needed.
                Some(parent)
                    if errno == Errno::NOENT && layout::rendezvous_path(parent) == path =>
                {
                    files::kind(parent)
                }
                _ => Err(errno),
            })
            .or_else(magic_if_denied)
            .map_err(|errno| Error::storage("examine", path, &io::Error::from(errno)))?;
        Ok(Self::from_magic(magic))
    }

    /// Returns the type of the file system of an open file or directory.
    pub(crate) fn of_open(file: impl AsFd) -> io::Result<Self> {
        let magic = files::kind_of(file).or_else(magic_if_denied)?;
        Ok(Self::from_magic(magic))
    }

    /// Name of the type as `mount` shows it, if known: `nfs`, `ext4` (also for ext2 and ext3).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Place of its data.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Returns true if the uid of a file is certainly that of the process that made it: on local types with owners. Servers may
    /// show other owners.
    #[must_use]
    pub fn shows_makers(&self) -> bool {
        self.class == Class::Local && !WITHOUT_OWNERS.contains(&self.name.as_str())
    }

    /// Returns true if a user-space process serves it.
    pub(crate) fn is_fuse(&self) -> bool {
        self.name == "fuse"
    }

    /// Returns true if files on it may be mapped: only on types that are known to be local and safe.
    #[must_use]
    pub const fn is_mappable(&self) -> bool {
        self.mappable
    }

    /// Returns true if writing to a mapped file never needs more space than was reserved.
    #[must_use]
    pub fn is_written_in_place(&self) -> bool {
        WRITTEN_IN_PLACE.contains(&self.name())
    }
}

/// Returns a magic number that is in no table if a sandbox or file system does not return the type: correctness does not depend
/// on it.
///
/// A file system itself never answers with `EPERM`.
fn magic_if_denied(errno: Errno) -> Result<u32, Errno> {
    match errno {
        Errno::NOSYS | Errno::PERM => {
            tracing::debug!(%errno, "statfs fails; the type of the file system is unknown");
            Ok(0)
        }
        _ => Err(errno),
    }
}

/// Total and free space of a file system, as this process may use it.
///
/// For messages only: quotas are not included, and other processes write meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Total number of bytes.
    pub total_bytes: u64,
    /// Bytes that this process may still write.
    pub free_bytes: u64,
    /// Total number of inodes, that is files and directories; 0 if they are not counted.
    pub total_inodes: u64,
    /// Inodes that this process may still make.
    pub free_inodes: u64,
}

impl Capacity {
    /// Returns the capacity of the file system of an existing path; `None` if it is unknown.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let room = files::room(path).ok()?;
        Some(Self {
            total_bytes: room.total_bytes,
            free_bytes: room.free_bytes,
            total_inodes: room.total_inodes,
            free_inodes: room.free_inodes,
        })
    }
}

/// Number of bytes that this process may still write in the file system of `path`; `None` if that is unknown.
///
/// For messages only: quotas are not included, and other processes write meanwhile.
#[must_use]
pub fn free_bytes(path: &Path) -> Option<u64> {
    Capacity::of(path).map(|capacity| capacity.free_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_rendezvous_lies_on_its_parents_file_system() {
        let place = tempfile::tempdir().unwrap();
        let own = FileSystem::of(place.path()).unwrap();
        let rendezvous = layout::rendezvous_path(place.path());
        assert_eq!(FileSystem::of(&rendezvous).unwrap().name(), own.name());
        FileSystem::of(&place.path().join("missing")).unwrap_err();
        FileSystem::of(&layout::rendezvous_path(&rendezvous)).unwrap_err();
    }

    #[test]
    fn only_local_types_are_mappable() {
        for &(magic, name, class) in TABLE {
            let system = FileSystem::from_magic(magic);
            assert_eq!(system.name(), name);
            assert!(!system.is_mappable() || class == Class::Local, "{name}");
            assert!(!system.is_mappable() || system.shows_makers(), "{name}");
            assert!(
                !system.is_written_in_place() || system.is_mappable(),
                "{name}"
            );
        }
        assert!(!FileSystem::from_magic(0x6573_5546).is_mappable());
        for without in [0x4d44, 0x6969, 0x6573_5546, 7] {
            assert!(!FileSystem::from_magic(without).shows_makers());
        }
        assert!(!FileSystem::from_magic(0xdead_beef).is_mappable());
        assert_eq!(FileSystem::from_magic(0).name(), "unknown");
    }

    #[test]
    fn magic_numbers_are_listed_once() {
        for (i, (magic, ..)) in TABLE.iter().enumerate() {
            assert!(TABLE[i + 1..].iter().all(|(other, ..)| other != magic));
        }
    }

    #[test]
    fn real_paths_have_a_type_and_room() {
        let place = tempfile::tempdir().unwrap();
        FileSystem::of(place.path()).unwrap();
        let capacity = Capacity::of(place.path()).unwrap();
        assert!(0 < capacity.free_bytes && capacity.free_bytes <= capacity.total_bytes);
        assert!(capacity.free_inodes <= capacity.total_inodes);
        assert!(free_bytes(place.path()).is_some());
        let error = FileSystem::of(&place.path().join("nothing")).unwrap_err();
        assert!(error.to_string().starts_with("cannot examine "), "{error}");
    }
}
