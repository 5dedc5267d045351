//! Publishing a payload: [`PayloadWriter`].

use std::{
    fmt,
    fs::File,
    io::{
        self,
        ErrorKind::{AlreadyExists, StaleNetworkFileHandle},
        IoSlice, Write,
    },
    path::PathBuf,
};

use fsgather_core::{
    ChannelId, CompressionSetting, Epoch, Error, Rank, StorageCause, bytes_text, room_for,
};
use rustix::io::Errno;

use crate::{
    directory::gather_dir::GatherDir,
    layout::PayloadName,
    os::{
        file,
        filesystem::free_bytes,
        remove,
        reveal::{self, PublishMode},
    },
    payload::{
        compression::check_compression,
        format::{
            CHUNK_LEN, ChunkEntry, Compression, ENTRY_LEN, Encoding, FOOTER_LEN, Footer,
            HEADER_LEN, Header, chunk_len,
        },
        locator::Locator,
    },
};

/// Identifies a payload: its writer and its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadId {
    /// The communicator.
    pub channel: ChannelId,
    /// The call.
    pub epoch: Epoch,
    /// The writer.
    pub rank: Rank,
}

/// Number of names that are tried.
const NAMES_TRIED: u32 = 3;

impl GatherDir {
    /// Begins to write a payload, which is interpreted according to `encoding` by its readers.
    ///
    /// `progress` is called with the number of bytes, before compression, after each chunk has been written; its error ends the
    /// writing, and [`PayloadWriter::publish`] returns it.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the file cannot be made; [`Error::Config`] if the rank is outside of the world, or if this build
    /// lacks the cargo feature for the compression, which the error names.
    pub fn create_payload<P>(
        &self,
        id: PayloadId,
        encoding: Encoding,
        compression: CompressionSetting,
        progress: P,
    ) -> Result<PayloadWriter<P>, Error>
    where
        P: FnMut(u64) -> Result<(), Error>,
    {
        self.facts().world_size.rank(id.rank.get())?;
        check_compression(compression)?;
        self.check_place()?;
        let mut names_left = NAMES_TRIED;
        loop {
            let name = PayloadName::new(
                id.channel,
                id.epoch,
                id.rank,
                fsgather_core::sys::random::fresh(),
            );
            let target = self.payloads().join(name.to_string());
            let path = match self.facts().publish {
                PublishMode::Direct => target.clone(),
                PublishMode::Rename | PublishMode::Link => self.staging().join(name.to_string()),
            };
            names_left -= 1;
            let file = match file::create_new(&path, self.file_mode()) {
                Ok(file) => file,
                // The name is random, so it is taken only if the reply to the first of two identical requests was lost. The
                // file of that request is removed with the directory. A stale handle is a cached path to a directory that the
                // client must look up anew.
                Err(error)
                    if matches!(error.kind(), AlreadyExists | StaleNetworkFileHandle)
                        && names_left > 0 =>
                {
                    continue;
                }
                Err(error) => {
                    return Err(Error::storage("create", &path, self.explain(&error)));
                }
            };
            let header = Header {
                encoding,
                compression: compression.into(),
                has_checksums: true,
                communicator: self.facts().communicator,
                world_size: self.facts().world_size,
                name,
            };
            return Ok(PayloadWriter {
                header,
                directory: self.clone(),
                target,
                mode: self.facts().publish,
                synced: self.must_sync(),
                staged: Staged {
                    path,
                    file: Some(file),
                    is_settled: false,
                },
                header_bytes: header.to_bytes(),
                is_begun: false,
                room: Vec::new(),
                buffer: Vec::new(),
                is_complete: false,
                table: Vec::new(),
                raw_len: 0,
                stored_len: 0,
                expected_len: 0,
                failure: None,
                progress,
            });
        }
    }
}

