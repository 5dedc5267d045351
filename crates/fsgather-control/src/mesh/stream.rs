//! A payload on a link, as bytes: [`StreamOrigin`], [`Sending`], [`Receiving`]. Pure.
//!
//! A payload goes in chunks of [`CHUNK_LEN`] bytes, the last one may be shorter. Nothing precedes a chunk,
//! since both sides know the payload's length. After each chunk comes a *check*, after the last one's
//! check a *digest*; an empty payload has neither. Numbers are little-endian.
//!
//! | part | offset | size | field |
//! |---|---|---|---|
//! | check | 0 | 8 | xxh3-64 of the chunk, or 0 where its ranks have agreed to leave checksums out |
//! | | 8 | 1 | the next part: 0 the next chunk or the digest, 1 a complaint and the end of the link |
//! | digest | 0 | 16 | xxh3-128 of all below |
//! | | | 16 | communicator |
//! | | | 8 | channel |
//! | | | 8 | epoch |
//! | | | 4 | rank that the payload comes from |
//! | | | 8 | length of the payload |
//! | | | 8 each | checksums of all chunks |
//! | complaint | 0 | 2 | length of the text |
//! | | 2 | length | why the payload cannot be read to its end: text |
//!
//! The rank that the payload comes from makes checks and digests; ranks that hand it on do not change them. So they cover
//! each byte from its origin to the rank that asked for it; without checksums they cover the place of each chunk, and whose
//! payload it is.

use std::{io::IoSlice, ops::Range};

use fsgather_core::{
    CallId, Rank,
    hash::{Hash64, Hash128},
};
use uuid::Uuid;

/// Number of bytes that a chunk holds; the last one of a payload may hold fewer.
pub(super) const CHUNK_LEN: usize = 1 << 20;

const CHECK_LEN: usize = 9;
const DIGEST_LEN: usize = 16;
/// A check and a digest.
const TAIL_LEN: usize = CHECK_LEN + DIGEST_LEN;

/// A payload: whose, in which call, how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamOrigin {
    pub(super) communicator: Uuid,
    pub(super) call: CallId,
    pub(super) rank: Rank,
    pub(super) len: u64,
    /// True if its chunks have checksums.
    pub(super) has_checksums: bool,
}

impl StreamOrigin {
    /// Number of chunks.
    pub(super) const fn chunks(&self) -> u64 {
        self.len.div_ceil(CHUNK_LEN as u64)
    }

    /// Range of a chunk in the payload.
    pub(super) fn chunk(&self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(CHUNK_LEN as u64).min(self.len);
        start..start.saturating_add(CHUNK_LEN as u64).min(self.len)
    }

    fn chunk_len(&self, index: u64) -> usize {
        let chunk = self.chunk(index);
        // At most CHUNK_LEN.
        usize::try_from(chunk.end - chunk.start).unwrap_or(CHUNK_LEN)
    }

    /// The checksum of a chunk whose bytes have gone into `hashed`; 0 without checksums.
    fn finished(&self, hashed: &Hash64) -> u64 {
        if self.has_checksums {
            hashed.finish()
        } else {
            0
        }
    }

    /// The digest before the checksums of chunks are added.
    fn begin_digest(&self) -> Hash128 {
        let mut digest = Hash128::new();
        digest.write(self.communicator.as_bytes());
        digest.write(&self.call.channel.get().to_le_bytes());
        digest.write(&self.call.epoch.get().to_le_bytes());
        digest.write(&self.rank.get().to_le_bytes());
        digest.write(&self.len.to_le_bytes());
        digest
    }
}

/// The bytes after a chunk: a check, and a digest after the last chunk.
#[derive(Clone, Copy, Debug)]
struct Tail {
    bytes: [u8; TAIL_LEN],
    len: usize,
    /// Number of its bytes that are done.
    done: usize,
}

impl Tail {
    /// Room for the tail of one chunk.
    fn expected(is_last: bool) -> Self {
        Self {
            bytes: [0; TAIL_LEN],
            len: if is_last { TAIL_LEN } else { CHECK_LEN },
            done: 0,
        }
    }

    fn new(checksum: u64, complains: bool, digest: Option<u128>) -> Self {
        let mut tail = Self::expected(digest.is_some());
        tail.bytes[..8].copy_from_slice(&checksum.to_le_bytes());
        tail.bytes[8] = u8::from(complains);
        tail.bytes[CHECK_LEN..].copy_from_slice(&digest.unwrap_or_default().to_le_bytes());
        tail
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.done..self.len]
    }
}

