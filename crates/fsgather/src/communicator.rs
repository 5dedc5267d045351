//! One rank's membership of one group: [`Communicator`].

use std::{fmt, panic::Location, sync::Arc};

use fsgather_config::{environment::Variables, settings::Transport};
use fsgather_core::{Error, Rank, Site, WorldSize};

use crate::{
    call::blocking::{self, step_aside},
    codec::{Codec, Postcard},
    group_state::GroupState,
    join::this_process::process_or_unknown,
    options::Options,
    payload::path_request::PathRequest,
    speaking::speak_up,
};

/// One rank's membership of a group of ranks.
///
/// Every method that communicates is *collective*: all ranks call it, in the same order, and it returns
/// when its part is done. Methods block. Inside a multi-thread tokio runtime other tasks move to another thread
/// meanwhile; inside a current-thread one the methods return [`Error::Config`].
///
/// Values travel in the encoding of the communicator's [`Codec`], bytes as they are.
///
/// # Guarantees
///
/// A call that returns `Ok` returned the right result: the input of every rank, whole, verified against the announcement of
/// its writer, in rank order. A rank that fails, is lost or is late before all ranks have handed in their inputs makes
/// the call fail on every rank with the same error, which names that rank. Later calls then return [`Error::Poisoned`].
/// [`has_failed`](Self::has_failed) says which errors a communicator survives.
///
/// # Limits of the guarantees
///
/// In a gather to one root the other ranks return when all ranks have handed in their inputs, not when the root has
/// read them. A read error on the root reaches the other ranks at their next call. Only [`close`](Self::close) confirms
/// that everything was read.
///
/// # Examples
///
/// ```
/// use fsgather::Communicator;
///
/// let communicator = Communicator::from_env()?; // a world of one without a launcher
/// let names = communicator.all_gather(&format!("rank {}", communicator.rank()))?;
/// assert_eq!(names, ["rank 0"]);
/// communicator.close()?;
/// # Ok::<(), fsgather::Error>(())
/// ```
pub struct Communicator<C = Postcard> {
    pub(crate) inner: Arc<GroupState>,
    pub(crate) codec: C,
    /// The options of the calls of this handle.
    pub(crate) options: Options,
}

impl Communicator {
    /// A world of one: no file, no socket, no thread.
    ///
    /// ```
    /// let alone = fsgather::Communicator::solo();
    /// assert_eq!(alone.all_gather(&7)?, [7]);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[must_use]
    pub fn solo() -> Self {
        Self::from_inner(GroupState::solo(process_or_unknown()), Postcard)
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
        speak_up(&Variables::of_process(), None);
        let process = process_or_unknown();
        let timeout = fsgather_config::settings::DEFAULT_TIMEOUT;
        Ok(fsgather_control::threads(world_size, &process, timeout)
            .into_iter()
            .map(|exchange| {
                let processes = vec![process.clone(); world_size.count()];
                Self::from_inner(GroupState::in_memory(exchange, processes), Postcard)
            })
            .collect())
    }
}

impl<C> Communicator<C> {
    pub(crate) fn from_inner(inner: Arc<GroupState>, codec: C) -> Self {
        Self {
            inner,
            codec,
            options: Options::default(),
        }
    }

    /// Returns the same membership with another codec. All ranks must choose the same codec.
    ///
    /// Both can be used; they share the order of calls. Closing one closes the other. [`Codec`] has an example.
    #[must_use]
    pub fn with_codec<D: Codec>(&self, codec: D) -> Communicator<D> {
        Communicator {
            inner: Arc::clone(&self.inner),
            codec,
            options: self.options.clone(),
        }
    }

    /// Returns the same membership through another handle, whose calls are made with these options. Options that are
    /// not set stay as in this handle.
    ///
    /// Making a handle is local and cheap, and all handles share the order of calls. All ranks must make each call
    /// with the same transport, directory, bound and tag. Closing one handle closes all. [`group`](Self::group) and
    /// [`split`](Self::split) inherit transport, directory and time-out.
    ///
    /// ```
    /// use fsgather::{Communicator, Options, Transport};
    ///
    /// let communicator = Communicator::solo();
    /// let files = Options::new().transport(Transport::Filesys).directory("/shared/scratch");
    /// assert_eq!(communicator.with(files).all_gather(&7)?, [7]);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[must_use]
    pub fn with(&self, options: Options) -> Self
    where
        C: Clone,
    {
        Self {
            inner: Arc::clone(&self.inner),
            codec: self.codec.clone(),
            options: options.over(&self.options),
        }
    }

    /// Returns a handle of this or another group, with the transport, directory and time-out of this one.
    pub(crate) fn handle<D>(&self, inner: Arc<GroupState>, codec: D) -> Communicator<D> {
        Communicator {
            inner,
            codec,
            options: self.options.of_groups(),
        }
    }

    /// Returns the place of a call, for messages: `location` if no other place is set.
    pub(crate) fn place(&self, location: &Location<'_>) -> Site {
        let known = self.options.site.clone();
        let known = known.or_else(|| self.inner.world.call_site.clone());
        known.unwrap_or_else(|| Site::of(location))
    }

