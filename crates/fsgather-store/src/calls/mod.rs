//! The file in which a rank keeps its last calls: [`create`], [`read`], [`CallsHeader`]; and questions to ranks that write such
//! files: [`Question`] in `question.rs`.
//!
//! A header of [`HEADER_LEN`] bytes, then records, whose layout is that of `fsgather-observe`; each has its own checksum, so
//! that records can be overwritten while other processes read. The header, little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `89 46 53 42 0d 0a 1a 0a` |
//! | 8 | 2 | version, 6 |
//! | 10 | 2 | zero |
//! | 12 | 4 | length n of the next field |
//! | 16 | n | the writer of the file, [`CallsHeader`] in postcard |
//! | 16 + n | 16 | xxh3-128 of all bytes before |
//! | 4088 | 8 | number of calls that have begun, if not 0, in the byte order of the writer; it changes, and no checksum covers it |

mod question;

use std::{
    fs::File,
    io::{self, IoSlice},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fsgather_core::{
    Error, ProcessId, Rank, StorageCause, floor_boundary,
    hash::Hash128,
    read_message,
    sys::{files, limits},
};
use rustix::fs::{CWD, OFlags};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    directory::rendezvous_directory::in_rendezvous,
    layout::{self, RendezvousEntry},
    os::{
        directory::{self, OwnUid},
        file,
        filesystem::{Class, FileSystem},
        listing,
        process::{Liveness, liveness, user_text},
        remove,
    },
};

pub use question::{LONGEST_ANSWER, Question};

const MAGIC: [u8; 8] = *b"\x89FSB\r\n\x1a\n";
/// 2: the reason for which a call was not decided. 3: a checksum of the texts of a record. 4: the name of a rank. 5: no calls
/// without all ranks. 6: the directory.
const VERSION: u16 = 6;
const FIXED_LEN: usize = 16;
const CHECKSUM_LEN: usize = 16;

/// Length of the part before the records, in bytes.
pub const HEADER_LEN: usize = 4096;

/// Offset of the number of calls that have begun, in the header.
pub const COUNT_AT: usize = HEADER_LEN - size_of::<u64>();

/// Maximum length of a file that is read, in bytes.
const MAX_LEN: u64 = 1 << 20;

/// Maximum length of a job id in the header, in bytes. Longer ones are truncated.
const LONGEST_JOB: usize = 512;

/// Maximum length of a directory name in the header, in bytes. Longer ones are left out.
const MAX_DIRECTORY_BYTES: usize = 2048;

/// The rank and the process that wrote a file of last calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallsHeader {
    /// The process.
    pub process: ProcessId,
    /// The world.
    pub communicator: Uuid,
    /// Rank of the process.
    pub rank: Rank,
    /// Rank as users know it, if the world is a part of a job.
    pub called: Rank,
    /// Number of ranks of the world.
    pub world_size: u32,
    /// Time at which the rank's clock was 0, in nanoseconds since 1970 by the calendar of its host.
    pub began: u64,
    /// Identifier of the job.
    pub job: Option<String>,
    /// The directory that the ranks gather through, if any, by its absolute name on this host.
    pub directory: Option<String>,
}

impl CallsHeader {
    /// Returns the name of its file.
    #[must_use]
    pub fn name(&self) -> String {
        RendezvousEntry::Calls {
            world: self.communicator,
            rank: self.rank,
        }
        .to_string()
    }

    fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut short = self.clone();
        short.job = short.job.map(|mut job| {
            job.truncate(floor_boundary(&job, LONGEST_JOB));
            job
        });
        // A truncated name would be another directory.
        short
            .directory
            .take_if(|directory| directory.len() > MAX_DIRECTORY_BYTES);
        let body = postcard::to_stdvec(&short).ok()?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&Hash128::of(&bytes).to_le_bytes());
        (bytes.len() <= COUNT_AT).then(|| {
            bytes.resize(HEADER_LEN, 0);
            bytes
        })
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let torn = || "it is incomplete or damaged".to_owned();
        let (fixed, rest) = bytes.split_at_checked(FIXED_LEN).ok_or_else(torn)?;
        let (magic, fixed) = fixed.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err("it holds no calls".into());
        }
        let [v0, v1, _, _, len @ ..] = fixed else {
            return Err(torn());
        };
        let version = u16::from_le_bytes([*v0, *v1]);
        if version != VERSION {
            return Err(format!(
                "it is of version {version}, this build reads {VERSION}"
            ));
        }
        let len = len.first_chunk().copied().map(u32::from_le_bytes);
        let len = usize::try_from(len.unwrap_or(u32::MAX)).map_err(|_| torn())?;
        let (body, rest) = rest.split_at_checked(len).ok_or_else(torn)?;
        let checksum = rest.first_chunk::<CHECKSUM_LEN>().ok_or_else(torn)?;
        let hashed = Hash128::of(&bytes[..FIXED_LEN + len]);
        if hashed != u128::from_le_bytes(*checksum) {
            return Err(torn());
        }
        read_message(body).map_err(|_| torn())
    }
}

/// Creates the file of a rank in a rendezvous directory, for this user alone. The file will be `len` bytes long.
///
/// # Errors
///
/// [`Error::Storage`] if the file exists, or cannot be created.
pub fn create(rendezvous: &Path, header: &CallsHeader, len: u64) -> Result<(File, PathBuf), Error> {
    let path = rendezvous.join(header.name());
    let told = |error: io::Error| Error::storage("make", &path, &error);
    // The kernel would send a signal instead of an error.
    if limits::file_bytes().is_some_and(|limit| limit < len) {
        return Err(told(io::ErrorKind::FileTooLarge.into()));
    }
    let bytes = header.to_bytes().ok_or_else(|| {
        let cause = StorageCause::described("who this is takes too much room");
        Error::storage("make", &path, cause)
    })?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = header.name();
    let open_anew = || {
        // The handle stays valid even if the directory is replaced meanwhile.
        let held = listing::hold(rendezvous)?;
        Ok(files::open(&held, Path::new(&name), flags, 0o600)?)
    };
    let made = File::from(in_rendezvous(rendezvous, open_anew).map_err(told)?);
    let written = file::write_all(&made, &mut [IoSlice::new(&bytes)]);
    if let Err(error) = written {
        remove::or_leave(&path);
        return Err(told(error));
    }
    Ok((made, path))
}

/// Creates the file like [`create`], or opens an existing one if this rank of this process wrote it.
///
/// # Errors
///
/// [`Error::Storage`] if the file cannot be created, and an existing one is not of this process.
pub fn create_or_open(rendezvous: &Path, header: &CallsHeader, len: u64) -> Result<File, Error> {
    let refused = match create(rendezvous, header, len) {
        Ok((made, _)) => return Ok(made),
        Err(error) => error,
    };
    let path = rendezvous.join(header.name());
    let there = read(&path, AllowedOwner::ThisUser);
    if there.is_ok_and(|there| there.header.process == header.process) {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = files::open(CWD, &path, flags, 0);
        return opened
            .map(File::from)
            .map_err(|errno| Error::storage("open", &path, &errno.into()));
    }
    Err(refused)
}

/// The owner that a file must have to be read. In a shared directory, other users may leave files under the names of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedOwner {
    /// This user.
    ThisUser,
    /// Any user if root reads, else this user. The owner is in [`CallsFile::owner`].
    AnyForRoot,
}

/// Contents of the file in which a rank keeps its last calls.
#[derive(Clone, Debug)]
pub struct CallsFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The user who owns the file.
    pub owner: u32,
    /// The rank and the process that wrote it.
    pub header: CallsHeader,
    /// Number of calls that have begun, or 0 if the file does not contain it.
    pub count: u64,
    /// All records in the file, or the requested ones, unparsed.
    pub records: Vec<u8>,
}

