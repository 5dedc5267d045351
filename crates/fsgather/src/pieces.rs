//! Collective calls for bindings to other languages, and for callers whose payload lies in several places:
//! [`Pieces`].

use std::panic::Location;

use bytes::Bytes;
use fsgather_core::{Call, Error, Operation, Rank};
use fsgather_store::{Encoding, Payload};

use crate::{
    blocking::step_aside,
    call_options::CallOptions,
    codec,
    collective::{Received, Started},
    communicator::Communicator,
    gathered::Gathered,
    pending::Pending,
    transfer::{manner::Manner, source::Source},
};

/// One payload in several pieces, handed over without being joined where it goes to a file.
///
/// Recipients get one [`Payload`] of all pieces one after the other. On its way to a file nothing is
/// copied but what is left of a piece when whole mebibytes have been taken from it. A payload that rides on
/// the control messages is joined in them; one that goes from memory to memory is joined first if it has
/// more than one piece that is not empty, and kept as it is if not.
///
/// ```
/// use bytes::Bytes;
/// use fsgather::{CallOptions, Communicator, Pieces};
///
/// let communicator = Communicator::solo();
/// let head = Bytes::from_static(b"shape 2,2;");
/// let values = Bytes::from(vec![0; 16]); // or Bytes::from_owner(whatever keeps them)
/// let own = Pieces::new(128, vec![head, values]);
/// let all = communicator.all_gather_pieces(own, &CallOptions::default())?;
/// assert!(all[0].starts_with(b"shape 2,2;"));
/// assert_eq!(all[0].len(), 26);
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pieces {
    encoding: u8,
    list: Vec<Bytes>,
    /// Why there are none.
    failure: Option<String>,
}

impl Pieces {
    /// The encoding of what the Python package hands over: values of Python, by its own codec.
    pub const PYTHON: u8 = 32;

    /// A payload of these pieces, in this order.
    ///
    /// `encoding` says in the header of a payload's file how its bytes are to be understood, for those who
    /// find it there; ranks do not compare it. Packages in other languages have the numbers 32 to 63, each
    /// one of its own ([`PYTHON`](Self::PYTHON)); programs may use 128 to 191, as a
    /// [`Codec`](crate::Codec::number) of theirs does.
    #[must_use]
    pub const fn new(encoding: u8, pieces: Vec<Bytes>) -> Self {
        Self {
            encoding,
            list: pieces,
            failure: None,
        }
    }

    /// No payload at all: the call for which there should have been one fails on all ranks with
    /// [`Error::PeerFailed`], which names this rank and gives the reason.
    ///
    /// For a value that cannot be turned into bytes: nobody is left waiting, and all ranks hear the same.
    ///
    /// ```
    /// use fsgather::{CallOptions, Communicator, Pieces};
    ///
    /// let failing = Pieces::failing("TypeError: a generator cannot be pickled");
    /// let error = Communicator::solo().all_gather_pieces(failing, &CallOptions::default()).unwrap_err();
    /// assert!(error.to_string().contains("generator"), "{error}");
    /// ```
    #[must_use]
    pub fn failing(reason: impl Into<String>) -> Self {
        Self {
            encoding: codec::BYTES.0,
            list: Vec::new(),
            failure: Some(reason.into()),
        }
    }

    /// How long the payload is, in bytes.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.list.iter().map(|piece| piece.len() as u64).sum()
    }

    fn into_source(self) -> (Encoding, Source<'static>) {
        let source = match self.failure {
            Some(reason) => Source::Written(Box::new(|session, _| Err(session.raised(reason)))),
            None => Source::Pieces(self.list),
        };
        (Encoding(self.encoding), source)
    }
}

