//! Reading one file of samples: [`ScannedFile`].

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use fsgather_core::{Error, hash::Hash64, sys::files};
use rustix::{fs::FileType, io::Errno};

use crate::{
    layout::SampleFileName,
    os::file,
    samples::{
        entry::{ENTRY_HEADER_BYTES, EntryHead, EntryHeader},
        file_copy::SampleFileCopy,
        file_header::{MAX_HEADER_BYTES, PREAMBLE_BYTES, Preamble, SampleFileHeader},
        sample_index::ValuePlace,
    },
};

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// Reasons why nothing of a file can be read.
const A_LINK: &str = "it is a link; put the file itself in its place";
const NOT_A_FILE: &str = "it is not a file";
const EMPTY: &str = "it is empty";
const NO_HEADER: &str = "its header is damaged, or that of another file";

/// One file of samples, read whole: every entry in it that matches its checksums.
#[derive(Debug)]
pub struct ScannedFile {
    /// Name of the file.
    pub name: SampleFileName,
    /// Path of the file.
    pub path: PathBuf,
    /// Origin of the file; `None` if its head cannot be read, and so nothing in it.
    pub header: Option<SampleFileHeader>,
    /// Bytes that were read.
    pub len: u64,
    /// Time of the last write, by the clock of the server.
    pub changed: SystemTime,
    /// Results in the file that no earlier file of its process has.
    pub results: u64,
    /// Failed samples, counted likewise.
    pub failures: u64,
    /// Whether another file of its process follows, which has what the end of this one may lack.
    pub is_continued: bool,
    /// Contents of a file that is none, but came in memory.
    pub(crate) memory: Option<Bytes>,
    /// Bytes that could not be read as entries.
    pub damage: FileDamage,
    /// The samples that the attempt expects, if this file states them.
    pub(crate) expectation: Option<ValuePlace>,
    /// The entries, in the order in which they were added; an entry that was written twice is there once. Places have no
    /// number of a file yet.
    pub(crate) entries: Vec<(EntryHead, ValuePlace)>,
}

/// Bytes of a file that are no entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileDamage {
    /// Reason why nothing of the file can be read.
    pub reason: Option<&'static str>,
    /// Bytes at the end, as an interrupted write leaves them.
    pub tail_bytes: u64,
    /// Bytes before entries that can be read.
    pub inner_bytes: u64,
}