/// Selects records: returns their byte ranges for a given number of calls that have begun.
pub type Which<'a> = &'a dyn Fn(u64) -> Vec<Range<usize>>;

/// Reads the file of a rank. Links are not followed.
///
/// # Errors
///
/// The reason why the file cannot be read.
pub fn read(path: &Path, allowed: AllowedOwner) -> Result<CallsFile, String> {
    let (file, owner) = open(path, allowed)?;
    let bytes = file::read_bounded(&file, MAX_LEN).map_err(|why| why.to_string())?;
    from_bytes(path, owner, &bytes)
}

/// Reads only the selected records if the file contains the number of calls, else all records.
///
/// # Errors
///
/// The reason why the file cannot be read.
pub fn read_some(
    path: &Path,
    which: Which<'_>,
    allowed: AllowedOwner,
) -> Result<CallsFile, String> {
    let (file, owner) = open(path, allowed)?;
    let told = |error: io::Error| error.to_string();
    let mut bytes = vec![0; HEADER_LEN];
    file.read_exact_at(&mut bytes, 0).map_err(told)?;
    let count = count(&bytes);
    if count == 0 {
        bytes = file::read_bounded(&file, MAX_LEN).map_err(told)?;
        return from_bytes(path, owner, &bytes);
    }
    for range in which(count) {
        let at = bytes.len();
        bytes.resize(at + range.len(), 0);
        let from = (HEADER_LEN + range.start) as u64;
        file.read_exact_at(&mut bytes[at..], from).map_err(told)?;
    }
    from_bytes(path, owner, &bytes)
}

fn count(bytes: &[u8]) -> u64 {
    let count = bytes.get(COUNT_AT..).and_then(<[u8]>::first_chunk);
    count.copied().map_or(0, u64::from_ne_bytes)
}

/// Writes the number of calls that have begun to a copy.
///
/// # Errors
///
/// The error of the file system.
pub fn write_count(copy: &File, count: u64) -> io::Result<()> {
    copy.write_all_at(&count.to_ne_bytes(), COUNT_AT as u64)
}

/// Truncates the file of this rank.
///
/// # Errors
///
/// The error of the file system.
pub fn cut(path: &Path, len: u64) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    File::from(files::open(CWD, path, flags, 0)?).set_len(len)
}

/// Opens a file, and returns its owner.
fn open(path: &Path, allowed: AllowedOwner) -> Result<(File, u32), String> {
    listing::refresh(path);
    let me = rustix::process::geteuid().as_raw();
    let owner = listing::examine_path(path).map_err(|error| error.to_string())?;
    let needed = match allowed {
        AllowedOwner::AnyForRoot if me == 0 => owner.uid,
        AllowedOwner::AnyForRoot | AllowedOwner::ThisUser => me,
    };
    let opened = file::open_small(path, &[needed], MAX_LEN).map_err(|why| {
        if owner.uid == me {
            why.to_string()
        } else {
            format!("{why}; it is of {}, who can read it", user_text(owner.uid))
        }
    });
    Ok((opened?, needed))
}

/// Parses the bytes of such a file, which belongs to `owner`. Pure.
///
/// # Errors
///
/// The reason why the bytes are invalid.
pub fn from_bytes(path: &Path, owner: u32, bytes: &[u8]) -> Result<CallsFile, String> {
    let header = CallsHeader::from_bytes(bytes)?;
    // The file is created with a complete header, so a shorter file is damaged.
    let records = bytes.get(HEADER_LEN..);
    let records = records.ok_or("it is incomplete or damaged")?;
    Ok(CallsFile {
        path: path.to_owned(),
        owner,
        header,
        count: count(bytes),
        records: records.to_vec(),
    })
}

/// Returns the process that has written the file of a rank.
pub(crate) fn writer(path: &Path, own: OwnUid) -> Option<ProcessId> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = File::from(files::open(CWD, path, flags, 0).ok()?);
    let found = file::examine(&opened).ok()?;
    if !found.is_regular || found.uid != own.0 {
        return None;
    }
    let mut bytes = vec![0; HEADER_LEN];
    opened.read_exact_at(&mut bytes, 0).ok()?;
    Some(CallsHeader::from_bytes(&bytes).ok()?.process)
}

