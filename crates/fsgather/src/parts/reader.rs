//! Payloads of a gather as streams: [`PartReaders`] and [`PartReader`].

use std::{
    fmt,
    io::{self, Read},
    sync::{Arc, Mutex},
};

use crate::payload::{header::FileHeader, stream::PayloadStream};
use fsgather_core::{Error, Rank, lock};

use super::unread::UnreadParts;

/// The payloads of all ranks in rank order as streams.
///
/// Each stream needs about a mebibyte of memory, even a long one, and the next payloads that come from the memory
/// of other hosts need up to 16 MiB together. An item that is an error ends the iteration; the other ranks get the
/// error at their next call. Unread data is discarded.
#[must_use = "payloads that are not read are thrown away"]
pub struct PartReaders {
    left: Arc<Mutex<UnreadParts>>,
}

impl PartReaders {
    pub(crate) fn new(left: UnreadParts) -> Self {
        Self {
            left: Arc::new(Mutex::new(left)),
        }
    }
}

impl Iterator for PartReaders {
    type Item = Result<PartReader, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut left = lock(&self.left);
        let (rank, part, file) = left.next()?;
        let len = part.len();
        let moved = Box::new(left.moved());
        let opened = part.open(left.inner(), rank, moved);
        let stream = opened.map_err(|cause| {
            left.remove(file.as_ref());
            left.fail(cause)
        });
        Some(stream.map(|stream| PartReader {
            rank,
            len,
            stream,
            failure: None,
            left: Arc::clone(&self.left),
            _file: RemovedWhenRead {
                file,
                left: Arc::clone(&self.left),
            },
        }))
    }
}

impl fmt::Debug for PartReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartReaders").finish_non_exhaustive()
    }
}

/// One rank's payload as a stream: an [`io::Read`] that verifies everything before it hands it out.
///
/// The first error sticks, and all ranks get it; [`take_error`](Self::take_error) returns it with its type.
pub struct PartReader {
    rank: Rank,
    len: u64,
    stream: PayloadStream,
    failure: Option<Error>,
    left: Arc<Mutex<UnreadParts>>,
    // The last field, so that the stream has closed the file before it is removed: some FUSE clients hide a file that
    // is open, and keep it for good if it is closed in that moment.
    _file: RemovedWhenRead,
}

/// The file of a payload that is being read. Dropping this removes it, unless its owner does so.
struct RemovedWhenRead {
    file: Option<FileHeader>,
    left: Arc<Mutex<UnreadParts>>,
}

impl Drop for RemovedWhenRead {
    fn drop(&mut self) {
        lock(&self.left).remove(self.file.as_ref());
    }
}

impl PartReader {
    /// Returns the rank whose payload it is.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns the length of the whole payload in bytes.
    #[must_use]
    pub const fn total_len(&self) -> u64 {
        self.len
    }

    /// Returns the first error, with its type, which [`io::Error`] does not show.
    pub fn take_error(&mut self) -> Option<Error> {
        self.failure.clone()
    }

    fn fail(&mut self, cause: Error) -> Error {
        let failure = lock(&self.left).fail(cause);
        self.failure.get_or_insert(failure).clone()
    }
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::other(failure.clone()));
        }
        self.stream.read(buffer).map_err(|error| {
            let cause = self.stream.take_error();
            let cause = cause.unwrap_or_else(|| Error::storage("read", "a payload", &error));
            io::Error::other(self.fail(cause))
        })
    }
}

impl fmt::Debug for PartReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartReader")
            .field("rank", &self.rank)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
