//! The collective calls: barrier, broadcast, gather, all-gather, and those that continue in the background.

use std::panic::Location;

use fsgather_core::{Call, Error, Operation, Rank};

use crate::{
    call::{
        blocking::step_aside,
        nesting,
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
    /// Waits until every rank has made this call.
    ///
    /// # Errors
    ///
    /// Those of every collective call: [`Error::Timeout`], [`Error::PeerFailed`], [`Error::Desync`],
    /// [`Error::Poisoned`].
    #[track_caller]
    pub fn barrier(&self) -> Result<(), Error> {
        let call = self.unbounded(Operation::Barrier, Location::caller())?;
        step_aside(|| self.inner.pass(call))
    }

    /// Sends the input of `root` to every rank. The inputs of other ranks are ignored.
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier); [`Error::Config`] if `root` is not a rank of the group; those that
    /// [`all_gather`](Self::all_gather) adds.
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

    /// Gathers the inputs of all ranks on every rank, in rank order; the result always has one entry for each rank.
    ///
    /// Small inputs travel with the control messages. Larger ones go through files of the shared directory, or over
    /// connections between the ranks if there is no such directory.
    ///
    /// A [`Payload`](crate::Payload) is mapped from its file if that is safe, so that ranks of one host share one copy;
    /// otherwise it is read into memory. Input that this rank hands in as [`Bytes`](bytes::Bytes) is a part of the
    /// result as it is, without a copy.
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier); [`Error::Storage`] if a payload cannot be written or read,
    /// [`Error::Corrupt`] if it differs from the written data, [`Error::PeerFailed`] if a value cannot be
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

    /// Gathers the inputs of all ranks on `root`, which reads one rank at a time; the others get `None`.
    ///
    /// The other ranks return as soon as all ranks have handed in their inputs. If payloads go from memory to memory,
    /// slices are copied, so that this rank can continue; [`Bytes`](bytes::Bytes) are kept until the root has read
    /// them, without a copy. The root can read payloads as streams:
    /// [`Parts::into_readers`](crate::parts::Parts::into_readers).
    ///
    /// # Errors
    ///
    /// Those of [`all_gather`](Self::all_gather), and [`Error::Config`] if `root` is not a rank of the group. On the
    /// root, an error of reading is an item of the iteration.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    ///
    /// let communicator = fsgather::Communicator::solo();
    /// let features = Bytes::from(vec![7; 1 << 20]); // or Bytes::from_owner(their owner)
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

    /// Starts an [`all_gather`](Self::all_gather) whose result is requested later.
    ///
    /// When it returns, this rank's input has been encoded, published and announced: the input may change, and the
    /// other ranks no longer wait for this rank. If ranks have neither a shared directory nor connections to each
    /// other, large inputs make it wait for the others.
    ///
    /// # Errors
    ///
    /// Errors of this rank's input. [`Pending::wait`] returns all other errors.
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

    /// Starts a [`gather`](Self::gather) whose result is requested later.
    ///
    /// # Errors
    ///
    /// Those of [`start_all_gather`](Self::start_all_gather), and [`Error::Config`] if `root` is not a rank of the
    /// group.
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
    /// Returns a call of `operation` through this handle, from `location` if no other place is set. Fails if its
    /// options are plainly wrong.
    pub(crate) fn made(
        &self,
        operation: Operation,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        nesting::check()?;
        self.options.call(operation, self.place(location))
    }

    /// Like [`made`](Self::made), for a call without a payload that could be bounded.
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

    /// Like [`made`](Self::made), for a call with a root.
    fn rooted(
        &self,
        operation: Operation,
        root: Rank,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        let root = self.world_size().rank(root.get())?;
        Ok(self.made(operation, location)?.with_root(root))
    }

    /// Makes a call, and reads its result.
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

    /// Starts a call, which reads its result when that is requested.
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
