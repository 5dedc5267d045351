//! Names the kind of file system that a path lies on: [`FileSystem`], the one owner of `statfs`.
//!
//! The type is told by the kernel's magic number. It decides what is *faster* (mapping, skipping a sync)
//! and what messages say; what is correct never depends on it, since everything built on FUSE shows one
//! number.

use std::{io, os::fd::AsFd, path::Path};

use fsgather_core::{Error, sys::files};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::layout;

/// Where the data of a file system lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// On this host: nobody else can see it.
    Local,
    /// On a server or on shared disks.
    Network,
    /// It cannot be told: FUSE, or a type that is not in the table. Treated as if it were a network's.
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

/// Local types whose files belong to whom the mount says, and not to whom made them.
const WITHOUT_OWNERS: [&str; 2] = ["vfat", "exfat"];

/// Types on which a mapped file cannot shrink or vanish behind the reader's back.
const MAPPABLE: [&str; 5] = ["ext4", "xfs", "btrfs", "tmpfs", "overlay"];

/// Types that write over what a file has where it lies, so that room once reserved suffices for ever: on others a page of a
/// mapped file that cannot be written back for lack of room ends the process by a signal. What lies below an overlay is not
/// known.
const WRITTEN_IN_PLACE: [&str; 3] = ["ext4", "xfs", "tmpfs"];

impl FileSystem {
    /// The type that a magic number stands for. Pure.
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

    /// The type of the file system that an existing path lies on.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when the path does not exist or cannot be asked about.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let magic = files::kind(path)
            .or_else(|errno| match path.parent() {
                // An empty rendezvous directory may be removed at any moment, and is made again on need.
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

    /// The type of the file system that an open file or directory lies on.
    pub(crate) fn of_open(file: impl AsFd) -> io::Result<Self> {
        let magic = files::kind_of(file).or_else(magic_if_denied)?;
        Ok(Self::from_magic(magic))
    }

    /// Its name as `mount` shows it, where known: `nfs`, `ext4` (also for its elders).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its data lives.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Whether files on it are sure to belong to the user that made them, under that user's own number: local types
    /// that have owners. Servers may show others.
    #[must_use]
    pub fn shows_makers(&self) -> bool {
        self.class == Class::Local && !WITHOUT_OWNERS.contains(&self.name.as_str())
    }

    /// Whether a process serves it.
    pub(crate) fn is_fuse(&self) -> bool {
        self.name == "fuse"
    }

    /// Whether files on it may be mapped: only the types known to be local and well-behaved.
    #[must_use]
    pub const fn is_mappable(&self) -> bool {
        self.mappable
    }

    /// Whether a mapped file whose room has been reserved can be written to without ever wanting for more.
    #[must_use]
    pub fn is_written_in_place(&self) -> bool {
        WRITTEN_IN_PLACE.contains(&self.name())
    }
}

/// Returns a magic number that is in no table if a sandbox or file system does not tell the type: nothing depends on it.
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

/// What a file system holds and has left, as this process may use it.
///
/// For messages only: quotas do not show here, and others write meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes that this process may still write.
    pub free_bytes: u64,
    /// All inodes, that is files and directories; 0 where they are not counted.
    pub total_inodes: u64,
    /// Inodes that this process may still make.
    pub free_inodes: u64,
}

impl Capacity {
    /// The capacity of the file system that an existing path lies on; `None` when it cannot be told.
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

/// Number of bytes that this process may still write where `path` lies; `None` when that cannot be told.
///
/// For messages only: quotas do not show here, and others write meanwhile.
#[must_use]
pub fn free_bytes(path: &Path) -> Option<u64> {
    Capacity::of(path).map(|capacity| capacity.free_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendezvous_directory_that_is_not_there_lies_where_it_would_be_made() {
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
