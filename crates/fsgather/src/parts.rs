//! Hands a gather's root one rank's part at a time: [`Parts`].

use std::{fmt, sync::Arc, vec};

use fsgather_core::{Error, Phase, Rank, Ticket};
use fsgather_store::Payload;

use crate::{
    call::{guard::record_read, open_call::OpenCall, open_calls::Open},
    group_state::GroupState,
    part_reader::PartReaders,
    payload::{header::FileHeader, part::IncomingPart},
};

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
/// Only the payload being looked at is in memory. Each one's file is removed once it has been read, or
/// when the rest is dropped. An item that is an error ends the iteration; the other ranks are told at
/// their next call.
#[must_use = "parts that are not iterated over are thrown away"]
pub struct Parts<T> {
    left: UnreadParts,
    take: Take<T>,
}

/// What of a gather has not been read yet.
pub(crate) struct UnreadParts {
    inner: Arc<GroupState>,
    ticket: Ticket,
    parts: vec::IntoIter<(Rank, IncomingPart, Option<FileHeader>)>,
    /// Whether the owners of payloads wait to be told that all has been read.
    acknowledge: bool,
    failed: bool,
    _open: OpenCall,
}

impl UnreadParts {
    pub(crate) fn next(&mut self) -> Option<(Rank, IncomingPart, Option<FileHeader>)> {
        if self.failed {
            return None;
        }
        self.parts.next()
    }

    /// Removes what has been read, unless its owner does so once it is told.
    pub(crate) fn remove(&self, file: Option<&FileHeader>) {
        if !self.acknowledge {
            IncomingPart::remove(&self.inner, file);
        }
    }

    pub(crate) const fn inner(&self) -> &Arc<GroupState> {
        &self.inner
    }

    fn bytes(&self) -> u64 {
        let parts = self.parts.as_slice().iter();
        parts.map(|(_, part, _)| part.len()).sum()
    }

    /// What notes that bytes have been read.
    pub(crate) fn moved(&self) -> impl FnMut(u64) -> Result<(), Error> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        let ticket = self.ticket.clone();
        move |bytes| record_read(&inner, &ticket, bytes)
    }

    /// Ends the reading with a failure, which the others are told at their next call.
    pub(crate) fn fail(&mut self, cause: Error) -> Error {
        self.failed = true;
        let exchange = &self.inner.exchange;
        let failure = exchange.fail(&self.ticket, Phase::Reading, cause);
        self.inner.world.record_failure(&failure);
        failure
    }
}

impl Drop for UnreadParts {
    fn drop(&mut self) {
        for (_, _, file) in std::mem::take(&mut self.parts) {
            self.remove(file.as_ref());
        }
        if self.acknowledge {
            self.inner.exchange.done(&self.ticket);
        }
        if self.failed {
            self.inner.world.call_log.forget(&self.ticket);
        } else {
            self.inner.record_end(&self.ticket);
        }
    }
}

impl<T> Parts<T> {
    pub(crate) fn new(
        inner: Arc<GroupState>,
        ticket: Ticket,
        incoming: Vec<IncomingPart>,
        acknowledge: bool,
        take: Take<T>,
    ) -> Self {
        let open = OpenCall::new(&inner, &ticket, Open::Unread);
        let parts: Vec<_> = (0..)
            .map(Rank::new)
            .zip(incoming)
            .map(|(rank, part)| {
                if !acknowledge {
                    part.is_to_be_removed(&inner);
                }
                let file = part.file().cloned();
                (rank, part, file)
            })
            .collect();
        let left = UnreadParts {
            inner,
            ticket,
            parts: parts.into_iter(),
            acknowledge,
            failed: false,
            _open: open,
        };
        Self { left, take }
    }

    /// How many parts have not been looked at yet; none after an error.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.left.failed {
            0
        } else {
            self.left.parts.len()
        }
    }

    /// Whether all have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes the payloads that have not been looked at yet have together, encoded.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.left.bytes()
    }

    /// How many of them lie in files, rather than having come with the control messages or waiting in the
    /// memory of their ranks.
    #[must_use]
    pub fn files_left(&self) -> usize {
        let parts = self.left.parts.as_slice().iter();
        parts.filter(|(_, _, file)| file.is_some()).count()
    }

    fn read(&self, rank: Rank, part: IncomingPart) -> Result<T, Error> {
        let inner = &self.left.inner;
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
    /// let communicator = fsgather::Communicator::solo();
    /// let mut source: &[u8] = b"as long as you like";
    /// if let Some(parts) = communicator.gather_from(&mut source, 0)? {
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
            .field("call", &self.left.ticket.to_string())
            .field("left", &self.left.parts.len())
            .finish_non_exhaustive()
    }
}
