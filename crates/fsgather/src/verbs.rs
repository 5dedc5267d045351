//! The collective calls: barrier, broadcast, gather, all-gather, and those that go on in the background.

use std::panic::Location;

use fsgather_core::{Call, Error, Operation, Rank};

use crate::{
    call::{
        blocking::step_aside,
        started::{ReceivedParts, StartedCall},
    },
    codec::Codec,
    communicator::Communicator,
    input::Input,
    parts::Parts,
    payload::{input::PayloadInput, retention::Retention},
    pending::Pending,
};

impl<C: Codec> Communicator<C> {
    /// Waits until every rank has come here.
    ///
    /// # Errors
    ///
    /// As every collective call: [`Error::Timeout`], [`Error::PeerFailed`], [`Error::Desync`],
    /// [`Error::Poisoned`].
    #[track_caller]
    pub fn barrier(&self) -> Result<(), Error> {
        let call = self.unbounded(Operation::Barrier, Location::caller())?;
        step_aside(|| self.inner.pass(call))
    }

    /// Hands what `root` hands in to every rank. The inputs of other ranks are not looked at.
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier), [`Error::Config`] when `root` is no rank,
    /// and what [`all_gather`](Self::all_gather) adds.
    #[track_caller]
    pub fn broadcast<I: Input>(&self, input: I, root: impl Into<Rank>) -> Result<I::Output, Error> {
        let root = root.into();
        let call = self.rooted(Operation::Broadcast, root, Location::caller())?;
        let own = input.payload(&self.codec).only_if(self.rank() == root);
        let take = I::taking(&self.codec);
        let call = I::typed(call, &self.codec);
        self.make(call, Retention::Passing, own, |started, received| {
            let payload = started.read_one(received, root)?;
            take(&self.inner, root, payload)
        })
    }

    /// Gathers what everybody hands in on every rank, in rank order; always one for each rank.
    ///
    /// Small inputs travel with the control messages. Larger ones go through files of the shared
    /// directory, or over connections between the ranks where there is none.
    ///
    /// A [`Payload`](crate::Payload) is mapped from the file it came in where that is safe, so that ranks of one host
    /// share one copy, and read into memory elsewhere. What this rank has handed in as
    /// [`Bytes`](bytes::Bytes) is a part of the result as it is, without a copy.
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
    /// use fsgather::{Communicator, Pieces};
    ///
    /// let communicator = Communicator::solo();
    /// let boxes = (String::from("boxes"), 3);
    /// assert_eq!(communicator.all_gather(&boxes)?, [boxes]);
    /// assert_eq!(communicator.all_gather("host-7")?, ["host-7"]);
    /// let scores = vec![0.25, 0.5, 0.75];
    /// assert_eq!(communicator.all_gather(&scores[1..])?, [[0.5, 0.75]]);
    ///
    /// let payloads = communicator.all_gather(Pieces::from(b"bytes as they are"))?;
    /// assert_eq!(&*payloads[0], b"bytes as they are");
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn all_gather<I: Input>(&self, input: I) -> Result<Vec<I::Output>, Error> {
        let call = I::typed(
            self.made(Operation::AllGather, Location::caller())?,
            &self.codec,
        );
        let (own, take) = (input.payload(&self.codec), I::taking(&self.codec));
        self.make(call, Retention::Passing, own, |started, received| {
            started.read_all(received, take)
        })
    }

    /// Gathers what everybody hands in on `root`, which reads one rank at a time; the others get `None`.
    ///
    /// The other ranks return as soon as everybody has handed in. Where payloads go from memory to memory slices are copied, so that this
    /// rank can go on; [`Bytes`](bytes::Bytes) are kept until the root has read them, without a copy. The root can read payloads as
    /// streams: [`Parts::into_readers`](crate::parts::Parts::into_readers).
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather), and [`Error::Config`] when `root` is no rank. What goes
    /// wrong while reading is an item of the iteration on the root.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    ///
    /// let communicator = fsgather::Communicator::solo();
    /// let features = Bytes::from(vec![7; 1 << 20]); // or Bytes::from_owner(whatever keeps them)
    /// for part in communicator.gather(features.clone(), 0)?.into_iter().flatten() {
    ///     let (_rank, payload) = part?;
    ///     assert_eq!(*payload, features);
    /// }
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn gather<I: Input>(
        &self,
        input: I,
        root: impl Into<Rank>,
    ) -> Result<Option<Parts<I::Output>>, Error> {
        let call = self.rooted(Operation::Gather, root.into(), Location::caller())?;
        let call = I::typed(call, &self.codec);
        let (own, take) = (input.payload(&self.codec), I::taking(&self.codec));
        self.make(call, Retention::KeptForReader, own, |started, received| {
            Ok(started.parts(received, take))
        })
    }

    /// Starts an [`all_gather`](Self::all_gather) whose result is asked for later.
    ///
    /// When it returns, this rank's input has been encoded, published and announced: it may change, and the
    /// others do not wait for this rank any more. Where ranks have neither a shared directory nor
    /// connections to each other, large inputs make it wait for the others.
    ///
    /// # Errors
    ///
    /// What goes wrong with this rank's input; everything else [`Pending::wait`] tells.
    #[track_caller]
    pub fn start_all_gather<I>(&self, input: I) -> Result<Pending<Vec<I::Output>>, Error>
    where
        I: Input,
        I::Output: 'static,
    {
        let call = self.made(Operation::StartAllGather, Location::caller())?;
        let take = I::taking(&self.codec);
        self.start(
            I::typed(call, &self.codec),
            input.payload(&self.codec),
            move |started, received| started.read_all(received, take),
        )
    }

    /// Starts a [`gather`](Self::gather) whose result is asked for later.
    ///
    /// # Errors
    ///
    /// Those of [`start_all_gather`](Self::start_all_gather), and [`Error::Config`] when `root` is no rank.
    #[track_caller]
    pub fn start_gather<I>(
        &self,
        input: I,
        root: impl Into<Rank>,
    ) -> Result<Pending<Option<Parts<I::Output>>>, Error>
    where
        I: Input,
        I::Output: 'static,
    {
        let call = self.rooted(Operation::Gather, root.into(), Location::caller())?;
        let take = I::taking(&self.codec);
        self.start(
            I::typed(call, &self.codec),
            input.payload(&self.codec),
            move |started, received| Ok(started.parts(received, take)),
        )
    }
}