    /// Returns the transport and the directory of payloads.
    pub(crate) fn request(&self) -> PathRequest {
        let default = self.inner.default_request();
        let transport = self.options.transport.unwrap_or(default.transport);
        let uses_files = transport != Transport::Memory;
        let directory = self.options.directory.as_ref();
        let directory = directory.or(default.directory.as_ref());
        PathRequest {
            transport,
            directory: directory.filter(|_| uses_files).cloned(),
        }
    }

    /// Returns the rank of this process or thread in the group.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.inner.exchange.rank()
    }

    /// Returns the number of ranks of the group.
    #[must_use]
    pub fn world_size(&self) -> WorldSize {
        self.inner.exchange.world_size()
    }

    /// Returns true if a call has failed, or if this rank knows of a failure, so that all later calls return an error.
    /// It makes no call.
    ///
    /// Errors that all ranks agree on before anything moves leave the communicator usable: [`Error::TooLarge`], and a wrong root or option
    /// ([`Error::Config`]).
    ///
    /// To try again, a program makes another communicator, as all other ranks must.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.inner.exchange.has_failed()
    }

    /// Returns the members of the group, as ranks of the world, in the order of their ranks here.
    #[must_use]
    pub fn members(&self) -> &[Rank] {
        &self.inner.members
    }

    /// Returns the transport of large payloads that all ranks agreed on. It applies unless a handle sets another. If
    /// the settings of ranks differ, that of rank 0 counts.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.inner.default_request().transport
    }

    /// Runs `work`, and ends the communicator according to its result: with [`close`](Self::close) after `Ok`, with
    /// [`leave_with`](Self::leave_with) after an error, so that the other ranks learn why this rank makes no more
    /// calls.
    ///
    /// # Errors
    ///
    /// Those of the work, and of [`close`](Self::close).
    ///
    /// ```
    /// use std::{error::Error, fs, process::ExitCode};
    ///
    /// use fsgather::Communicator;
    ///
    /// fn main() -> ExitCode {
    ///     fsgather::main(|| Communicator::from_env()?.run(evaluate))
    /// }
    ///
    /// fn evaluate(world: &Communicator) -> Result<(), Box<dyn Error>> {
    ///     let model = fs::read_to_string("/dev/null")?; // if this fails, the others get the error
    ///     let sizes = world.all_gather(&model.len())?;
    ///     println!("{sizes:?}");
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn run<R, E>(self, work: impl FnOnce(&Self) -> Result<R, E>) -> Result<R, E>
    where
        E: From<Error> + fmt::Display,
    {
        let site = self.place(Location::caller());
        match work(&self) {
            Ok(result) => {
                step_aside(|| self.inner.close(site))?;
                Ok(result)
            }
            Err(error) => {
                self.leave_with(&error);
                Err(error)
            }
        }
    }

    /// Ends the communicator together with all other ranks, and leaves nothing behind.
    ///
    /// `Ok` means that every gather of this rank was read by all its recipients. Dropping a communicator gives up this
    /// knowledge, not the data: while other ranks still have to read data that only this process can provide, the
    /// process stays until nothing moves for the time-out, and names the ranks that it waits for. Closing the world
    /// ends its groups.
    ///
    /// # Errors
    ///
    /// A failure that this rank has not reported yet; [`Error::Timeout`] if some rank does not call `close`;
    /// [`Error::Config`] while results of [`gather`](Self::gather) are still being read.
    #[track_caller]
    pub fn close(self) -> Result<(), Error> {
        let site = self.place(Location::caller());
        step_aside(|| self.inner.close(site))
    }

    /// Leaves without the others, as dropping the last handle does: their calls that need this rank fail. While other
    /// ranks still have to read data that only this process can provide, the process stays until nothing moves for the
    /// time-out, and names the ranks that it waits for.
    ///
    /// For programs in which results that are still held at the end would keep the communicator.
    pub fn leave(self) {
        blocking::wherever(|| self.inner.leave(None));
    }

    /// Leaves because this rank has failed, and notifies all other ranks: their calls end with [`Error::PeerFailed`],
    /// which gives `reason` in this rank's name.
    ///
    /// For programs that give up in good order, as a panic does on its way through a communicator. It does not wait for
    /// other ranks, and takes a second or two at most to send messages and remove files. If other ranks are reading
    /// data that only this process can provide, it stays until they make no progress for 10 seconds.
    ///
    /// ```
    /// use fsgather::{Communicator, Error};
    ///
    /// let mut ranks = Communicator::threads(2)?;
    /// let (second, first) = (ranks.remove(1), ranks.remove(0));
    /// let left = std::thread::spawn(move || second.leave_with("out of memory on the device"));
    /// let told = first.barrier().unwrap_err();
    /// assert!(matches!(told, Error::PeerFailed { .. }));
    /// assert!(told.to_string().contains("out of memory on the device"));
    /// assert!(first.has_failed());
    /// left.join().unwrap();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn leave_with(self, reason: impl fmt::Display) {
        let cause = Error::config(reason.to_string());
        blocking::wherever(|| self.inner.leave(Some(cause)));
    }
}

impl<C> fmt::Debug for Communicator<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}
