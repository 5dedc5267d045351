//! Collective calls for values: broadcast, gather, all-gather, and those that go on in the background.

use std::{panic::Location, sync::Arc};

use fsgather_core::{Call, Error, Operation, Rank};
use fsgather_store::Payload;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    blocking::step_aside,
    build_identity::type_tag,
    call_builder::CallBuilder,
    codec::{self, Codec},
    collective::Started,
    communicator::Communicator,
    group_state::GroupState,
    parts::{Parts, Take},
    pending::Pending,
    records::{self, Records},
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
    pub fn broadcast<T>(&self, value: &T, root: impl Into<Rank>) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        self.call().broadcast(value, root)
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
        self.call().all_gather(value)
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
        self.call().bound(max_size).all_gather(value)
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
    pub fn gather<T>(&self, value: &T, root: impl Into<Rank>) -> Result<Option<Parts<T>>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        self.call().gather(value, root)
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
        root: impl Into<Rank>,
    ) -> Result<Option<Records<T, C>>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        self.call().gather_records(values, root)
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
        self.call().start_all_gather(value)
    }

    /// Starts a [`gather`](Self::gather) whose result is asked for later.
    ///
    /// # Errors
    ///
    /// Those of [`start_all_gather`](Self::start_all_gather), and [`Error::Config`] when `root` is no rank.
    #[track_caller]
    pub fn start_gather<T>(
        &self,
        value: &T,
        root: impl Into<Rank>,
    ) -> Result<Pending<Option<Parts<T>>>, Error>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        self.call().start_gather(value, root)
    }

    fn decode<T: DeserializeOwned>(&self, rank: Rank, payload: &[u8]) -> Result<T, Error> {
        let inner: &Arc<GroupState> = &self.inner;
        codec::decode(&self.codec, payload, inner.peer(rank), &inner.me())
    }

    /// Decodes what a gather brings, whenever the root asks for it.
    fn taking<T: DeserializeOwned>(&self) -> Take<T> {
        let codec = self.codec.clone();
        Box::new(move |inner, rank, payload| {
            codec::decode(&codec, &payload, inner.peer(rank), &inner.me())
        })
    }
}

impl<C: Codec> CallBuilder<'_, C> {
    /// As [`Communicator::broadcast`].
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::broadcast`].
    #[track_caller]
    pub fn broadcast<T>(self, value: &T, root: impl Into<Rank>) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let root = self.root(root)?;
        let call = self.typed::<T>(Operation::Broadcast, Location::caller())?;
        let call = call.with_root(root);
        step_aside(|| {
            let source = if self.communicator.rank() == root {
                self.encoded(value)
            } else {
                Source::Nothing
            };
            let mut started = self.start(call, Manner::Passing, source)?;
            let payload = started.finish(|started, received| started.read_one(received, root))?;
            self.communicator.decode(root, &payload)
        })
    }

    /// As [`Communicator::all_gather`].
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::all_gather_list`] if there is a bound, else of [`Communicator::all_gather`].
    #[track_caller]
    pub fn all_gather<T>(self, value: &T) -> Result<Vec<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let call = self.typed::<T>(Operation::AllGather, Location::caller())?;
        step_aside(|| {
            let mut started = self.start(call, Manner::Passing, self.encoded(value))?;
            started.finish(|started, received| {
                started.read_all(received, |rank, payload| {
                    self.communicator.decode(rank, &payload)
                })
            })
        })
    }

    /// As [`Communicator::gather`].
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::gather`], and [`Error::TooLarge`] if there is a bound.
    #[track_caller]
    pub fn gather<T>(self, value: &T, root: impl Into<Rank>) -> Result<Option<Parts<T>>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let root = self.root(root)?;
        let call = self.typed::<T>(Operation::Gather, Location::caller())?;
        let call = call.with_root(root);
        step_aside(|| {
            let mut started = self.start(call, Manner::KeptForReader, self.encoded(value))?;
            let take = self.communicator.taking();
            started.finish(|started, received| Ok(started.parts(received, take)))
        })
    }

    /// As [`Communicator::gather_records`].
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::gather_records`], and [`Error::TooLarge`] if there is a bound.
    #[track_caller]
    pub fn gather_records<T>(
        self,
        values: impl IntoIterator<Item = T>,
        root: impl Into<Rank>,
    ) -> Result<Option<Records<T, C>>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let root = self.root(root)?;
        let call = self.typed::<Records<T, C>>(Operation::Gather, Location::caller())?;
        let call = call.with_root(root);
        step_aside(|| {
            let codec = &self.communicator.codec;
            let source = Source::Written(Box::new(|session, outgoing| {
                records::write(codec, session, values, outgoing)
            }));
            let inner = &self.communicator.inner;
            let mut started = Started::new(
                inner,
                &self.route(),
                call,
                Manner::KeptForReader,
                codec::many(codec),
                source,
            )?;
            let take: Take<Payload> = Box::new(|_, _, payload| Ok(payload));
            let parts = started.finish(|started, received| Ok(started.parts(received, take)))?;
            Ok(parts.map(|parts| Records::new(parts.into_readers(), codec.clone())))
        })
    }

    /// As [`Communicator::start_all_gather`].
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::start_all_gather`].
    #[track_caller]
    pub fn start_all_gather<T>(self, value: &T) -> Result<Pending<Vec<T>>, Error>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        let call = self.typed::<T>(Operation::StartAllGather, Location::caller())?;
        let codec = self.communicator.codec.clone();
        let started = step_aside(|| self.start(call, Manner::Kept, self.encoded(value)))?;
        Ok(Pending::new(
            started.detached(),
            move |started, received| {
                started.read_all(received, |rank, payload| {
                    let inner = &started.session().inner;
                    codec::decode(&codec, &payload, inner.peer(rank), &inner.me())
                })
            },
        ))
    }

    /// As [`Communicator::start_gather`].
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::start_gather`].
    #[track_caller]
    pub fn start_gather<T>(
        self,
        value: &T,
        root: impl Into<Rank>,
    ) -> Result<Pending<Option<Parts<T>>>, Error>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        let root = self.root(root)?;
        let call = self.typed::<T>(Operation::Gather, Location::caller())?;
        let call = call.with_root(root);
        let take = self.communicator.taking();
        let started = step_aside(|| self.start(call, Manner::Kept, self.encoded(value)))?;
        Ok(Pending::new(
            started.detached(),
            move |started, received| Ok(started.parts(received, take)),
        ))
    }

    fn start<'b>(
        &self,
        call: Call,
        manner: Manner,
        source: Source<'b>,
    ) -> Result<Started<'b>, Error> {
        let (inner, codec) = (&self.communicator.inner, &self.communicator.codec);
        Started::new(
            inner,
            &self.route(),
            call,
            manner,
            codec::one(codec),
            source,
        )
    }

    /// A value on its way through the codec.
    fn encoded<'b, T: Serialize + DeserializeOwned>(&'b self, value: &'b T) -> Source<'b> {
        Source::Written(Box::new(|session, outgoing| {
            codec::hand_over(&self.communicator.codec, session, value, outgoing)
        }))
    }

    fn typed<T>(&self, operation: Operation, location: &Location<'_>) -> Result<Call, Error> {
        let call = self.made(operation, location)?;
        Ok(call.with_type(type_tag::<T>(&self.communicator.codec)))
    }
}
