//! Hands a gather's root one rank's part at a time: [`Parts`].

use std::{fmt, sync::Arc};

use fsgather_core::{Error, Rank, Ticket};
use fsgather_store::Payload;

use crate::{group_state::GroupState, payload::part::IncomingPart};

use super::{reader::PartReaders, unread::UnreadParts};

/// Turns the payload of a rank into what the caller wants.
pub(crate) type Take<T> = Box<dyn Fn(&GroupState, Rank, Payload) -> Result<T, Error> + Send + Sync>;

/// What a gather gives its root: every rank with its part, in rank order, each read, verified and decoded when it
/// is asked for. The other ranks get `None`.
///
/// ```
/// let communicator = fsgather::Communicator::solo();
/// if let Some(parts) = communicator.gather(&7, 0)? {
///     assert_eq!(parts.len(), 1);
///     for part in parts {
///         let (rank, value) = part?;
///         assert!(rank == 0 && value == 7);
///     }
/// }
/// # Ok::<(), fsgather::Error>(())
/// ```
///
/// Only the payload being looked at is in memory, and of those that come next from other hosts by memory up to 16 MiB together,
/// so that not each of them has to be waited for. Each one's file is removed once it has been read, or
/// when the rest is dropped. An item that is an error ends the iteration; the other ranks are told at
/// their next call.
#[must_use = "parts that are not iterated over are thrown away"]
pub struct Parts<T> {
    left: UnreadParts,
    take: Take<T>,
}

impl<T> Parts<T> {
    pub(crate) fn new(
        inner: Arc<GroupState>,
        ticket: Ticket,
        incoming: Vec<IncomingPart>,
        acknowledge: bool,
        take: Take<T>,
    ) -> Self {
        let left = UnreadParts::new(inner, ticket, incoming, acknowledge);
        Self { left, take }
    }

    /// Number of parts that have not been looked at yet; none after an error.
    #[must_use]
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Whether all have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes that the payloads that have not been looked at yet have together, encoded.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.left.bytes()
    }

    /// How many of them lie in files, rather than having come with the control messages or waiting in the
    /// memory of their ranks.
    #[must_use]
    pub fn files_left(&self) -> usize {
        self.left.files()
    }

    fn read(&self, rank: Rank, part: IncomingPart) -> Result<T, Error> {
        let inner = self.left.inner();
        let payload = part.read(inner, rank, &mut self.left.moved())?;
        (self.take)(inner, rank, payload)
    }
}

impl Parts<Payload> {
    /// The same payloads as streams, for those that are too long to be held in memory.
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// use fsgather::{Communicator, Stream};
    ///
    /// let communicator = Communicator::solo();
    /// let mut source: &[u8] = b"as long as you like";
    /// if let Some(parts) = communicator.gather(Stream::new(&mut source), 0)? {
    ///     for part in parts.into_readers() {
    ///         let mut part = part?;
    ///         let mut text = String::new();
    ///         part.read_to_string(&mut text).expect("it is text");
    ///         assert_eq!((part.rank().get(), text.as_str()), (0, "as long as you like"));
    ///     }
    /// }
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    pub fn into_readers(self) -> PartReaders {
        PartReaders::new(self.left)
    }
}

impl<T> Iterator for Parts<T> {
    type Item = Result<(Rank, T), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (rank, part, file) = self.left.next()?;
        let item = self.read(rank, part).map_err(|cause| self.left.fail(cause));
        self.left.remove(file.as_ref());
        Some(item.map(|value| (rank, value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.len();
        // An error ends the iteration early.
        (left.min(1), Some(left))
    }
}

impl<T> fmt::Debug for Parts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("call", &self.left.call())
            .field("left", &self.len())
            .finish_non_exhaustive()
    }
}