/// Writes one payload sequentially, and publishes it.
///
/// As an [`io::Write`] it accepts bytes in pieces of any size, and copies them chunk by chunk: the written bytes are exactly
/// those that were hashed, even if the caller's memory changes meanwhile, as memory of other languages may. Checksums are
/// computed on the way, while a chunk is in the cache; [without them](Self::without_checksums) chunks go from the caller's
/// memory directly to the file.
///
/// The first error is final: every later write, and [`publish`](Self::publish), fails with it. [`take_error`](Self::take_error)
/// returns it with its type. Dropping the writer without publishing removes the file.
pub struct PayloadWriter<P> {
    header: Header,
    directory: GatherDir,
    target: PathBuf,
    mode: PublishMode,
    synced: bool,
    staged: Staged,
    header_bytes: [u8; HEADER_LEN],
    /// True if the header is in the file.
    is_begun: bool,
    /// Memory for a compressed chunk.
    room: Vec<u8>,
    /// Bytes of an incomplete chunk.
    buffer: Vec<u8>,
    /// True if the end has been written.
    is_complete: bool,
    table: Vec<u8>,
    raw_len: u64,
    stored_len: u64,
    expected_len: u64,
    failure: Option<Error>,
    progress: P,
}

/// The file that is being written. Dropping it removes the file unless it is settled.
#[derive(Debug)]
struct Staged {
    path: PathBuf,
    file: Option<File>,
    is_settled: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Closed first: some file systems keep a removed file under another name while it is open.
        if let Some(file) = self.file.take()
            && !self.is_settled
        {
            file::forget_contents(&file);
        }
        if !self.is_settled
            && let Err(error) = remove::unlink(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove an unpublished payload");
        }
    }
}

/// The steps of publishing, in order. A crash leaves different files after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishStep {
    /// The payload is written completely.
    Written,
    /// The data has been synced, if necessary.
    Synced,
    /// The file is closed.
    Closed,
    /// The file has its final name.
    Published,
}

impl<P: FnMut(u64) -> Result<(), Error>> PayloadWriter<P> {
    /// The name of the payload.
    #[must_use]
    pub const fn name(&self) -> PayloadName {
        self.header.name
    }

    /// Leaves out the checksums of chunks. Then readers notice another payload or an incomplete file, but not a changed byte. A
    /// compressed payload keeps them. Has no effect once data was written.
    ///
    /// Only readers whose [policy](crate::CollectPolicy::needs_checksums) does not need checksums accept such a payload.
    #[must_use]
    pub fn without_checksums(mut self) -> Self {
        if !self.is_begun && self.buffer.is_empty() && self.header.compression == Compression::NONE
        {
            self.header.has_checksums = false;
            self.header_bytes = self.header.to_bytes();
        }
        self
    }

    /// Sets the expected length of the payload in bytes, so that errors about a lack of space contain numbers.
    pub fn expect_len(&mut self, bytes: u64) {
        self.expected_len = bytes;
    }

