//! Joining a world step by step: [`Builder`].

use std::{
    panic::Location,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use fsgather_config::{
    arguments::Arguments,
    environment::Variables,
    settings::{CompressionSetting, Control, Transport, Verify},
    words::Word,
    working_directory::absolute,
};
use fsgather_core::{
    Call, Error, Interrupt, Operation, RankNames, Site, sys::keep_standard_streams,
};
use fsgather_store::{check_compression, this_process};

use crate::{
    call::blocking::step_aside,
    codec::Postcard,
    communicator::Communicator,
    group_state::GroupState,
    join::{
        meeting::{Joined, Request, join},
        rendezvous::Rendezvous,
    },
    observer::Observer,
    payload::path_request::PathRequest,
    setup,
    speaking::speak_up,
    world_state::WorldState,
};

/// Configures a world in the program. Variables and the launcher provide all other settings.
///
/// The builder takes precedence over variables. [`build`](Self::build) reports wrong combinations.
///
/// ```
/// use fsgather::Communicator;
/// use std::time::Duration;
///
/// let communicator = Communicator::builder()
///     .rank(0)
///     .world_size(1)
///     .timeout(Duration::from_secs(60))
///     .build()?;
/// assert_eq!(communicator.world_size().get(), 1);
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    arguments: Arguments,
    rendezvous: Option<Rendezvous>,
    call_site: Option<String>,
    made_at: Option<String>,
    interrupt: Interrupt,
    sets_up_later: bool,
    moves_no_payloads: bool,
    names: RankNames,
}

impl Communicator {
    /// Joins the world that the launcher and the variables `FSGATHER_*` describe, or a world of one if they describe
    /// none.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that is not valid; [`Error::Timeout`], [`Error::Rendezvous`],
    /// [`Error::Storage`] or [`Error::NotShared`] if the ranks cannot meet.
    #[track_caller]
    pub fn from_env() -> Result<Self, Error> {
        Builder::default().build()
    }

    /// Returns a builder, which configures a world in the program; variables provide the other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets the rank of this process. Needs [`world_size`](Self::world_size).
    ///
    /// A process is one rank of a world: the world that it makes next is a new one, and ranks that look for each other
    /// in a directory or at an address do not find a rank of another world. For ranks that are threads there is
    /// [`Communicator::threads`].
    pub fn rank(mut self, rank: u32) -> Self {
        self.arguments.rank = Some(rank);
        self
    }

    /// Sets the number of ranks. Needs [`rank`](Self::rank).
    pub fn world_size(mut self, world_size: u32) -> Self {
        self.arguments.world_size = Some(world_size);
        self
    }

    /// Sets how ranks find rank 0; by default through the directory.
    ///
    /// # Examples
    ///
    /// A file as the program's own channel, for ranks that all see `path`:
    ///
    /// ```
    /// use std::{fs, path::PathBuf, thread, time::{Duration, Instant}};
    ///
    /// use fsgather::{Bootstrap, Communicator, Rendezvous};
    ///
    /// struct Note {
    ///     path: PathBuf,
    /// }
    ///
    /// impl Bootstrap for Note {
    ///     fn publish(&self, record: &[u8]) -> Result<(), String> {
    ///         // Whole or not at all: no rank must read half of it.
    ///         let draft = self.path.with_extension("draft");
    ///         fs::write(&draft, record)
    ///             .and_then(|()| fs::rename(&draft, &self.path))
    ///             .map_err(|error| error.to_string())
    ///     }
    ///
    ///     fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
    ///         loop {
    ///             match fs::read(&self.path) {
    ///                 Ok(record) => return Ok(record),
    ///                 Err(error) if Instant::now() > deadline => return Err(error.to_string()),
    ///                 Err(_) => thread::sleep(Duration::from_millis(10)),
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// # let directory = std::env::temp_dir().join(format!("fsgather-doc-{}", std::process::id()));
    /// # fs::create_dir_all(&directory).expect("a directory");
    /// # let path = directory.join("note");
    /// let join = |rank| {
    ///     Communicator::builder()
    ///         .rank(rank)
    ///         .world_size(2)
    ///         .rendezvous(Rendezvous::custom(Note { path: path.clone() }))
    /// #       .directory(&directory)
    ///         .build()
    /// };
    /// thread::scope(|scope| {
    ///     let other = scope.spawn(|| join(1)?.all_gather(&"one".to_owned()));
    ///     assert_eq!(join(0)?.all_gather(&"zero".to_owned())?, ["zero", "one"]);
    ///     other.join().expect("it does not panic").map(drop)
    /// })?;
    /// # fs::remove_dir_all(&directory).expect("our own");
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    pub fn rendezvous(mut self, rendezvous: Rendezvous) -> Self {
        let rendezvous = match rendezvous {
            Rendezvous::File(directory) => Rendezvous::File(absolute(directory)),
            other => other,
        };
        self.arguments.rendezvous = Some(rendezvous.setting());
        self.rendezvous = Some(rendezvous);
        self
    }