impl<C> Communicator<C> {
    /// A call of `operation` through this handle, from `location` if nothing else is set; an error if its options are plainly
    /// wrong.
    pub(crate) fn made(
        &self,
        operation: Operation,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        self.options.call(operation, self.place(location))
    }

    /// The same for a call that has no payload which could be bounded.
    pub(crate) fn unbounded(
        &self,
        operation: Operation,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        Ok(Call {
            bound: None,
            ..self.made(operation, location)?
        })
    }

    /// The same for a call with a root.
    fn rooted(
        &self,
        operation: Operation,
        root: Rank,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        let root = self.world_size().rank(root.get())?;
        Ok(self.made(operation, location)?.with_root(root))
    }

    /// Makes a call, and reads what it brings.
    fn make<'b, R>(
        &self,
        call: Call,
        retention: Retention,
        input: PayloadInput<'b>,
        read: impl FnOnce(&StartedCall<'b>, ReceivedParts) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let inner = &self.inner;
        step_aside(|| {
            StartedCall::new(inner, &self.request(), call, retention, input)?.finish(read)
        })
    }

    /// Starts a call, which reads what it brings when it is asked for.
    fn start<R>(
        &self,
        call: Call,
        input: PayloadInput<'_>,
        read: impl FnOnce(&StartedCall<'static>, ReceivedParts) -> Result<R, Error> + Send + 'static,
    ) -> Result<Pending<R>, Error> {
        let inner = &self.inner;
        let started =
            step_aside(|| StartedCall::new(inner, &self.request(), call, Retention::Kept, input))?;
        Ok(Pending::new(started.detached(), read))
    }
}