impl<C> Communicator<C> {
    /// Waits until every rank has come here, as [`barrier`](Self::barrier), in a way of its own, of which the
    /// place of the call and the time-out count.
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier).
    #[track_caller]
    pub fn barrier_with(&self, how: &CallOptions) -> Result<(), Error> {
        let call = how.unbounded_call(self, Operation::Barrier, Location::caller())?;
        let passed = step_aside(|| self.inner.exchange.exchange(call, Bytes::new()));
        passed
            .map(drop)
            .inspect_err(|failure| self.inner.world.note_failed(failure))
    }

    /// Gathers everybody's payload on every rank, in rank order; always one for each rank.
    ///
    /// This rank's own comes back as well, to be read.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather_list`](Self::all_gather_list) if there is a bound, else of
    /// [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn all_gather_pieces(
        &self,
        pieces: Pieces,
        how: &CallOptions,
    ) -> Result<Vec<Payload>, Error> {
        let call = how.call(self, Operation::AllGather, Location::caller())?;
        step_aside(|| {
            let mut started = self.start_pieces(call, Manner::Passing, Some(pieces), how)?;
            started.finish(all)
        })
    }

    /// Gathers everybody's payload on `root`, which reads them one rank at a time.
    ///
    /// Pieces that go from memory to memory are kept until the root has read them.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather).
    #[track_caller]
    pub fn gather_pieces(
        &self,
        pieces: Pieces,
        root: u32,
        how: &CallOptions,
    ) -> Result<Gathered<Payload>, Error> {
        let root = self.world_size().rank(root)?;
        let call = how.call(self, Operation::Gather, Location::caller())?;
        step_aside(|| {
            let call = call.with_root(root);
            let mut started = self.start_pieces(call, Manner::KeptForReader, Some(pieces), how)?;
            started.finish(|started, received| Ok(parts(started, received)))
        })
    }

    /// Hands `root`'s payload to every rank. What other ranks give is not looked at; they may give nothing.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast`](Self::broadcast); when `root` gives nothing, [`Error::PeerFailed`] on all ranks.
    #[track_caller]
    pub fn broadcast_pieces(
        &self,
        pieces: Option<Pieces>,
        root: u32,
        how: &CallOptions,
    ) -> Result<Payload, Error> {
        let root = self.world_size().rank(root)?;
        let call = how.call(self, Operation::Broadcast, Location::caller())?;
        step_aside(|| {
            let call = call.with_root(root);
            let own = pieces.filter(|_| self.rank() == root);
            let mut started = self.start_pieces(call, Manner::Passing, own, how)?;
            started.finish(|started, received| started.read_one(received, root))
        })
    }

    /// Starts an [`all_gather_pieces`](Self::all_gather_pieces) whose result is asked for later.
    ///
    /// # Errors
    ///
    /// Those of [`start_all_gather`](Self::start_all_gather).
    #[track_caller]
    pub fn start_all_gather_pieces(
        &self,
        pieces: Pieces,
        how: &CallOptions,
    ) -> Result<Pending<Vec<Payload>>, Error> {
        let call = how.call(self, Operation::StartAllGather, Location::caller())?;
        let started = step_aside(|| self.start_pieces(call, Manner::Kept, Some(pieces), how))?;
        Ok(Pending::new(started, all))
    }

    /// Starts a [`gather_pieces`](Self::gather_pieces) whose result is asked for later.
    ///
    /// # Errors
    ///
    /// Those of [`start_gather`](Self::start_gather).
    #[track_caller]
    pub fn start_gather_pieces(
        &self,
        pieces: Pieces,
        root: u32,
        how: &CallOptions,
    ) -> Result<Pending<Gathered<Payload>>, Error> {
        let root = self.world_size().rank(root)?;
        let call = how.call(self, Operation::Gather, Location::caller())?;
        let call = call.with_root(root);
        let started = step_aside(|| self.start_pieces(call, Manner::Kept, Some(pieces), how))?;
        Ok(Pending::new(started, |started, received| {
            Ok(parts(started, received))
        }))
    }

    fn start_pieces(
        &self,
        call: Call,
        manner: Manner,
        own: Option<Pieces>,
        how: &CallOptions,
    ) -> Result<Started<'static>, Error> {
        let route = how.route(self.inner.default_route());
        let is_missing = own.is_none() && call.root == Some(self.rank());
        let (encoding, source) = match own {
            Some(pieces) => pieces.into_source(),
            // In the call rather than before it, so that nobody waits for a root that does not come.
            None if is_missing => (
                codec::BYTES,
                Source::Written(Box::new(|session, _| {
                    Err(session
                        .raised("it is the root of a broadcast and has nothing to hand over"))
                })),
            ),
            None => (codec::BYTES, Source::Nothing),
        };
        Started::new(&self.inner, &route, call, manner, encoding, source)
    }
}

/// What a call has brought, for those who get everything.
fn all(started: &Started<'static>, received: Received) -> Result<Vec<Payload>, Error> {
    started.read_all(received, |_, payload| Ok(payload))
}

/// What a call has brought, for a root that reads by and by.
fn parts(started: &Started<'static>, received: Received) -> Gathered<Payload> {
    let take = Box::new(|_: &_, _: Rank, payload| Ok(payload));
    Gathered::from(started.parts(received, take))
}
