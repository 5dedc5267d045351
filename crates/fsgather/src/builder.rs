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

/// Says some things about a world in the program; variables and the launcher say the rest.
///
/// The builder takes precedence over variables. Wrong combinations are reported by [`build`](Self::build).
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
    /// Joins the world that the launcher and the variables `FSGATHER_*` describe; a world of one when
    /// there is nothing to be found.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a variable that cannot be understood, and whatever keeps the ranks from
    /// meeting: [`Error::Timeout`], [`Error::Rendezvous`], [`Error::Storage`], [`Error::NotShared`].
    #[track_caller]
    pub fn from_env() -> Result<Self, Error> {
        Builder::default().build()
    }

    /// Joins a world of which some things are said in the program; variables say the rest.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Which rank this process is. Needs [`world_size`](Self::world_size).
    ///
    /// A process is one rank of a world: what it makes next belongs to the next world, and ranks that look for each other in a
    /// directory or at an address do not find one of another world. For ranks that are threads there is
    /// [`Communicator::threads`].
    pub fn rank(mut self, rank: u32) -> Self {
        self.arguments.rank = Some(rank);
        self
    }

    /// How many ranks there are. Needs [`rank`](Self::rank).
    pub fn world_size(mut self, world_size: u32) -> Self {
        self.arguments.world_size = Some(world_size);
        self
    }

    /// How ranks find rank 0; by default through the directory.
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
    ///         // Whole or not at all: nobody must read half of it.
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

    /// The shared directory in which `all_gather_via_filesys/` is made.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.arguments.directory = Some(directory.into());
        self
    }

    /// The permissions of gather directories: 0700, or 0770 to share within the group.
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

    /// How large payloads travel.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.arguments.transport = Some(transport);
        self
    }

    /// How ranks talk.
    pub fn control(mut self, control: Control) -> Self {
        self.arguments.control = Some(control);
        self
    }

    /// Time for which nothing may move before a call fails. Rank 0's counts.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.arguments.timeout = Some(timeout);
        self
    }

    /// Maximum time that meeting may take.
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.arguments.join_timeout = Some(timeout);
        self
    }

    /// Payloads up to this many bytes travel with the control messages; never more than 4 MiB together.
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

    /// Which payloads are verified by checksums; by default those that have travelled. Of what ranks say the strictest
    /// counts.
    ///
    /// With [`Verify::Host`] a payload is not hashed whose ranks all run on one host, under one kernel, and that stays in
    /// its memory or in a directory on a file system of that host: it is known by its name, header, length and footer.
    pub fn verify(mut self, verify: Verify) -> Self {
        self.arguments.verify = Some(verify);
        self
    }

    /// A name that tells jobs apart which share a directory.
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.arguments.job = Some(job.into());
        self
    }

    /// The argument of this name, as a program of another language says it. For our Python package.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a name or a value that is none.
    #[doc(hidden)]
    pub fn argument(mut self, name: &str, word: Word) -> Result<Self, Error> {
        self.arguments.take(name, word)?;
        Ok(self)
    }

    /// The name that messages give to the place of this communicator's calls, instead of their places in the
    /// program; for commands, whose users know command lines rather than sources.
    pub fn call_site(mut self, name: impl Into<String>) -> Self {
        self.call_site = Some(name.into());
        self
    }

    /// What messages call the place where this communicator is made; for bindings, whose users know the places of their
    /// own language.
    #[doc(hidden)]
    pub fn made_at(mut self, name: impl Into<String>) -> Self {
        self.made_at = Some(name.into());
        self
    }

    /// What messages call the ranks, where the world is a part of a job; for bindings, which have [errors told](RankNames::of_error)
    /// so as well.
    #[doc(hidden)]
    pub fn name_ranks(mut self, names: &RankNames) -> Self {
        self.names = names.clone();
        self
    }

    /// A switch that ends meeting, and all calls after it, from another thread; or from the one that waits,
    /// if it is one that [is asked](Interrupt::polled_by).
    ///
    /// Meeting asks at its beginning and while it waits for the others; what a [`Bootstrap`](crate::Bootstrap)
    /// does meanwhile is its own business. Closing asks as long as it waits for the others. Dropping a
    /// communicator asks nobody.
    pub fn interrupt(mut self, interrupt: &Interrupt) -> Self {
        self.interrupt = interrupt.clone();
        self
    }

    /// Leaves it to the first call of all ranks, and to each group, to agree on where payloads go. Until then the world
    /// touches no directory for them, and only knows who is there. All ranks have to say the same.
    ///
    /// For programs that make a world long before they know whether anything is going to be moved.
    pub fn set_up_later(mut self) -> Self {
        self.sets_up_later = true;
        self
    }

    /// Meets the other ranks and agrees with them on where payloads go.
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
        // A fault of a background thread ends this world, not what else the program ends by its switch.
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
        if self.sets_up_later {
            // Either all ranks have it, or none.
            let call = Call::new(Operation::Meet, site.clone());
            setup::agree_on_transport(&inner, &request, call)?;
        } else {
            let call = Call::new(Operation::SetUp, site.clone());
            setup::settle(&inner, &request, &call)?;
        }
        let call = Call::new(Operation::SetUp, site.clone());
        setup::share_memory(&inner, &call)?;
        Observer::keep(&inner, trace, came, &self.names);
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
