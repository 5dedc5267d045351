//! Collective calls for values: broadcast, gather, all-gather, and those that go on in the background.

use std::{panic::Location, sync::Arc};

use fsgather_core::{Call, Error, Operation, Rank, Site};
use fsgather_store::Payload;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    blocking::step_aside,
    build_identity::type_tag,
    codec::{self, Codec},
    collective::{Started, manner_of},
    communicator::Communicator,
    gathered::{Gathered, Take},
    inner::Inner,
    pending::Pending,
    records::{self, Records},
    route::Route,
    transfer::{manner::Manner, source::Source},
};

impl<C: Codec> Communicator<C> {
    /// Hands `root`'s value to every rank. The values of other ranks are not looked at.
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier), [`Error::Config`] when `root` is no rank,
    /// and what [`all_gather`](Self::all_gather) adds.
    #[track_caller]
    pub fn broadcast<T>(&self, value: &T, root: u32) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = self.typed::<T>(Operation::Broadcast, site).with_root(root);
        step_aside(|| {
            let source = if self.rank() == root {
                self.encoded(value)
            } else {
                Source::Nothing
            };
            let mut started = self.start(self.inner.default_route(), call, source)?;
            let payload = started.finish(|started, received| started.read_one(received, root))?;
            self.decode(root, &payload)
        })
    }

    /// Gathers everybody's value on every rank, in rank order; always one for each rank.
    ///
    /// Small values travel with the control messages. Larger ones go through files of the shared
    /// directory, or over connections between the ranks where there is none.
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier); [`Error::Storage`] when a payload cannot be written or read,
    /// [`Error::Corrupt`] when it is not what was written, [`Error::PeerFailed`] when a value cannot be
    /// encoded: on all ranks, naming the rank concerned.
    ///
    /// # Examples
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// let boxes = (String::from("boxes"), 3);
    /// assert_eq!(communicator.all_gather(&boxes)?, [boxes]);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn all_gather<T>(&self, value: &T) -> Result<Vec<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let site = self.here(Location::caller());
        step_aside(|| self.all_gather_by(self.inner.default_route(), value, None, site))
    }

    /// Gathers everybody's value on every rank, none of which may need more than `max_size` bytes; always one
    /// for each rank.
    ///
    /// The bound is compared between ranks, and every value with it, before any data moves: a value that
    /// does not fit is an error on all ranks.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather), and [`Error::TooLarge`] on all ranks, naming the rank and
    /// how many bytes its value needs.
    ///
    /// # Examples
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// assert_eq!(communicator.all_gather_list(&0.25, 16)?, [0.25]);
    /// let refused = communicator.all_gather_list(&"x".repeat(100), 16).unwrap_err();
    /// assert!(matches!(refused, fsgather::Error::TooLarge { size: 101, bound: 16, .. }));
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn all_gather_list<T>(&self, value: &T, max_size: u64) -> Result<Vec<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let site = self.here(Location::caller());
        let route = self.inner.default_route();
        step_aside(|| self.all_gather_by(route, value, Some(max_size), site))
    }

    /// Gathers everybody's value on `root`, which decodes them one rank at a time.
    ///
    /// The other ranks return as soon as everybody has handed in.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather), and [`Error::Config`] when `root` is no rank. What goes
    /// wrong while reading is an item of the iteration on the root.
    #[track_caller]
    pub fn gather<T>(&self, value: &T, root: u32) -> Result<Gathered<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let site = self.here(Location::caller());
        step_aside(|| self.gather_by(self.inner.default_route(), value, root, site))
    }

    /// Gathers any number of values of each rank on `root`, none of which holds all of its own or of the
    /// others in memory.
    ///
    /// Every rank's `records` are asked for their values one by one, and the root gets all of them one by
    /// one, in rank order and in each rank's own order. The other ranks return as soon as everybody has
    /// handed in its last one.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather).
    ///
    /// # Examples
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// let squares = (0..1000_u64).map(|n| n * n);
    /// if let Some(records) = communicator.gather_records(squares, 0)? {
    ///     let mut sum = 0;
    ///     for record in records {
    ///         let (_rank, square) = record?;
    ///         sum += square;
    ///     }
    ///     assert_eq!(sum, 332_833_500);
    /// }
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn gather_records<T>(
        &self,
        values: impl IntoIterator<Item = T>,
        root: u32,
    ) -> Result<Option<Records<T, C>>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = self
            .typed::<Records<T, C>>(Operation::Gather, site)
            .with_root(root);
        step_aside(|| {
            let codec = &self.codec;
            let source = Source::Written(Box::new(|session, outgoing| {
                records::write(codec, session, values, outgoing)
            }));
            let mut started = Started::new(
                &self.inner,
                self.inner.default_route(),
                call,
                Manner::KeptForReader,
                codec::many(&self.codec),
                source,
            )?;
            let take: Take<Payload> = Box::new(|_, _, payload| Ok(payload));
            let parts = started.finish(|started, received| Ok(started.parts(received, take)))?;
            Ok(parts.map(|parts| Records::new(parts.into_readers(), self.codec.clone())))
        })
    }

    /// Starts an [`all_gather`](Self::all_gather) whose result is asked for later.
    ///
    /// When it returns, this rank's value has been encoded, published and announced: it may change, and the
    /// others do not wait for this rank any more. Where ranks have neither a shared directory nor
    /// connections to each other, large values make it wait for the others.
    ///
    /// # Errors
    ///
    /// What goes wrong with this rank's value; everything else [`Pending::wait`] tells.
    #[track_caller]
    pub fn start_all_gather<T>(&self, value: &T) -> Result<Pending<Vec<T>>, Error>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        let site = self.here(Location::caller());
        let call = self.typed::<T>(Operation::StartAllGather, site);
        let codec = self.codec.clone();
        let started = step_aside(|| self.start_kept(call, value))?;
        Ok(Pending::new(started, move |started, received| {
            started.read_all(received, |rank, payload| {
                let inner = &started.session().inner;
                codec::decode(&codec, &payload, inner.peer(rank), &inner.me())
            })
        }))
    }

    /// Starts a [`gather`](Self::gather) whose result is asked for later.
    ///
    /// # Errors
    ///
    /// Those of [`start_all_gather`](Self::start_all_gather), and [`Error::Config`] when `root` is no rank.
    #[track_caller]
    pub fn start_gather<T>(&self, value: &T, root: u32) -> Result<Pending<Gathered<T>>, Error>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = self.typed::<T>(Operation::Gather, site).with_root(root);
        let take = self.taking();
        let started = step_aside(|| self.start_kept(call, value))?;
        Ok(Pending::new(started, move |started, received| {
            Ok(Gathered::from(started.parts(received, take)))
        }))
    }

    pub(crate) fn all_gather_by<T>(
        &self,
        route: &Route,
        value: &T,
        bound: Option<u64>,
        site: Site,
    ) -> Result<Vec<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let call = Call {
            bound,
            ..self.typed::<T>(Operation::AllGather, site)
        };
        let mut started = self.start(route, call, self.encoded(value))?;
        started.finish(|started, received| {
            started.read_all(received, |rank, payload| self.decode(rank, &payload))
        })
    }

    pub(crate) fn gather_by<T>(
        &self,
        route: &Route,
        value: &T,
        root: u32,
        site: Site,
    ) -> Result<Gathered<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let root = self.world_size().rank(root)?;
        let call = self.typed::<T>(Operation::Gather, site).with_root(root);
        let mut started = self.start(route, call, self.encoded(value))?;
        started
            .finish(|started, received| Ok(Gathered::from(started.parts(received, self.taking()))))
    }

    fn start<'a>(
        &self,
        route: &Route,
        call: Call,
        source: Source<'a>,
    ) -> Result<Started<'a>, Error> {
        let manner = manner_of(call.operation);
        Started::new(
            &self.inner,
            route,
            call,
            manner,
            codec::one(&self.codec),
            source,
        )
    }

    fn start_kept<T: Serialize + DeserializeOwned>(
        &self,
        call: Call,
        value: &T,
    ) -> Result<Started<'static>, Error> {
        let started = Started::new(
            &self.inner,
            self.inner.default_route(),
            call,
            Manner::Kept,
            codec::one(&self.codec),
            self.encoded(value),
        )?;
        Ok(started.detached())
    }

    /// A value on its way through the codec.
    fn encoded<'a, T: Serialize + DeserializeOwned>(&'a self, value: &'a T) -> Source<'a> {
        Source::Written(Box::new(|session, outgoing| {
            codec::hand_over(&self.codec, session, value, outgoing)
        }))
    }

    fn typed<T>(&self, operation: Operation, site: Site) -> Call {
        Call::new(operation, site).with_type(type_tag::<T>(&self.codec))
    }

    fn decode<T: DeserializeOwned>(&self, rank: Rank, payload: &[u8]) -> Result<T, Error> {
        let inner: &Arc<Inner> = &self.inner;
        codec::decode(&self.codec, payload, inner.peer(rank), &inner.me())
    }

    fn taking<T: DeserializeOwned>(&self) -> Take<T> {
        let codec = self.codec.clone();
        Box::new(move |inner, rank, payload| {
            codec::decode(&codec, &payload, inner.peer(rank), &inner.me())
        })
    }
}
