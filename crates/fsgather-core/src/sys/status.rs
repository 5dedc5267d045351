//! Facts of a file, [`Status`], and of a file system, [`Room`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat, Statx, StatxFlags};

/// Facts of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// A file, a directory, or something else.
    pub kind: FileType,
    /// The permission bits, with the set-id and sticky ones.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The length in bytes.
    pub len: u64,
    /// The number of names.
    pub links: u64,
    /// The device that it is on.
    pub device: (u32, u32),
    /// Its number there.
    pub inode: u64,
    /// The last change of the contents.
    pub changed: SystemTime,
    /// The time of its creation, if it is known.
    pub born: Option<SystemTime>,
}

/// The capacity and the free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes that this process may still write.
    pub free_bytes: u64,
    /// All inodes; 0 if they are not counted.
    pub total_inodes: u64,
    /// Inodes that this process may still make.
    pub free_inodes: u64,
}

impl Status {
    pub(super) fn of(found: &Statx) -> Self {
        let is_born = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let raw = u32::from(found.stx_mode);
        Self {
            kind: FileType::from_raw_mode(raw),
            mode: raw & 0o7777,
            uid: found.stx_uid,
            gid: found.stx_gid,
            len: found.stx_size,
            links: found.stx_nlink.into(),
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            changed: time(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
            born: is_born.then(|| time(found.stx_btime.tv_sec, found.stx_btime.tv_nsec)),
        }
    }

    /// Converts the answer of `fstatat`, whose fields have other types on each architecture.
    #[allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "lengths are not negative, and nanoseconds fit into 32 bits"
    )]
    pub(super) fn of_older_call(found: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(found.st_mode),
            mode: found.st_mode & 0o7777,
            uid: found.st_uid,
            gid: found.st_gid,
            len: found.st_size as u64,
            links: found.st_nlink as u64,
            device: (
                rustix::fs::major(found.st_dev),
                rustix::fs::minor(found.st_dev),
            ),
            inode: found.st_ino,
            changed: time(found.st_mtime, found.st_mtime_nsec as u32),
            born: None,
        }
    }
}

fn time(seconds: i64, nanos: u32) -> SystemTime {
    let length = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        UNIX_EPOCH.checked_sub(length)
    } else {
        UNIX_EPOCH.checked_add(length + Duration::from_nanos(u64::from(nanos)))
    };
    time.unwrap_or(UNIX_EPOCH)
}
