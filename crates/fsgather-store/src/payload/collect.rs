//! Reading payloads that others have published: [`GatherDir::collect`] and [`PayloadReader`].
//!
//! A file is opened only after its locator has arrived, and every returned byte is in a chunk whose checksum the locator's
//! digest covers. If the writer has left checksums out, and the reader accepts that, the byte is in a file whose header,
//! lengths and footer the digest covers.

use std::{
    fmt,
    io::{self, Read},
};

use fsgather_core::{Error, Progress};

use crate::{
    directory::gather_dir::GatherDir,
    payload::{
        bytes::Payload,
        collect_policy::CollectPolicy,
        locator::Locator,
        source::{Open, Source, Trouble, map_unverified, map_verified},
    },
};

impl GatherDir {
    /// Reads a whole payload and verifies all of it, unless it has no checksums and the policy does not need them.
    ///
    /// The payload is mapped if that is safe and nothing in it is compressed; otherwise it is read into memory or, above the
    /// policy's bound, into a nameless local file. `progress` is called with the number of bytes after each chunk, and with 0
    /// while waiting; its error ends the work and is returned unchanged.
    ///
    /// # Errors
    ///
    /// After all retries that the policy allows: [`Error::Storage`] if the file is not visible or cannot be read,
    /// [`Error::Corrupt`] if it is not the announced file. [`Error::Incompatible`] if it has a compression that this build does
    /// not know, with the missing cargo feature; [`Error::Config`] if it has no checksums and the policy needs them.
    pub fn collect(
        &self,
        locator: &Locator,
        policy: &CollectPolicy,
        progress: &mut Progress<'_>,
    ) -> Result<Payload, Error> {
        self.collect_by(locator, policy, progress, map_verified)
    }

    /// Reads back a payload that this process itself has published.
    ///
    /// Like [`collect`](Self::collect), but bytes that can be mapped are not verified again: this process has computed their
    /// checksums, and they have not left this host since.
    ///
    /// # Errors
    ///
    /// Those of [`collect`](Self::collect).
    pub fn collect_own(
        &self,
        locator: &Locator,
        policy: &CollectPolicy,
        progress: &mut Progress<'_>,
    ) -> Result<Payload, Error> {
        self.collect_by(locator, policy, progress, map_unverified)
    }

    fn collect_by(
        &self,
        locator: &Locator,
        policy: &CollectPolicy,
        progress: &mut Progress<'_>,
        map: fn(&Source, &Open, &mut Progress<'_>) -> Result<Option<Payload>, Trouble>,
    ) -> Result<Payload, Error> {
        let mut source = Source::new(self, locator, policy)?;
        if locator.raw_len == 0 {
            source.with_retries(progress, |_, _, _| Ok(()))?;
            return Ok(Payload::from(Vec::new()));
        }
        if locator.is_contiguous()
            && self.file_system().is_mappable()
            && let Some(payload) = source.with_retries(progress, map)?
        {
            return Ok(payload);
        }
        if locator.raw_len > policy.memory_bound
            && let Some(payload) = source.spill(&policy.spill_directory, progress)?
        {
            return Ok(payload);
        }
        source.read_into_memory(progress)
    }

    /// Begins to read a payload as a stream, with memory for one chunk only, or a few if it is compressed.
    ///
    /// # Errors
    ///
    /// Those of [`collect`](Self::collect) that concern opening the file.
    pub fn open_payload<P>(
        &self,
        locator: &Locator,
        policy: &CollectPolicy,
        mut progress: P,
    ) -> Result<PayloadReader<P>, Error>
    where
        P: FnMut(u64) -> Result<(), Error>,
    {
        let mut source = Source::new(self, locator, policy)?;
        source.with_retries(&mut progress, |_, _, _| Ok(()))?;
        Ok(PayloadReader {
            source,
            next: 0,
            chunk: Vec::new(),
            handed_out: 0,
            failure: None,
            progress,
        })
    }
}

/// A payload as a stream: an [`io::Read`] that verifies chunks, if they have checksums, before handing out their bytes.
///
/// The first error is final; [`take_error`](Self::take_error) returns it with its type.
pub struct PayloadReader<P> {
    source: Source,
    next: u64,
    /// The chunk before `next`.
    chunk: Vec<u8>,
    handed_out: usize,
    failure: Option<Error>,
    progress: P,
}

impl<P: FnMut(u64) -> Result<(), Error>> PayloadReader<P> {
    /// Length of the whole payload in bytes.
    #[must_use]
    pub const fn total_len(&self) -> u64 {
        self.source.locator.raw_len
    }

    /// Returns the first error with its type, which [`io::Error`] does not show.
    pub fn take_error(&mut self) -> Option<Error> {
        self.failure.clone()
    }

    /// Verifies and returns the bytes up to the end of the current chunk; none at the end of the payload.
    ///
    /// # Errors
    ///
    /// Those of [`GatherDir::collect`].
    pub fn fill(&mut self) -> Result<&[u8], Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.handed_out == self.chunk.len() && self.next < self.source.locator.chunk_count {
            self.handed_out = 0;
            self.chunk.resize(self.source.raw_len(self.next), 0);
            let read = self
                .source
                .read_chunk(self.next, &mut self.chunk, &mut self.progress);
            if let Err(error) = read {
                self.chunk.clear();
                self.failure = Some(error.clone());
                return Err(error);
            }
            self.next += 1;
        }
        Ok(&self.chunk[self.handed_out..])
    }
}

impl<P> fmt::Debug for PayloadReader<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadReader")
            .field("path", &self.source.path)
            .field("next", &self.next)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl<P: FnMut(u64) -> Result<(), Error>> Read for PayloadReader<P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill().map_err(io::Error::other)?;
        let len = available.len().min(buffer.len());
        buffer[..len].copy_from_slice(&available[..len]);
        self.handed_out += len;
        Ok(len)
    }
}

#[cfg(test)]
#[path = "collect_tests.rs"]
pub(crate) mod tests;
#[cfg(test)]
#[path = "without_checksums_tests.rs"]
mod without_checksums;