impl ScannedFile {
    /// Whether more than the last entry, which an interrupted write leaves behind, cannot be read.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        self.damage.inner_bytes > 0 || self.header.is_none()
    }

    /// Whether there is a file, and not something else in its place.
    pub(crate) fn is_file(&self) -> bool {
        ![Some(A_LINK), Some(NOT_A_FILE)].contains(&self.damage.reason)
    }

    /// Whether the file ends in the middle of an entry, as an interrupted write leaves it.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.damage.tail_bytes > 0 && self.header.is_some() && !self.is_continued
    }

    /// Describes why a file is damaged.
    #[must_use]
    pub fn damage_text(&self) -> String {
        let FileDamage {
            reason,
            inner_bytes,
            tail_bytes,
        } = self.damage;
        reason.map_or_else(
            || {
                format!(
                    "{} of its {} bytes cannot be read",
                    inner_bytes + tail_bytes,
                    self.len
                )
            },
            str::to_owned,
        )
    }

    /// The entries of this file that can be read; `None` if its header cannot.
    pub(crate) fn copy(&self) -> Option<SampleFileCopy> {
        self.header.as_ref()?;
        let sequences = self.entries.iter().map(|(head, _)| head.sequence);
        Some(SampleFileCopy::new(self.name, self.len, sequences))
    }

    /// Reads a file. Anything else in its place is a damaged file.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if it cannot be opened or read, [`Error::Incompatible`] if another version of fsgather
    /// wrote it.
    pub(crate) fn read(path: &Path, name: SampleFileName) -> Result<Self, Error> {
        let (mut scanned, opened) = Self::open(path, name)?;
        if let Some(opened) = opened {
            // An entry that is appended meanwhile is seen by a later reader.
            let len = scanned.len;
            scanned.fill(&mut Window::new(Source::File(&opened), path, len))?;
        }
        Ok(scanned)
    }

    /// Whether the header of a file can be read.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub(crate) fn has_header(path: &Path, name: SampleFileName) -> Result<bool, Error> {
        let (mut scanned, opened) = Self::open(path, name)?;
        let Some(opened) = opened else {
            return Ok(false);
        };
        let mut bytes = Window::new(Source::File(&opened), path, scanned.len);
        Ok(scanned.read_header(&mut bytes)?.is_some())
    }

    fn open(path: &Path, name: SampleFileName) -> Result<(Self, Option<File>), Error> {
        let unreadable = |reason, len, changed| {
            let mut scanned = Self::unread(name, path.to_owned(), len, changed);
            scanned.damage.reason = Some(reason);
            scanned.damage.tail_bytes = len;
            (scanned, None)
        };
        let failed = |error: &io::Error| Error::storage("read samples from", path, error);
        let opened = match file::open(path) {
            Ok(opened) => opened,
            Err(error) => {
                let code = error.raw_os_error().map(Errno::from_raw_os_error);
                return match code {
                    Some(Errno::LOOP) => Ok(unreadable(A_LINK, 0, UNIX_EPOCH)),
                    Some(Errno::NXIO) => Ok(unreadable(NOT_A_FILE, 0, UNIX_EPOCH)),
                    _ => Err(failed(&error)),
                };
            }
        };
        let found = files::look_at(&opened).map_err(|error| failed(&error))?;
        if found.kind != FileType::RegularFile {
            return Ok(unreadable(NOT_A_FILE, found.len, found.changed));
        }
        let scanned = Self::unread(name, path.to_owned(), found.len, found.changed);
        Ok((scanned, Some(opened)))
    }

    /// Reads contents that came in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] if another version of fsgather made them.
    pub(crate) fn from_memory(contents: Bytes, name: SampleFileName) -> Result<Self, Error> {
        let path = PathBuf::from(name.to_string());
        let len = contents.len() as u64;
        let mut scanned = Self::unread(name, path.clone(), len, UNIX_EPOCH);
        scanned.fill(&mut Window::new(Source::Memory(&contents), &path, len))?;
        scanned.memory = Some(contents);
        Ok(scanned)
    }

    fn unread(name: SampleFileName, path: PathBuf, len: u64, changed: SystemTime) -> Self {
        Self {
            name,
            path,
            header: None,
            len,
            changed,
            results: 0,
            failures: 0,
            is_continued: false,
            memory: None,
            damage: FileDamage::default(),
            expectation: None,
            entries: Vec::new(),
        }
    }

    /// Reads the header, and returns where the entries begin; `None` if it is damaged, or that of another file.
    fn read_header(&mut self, bytes: &mut Window<'_>) -> Result<Option<u64>, Error> {
        let preamble = bytes.get(0, PREAMBLE_BYTES)?.and_then(<[u8]>::first_chunk);
        let Some(preamble) = preamble.and_then(Preamble::from_bytes) else {
            return Ok(None);
        };
        let start = PREAMBLE_BYTES as u64;
        let Some(end) = start
            .checked_add(preamble.body_len)
            .filter(|end| *end <= bytes.len)
        else {
            return Ok(None);
        };
        let Some(hash) = bytes.hash(start, preamble.body_len)? else {
            return Ok(None);
        };
        if !preamble.belongs_to(hash, self.name, &self.path)? {
            return Ok(None);
        }
        let most = MAX_HEADER_BYTES.min(usize::try_from(end - start).unwrap_or(MAX_HEADER_BYTES));
        let body = bytes.get(start, most)?;
        let Some((header, len)) = body.and_then(SampleFileHeader::from_bytes) else {
            return Ok(None);
        };
        self.header = Some(header);
        let offset = start + len as u64;
        if offset < end {
            let len = end - offset;
            let hash = bytes.hash(offset, len)?;
            self.expectation = hash.map(|hash| ValuePlace {
                file: 0,
                offset,
                len,
                hash,
            });
        }
        Ok(Some(end))
    }

    fn fill(&mut self, bytes: &mut Window<'_>) -> Result<(), Error> {
        let Some(mut at) = self.read_header(bytes)? else {
            self.damage.reason = Some(if self.len == 0 { EMPTY } else { NO_HEADER });
            self.damage.tail_bytes = self.len;
            return Ok(());
        };
        let mut good_until = at;
        while at < bytes.len {
            let (entry, next) = read_entry(bytes, self.name.nonce, at)?;
            if let Some(entry) = entry {
                self.damage.inner_bytes += at - good_until;
                self.entries.push(entry);
                good_until = next;
            }
            at = next;
        }
        self.damage.tail_bytes = self.len - good_until;
        // A part that was written after an error repeats entries.
        self.entries.sort_by_key(|(head, _)| head.sequence);
        self.entries.dedup_by_key(|(head, _)| head.sequence);
        Ok(())
    }
}

