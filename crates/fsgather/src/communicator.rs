//! One rank's membership of one group: [`Communicator`].

use std::{fmt, panic::Location, sync::Arc};

use fsgather_core::{Call, Error, Operation, Rank, Site, Solo, WorldSize};
use fsgather_store::Payload;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    blocking::step_aside,
    build_identity::type_tag,
    builder::{self, Builder},
    codec,
    collective::copy,
    gathered::Gathered,
    inner::Inner,
};

/// One rank's membership of a group of ranks.
///
/// Every method that communicates is *collective*: all ranks call it, in the same order, and it returns
/// when its part is done. Methods block; inside a multi-thread tokio runtime they step aside, inside a
/// current-thread one they return [`Error::Config`].
///
/// # What is guaranteed
///
/// A call that returns `Ok` returned the right result: what every rank handed in, whole, verified against
/// what its writer announced, in rank order. A rank that fails, is lost or is late before all have
/// handed in makes the call fail on every rank with the same error, which names it; later calls then
/// return [`Error::Poisoned`].
///
/// # What is not
///
/// In a gather to one root the other ranks return when everybody has handed in, not when the root has
/// read; a read error on the root reaches them at their next call. Only [`close`](Self::close) says
/// that everything was read.
///
/// # Examples
///
/// ```
/// use fsgather::Communicator;
///
/// let communicator = Communicator::from_env()?; // a world of one when there is no launcher
/// let names = communicator.all_gather(&format!("rank {}", communicator.rank()))?;
/// assert_eq!(names, ["rank 0"]);
/// communicator.close()?;
/// # Ok::<(), fsgather::Error>(())
/// ```
pub struct Communicator {
    pub(crate) inner: Arc<Inner>,
}

impl Communicator {
    /// Joins the world that the launcher and the variables `FSGATHER_*` describe; a world of one when
    /// there is nothing to be found.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that cannot be understood, and whatever keeps the ranks from
    /// meeting: [`Error::Timeout`], [`Error::Rendezvous`], [`Error::Storage`], [`Error::NotShared`].
    #[track_caller]
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Joins a world of which some things are said in the program; variables say the rest.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A world of one: no file, no socket, no thread.
    ///
    /// ```
    /// let alone = fsgather::Communicator::solo();
    /// assert_eq!(alone.all_gather(&7)?, [7]);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[must_use]
    pub fn solo() -> Self {
        let process = builder::process_or_unknown();
        let exchange = Solo::new(process.host.clone(), process.pid);
        Self::in_memory(Box::new(exchange), vec![process])
    }

