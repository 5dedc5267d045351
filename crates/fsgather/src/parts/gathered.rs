//! Hands a gather's root one rank's part at a time: [`Parts`].

use std::{fmt, sync::Arc};

use fsgather_core::{Error, Rank, Ticket};
use fsgather_store::Payload;

use crate::{group_state::GroupState, payload::part::IncomingPart};

use super::{reader::PartReaders, unread::UnreadParts};

/// Turns the payload of a rank into the caller's type.
pub(crate) type Take<T> = Box<dyn Fn(&GroupState, Rank, Payload) -> Result<T, Error> + Send + Sync>;

/// The result of a gather on its root: every rank with its part, in rank order. Each part is read, verified and decoded
/// when it is requested. The other ranks get `None`.
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
/// Only the current payload is in memory, and up to 16 MiB together of the next payloads that come from the memory of
/// other hosts, to avoid waiting for each of them. The file of a payload is removed after it has been read, or when the
/// rest is dropped. An item that is an error ends the iteration; the other ranks get the error at their next call.
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

    /// Returns the number of parts that have not been read yet; 0 after an error.
    #[must_use]
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Returns true if all parts have been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of all payloads that have not been read yet, encoded, in bytes.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.left.bytes()
    }

    /// Returns the number of these payloads that are in files, rather than in control messages or in the memory of
    /// their ranks.
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
    /// Returns the same payloads as streams, for payloads that are too long to be held in memory.
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
