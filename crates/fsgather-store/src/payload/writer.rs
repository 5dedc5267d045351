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

/// Which payload: whose, in which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadId {
    /// The communicator.
    pub channel: ChannelId,
    /// The call.
    pub epoch: Epoch,
    /// The writer.
    pub rank: Rank,
}

/// Number of times that a new name is drawn when the one drawn cannot be had.
const NAMES_TRIED: u32 = 3;

impl GatherDir {
    /// Begins to write a payload, which is interpreted according to `encoding` by its readers.
    ///
    /// `progress` is called with the number of bytes, before compression, after each chunk has been
    /// written; an error from it ends the writing and is what [`PayloadWriter::publish`] returns.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when the file cannot be made; [`Error::Config`] when the rank is outside of
    /// the world, or when this build cannot compress so, with the cargo feature that it lacks.
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
                // The name is random: it is taken because the reply to the first of two requests was
                // lost. What that made is left to the removal of the directory. A stale handle is the
                // client's memory of a directory that it has to look up anew.
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

/// Writes one payload, in one go from front to back, and publishes it.
///
/// As an [`io::Write`] it takes bytes in pieces of any size, and copies them chunk by chunk: what is hashed is what is written, also
/// where the caller's memory is written to meanwhile, as memory of other languages may be. Checksums are computed on
/// the way, while a chunk is in the cache; [without them](Self::without_checksums) chunks go from the caller's memory to the file.
///
/// The first error sticks: every later write, and [`publish`](Self::publish), fails with it.
/// [`take_error`](Self::take_error) gives it with its type. Dropping the writer without publishing
/// removes what it has written.
pub struct PayloadWriter<P> {
    header: Header,
    directory: GatherDir,
    target: PathBuf,
    mode: PublishMode,
    synced: bool,
    staged: Staged,
    header_bytes: [u8; HEADER_LEN],
    /// Whether the header is in the file.
    is_begun: bool,
    /// Memory for a compressed chunk.
    room: Vec<u8>,
    /// Bytes that do not make a whole chunk yet.
    buffer: Vec<u8>,
    /// Whether the end has been written.
    is_complete: bool,
    table: Vec<u8>,
    raw_len: u64,
    stored_len: u64,
    expected_len: u64,
    failure: Option<Error>,
    progress: P,
}

/// The file that is being written; removed on drop unless its fate is settled.
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

/// The steps of publishing, in order: after each one a crash leaves something else behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishStep {
    /// All of the payload is written.
    Written,
    /// The data has been synced, where that is needed.
    Synced,
    /// The file is closed.
    Closed,
    /// The file has its final name.
    Published,
}

impl<P: FnMut(u64) -> Result<(), Error>> PayloadWriter<P> {
    /// The name that the payload will have.
    #[must_use]
    pub const fn name(&self) -> PayloadName {
        self.header.name
    }

    /// Leaves the checksums of chunks out, so that readers notice another payload, or a file that is not whole, but not
    /// a changed byte. A compressed payload keeps them. To be said before anything is written.
    ///
    /// Only readers whose [policy](crate::CollectPolicy::needs_checksums) does not need checksums take such a payload.
    #[must_use]
    pub fn without_checksums(mut self) -> Self {
        if !self.is_begun && self.buffer.is_empty() && self.header.compression == Compression::NONE
        {
            self.header.has_checksums = false;
            self.header_bytes = self.header.to_bytes();
        }
        self
    }

    /// Says how long the payload will be, in bytes, so that a lack of space is reported with figures.
    pub fn expect_len(&mut self, bytes: u64) {
        self.expected_len = bytes;
    }

    /// Number of bytes that have been written so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.raw_len + self.buffer.len() as u64
    }

    /// Writes the end of the payload: what is written after that fails. Bytes that need not be hashed go from the caller's
    /// memory to the file, also those of the last chunk.
    ///
    /// # Errors
    ///
    /// The first one of this writer.
    pub fn write_last(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !(bytes.is_empty() || !self.header.has_checksums && self.buffer.is_empty()) {
            let taken = self.accept(bytes)?;
            bytes = &bytes[taken..];
        }
        self.usable()?;
        for chunk in bytes.chunks(CHUNK_LEN) {
            self.write_chunk(chunk)?;
        }
        // The last chunk may be shorter than others, or be in the buffer still.
        self.is_complete = true;
        Ok(())
    }

    /// The first error, with its type, which [`io::Error`] does not show. The writer stays unusable.
    pub fn take_error(&mut self) -> Option<Error> {
        self.failure.clone()
    }

    /// Completes the file, has its data brought to where others can read it, closes it, and makes it
    /// visible under its name, whole and without replacing anything.
    ///
    /// When it returns `Ok`, no later failure of this process can take the payload away.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when any of that failed: lack of space may show as late as here. Then nothing
    /// is visible, and what was written is removed. An error of the progress hook is returned as it is.
    pub fn publish(mut self) -> Result<Locator, Error> {
        self.try_publish()
    }

    /// As [`publish`](Self::publish), but what was to be published can be [taken back](Self::take_back) if that failed.
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

    /// All bytes that a writer was given before its file has failed, read back from there and verified; `None` where
    /// they cannot be had, or not held in memory. What it has written is removed.
    ///
    /// So a payload for which a file system has no room can go another way, wherever its bytes have come from.
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

    /// The steps of [`publish`](Self::publish), with a gate after each.
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
            // Whatever has become of it, nobody is going to be told of the name.
            if let Err(error) = remove::unlink(&self.target) {
                tracing::debug!(path = %self.target.display(), %error, "cannot remove");
            }
            self.storage("publish", &error)
        })?;
        // Nobody is to be told of a payload that lies somewhere else.
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

    /// How far the file has come.
    fn mark(&self) -> (usize, u64, u64) {
        (self.table.len(), self.raw_len, self.stored_len)
    }

    /// Forgets a chunk that is not in the file after all, but keeps its bytes.
    fn go_back(&mut self, (entries, raw_len, stored_len): (usize, u64, u64), raw: &[u8]) {
        self.table.truncate(entries);
        self.raw_len = raw_len;
        self.stored_len = stored_len;
        self.buffer = raw.to_vec();
    }

    /// Enters a chunk into the table, unless it is empty, and returns its bytes for the file.
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

    /// Appends to the file, after the header if that is not there yet.
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

    /// Remembers the first failure, for whoever asks next.
    fn fail(&mut self, error: Error) -> Error {
        self.failure.get_or_insert(error).clone()
    }

    /// A file error, with figures where space is what is missing.
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
            // What is free on the disk says nothing about a quota.
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

    /// An error if nothing can be written any more.
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

/// A writer that is used on after it has been published or has failed.
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