    /// A world of `ranks` threads of this process, one communicator for each.
    ///
    /// Values pass through memory; nothing touches files or sockets.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when `ranks` is 0 or too many.
    ///
    /// ```
    /// use fsgather::Communicator;
    ///
    /// let sums: Vec<u32> = std::thread::scope(|scope| {
    ///     let ranks: Vec<_> = Communicator::threads(3)?
    ///         .into_iter()
    ///         .map(|rank| scope.spawn(move || rank.all_gather(&rank.rank().get())))
    ///         .collect();
    ///     ranks.into_iter().map(|rank| Ok(rank.join().unwrap()?.iter().sum())).collect::<Result<_, fsgather::Error>>()
    /// })?;
    /// assert_eq!(sums, [3, 3, 3]);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    pub fn threads(ranks: u32) -> Result<Vec<Self>, Error> {
        let world_size = WorldSize::new(ranks)?;
        let process = builder::process_or_unknown();
        let patience = crate::settings::DEFAULT_TIMEOUT;
        Ok(fsgather_control::threads(world_size, &process, patience)
            .into_iter()
            .map(|exchange| Self::in_memory(exchange, vec![process.clone(); world_size.count()]))
            .collect())
    }

    fn in_memory(
        exchange: Box<dyn fsgather_core::Exchange>,
        processes: Vec<fsgather_core::ProcessId>,
    ) -> Self {
        Self::from_inner(Inner::in_memory(exchange, processes))
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// The caller, for messages.
    fn here(&self, location: &Location<'_>) -> Site {
        let named = self.inner.call_site.clone();
        named.unwrap_or_else(|| Site::of(location))
    }

    /// Which rank this is.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.inner.exchange.rank()
    }

    /// How many ranks there are.
    #[must_use]
    pub fn world_size(&self) -> WorldSize {
        self.inner.exchange.world_size()
    }

    /// Waits until every rank has come here.
    ///
    /// # Errors
    ///
    /// As every collective call: [`Error::Timeout`], [`Error::PeerFailed`], [`Error::Desync`],
    /// [`Error::Poisoned`].
    #[track_caller]
    pub fn barrier(&self) -> Result<(), Error> {
        let site = self.here(Location::caller());
        step_aside(|| self.inner.exchange.barrier(site))
    }

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
        let call = Call::new(Operation::Broadcast, site)
            .with_root(root)
            .with_type(type_tag::<T>());
        step_aside(|| {
            let payload =
                self.broadcast_from(root, call, codec::POSTCARD, |session, outgoing| {
                    codec::encode(session, value, outgoing)
                })?;
            let writer = self.inner.exchange.peers().get(root.index());
            codec::decode(&payload, writer, &self.inner.me())
        })
    }

    /// Hands `root`'s bytes to every rank. The bytes of other ranks are not looked at.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn broadcast_bytes(&self, bytes: &[u8], root: u32) -> Result<Payload, Error> {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Broadcast, site).with_root(root);
        step_aside(|| {
            self.broadcast_from(root, call, codec::BYTES, |_, outgoing| {
                outgoing.expect_len(bytes.len())?;
                outgoing.take(bytes)
            })
        })
    }

    /// Gathers everybody's value on every rank, in rank order; always one for each rank.
    ///
    /// Small values travel with the control messages. Larger ones go through files of the shared
    /// directory, or through rank 0's memory where there is none.
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
        step_aside(|| self.all_gather_by(self.inner.default_route(), value, site))
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
        step_aside(|| {
            self.gather_everywhere(
                self.inner.default_route(),
                Call::new(Operation::AllGather, site),
                codec::BYTES,
                |_, outgoing| {
                    outgoing.expect_len(bytes.len())?;
                    outgoing.take(bytes)
                },
                |_, payload| Ok(payload),
            )
        })
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

    /// Gathers everybody's bytes on `root`, which reads them one rank at a time.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather).
    #[track_caller]
    pub fn gather_bytes(&self, bytes: &[u8], root: u32) -> Result<Gathered<Payload>, Error> {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Gather, site).with_root(root);
        step_aside(|| {
            self.gather_on_root(
                self.inner.default_route(),
                call,
                codec::BYTES,
                |_, outgoing| {
                    outgoing.expect_len(bytes.len())?;
                    outgoing.take(bytes)
                },
                |_, _, payload| Ok(payload),
            )
        })
    }

    /// Gathers what `source` reads on `root`, without holding it in memory where it goes through a file.
    ///
    /// # Errors
    ///
    /// Those of [`gather_bytes`](Self::gather_bytes); an error of `source` is told to all ranks as
    /// [`Error::PeerFailed`].
    #[track_caller]
    pub fn gather_from(
        &self,
        source: &mut dyn std::io::Read,
        root: u32,
    ) -> Result<Gathered<Payload>, Error> {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Gather, site).with_root(root);
        step_aside(|| {
            self.gather_on_root(
                self.inner.default_route(),
                call,
                codec::BYTES,
                |session, outgoing| copy(session, source, outgoing),
                |_, _, payload| Ok(payload),
            )
        })
    }

    /// Gathers what `source` reads on every rank, without holding it in memory where it goes through a
    /// file.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather_bytes`](Self::all_gather_bytes) and [`gather_from`](Self::gather_from).
    #[track_caller]
    pub fn all_gather_from(&self, source: &mut dyn std::io::Read) -> Result<Vec<Payload>, Error> {
        let site = self.here(Location::caller());
        step_aside(|| {
            self.gather_everywhere(
                self.inner.default_route(),
                Call::new(Operation::AllGather, site),
                codec::BYTES,
                |session, outgoing| copy(session, source, outgoing),
                |_, payload| Ok(payload),
            )
        })
    }

    /// Hands what `root`'s `source` reads to every rank. The sources of other ranks are not read.
    ///
    /// # Errors
    ///
    /// Those of [`broadcast_bytes`](Self::broadcast_bytes) and [`gather_from`](Self::gather_from).
    #[track_caller]
    pub fn broadcast_from_reader(
        &self,
        source: &mut dyn std::io::Read,
        root: u32,
    ) -> Result<Payload, Error> {
        let site = self.here(Location::caller());
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Broadcast, site).with_root(root);
        step_aside(|| {
            self.broadcast_from(root, call, codec::BYTES, |session, outgoing| {
                copy(session, source, outgoing)
            })
        })
    }

    /// Ends the communicator together with all other ranks, and leaves nothing behind.
    ///
    /// `Ok` means that every gather this rank took part in was read by all its recipients. Dropping a
    /// communicator does the same as far as it can without waiting for long, and gives up this knowledge.
    ///
    /// # Errors
    ///
    /// A failure that this rank has not been told yet; [`Error::Timeout`] when some rank does not come
    /// to close; [`Error::Config`] while results of [`gather`](Self::gather) are still being read.
    #[track_caller]
    pub fn close(self) -> Result<(), Error> {
        let site = self.here(Location::caller());
        step_aside(|| self.inner.close(site))
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}