/// Source of the checksum of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksum {
    /// From its bytes: this rank is where the payload comes from.
    Ours,
    /// From the rank that the payload comes from, which has sent it.
    Given(u64),
    /// The same, but it has not arrived yet.
    Awaited,
}

/// Progress of sending a payload.
pub(super) struct Sending {
    origin: StreamOrigin,
    /// The chunk that is being sent.
    index: u64,
    /// Number of its bytes that have been sent.
    sent: usize,
    /// Number of its bytes that have gone into its checksum.
    hashed: usize,
    checksum: Hash64,
    digest: Hash128,
    /// The bytes after the chunk, once all of it is known.
    tail: Option<Tail>,
    /// True if a complaint follows instead of the next chunk.
    complains: bool,
    /// True if the receiver reads chunks in place, so that only the bytes after them are sent.
    is_there: bool,
}

impl Sending {
    pub(super) fn new(origin: StreamOrigin) -> Self {
        Self {
            is_there: false,
            origin,
            index: 0,
            sent: 0,
            hashed: 0,
            checksum: Hash64::new(),
            digest: origin.begin_digest(),
            tail: None,
            complains: false,
        }
    }

    /// Sends a payload whose chunks the receiver reads in place.
    pub(super) fn of_what_is_there(origin: StreamOrigin) -> Self {
        Self {
            is_there: true,
            ..Self::new(origin)
        }
    }

    /// Returns true if no bytes of chunks are sent.
    pub(super) const fn is_there(&self) -> bool {
        self.is_there
    }

    /// Range of the current chunk in the payload; `None` once all is sent.
    pub(super) fn chunk(&self) -> Option<Range<u64>> {
        (self.index < self.origin.chunks()).then(|| self.origin.chunk(self.index))
    }

    /// The number of that chunk.
    pub(super) const fn index(&self) -> u64 {
        self.index
    }

    /// Notes that a complaint follows the current chunk.
    pub(super) fn complain(&mut self) {
        self.complains = true;
    }

    /// Returns the bytes of the current chunk to send next, at most about `most`. `available` is the beginning of the
    /// chunk, as far as it has arrived here. Empty if there is nothing to send yet.
    pub(super) fn next<'a>(
        &'a mut self,
        available: &'a [u8],
        checksum: Checksum,
        most: usize,
    ) -> [IoSlice<'a>; 2] {
        let whole = self.origin.chunk_len(self.index);
        let most = if self.is_there { whole } else { most };
        let end = available.len().min(self.sent.saturating_add(most));
        if self.origin.has_checksums && checksum == Checksum::Ours && end > self.hashed {
            // Hashed right before it is sent, so that memory is read once.
            self.checksum.write(&available[self.hashed..end]);
            self.hashed = end;
        }
        if self.tail.is_none() && end == whole {
            self.tail = match checksum {
                Checksum::Ours => Some(self.finish_chunk(self.origin.finished(&self.checksum))),
                Checksum::Given(checksum) => Some(self.finish_chunk(checksum)),
                Checksum::Awaited => None,
            };
        }
        let tail = match &self.tail {
            Some(tail) if end == whole => tail.rest(),
            _ => &[],
        };
        let bytes = if self.is_there {
            &[]
        } else {
            available.get(self.sent..end).unwrap_or_default()
        };
        [IoSlice::new(bytes), IoSlice::new(tail)]
    }

    fn finish_chunk(&mut self, checksum: u64) -> Tail {
        self.digest.write(&checksum.to_le_bytes());
        let is_last = self.index + 1 == self.origin.chunks();
        let digest = is_last.then(|| self.digest.finish());
        Tail::new(checksum, self.complains, digest)
    }

    /// Notes that this many bytes of the result of [`next`](Self::next) were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        let whole = self.origin.chunk_len(self.index);
        let rest = if self.is_there { 0 } else { whole - self.sent };
        let of_chunk = bytes.min(rest);
        self.sent += of_chunk;
        if let Some(tail) = &mut self.tail {
            tail.done += bytes - of_chunk;
            if of_chunk == rest && tail.done == tail.len {
                self.index += 1;
                self.sent = 0;
                self.hashed = 0;
                self.checksum = Hash64::new();
                self.tail = None;
            }
        }
    }
}