/// Reads the entry at an offset, if there is one, and returns where the next may be.
fn read_entry(
    bytes: &mut Window<'_>,
    nonce: u64,
    at: u64,
) -> Result<(Option<(EntryHead, ValuePlace)>, u64), Error> {
    let header = bytes.get(at, ENTRY_HEADER_BYTES)?;
    let header = header.and_then(<[u8]>::first_chunk);
    let Some(header) = header.and_then(EntryHeader::from_bytes) else {
        return Ok((None, at + 1));
    };
    let head = bytes.get(at + ENTRY_HEADER_BYTES as u64, header.head_len)?;
    let Some(head) = head.and_then(|head| header.read_head(nonce, head)) else {
        return Ok((None, at + 1));
    };
    let end = at.saturating_add(header.entry_len());
    if end > bytes.len {
        // An interrupted write ends the file.
        return Ok((None, end));
    }
    let place = ValuePlace {
        file: 0,
        offset: end - header.value_len,
        len: header.value_len,
        hash: header.value_hash,
    };
    let is_whole = bytes.hash(place.offset, place.len)? == Some(place.hash);
    Ok((is_whole.then_some((head, place)), end))
}

/// The source of bytes.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    File(&'a File),
    Memory(&'a [u8]),
}

impl Source<'_> {
    pub(super) fn read_exact_at(self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => files::read_exact_at(file, buffer, offset),
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let found = bytes.get(start..start.saturating_add(buffer.len()));
                buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// Bytes of a file around the place that is being read.
struct Window<'a> {
    source: Source<'a>,
    path: &'a Path,
    len: u64,
    buffer: Vec<u8>,
    start: u64,
}

impl<'a> Window<'a> {
    fn new(source: Source<'a>, path: &'a Path, len: u64) -> Self {
        Self {
            source,
            path,
            len,
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// Bytes at an offset; `None` beyond the end.
    fn get(&mut self, at: u64, count: usize) -> Result<Option<&[u8]>, Error> {
        let Some(end) = at.checked_add(count as u64).filter(|end| *end <= self.len) else {
            return Ok(None);
        };
        let buffered = self.start + self.buffer.len() as u64;
        if at < self.start || end > buffered {
            let wanted = (count.max(READ_BYTES) as u64).min(self.len - at);
            // It is at most as long as the buffer or what was asked for.
            let wanted = usize::try_from(wanted).unwrap_or(count);
            self.buffer.clear();
            if self.buffer.try_reserve_exact(wanted).is_err() {
                let error = io::ErrorKind::OutOfMemory.into();
                return Err(Error::storage("read samples from", self.path, &error));
            }
            self.buffer.resize(wanted, 0);
            self.start = at;
            if let Err(error) = self.source.read_exact_at(&mut self.buffer, at) {
                self.buffer.clear();
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    // The file was cut since it was examined.
                    self.len = at;
                    return Ok(None);
                }
                return Err(Error::storage("read samples from", self.path, &error));
            }
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        Ok(self.buffer.get(from..from.saturating_add(count)))
    }

    /// The hash of bytes at an offset; `None` beyond the end. No more than a buffer of them is held at a time.
    fn hash(&mut self, at: u64, count: u64) -> Result<Option<u64>, Error> {
        if let Ok(count) = usize::try_from(count)
            && count <= READ_BYTES
        {
            return Ok(self.get(at, count)?.map(Hash64::of));
        }
        let mut hash = Hash64::new();
        let mut done = 0;
        while done < count {
            let step = (count - done).min(READ_BYTES as u64);
            let Some(bytes) = self.get(at + done, usize::try_from(step).unwrap_or(READ_BYTES))?
            else {
                return Ok(None);
            };
            hash.write(bytes);
            done += step;
        }
        Ok(Some(hash.finish()))
    }
}
