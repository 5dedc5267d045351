//! Collective calls for bytes and streams of bytes.

use std::{io::Read, panic::Location};

use fsgather_core::{Error, Operation, Rank};
use fsgather_store::Payload;

use crate::{
    call::started::{ReceivedParts, StartedCall},
    communicator::Communicator,
    group_state::GroupState,
    parts::Parts,
    payload::{input::PayloadInput, retention::Retention},
    pending::Pending,
    pieces::Pieces,
};

impl<C> Communicator<C> {
    /// Hands `root`'s bytes to every rank. The bytes of other ranks are not looked at.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn broadcast_bytes<'a>(
        &self,
        bytes: impl Into<Pieces<'a>>,
        root: impl Into<Rank>,
    ) -> Result<Payload, Error> {
        let bytes: Pieces<'_> = bytes.into();
        self.broadcast_input(root.into(), bytes.into(), Location::caller())
    }

    /// Hands what `root`'s `source` reads to every rank. The sources of other ranks are not read.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast_bytes`](Self::broadcast_bytes) and [`gather_from`](Self::gather_from).
    #[track_caller]
    pub fn broadcast_from(
        &self,
        source: &mut dyn Read,
        root: impl Into<Rank>,
    ) -> Result<Payload, Error> {
        self.broadcast_input(
            root.into(),
            PayloadInput::stream(source),
            Location::caller(),
        )
    }

    /// Gathers everybody's bytes on every rank, in rank order; always one [`Payload`] for each rank.
    ///
    /// Payloads are mapped from the files they came in where that is safe, so that ranks of one host
    /// share one copy, and read into memory elsewhere. What this rank has handed in as
    /// [`Bytes`](bytes::Bytes) is a part of the result as it is, without a copy.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn all_gather_bytes<'a>(
        &self,
        bytes: impl Into<Pieces<'a>>,
    ) -> Result<Vec<Payload>, Error> {
        let bytes: Pieces<'_> = bytes.into();
        self.all_gather_input(bytes.into(), Location::caller())
    }

    /// Gathers what `source` reads on every rank, without holding it in memory where it goes through a
    /// file.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather_bytes`](Self::all_gather_bytes) and [`gather_from`](Self::gather_from).
    #[track_caller]
    pub fn all_gather_from(&self, source: &mut dyn Read) -> Result<Vec<Payload>, Error> {
        self.all_gather_input(PayloadInput::stream(source), Location::caller())
    }

    /// Gathers everybody's bytes on `root`, which reads them one rank at a time.
    ///
    /// Where payloads go from memory to memory slices are copied, so that this rank can go on;
    /// [`Bytes`](bytes::Bytes) are kept until the root has read them, without a copy.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather).
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    ///
    /// let communicator = fsgather::Communicator::solo();
    /// let features = Bytes::from(vec![7; 1 << 20]); // or Bytes::from_owner(whatever keeps them)
    /// for part in communicator.gather_bytes(features.clone(), 0)?.into_iter().flatten() {
    ///     let (_rank, payload) = part?;
    ///     assert_eq!(*payload, features);
    /// }
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn gather_bytes<'a>(
        &self,
        bytes: impl Into<Pieces<'a>>,
        root: impl Into<Rank>,
    ) -> Result<Option<Parts<Payload>>, Error> {
        let bytes: Pieces<'_> = bytes.into();
        self.gather_input(root.into(), bytes.into(), Location::caller())
    }

    /// Gathers what `source` reads on `root`, without holding it in memory.
    ///
    /// Where there is no shared directory, what does not fit into a few megabytes waits in a nameless file
    /// in `/tmp` until the root reads it. The root can read streams as streams:
    /// [`Parts::into_readers`](crate::parts::Parts::into_readers).
    ///
    /// # Errors
    ///
    /// Those of [`gather_bytes`](Self::gather_bytes); an error of `source` is told to all ranks as
    /// [`Error::PeerFailed`].
    #[track_caller]
    pub fn gather_from(
        &self,
        source: &mut dyn Read,
        root: impl Into<Rank>,
    ) -> Result<Option<Parts<Payload>>, Error> {
        self.gather_input(
            root.into(),
            PayloadInput::stream(source),
            Location::caller(),
        )
    }

    /// Starts an [`all_gather_bytes`](Self::all_gather_bytes) whose result is asked for later, as
    /// [`start_all_gather`](Self::start_all_gather) does for values.
    ///
    /// # Errors
    ///
    /// Those of [`start_all_gather`](Self::start_all_gather).
    #[track_caller]
    pub fn start_all_gather_bytes<'a>(
        &self,
        bytes: impl Into<Pieces<'a>>,
    ) -> Result<Pending<Vec<Payload>>, Error> {
        let call = self.made(Operation::StartAllGather, Location::caller())?;
        let bytes: Pieces<'_> = bytes.into();
        self.start(call, bytes.into(), all)
    }

    /// Starts a [`gather_bytes`](Self::gather_bytes) whose result is asked for later.
    ///
    /// # Errors
    ///
    /// Those of [`start_gather`](Self::start_gather).
    #[track_caller]
    pub fn start_gather_bytes<'a>(
        &self,
        bytes: impl Into<Pieces<'a>>,
        root: impl Into<Rank>,
    ) -> Result<Pending<Option<Parts<Payload>>>, Error> {
        let call = self.rooted(Operation::Gather, root.into(), Location::caller())?;
        let bytes: Pieces<'_> = bytes.into();
        self.start(call, bytes.into(), |started, received| {
            Ok(parts(started, received))
        })
    }
}

impl<C> Communicator<C> {
    fn broadcast_input(
        &self,
        root: Rank,
        input: PayloadInput<'_>,
        location: &Location<'_>,
    ) -> Result<Payload, Error> {
        let call = self.rooted(Operation::Broadcast, root, location)?;
        let input = input.only_if(self.rank() == root);
        self.run(call, Retention::Passing, input, |started, received| {
            started.read_one(received, root)
        })
    }

    fn all_gather_input(
        &self,
        input: PayloadInput<'_>,
        location: &Location<'_>,
    ) -> Result<Vec<Payload>, Error> {
        let call = self.made(Operation::AllGather, location)?;
        self.run(call, Retention::Passing, input, all)
    }

    fn gather_input(
        &self,
        root: Rank,
        input: PayloadInput<'_>,
        location: &Location<'_>,
    ) -> Result<Option<Parts<Payload>>, Error> {
        let call = self.rooted(Operation::Gather, root, location)?;
        self.run(
            call,
            Retention::KeptForReader,
            input,
            |started, received| Ok(parts(started, received)),
        )
    }
}

/// What a call has brought, for those who get everything.
fn all(started: &StartedCall<'_>, received: ReceivedParts) -> Result<Vec<Payload>, Error> {
    started.read_all(received, as_it_is)
}

/// What a call has brought, for a root that reads by and by.
fn parts(started: &StartedCall<'_>, received: ReceivedParts) -> Option<Parts<Payload>> {
    started.parts(received, Box::new(as_it_is))
}

#[expect(clippy::unnecessary_wraps, reason = "others decode")]
fn as_it_is(_: &GroupState, _: Rank, payload: Payload) -> Result<Payload, Error> {
    Ok(payload)
}