/// Returns the files of ranks in a rendezvous directory, sorted by world and rank.
///
/// # Errors
///
/// The error of listing the directory.
pub fn list(rendezvous: &Path) -> io::Result<Vec<(Uuid, Rank, PathBuf)>> {
    let names = listing::names_if(rendezvous, &|name| name.starts_with(layout::CALLS_STEM))?;
    let mut found: Vec<_> = names
        .iter()
        .filter_map(|name| match RendezvousEntry::parse(name)? {
            RendezvousEntry::Calls { world, rank } => Some((world, rank, rendezvous.join(name))),
            _ => None,
        })
        .collect();
    found.sort();
    Ok(found)
}

/// Returns this host's own rendezvous directory of this user, where calls are kept if the shared one is not on this host.
/// Creates it if necessary.
///
/// # Errors
///
/// [`Error::Storage`] if it cannot be created, or other users may use it.
pub fn local_rendezvous() -> Result<PathBuf, Error> {
    let made = directory::default_local(rustix::process::geteuid().as_raw())?;
    crate::make_rendezvous(&made)
}

/// Returns the path of that directory without creating it.
#[must_use]
pub fn known_local_rendezvous() -> PathBuf {
    layout::rendezvous_path(&directory::local_path(rustix::process::geteuid().as_raw()))
}

/// Removes a rendezvous directory that was created after `since`, for calls alone, if it is empty. Ranks that need it create it
/// again. Does so only if the file system and this host share one clock, and the creation time is known.
pub fn remove_unused_rendezvous(rendezvous: &Path, since: SystemTime) {
    let is_new = || -> io::Result<bool> {
        let held = listing::hold(rendezvous)?;
        let (made, file_system) = (listing::examine_open(&held)?, FileSystem::of_open(&held)?);
        // Time stamps have the resolution of the kernel's ticks.
        let since = since.checked_sub(Duration::from_millis(20));
        Ok(made.uid == rustix::process::geteuid().as_raw()
            && file_system.class() == Class::Local
            && made.born >= since.or(Some(UNIX_EPOCH)))
    };
    if matches!(is_new(), Ok(true))
        && let Err(error) = remove::rmdir(rendezvous)
    {
        tracing::debug!(path = %rendezvous.display(), %error, "a directory stays");
    }
}

/// Updates the time stamp of a file. Processes that cannot see its writer take this as a sign that the writer runs.
///
/// # Errors
///
/// The error of the file system.
pub fn touch(file: &File) -> io::Result<()> {
    Ok(files::touch(file)?)
}

/// Updates the time stamps of all files of a world's ranks in a rendezvous directory, if their processes are seen to run.
pub fn touch_all(rendezvous: &Path, world: Uuid, me: &ProcessId) {
    let of_world = |found: &(Uuid, Rank, PathBuf)| found.0 == world;
    let all = list(rendezvous).unwrap_or_default();
    for (_, _, path) in all.into_iter().filter(of_world) {
        let runs = |file: &CallsFile| liveness(&file.header.process, me) == Liveness::Running;
        let own = AllowedOwner::ThisUser;
        if read_some(&path, &|_| Vec::new(), own).is_ok_and(|file| runs(&file))
            && let Err(error) = open(&path, own)
                .and_then(|(file, _)| touch(&file).map_err(|error| error.to_string()))
        {
            tracing::debug!(path = %path.display(), error, "not touched");
        }
    }
}

/// Removes the file of a rank.
pub fn remove(path: &Path) {
    remove::or_leave(path);
}

/// Flushes a file, so that other hosts can read the changes.
///
/// # Errors
///
/// The error of the file system.
pub fn sync(file: &File) -> io::Result<()> {
    file::sync(file)
}

#[cfg(test)]
pub(crate) mod tests;
