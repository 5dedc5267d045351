//! Collective calls for bytes and streams of bytes.

use std::{io::Read, panic::Location};

use bytes::Bytes;
use fsgather_core::{Call, Error, Operation, Rank, Site};
use fsgather_store::Payload;

use crate::{
    blocking::step_aside,
    codec,
    collective::{Started, copy, manner_of},
    communicator::Communicator,
    gathered::Gathered,
    pending::Pending,
    transfer::{manner::Manner, source::Source},
};

impl<C> Communicator<C> {
    /// Hands `root`'s bytes to every rank. The bytes of other ranks are not looked at.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn broadcast_bytes(&self, bytes: &[u8], root: u32) -> Result<Payload, Error> {
        let site = self.here(Location::caller());
        self.broadcast_source(root, site, || Source::Slice(bytes))
    }

    /// Hands what `root`'s `source` reads to every rank. The sources of other ranks are not read.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast_bytes`](Self::broadcast_bytes) and [`gather_from`](Self::gather_from).
    #[track_caller]
    pub fn broadcast_from_reader(
        &self,
        source: &mut dyn Read,
        root: u32,
    ) -> Result<Payload, Error> {
        let site = self.here(Location::caller());
        self.broadcast_source(root, site, || stream(source))
    }

    /// Gathers everybody's bytes on every rank, in rank order; always one [`Payload`] for each rank.
    ///
    /// Payloads are mapped from the files they came in where that is safe, so that ranks of one host
    /// share one copy, and read into memory elsewhere.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Payload>, Error> {
        let site = self.here(Location::caller());
        self.all_gather_source(site, Source::Slice(bytes))
    }

    /// Gathers everybody's bytes on every rank without copying this rank's own, which is a part of the
    /// result as it is.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather).
    #[track_caller]
    pub fn all_gather_shared(&self, bytes: Bytes) -> Result<Vec<Payload>, Error> {
        let site = self.here(Location::caller());
        self.all_gather_source(site, Source::Shared(bytes))
    }

    /// Gathers what `source` reads on every rank, without holding it in memory where it goes through a
    /// file.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather_bytes`](Self::all_gather_bytes) and [`gather_from`](Self::gather_from).
    #[track_caller]
    pub fn all_gather_from(&self, source: &mut dyn Read) -> Result<Vec<Payload>, Error> {
        let site = self.here(Location::caller());
        self.all_gather_source(site, stream(source))
    }

    /// Gathers everybody's bytes on `root`, which reads them one rank at a time.
    ///
    /// Where payloads go from memory to memory they are copied, so that this rank can go on;
    /// [`gather_shared`](Self::gather_shared) does not.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather).
    #[track_caller]
    pub fn gather_bytes(&self, bytes: &[u8], root: u32) -> Result<Gathered<Payload>, Error> {
        let site = self.here(Location::caller());
        self.gather_source(root, site, Source::Slice(bytes))
    }

    /// Gathers everybody's bytes on `root` without copying them; they are kept until the root has read them.
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
    /// for part in communicator.gather_shared(features.clone(), 0)?.all().into_iter().flatten() {
    ///     assert_eq!(*part?, features);
    /// }
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn gather_shared(&self, bytes: Bytes, root: u32) -> Result<Gathered<Payload>, Error> {
        let site = self.here(Location::caller());
        self.gather_source(root, site, Source::Shared(bytes))
    }

    /// Gathers what `source` reads on `root`, without holding it in memory.
    ///
    /// Where there is no shared directory, what does not fit into a few megabytes waits in a nameless file
    /// in `/tmp` until the root reads it. The root can read streams as streams:
    /// [`Parts::into_readers`](crate::Parts::into_readers).
    ///
    /// # Errors
    ///
    /// Those of [`gather_bytes`](Self::gather_bytes); an error of `source` is told to all ranks as
    /// [`Error::PeerFailed`].
    #[track_caller]
    pub fn gather_from(
        &self,
        source: &mut dyn Read,
        root: u32,
    ) -> Result<Gathered<Payload>, Error> {
        let site = self.here(Location::caller());
        self.gather_source(root, site, stream(source))
    }

    /// Starts an [`all_gather_shared`](Self::all_gather_shared) whose result is asked for later, as
    /// [`start_all_gather`](Self::start_all_gather) does for values.
    ///
    /// # Errors
    ///
    /// Those of [`start_all_gather`](Self::start_all_gather).
    #[track_caller]
    pub fn start_all_gather_shared(&self, bytes: Bytes) -> Result<Pending<Vec<Payload>>, Error> {
        let site = self.here(Location::caller());
        let call = Call::new(Operation::StartAllGather, site);
        let started = step_aside(|| self.start_bytes(call, Manner::Kept, Source::Shared(bytes)))?;
        Ok(Pending::new(started.detached(), |started, received| {
            started.read_all(received, |_, payload| Ok(payload))
        }))
    }

    /// Starts a [`gather_shared`](Self::gather_shared) whose result is asked for later.
    ///
    /// # Errors
    ///
    /// Those of [`start_gather`](Self::start_gather).
    #[track_caller]
    pub fn start_gather_shared(
        &self,
        bytes: Bytes,
        root: u32,
    ) -> Result<Pending<Gathered<Payload>>, Error> {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Gather, site).with_root(root);
        let started = step_aside(|| self.start_bytes(call, Manner::Kept, Source::Shared(bytes)))?;
        Ok(Pending::new(started.detached(), |started, received| {
            let take = Box::new(|_: &_, _: Rank, payload| Ok(payload));
            Ok(Gathered::from(started.parts(received, take)))
        }))
    }

    fn broadcast_source<'a>(
        &self,
        root: u32,
        site: Site,
        source: impl FnOnce() -> Source<'a>,
    ) -> Result<Payload, Error> {
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Broadcast, site).with_root(root);
        step_aside(|| {
            let source = if self.rank() == root {
                source()
            } else {
                Source::Nothing
            };
            let mut started = self.start_bytes(call, Manner::Passing, source)?;
            started.finish(|started, received| started.read_one(received, root))
        })
    }

    fn all_gather_source(&self, site: Site, source: Source<'_>) -> Result<Vec<Payload>, Error> {
        let call = Call::new(Operation::AllGather, site);
        step_aside(|| {
            let mut started = self.start_bytes(call, Manner::Passing, source)?;
            started.finish(|started, received| started.read_all(received, |_, payload| Ok(payload)))
        })
    }

    fn gather_source(
        &self,
        root: u32,
        site: Site,
        source: Source<'_>,
    ) -> Result<Gathered<Payload>, Error> {
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Gather, site).with_root(root);
        step_aside(|| {
            let manner = manner_of(call.operation);
            let mut started = self.start_bytes(call, manner, source)?;
            started.finish(|started, received| {
                let take = Box::new(|_: &_, _: Rank, payload| Ok(payload));
                Ok(Gathered::from(started.parts(received, take)))
            })
        })
    }

    fn start_bytes<'a>(
        &self,
        call: Call,
        manner: Manner,
        source: Source<'a>,
    ) -> Result<Started<'a>, Error> {
        let route = self.inner.default_route();
        Started::new(&self.inner, route, call, manner, codec::BYTES, source)
    }
}

/// A source that is copied to where the payload goes.
fn stream(source: &mut dyn Read) -> Source<'_> {
    Source::Written(Box::new(|session, outgoing| {
        copy(session, source, outgoing)
    }))
}