    /// Sets the shared directory in which `all_gather_via_filesys/` is made.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.arguments.directory = Some(directory.into());
        self
    }

    /// Sets the permissions of gather directories: 0700, or 0770 to share them within the group.
    pub fn directory_mode(mut self, mode: u32) -> Self {
        self.arguments.directory_mode = Some(mode);
        self
    }

    /// Makes a communicator for calls that move no payloads, such as barriers. It needs no directory.
    #[doc(hidden)]
    pub fn without_payloads(mut self) -> Self {
        self.moves_no_payloads = true;
        self.transport(Transport::Memory)
    }

    /// Sets the transport of large payloads.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.arguments.transport = Some(transport);
        self
    }

    /// Sets the transport of control messages.
    pub fn control(mut self, control: Control) -> Self {
        self.arguments.control = Some(control);
        self
    }

    /// Sets the time without any progress after which a call fails. The time-out of rank 0 applies to all ranks.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.arguments.timeout = Some(timeout);
        self
    }

    /// Sets the maximum duration of the meeting.
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.arguments.join_timeout = Some(timeout);
        self
    }

    /// Sets the maximum size of a payload that travels with the control messages, in bytes; never more than 4 MiB
    /// together.
    pub fn inline_limit(mut self, bytes: u64) -> Self {
        self.arguments.inline_limit = Some(bytes);
        self
    }

    /// Sets whether payload files of this rank are compressed; by default they are not. Compression pays on a network file
    /// system, for example, and needs the cargo feature `zstd` on all ranks. Payloads that travel by TCP are not compressed.
    ///
    /// ```
    /// use fsgather::{Communicator, CompressionSetting};
    ///
    /// let builder = Communicator::builder().compression(CompressionSetting::Zstd);
    /// # drop(builder);
    /// ```
    pub fn compression(mut self, compression: CompressionSetting) -> Self {
        self.arguments.compression = Some(compression);
        self
    }

    /// Sets which payloads are verified by checksums; by default those that have travelled. If ranks choose
    /// differently, the strictest choice applies to all.
    ///
    /// With [`Verify::Host`] a payload is not hashed if all ranks run on one host, under one kernel, and the payload
    /// stays in the memory of that host or in a directory on one of its file systems. Its name, header, length and
    /// footer identify it.
    pub fn verify(mut self, verify: Verify) -> Self {
        self.arguments.verify = Some(verify);
        self
    }

    /// Sets a name that distinguishes jobs that share a directory.
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.arguments.job = Some(job.into());
        self
    }

    /// Sets the argument of this name to a value of another language. For our Python package.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the name or the value is not valid.
    #[doc(hidden)]
    pub fn argument(mut self, name: &str, word: Word) -> Result<Self, Error> {
        self.arguments.take(name, word)?;
        Ok(self)
    }

    /// Sets the name of the place of this communicator's calls in messages, which replaces their places in the program.
    /// For commands, whose users know command lines rather than sources.
    pub fn call_site(mut self, name: impl Into<String>) -> Self {
        self.call_site = Some(name.into());
        self
    }

    /// Sets the name of the place where this communicator is made, for messages. For bindings, whose users know the
    /// places of their own language.
    #[doc(hidden)]
    pub fn made_at(mut self, name: impl Into<String>) -> Self {
        self.made_at = Some(name.into());
        self
    }

    /// Sets the names of the ranks in messages, if the world is a part of a job. For bindings, which also use them for
    /// [errors](RankNames::of_error).
    #[doc(hidden)]
    pub fn name_ranks(mut self, names: &RankNames) -> Self {
        self.names = names.clone();
        self
    }

    /// Sets a switch that ends the meeting, and all calls after it, from another thread; or from the waiting thread, if
    /// the switch is one that the thread [polls](Interrupt::polled_by).
    ///
    /// The meeting polls the switch at its beginning and while it waits for other ranks, but not inside the functions
    /// of a [`Bootstrap`](crate::Bootstrap). Closing polls it as long as it waits for other ranks. Dropping a
    /// communicator does not poll it.
    pub fn interrupt(mut self, interrupt: &Interrupt) -> Self {
        self.interrupt = interrupt.clone();
        self
    }

    /// Delays the agreement on the places of payloads until the first call of all ranks, and until each group is made.
    /// Until then the world touches no directory for payloads, and only knows its ranks. All ranks must choose alike.
    ///
    /// For programs that make a world long before they know if any payload will be moved.
    pub fn set_up_later(mut self) -> Self {
        self.sets_up_later = true;
        self
    }

    /// Meets the other ranks and agrees with them on the places of payloads.
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::from_env`], and [`Error::Config`] for a wrong combination.
    #[track_caller]
    pub fn build(self) -> Result<Communicator, Error> {
        let site = match self.made_at.as_ref().or(self.call_site.as_ref()) {
            Some(name) => Site::named(name),
            None => Site::of(Location::caller()),
        };
        step_aside(|| self.join(&site)).inspect_err(fsgather_config::error_file::record)
    }

    fn join(self, site: &Site) -> Result<Communicator, Error> {
        keep_standard_streams();
        let came = SystemTime::now();
        let variables = Variables::of_process();
        let settings = self.arguments.settle(&variables)?;
        check_compression(settings.compression.value)?;
        speak_up(&variables, Some(settings.detection.rank));
        if settings.detection.rank.get() == 0 {
            for warning in &settings.warnings {
                fsgather_core::warn!("{warning}");
            }
            if let Some(warning) = settings.detection.warning.clone() {
                setup::warn_once(warning);
            }
        }
        tracing::info!("{}", settings.detection.summary());
        settings.log();
        let process = this_process()?;
        if settings.detection.world_size.is_solo() {
            return Ok(Communicator::from_inner(
                GroupState::solo(process),
                Postcard,
            ));
        }
        let request = PathRequest {
            transport: settings.transport.value,
            directory: None,
        };
        let inline_limit = settings.inline_limit.value;
        let compression = settings.compression.value;
        let verify = settings.verify.value;
        let shared_memory = settings.shared_memory.value;
        let trace = settings.trace.value;
        // A fault of a background thread ends this world, but nothing else that the program ends by its switch.
        let interrupt = self.interrupt.child();
        let Joined {
            exchange,
            communicator,
            processes,
            context,
        } = join(Request {
            settings,
            variables: &variables,
            rendezvous: self.rendezvous,
            process,
            interrupt: interrupt.clone(),
        })?;
        exchange.name_ranks(&self.names);
        let rank = exchange.rank();
        let mut world = WorldState::new(
            communicator,
            rank,
            processes,
            inline_limit,
            request.clone(),
            context,
        );
        world.observer = Observer::of_rank(rank, &self.names, &world.processes);
        world.sets_up_later = self.sets_up_later;
        world.moves_no_payloads = self.moves_no_payloads;
        world.compression = compression;
        world.verify = verify;
        world.shared_memory.setting = shared_memory;
        world.call_site = self.call_site.map(Site::named);
        world.interrupt = interrupt;
        let inner = GroupState::of_world(exchange, world);
        let keep_calls = || Observer::keep(&inner, trace, came, &self.names);
        if self.sets_up_later {
            // Ranks arrive here at their first calls, so that others may wait for them for long.
            keep_calls();
            // Either all ranks have it, or none.
            let call = Call::new(Operation::Meet, site.clone());
            setup::agree_on_transport(&inner, &request, call)?;
        } else {
            let call = Call::new(Operation::SetUp, site.clone());
            setup::settle(&inner, &request, &call)?;
        }
        let call = Call::new(Operation::SetUp, site.clone());
        setup::share_memory(&inner, &call)?;
        if !self.sets_up_later {
            keep_calls();
        }
        Ok(Communicator::from_inner(inner, Postcard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_before_still_holds_once_places_are_named() {
        let asked = || Communicator::builder().directory("/shared");
        let places = asked().call_site("fsgather barrier").made_at("eval.py:3");
        assert_eq!(places.call_site.as_deref(), Some("fsgather barrier"));
        assert_eq!(places.made_at.as_deref(), Some("eval.py:3"));
        let arguments = |builder: Builder| format!("{:?}", builder.arguments);
        assert_eq!(arguments(places), arguments(asked()));
    }

    #[test]
    fn unsupported_compression_is_refused_before_ranks_meet() {
        let made = Communicator::builder()
            .compression(CompressionSetting::Zstd)
            .build();
        if cfg!(feature = "zstd") {
            assert!(made.is_ok());
        } else {
            let error = made.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("cargo feature `zstd`"), "{error}");
        }
    }
}
