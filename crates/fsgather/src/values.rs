//! Collective calls for values: broadcast, gather, all-gather, and those that go on in the background.

use std::panic::Location;

use fsgather_core::{Call, Error, Operation, Rank};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    build_identity::type_tag,
    codec::{self, Codec},
    communicator::Communicator,
    parts::{Parts, Take},
    payload::{
        input::{InputSource, PayloadInput},
        retention::Retention,
    },
    pending::Pending,
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
        let root = root.into();
        let call = self.rooted(Operation::Broadcast, root, Location::caller())?;
        let input = self.encoded(value);
        let input = input.only_if(self.rank() == root);
        let decode = decoding(&self.codec);
        self.run(
            self.typed::<T>(call),
            Retention::Passing,
            input,
            |started, received| {
                let payload = started.read_one(received, root)?;
                decode(&self.inner, root, payload)
            },
        )
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
        let call = self.made(Operation::AllGather, Location::caller())?;
        let decode = decoding(&self.codec);
        self.run(
            self.typed::<T>(call),
            Retention::Passing,
            self.encoded(value),
            |started, received| started.read_all(received, decode),
        )
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
        let call = self.rooted(Operation::Gather, root.into(), Location::caller())?;
        let decode = decoding(&self.codec);
        self.run(
            self.typed::<T>(call),
            Retention::KeptForReader,
            self.encoded(value),
            |started, received| Ok(started.parts(received, decode)),
        )
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
        let call = self.made(Operation::StartAllGather, Location::caller())?;
        let decode = decoding(&self.codec);
        self.start(
            self.typed::<T>(call),
            self.encoded(value),
            move |started, received| started.read_all(received, decode),
        )
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
        let call = self.rooted(Operation::Gather, root.into(), Location::caller())?;
        let decode = decoding(&self.codec);
        self.start(
            self.typed::<T>(call),
            self.encoded(value),
            move |started, received| Ok(started.parts(received, decode)),
        )
    }
}

impl<C: Codec> Communicator<C> {
    /// A value on its way through the codec.
    fn encoded<'b, T: Serialize + DeserializeOwned>(&'b self, value: &'b T) -> PayloadInput<'b> {
        let codec = &self.codec;
        PayloadInput {
            encoding: codec::one(codec),
            uncounted: 0,
            source: InputSource::Written(Box::new(|guard, writer| {
                codec::hand_over(codec, guard, value, writer)
            })),
        }
    }

    fn typed<T>(&self, call: Call) -> Call {
        call.with_type(type_tag::<T>(&self.codec))
    }
}

/// Decodes what a rank has handed in.
fn decoding<T: DeserializeOwned>(codec: &impl Codec) -> Take<T> {
    let codec = codec.clone();
    Box::new(move |inner, rank, payload| {
        codec::decode(&codec, &payload, inner.peer(rank), &inner.me())
    })
}
