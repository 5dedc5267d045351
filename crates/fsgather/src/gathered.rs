//! What a gather gives its root, one rank at a time: [`Gathered`] and [`Parts`].

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    vec,
};

use fsgather_core::{Error, Phase, Rank, Ticket};
use fsgather_store::Payload;
use serde::de::DeserializeOwned;

use crate::{
    codec,
    inner::Inner,
    transfer::{announcement::FileAnnouncement, incoming::Incoming},
};

/// The result of a gather: everything on the root, nothing elsewhere.
///
/// ```
/// use fsgather::{Communicator, Gathered};
///
/// let communicator = Communicator::solo();
/// match communicator.gather(&7, 0)? {
///     Gathered::All(parts) => {
///         for part in parts {
///             assert_eq!(part?, 7);
///         }
///     }
///     Gathered::NotRecipient => unreachable!("rank 0 is the only rank"),
/// }
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "payloads that are not iterated over are thrown away"]
pub enum Gathered<T> {
    /// This rank is the root.
    All(Parts<T>),
    /// This rank is not the root.
    NotRecipient,
}

impl<T> Gathered<T> {
    /// The parts on the root, none elsewhere.
    #[must_use = "payloads that are not iterated over are thrown away"]
    pub fn all(self) -> Option<Parts<T>> {
        match self {
            Self::All(parts) => Some(parts),
            Self::NotRecipient => None,
        }
    }

    /// Whether this rank is the root.
    #[must_use]
    pub const fn is_recipient(&self) -> bool {
        matches!(self, Self::All(_))
    }
}

/// A value that was encoded.
pub(crate) fn as_value<T: DeserializeOwned>(
    inner: &Inner,
    rank: Rank,
    payload: &[u8],
) -> Result<T, Error> {
    let writer = inner.exchange.peers().get(rank.index());
    codec::decode(payload, writer, &inner.me())
}

pub(crate) type Take<T> = fn(&Inner, Rank, Payload) -> Result<T, Error>;

/// The payloads of all ranks in rank order, each read, verified and decoded when it is asked for.
///
/// Only the payload being looked at is in memory. Each one's file is removed once it has been read, or
/// when the rest is dropped. An item that is an error ends the iteration; the other ranks are told at
/// their next call.
pub struct Parts<T> {
    inner: Arc<Inner>,
    ticket: Ticket,
    left: vec::IntoIter<(Rank, Incoming, Option<FileAnnouncement>)>,
    take: Take<T>,
    failed: bool,
}

impl<T> Parts<T> {
    pub(crate) fn new(
        inner: Arc<Inner>,
        ticket: Ticket,
        incoming: Vec<Incoming>,
        take: Take<T>,
    ) -> Self {
        inner.open_gathers.fetch_add(1, Ordering::SeqCst);
        let left: Vec<_> = (0..)
            .map(Rank::new)
            .zip(incoming)
            .map(|(rank, part)| {
                let file = part.file().cloned();
                (rank, part, file)
            })
            .collect();
        Self {
            inner,
            ticket,
            left: left.into_iter(),
            take,
            failed: false,
        }
    }

    /// How many bytes the payloads that have not been looked at yet have together, encoded.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.left
            .as_slice()
            .iter()
            .map(|(_, part, _)| part.len())
            .sum()
    }

    /// How many of them lie in files, rather than having come with the control messages.
    #[must_use]
    pub fn files_left(&self) -> usize {
        let files = self.left.as_slice().iter();
        files.filter(|(_, _, file)| file.is_some()).count()
    }

    fn read(&self, rank: Rank, part: Incoming) -> Result<T, Error> {
        let exchange = &self.inner.exchange;
        let mut moved = |bytes| {
            // What others do wrong meanwhile is told at the next call; what is decided can be read.
            let _ = exchange.progress(&self.ticket, Phase::Reading, bytes);
            Ok(())
        };
        let payload = part.read(&self.inner, rank, &mut moved)?;
        (self.take)(&self.inner, rank, payload)
    }
}

impl<T> Iterator for Parts<T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let (rank, part, file) = self.left.next()?;
        let item = self.read(rank, part).map_err(|cause| {
            self.failed = true;
            self.inner
                .exchange
                .fail(&self.ticket, Phase::Reading, cause)
        });
        Incoming::remove(&self.inner, file.as_ref());
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = if self.failed { 0 } else { self.left.len() };
        // An error ends the iteration early.
        (left.min(1), Some(left))
    }
}

impl<T> Drop for Parts<T> {
    fn drop(&mut self) {
        for (_, _, file) in self.left.by_ref() {
            Incoming::remove(&self.inner, file.as_ref());
        }
        self.inner.open_gathers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T> fmt::Debug for Parts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("call", &self.ticket.to_string())
            .field("left", &self.left.len())
            .finish_non_exhaustive()
    }
}