/// The received bytes differ from those that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The chunk's bytes or its check are damaged.
    #[error("the checksum of chunk {0} does not match its bytes")]
    Chunk(u64),
    /// The payload as a whole, or its origin, is not the expected one.
    #[error("the digest of the payload does not match its chunks, its length or its origin")]
    Digest,
    /// The sender reports that it cannot continue; nothing is damaged.
    #[error("the rest of it could not be sent")]
    Complaint,
}

/// The part to receive next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// At most this many bytes of a chunk.
    Chunk(usize),
    /// The bytes after a chunk, into [`Receiving::tail`].
    Tail,
    /// Nothing: all has arrived and is right.
    Nothing,
}

/// Progress of receiving a payload.
pub(super) struct Receiving {
    origin: StreamOrigin,
    index: u64,
    received: usize,
    checksum: Hash64,
    digest: Hash128,
    tail: Tail,
    /// True if a process that has verified the chunks has put them in place, so that only the bytes after them are received.
    is_there: bool,
}

impl Receiving {
    pub(super) fn new(origin: StreamOrigin) -> Self {
        Self {
            is_there: false,
            origin,
            index: 0,
            received: 0,
            checksum: Hash64::new(),
            digest: origin.begin_digest(),
            tail: Tail::expected(origin.chunks() == 1),
        }
    }

    /// Receives a payload that another member of this host verifies where both read it. Its origin and its completeness are
    /// verified here once more.
    pub(super) fn of_what_is_there(origin: StreamOrigin) -> Self {
        Self {
            is_there: true,
            ..Self::new(origin)
        }
    }

    /// Returns the part to receive next.
    pub(super) fn wanted(&self) -> Wanted {
        if self.index == self.origin.chunks() {
            return Wanted::Nothing;
        }
        match self.origin.chunk_len(self.index) - self.received {
            _ if self.is_there => Wanted::Tail,
            0 => Wanted::Tail,
            rest => Wanted::Chunk(rest),
        }
    }

    /// Number of chunks that have arrived and are right.
    pub(super) const fn verified(&self) -> u64 {
        self.index
    }

    /// Length of the next chunk, if none is under way and there is one more.
    pub(super) fn next_chunk_len(&self) -> Option<usize> {
        (self.index < self.origin.chunks()).then(|| self.origin.chunk_len(self.index))
    }

    /// Takes in more bytes of the current chunk.
    pub(super) fn took(&mut self, bytes: &[u8]) {
        if self.origin.has_checksums {
            self.checksum.write(bytes);
        }
        self.received += bytes.len();
    }

    /// Buffer for the rest of the tail.
    pub(super) fn tail(&mut self) -> &mut [u8] {
        &mut self.tail.bytes[self.tail.done..self.tail.len]
    }

    /// Notes that `bytes` bytes were put there, and returns the checksum of the chunk once it has been verified.
    ///
    /// # Errors
    ///
    /// A fault; nothing of this chunk may be used then.
    pub(super) fn took_tail(&mut self, bytes: usize) -> Result<Option<u64>, Fault> {
        let tail = &mut self.tail;
        tail.done += bytes;
        if tail.done < tail.len {
            return Ok(None);
        }
        // No complaint follows the last chunk.
        match tail.bytes[8] {
            0 => {}
            1 if tail.len == CHECK_LEN => return Err(Fault::Complaint),
            _ => return Err(Fault::Chunk(self.index)),
        }
        let said = tail.bytes.first_chunk().copied().map(u64::from_le_bytes);
        let checksum = match said {
            Some(said) if self.is_there => said,
            _ => self.origin.finished(&self.checksum),
        };
        if tail.bytes[..8] != checksum.to_le_bytes() {
            return Err(Fault::Chunk(self.index));
        }
        self.digest.write(&checksum.to_le_bytes());
        if tail.len == TAIL_LEN && tail.bytes[CHECK_LEN..] != self.digest.finish().to_le_bytes() {
            return Err(Fault::Digest);
        }
        self.index += 1;
        self.received = 0;
        self.checksum = Hash64::new();
        self.tail = Tail::expected(self.index + 1 == self.origin.chunks());
        Ok(Some(checksum))
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