    /// Number of bytes that have been written so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.raw_len + self.buffer.len() as u64
    }

    /// Writes the end of the payload; later writes fail. Without checksums, all bytes go from the caller's memory directly to
    /// the file, including those of the last chunk.
    ///
    /// # Errors
    ///
    /// The first error of this writer.
    pub fn write_last(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !(bytes.is_empty() || !self.header.has_checksums && self.buffer.is_empty()) {
            let taken = self.accept(bytes)?;
            bytes = &bytes[taken..];
        }
        self.usable()?;
        for chunk in bytes.chunks(CHUNK_LEN) {
            self.write_chunk(chunk)?;
        }
        // The last chunk may be shorter than the others, or still be in the buffer.
        self.is_complete = true;
        Ok(())
    }

    /// Returns the first error with its type, which [`io::Error`] does not show. The writer stays unusable.
    pub fn take_error(&mut self) -> Option<Error> {
        self.failure.clone()
    }

    /// Completes the file, flushes it for other hosts, closes it, and makes it visible under its name, as a whole and without
    /// replacing another file.
    ///
    /// Once it returns `Ok`, no later failure of this process can lose the payload.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if any of that failed, also for a lack of space that shows only now. Then no file is visible, and the
    /// written data is removed. An error of the progress hook is returned unchanged.
    pub fn publish(mut self) -> Result<Locator, Error> {
        self.try_publish()
    }

    /// Like [`publish`](Self::publish), but after an error the bytes can be [taken back](Self::take_back).
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Self::publish).
    pub fn try_publish(&mut self) -> Result<Locator, Error> {
        let published = self.run(&mut |_| Ok(()));
        if published.is_ok() {
            self.staged.is_settled = true;
        }
        published
    }

    /// Returns all bytes that the writer received before its file failed, read back from the file and verified; `None` if they
    /// cannot be read, or do not fit into memory. The file is removed.
    ///
    /// With this, a payload that does not fit on a file system can go another way, independently of its source.
    pub fn take_back(self) -> Option<Vec<u8>> {
        let mut taken = room_for(self.written())?;
        let (entries, _) = self.table.as_chunks::<ENTRY_LEN>();
        if !entries.is_empty() {
            let file = file::open(&self.staged.path).ok()?;
            let compression = self.header.compression;
            let mut offset = HEADER_LEN as u64;
            for (index, entry) in (0..).zip(entries) {
                let entry = ChunkEntry::from_bytes(entry).ok()?;
                let mut stored = vec![0; usize::try_from(entry.stored_len).ok()?];
                file::read_exact_at(&file, &mut stored, offset).ok()?;
                let is_right =
                    !self.header.has_checksums || ChunkEntry::of(&stored, entry.is_raw) == entry;
                if !is_right {
                    return None;
                }
                offset += u64::from(entry.stored_len);
                if compression != Compression::NONE && !entry.is_raw {
                    let mut raw = vec![0; chunk_len(self.raw_len, index)];
                    let made = compression.decompress(&stored, &mut raw).ok()?;
                    taken.extend_from_slice(raw.get(..made)?);
                } else {
                    taken.extend_from_slice(&stored);
                }
            }
        }
        taken.extend_from_slice(&self.buffer);
        (taken.len() as u64 == self.written()).then_some(taken)
    }

    /// Runs the steps of [`publish`](Self::publish), and calls `gate` after each.
    pub(crate) fn run(
        &mut self,
        gate: &mut dyn FnMut(PublishStep) -> Result<(), Error>,
    ) -> Result<Locator, Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let footer = self.finish_writing()?;
        gate(PublishStep::Written)?;
        let file = self.staged.file.take().ok_or_else(closed)?;
        let synced = if self.synced {
            file::sync(&file).map_err(|error| self.storage("sync", &error))
        } else {
            Ok(())
        };
        if synced.is_ok() {
            gate(PublishStep::Synced)?;
        }
        if synced.is_err() {
            file::forget_contents(&file);
        }
        let closed = file::close(file).map_err(|error| self.storage("close", &error));
        synced.and(closed)?;
        gate(PublishStep::Closed)?;
        reveal::publish(
            self.mode,
            &self.staged.path,
            &self.target,
            &self.header_bytes,
        )
        .map_err(|error| {
            // In any case, the name is not announced.
            if let Err(error) = remove::unlink(&self.target) {
                tracing::debug!(path = %self.target.display(), %error, "cannot remove");
            }
            self.storage("publish", &error)
        })?;
        // A payload in a replaced directory is not announced.
        self.directory.check_place()?;
        gate(PublishStep::Published)?;
        Ok(Locator::new(&self.header, &footer))
    }

    /// Writes the last chunk, the chunk table and the footer.
    fn finish_writing(&mut self) -> Result<Footer, Error> {
        let last = std::mem::take(&mut self.buffer);
        let before = self.mark();
        let mut room = std::mem::take(&mut self.room);
        let stored = self.pack(&mut room, &last);
        let footer = Footer::seal(
            &self.header_bytes,
            &self.table,
            self.raw_len,
            self.stored_len,
        );
        let (table, end) = (self.table.clone(), footer.to_bytes());
        self.append(&[stored, &table, &end])
            .inspect_err(|_| self.go_back(before, &last))?;
        (self.progress)(last.len() as u64).map_err(|error| self.fail(error))?;
        Ok(footer)
    }

    /// Writes one chunk.
    fn write_chunk(&mut self, raw: &[u8]) -> Result<(), Error> {
        let before = self.mark();
        let mut room = std::mem::take(&mut self.room);
        let stored = self.pack(&mut room, raw);
        let appended = self.append(&[stored]);
        self.room = room;
        appended.inspect_err(|_| self.go_back(before, raw))?;
        (self.progress)(raw.len() as u64).map_err(|error| self.fail(error))
    }

    /// Returns the lengths of the table and of the data in the file.
    fn mark(&self) -> (usize, u64, u64) {
        (self.table.len(), self.raw_len, self.stored_len)
    }

    /// Removes a chunk that was not written from the counts, but keeps its bytes.
    fn go_back(&mut self, (entries, raw_len, stored_len): (usize, u64, u64), raw: &[u8]) {
        self.table.truncate(entries);
        self.raw_len = raw_len;
        self.stored_len = stored_len;
        self.buffer = raw.to_vec();
    }

    /// Adds a chunk to the table, unless it is empty, and returns its bytes for the file.
    fn pack<'a>(&mut self, room: &'a mut Vec<u8>, raw: &'a [u8]) -> &'a [u8] {
        if raw.is_empty() {
            return raw;
        }
        let compression = self.header.compression;
        let (stored, entry) = match compression.compress(raw, room) {
            Some(len) => (&room[..len], ChunkEntry::of(&room[..len], false)),
            None if self.header.has_checksums => {
                (raw, ChunkEntry::of(raw, compression != Compression::NONE))
            }
            None => (raw, ChunkEntry::without_checksum(raw)),
        };
        self.raw_len += raw.len() as u64;
        self.table.extend(entry.to_bytes());
        self.stored_len += stored.len() as u64;
        stored
    }

    /// Appends to the file, after the header if that is not written yet.
    fn append(&mut self, parts: &[&[u8]]) -> Result<(), Error> {
        let header: &[u8] = if self.is_begun {
            &[]
        } else {
            &self.header_bytes
        };
        let mut slices: Vec<IoSlice<'_>> = std::iter::once(&header)
            .chain(parts)
            .map(|part| IoSlice::new(part))
            .collect();
        let result = match &self.staged.file {
            Some(file) => file::write_all(file, &mut slices),
            None => return Err(self.fail(closed())),
        };
        self.is_begun = true;
        result.map_err(|error| {
            let error = self.storage("write", &error);
            self.fail(error)
        })
    }

    /// Remembers the first error for later calls.
    fn fail(&mut self, error: Error) -> Error {
        self.failure.get_or_insert(error).clone()
    }

    /// Returns a file error, with numbers if space is missing.
    fn storage(&self, operation: &str, error: &io::Error) -> Error {
        let mut cause = StorageCause::from(error);
        let code = cause.os_code.map(Errno::from_raw_os_error);
        if matches!(code, Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) {
            let chunks = self.raw_len.div_ceil(CHUNK_LEN as u64) * ENTRY_LEN as u64;
            let needed =
                self.expected_len.max(self.raw_len) + chunks + (HEADER_LEN + FOOTER_LEN) as u64;
            let free = free_bytes(&self.staged.path).map_or_else(String::new, |free| {
                format!(", {} are free", bytes_text(free))
            });
            let needed = if self.header.compression == Compression::NONE {
                format!("{} or more", bytes_text(needed))
            } else {
                format!("up to {}", bytes_text(needed))
            };
            // The free space of the disk says nothing about a quota.
            let way_out = match code {
                Some(Errno::DQUOT) => "; your quota is used up: remove something".to_owned(),
                Some(Errno::FBIG) => "; raise the limit of file sizes".to_owned(),
                _ => format!("{free}; make room"),
            };
            cause.message = format!(
                "{}; the payload needs {needed}{way_out}, or name another directory with FSGATHER_DIR",
                cause.message,
            );
        }
        Error::storage(operation, &self.staged.path, cause)
    }

    /// Returns an error if the writer accepts no more data.
    fn usable(&self) -> Result<(), Error> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if self.is_complete => {
                Err(Error::config("the end of this payload has been written"))
            }
            None => Ok(()),
        }
    }

    fn accept(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.usable()?;
        if !self.header.has_checksums && self.buffer.is_empty() && bytes.len() >= CHUNK_LEN {
            self.write_chunk(&bytes[..CHUNK_LEN])?;
            return Ok(CHUNK_LEN);
        }
        let taken = bytes.len().min(CHUNK_LEN - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK_LEN {
            let mut chunk = std::mem::take(&mut self.buffer);
            self.write_chunk(&chunk)?;
            chunk.clear();
            self.buffer = chunk;
        }
        Ok(taken)
    }
}

/// The error of a writer that is used after it has published or failed.
fn closed() -> Error {
    Error::config("this payload has been published already")
}

impl<P> fmt::Debug for PayloadWriter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadWriter")
            .field("path", &self.staged.path)
            .field("raw_len", &self.raw_len)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl<P: FnMut(u64) -> Result<(), Error>> Write for PayloadWriter<P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.accept(bytes).map_err(io::Error::other)
    }

    /// Does nothing: bytes reach the file in whole chunks, and all of them when the payload is published.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
pub(crate) mod tests;
