//! Joining a world step by step: [`Builder`].

use std::{
    net::IpAddr,
    panic::Location,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fsgather_control::{means_loopback_only, meet};
use fsgather_core::{Call, Error, Interrupt, Operation, Phase, ProcessId, Site, Solo, Start};
use fsgather_store::{liveness, this_process};

use crate::{
    blocking::step_aside,
    codec::Postcard,
    communicator::Communicator,
    ground::LinkSettings,
    inner::Inner,
    last_error,
    ledger::Ledger,
    meeting::{self, Prepared},
    place::Place,
    progress::{self, Report},
    rendezvous::Rendezvous,
    route::Route,
    set_up, start,
    world::World,
};
use fsgather_config::{
    environment::Variables,
    settings::{
        CompressionSetting, Control, DirMode, RendezvousSetting, Setting, Settings, Transport,
    },
};

/// Says some things about a world in the program; variables and the launcher say the rest.
///
/// What is said here wins over variables. Wrong combinations are reported by [`build`](Self::build).
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
    rank: Option<u32>,
    world_size: Option<u32>,
    rendezvous: Option<Rendezvous>,
    directory: Option<PathBuf>,
    directory_mode: Option<u32>,
    transport: Option<Transport>,
    control: Option<Control>,
    timeout: Option<Duration>,
    join_timeout: Option<Duration>,
    inline_limit: Option<u64>,
    compression: Option<CompressionSetting>,
    job: Option<String>,
    call_site: Option<String>,
    interrupt: Interrupt,
    is_for_diagnosis: bool,
    sets_up_later: bool,
}

impl Builder {
    /// Which rank this process is. Needs [`world_size`](Self::world_size).
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    /// How many ranks there are. Needs [`rank`](Self::rank).
    pub fn world_size(mut self, world_size: u32) -> Self {
        self.world_size = Some(world_size);
        self
    }

    /// How ranks find rank 0; by default through the directory.
    pub fn rendezvous(mut self, rendezvous: Rendezvous) -> Self {
        self.rendezvous = Some(rendezvous);
        self
    }

    /// The shared directory in which `all_gather_via_filesys/` is made.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// The permissions of gather directories: 0700, or 0770 to share within the group.
    pub fn directory_mode(mut self, mode: u32) -> Self {
        self.directory_mode = Some(mode);
        self
    }

    /// How large payloads travel.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// How ranks talk.
    pub fn control(mut self, control: Control) -> Self {
        self.control = Some(control);
        self
    }

    /// How long nothing may move before a call fails. Rank 0's counts.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long meeting may take.
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.join_timeout = Some(timeout);
        self
    }

    /// Payloads up to this many bytes travel with the control messages; never more than 4 MiB together.
    pub fn inline_limit(mut self, bytes: u64) -> Self {
        self.inline_limit = Some(bytes);
        self
    }

    /// How payload files of this rank are compressed; not at all by default. It pays where bytes are dear,
    /// such as on a network file system, and needs the cargo feature `lz4` or `zstd` on all ranks.
    ///
    /// ```
    /// use fsgather::{Communicator, CompressionSetting};
    ///
    /// let builder = Communicator::builder().compression(CompressionSetting::Zstd { level: 3 });
    /// # drop(builder);
    /// ```
    pub fn compression(mut self, compression: CompressionSetting) -> Self {
        self.compression = Some(compression);
        self
    }

    /// A name that tells jobs apart which share a directory.
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.job = Some(job.into());
        self
    }

    /// What messages call the place of this communicator's calls, instead of their places in the
    /// program; for commands, whose users know command lines rather than sources.
    pub fn call_site(mut self, name: impl Into<String>) -> Self {
        self.call_site = Some(name.into());
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

    /// Meets the others although this rank may not be able to use the directory, and warns of nothing that
    /// a diagnosis tells anyway.
    pub(crate) fn for_diagnosis(mut self) -> Self {
        self.is_for_diagnosis = true;
        self
    }

    /// Meets the other ranks and agrees with them on where payloads go.
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::from_env`], and [`Error::Config`] for a wrong combination.
    #[track_caller]
    pub fn build(self) -> Result<Communicator, Error> {
        let site = match &self.call_site {
            Some(name) => Site::named(name),
            None => Site::of(Location::caller()),
        };
        let is_tried = self.is_for_diagnosis;
        progress::leave(&Report::outside(Phase::Joining));
        let joined = step_aside(|| self.join(&site));
        progress::leave(&Report::outside(Phase::Computing));
        joined.inspect_err(|failure| {
            if !is_tried {
                last_error::note(failure);
            }
        })
    }

    fn join(self, site: &Site) -> Result<Communicator, Error> {
        let variables = Variables::of_process();
        let mut settings = self.settings(&variables)?;
        let is_root = settings.detection.rank.get() == 0;
        let warns = is_root && !self.is_for_diagnosis;
        for warning in settings.warnings.iter().filter(|_| warns) {
            tracing::warn!("{warning}");
        }
        tracing::info!("{}", settings.detection.summary());
        if let Some(warning) = &settings.detection.warning {
            tracing::warn!("{warning}");
        }
        if !self.is_for_diagnosis {
            settings.log();
        }
        let rendezvous = self.rendezvous.clone().or_else(|| {
            let setting = settings.rendezvous.value.as_ref()?;
            Some(match setting {
                RendezvousSetting::File(directory) => Rendezvous::File(directory.clone()),
                RendezvousSetting::Tcp { host, port } => Rendezvous::Tcp(format!("{host}:{port}")),
            })
        });
        let process = this_process()?;
        if settings.detection.world_size.is_solo() {
            let exchange = Solo::new(process.host.clone(), process.pid);
            let inner = Inner::in_memory(Box::new(exchange), vec![process]);
            return Ok(Communicator::from_inner(inner, Postcard));
        }
        let uid = rustix::process::geteuid().as_raw();
        let is_introduced = matches!(rendezvous, Some(Rendezvous::Custom(_)));
        // A secret that several jobs have tells them apart only where each has a port of its own.
        let has_own_port = matches!(rendezvous, Some(Rendezvous::Tcp(_)));
        let knows_its_own = is_introduced || has_own_port && settings.secret.value.is_some();
        let found = (!knows_its_own).then(|| start::find(&mut settings, &variables, &process));
        let (start, rival) = found.unwrap_or_default();
        let key = settings.job_key(uid, next_number(is_introduced));
        let mut prepared = meeting::prepare(&settings, rendezvous.as_ref(), &key, &process)?;
        prepared.ground.problem = prepared.ground.problem.or(rival);
        if self.is_for_diagnosis {
            prepared.ground.problem = None;
        }
        let introduction = prepared.introduction.clone();
        let config = self.config(&settings, process, start, &mut prepared);
        let links = LinkSettings {
            ports: config.ports.clone(),
            interfaces: Arc::clone(&config.interfaces),
            patience: config.patience,
            network_namespace: config.network_namespace,
        };
        let joined = meet::join(&config).inspect_err(|failure| {
            if let Some(introduction) = &introduction {
                introduction.refuse(&config.process, config.world_size, failure);
            }
        });
        let joined = joined?;
        let route = Route {
            transport: settings.transport.value,
            directory: None,
        };
        let mut ground = prepared.ground;
        if let (Some(start), false) = (start, self.is_for_diagnosis) {
            // What is found is told to the others as part of the set-up, before anything is handed over.
            let found = start::check(
                &settings,
                &variables,
                start,
                &config.process,
                &joined.processes,
            );
            ground.problem = ground.problem.or(found.err());
        }
        ground.links = joined.is_networked.then_some(links);
        let mut world = World::new(
            joined.communicator,
            joined.exchange.rank(),
            joined.processes,
            settings.inline_limit.value,
            route.clone(),
            ground,
        );
        world.ledger = Ledger::of_rank();
        world.sets_up_later = self.sets_up_later;
        world.compression = settings.compression.value;
        world.call_site = self.call_site.map(Site::named);
        world.interrupt = self.interrupt;
        let inner = Inner::of_world(joined.exchange, world);
        if self.is_for_diagnosis {
            // What is found is told on the way that works wherever ranks have met.
            inner.places.keep(route.clone(), Place::Relay);
            inner.world.settle(Place::Relay);
        } else if self.sets_up_later {
            // Either all ranks have it, or none.
            let call = Call::new(Operation::Meet, site.clone());
            set_up::agree_on_transport(&inner, &route, call)?;
        } else {
            let call = Call::new(Operation::SetUp, site.clone());
            set_up::settle(&inner, &route, &call)?;
        }
        Ok(Communicator::from_inner(inner, Postcard))
    }

    /// What the control plane has to know.
    fn config(
        &self,
        settings: &Settings,
        process: ProcessId,
        start: Option<Start>,
        prepared: &mut Prepared,
    ) -> meet::Config {
        let interfaces = settings.interfaces.value.clone();
        let is_at_home = matches!(
            &prepared.meeting, meet::Meeting::Address { host, .. } if means_loopback_only(host)
        );
        let own = process.clone();
        let job = settings.job.value.as_ref();
        let attempt = settings.detection.attempt.as_ref();
        meet::Config {
            rank: settings.detection.rank,
            world_size: settings.detection.world_size,
            network_namespace: network_namespace(),
            job: job.map_or_else(|| "an unnamed job".into(), |job| format!("job {job}")),
            patience: settings.timeout.value,
            join_patience: match (&prepared.ground.problem, &prepared.introduction) {
                (None, None) => settings.join_timeout.value,
                (None, Some(introduction)) => introduction.left_of(settings.join_timeout.value),
                (Some(_), _) => settings.join_timeout.value.min(TELL_PROBLEM),
            },
            ports: settings.port.value.ports(),
            // Ranks that meet on the loopback of their host have their links there as well.
            interfaces: Arc::new(move |name: &str, address: IpAddr| {
                if is_at_home {
                    address.is_loopback()
                } else {
                    interfaces.matches(name, address)
                }
            }),
            meeting: prepared.meeting.clone(),
            bond: prepared.bond.clone(),
            encrypt: settings.encrypt.value,
            control: match settings.control.value {
                Control::Auto => meet::Control::Auto,
                Control::Tcp => meet::Control::Tcp,
                Control::Markers => meet::Control::Markers,
            },
            office: prepared.office.take(),
            interrupt: self.interrupt.clone(),
            is_running: Arc::new(move |process: &ProcessId| !liveness(process, &own).has_ended()),
            process,
            start,
            attempt: attempt.and_then(|count| count.trim().parse().ok()),
            problem: prepared.ground.problem.clone(),
        }
    }

    /// Variables, with what was said here on top.
    pub(crate) fn settings(&self, variables: &Variables) -> Result<Settings, Error> {
        let mut settings = match (self.rank, self.world_size) {
            (Some(rank), Some(world_size)) => {
                let world_size = fsgather_core::WorldSize::new(world_size)?;
                Settings::resolve_as(world_size.rank(rank)?, world_size, variables)?
            }
            (None, None) => Settings::resolve(variables)?,
            (Some(_), None) => {
                return Err(Error::config(
                    "a rank was given without a world size; give both or neither",
                ));
            }
            (None, Some(_)) => {
                return Err(Error::config(
                    "a world size was given without a rank; give both or neither",
                ));
            }
        };
        if self.timeout.is_some_and(|timeout| timeout.is_zero())
            || self.join_timeout.is_some_and(|timeout| timeout.is_zero())
        {
            return Err(Error::config(
                "a time-out of 0 would fail every call; give a longer one",
            ));
        }
        set(&mut settings.transport, self.transport);
        set(&mut settings.control, self.control);
        set(&mut settings.timeout, self.timeout);
        set(&mut settings.join_timeout, self.join_timeout);
        set(&mut settings.inline_limit, self.inline_limit);
        set(&mut settings.compression, self.compression);
        settings.compression.value.check()?;
        set(&mut settings.directory, self.directory.clone().map(Some));
        set(&mut settings.job, self.job.clone().map(Some));
        let rendezvous = self.rendezvous.as_ref();
        set(
            &mut settings.rendezvous,
            rendezvous.map(Rendezvous::setting),
        );
        if let Some(mode) = self.directory_mode {
            let mode = DirMode::new(mode).ok_or_else(|| {
                Error::config(format!(
                    "directory mode {mode:04o} does not give everything to the owner and nothing to strangers; \
                     use 0700 or 0770"
                ))
            })?;
            set(&mut settings.dir_mode, Some(mode));
        }
        Ok(settings)
    }
}

fn set<T>(setting: &mut Setting<T>, argument: Option<T>) {
    if let Some(value) = argument {
        *setting = Setting::argument(value);
    }
}

/// How long a rank that cannot use the directory tries to tell the others so.
const TELL_PROBLEM: Duration = Duration::from_secs(5);

/// Communicators of one process are numbered in the order in which they are made.
///
/// Those whose ranks are introduced to each other have numbers of their own: not all ranks of a job make them, and the
/// numbers by which ranks look for each other in a directory must be the same on all.
fn next_number(is_introduced: bool) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static NEXT_INTRODUCED: AtomicU32 = AtomicU32::new(1 << 31);
    let next = if is_introduced {
        &NEXT_INTRODUCED
    } else {
        &NEXT
    };
    next.fetch_add(1, Ordering::Relaxed)
}

/// The inode of this process's network namespace; 0 when unknown.
pub(crate) fn network_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino())
}

/// This process, or as much of it as can be told.
pub(crate) fn process_or_unknown() -> ProcessId {
    this_process().unwrap_or_else(|error| {
        tracing::debug!("this process is not fully known: {error}");
        ProcessId {
            host: "this host".into(),
            pid: std::process::id(),
            ..ProcessId::default()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fsgather_config::settings::Origin;

    #[test]
    fn compression_is_taken_from_the_program_before_the_variable() {
        let variables = Variables::from_iter([("FSGATHER_COMPRESS", "none")]);
        let said = Builder::default().compression(CompressionSetting::None);
        let settings = said.settings(&variables).unwrap();
        assert_eq!(settings.compression.origin, Origin::Argument);
        let settings = Builder::default().settings(&variables).unwrap();
        assert_eq!(
            settings.compression.origin,
            Origin::Variable("FSGATHER_COMPRESS")
        );
    }

    #[test]
    fn compression_that_cannot_be_had_is_refused_before_ranks_meet() {
        let wrong = CompressionSetting::Zstd { level: 23 };
        let wrong = Builder::default().compression(wrong);
        let error = wrong.settings(&Variables::default()).unwrap_err();
        assert!(error.to_string().contains("zstd"), "{error}");
        for (text, has_it) in [
            ("lz4", cfg!(feature = "lz4")),
            ("zstd", cfg!(feature = "zstd")),
        ] {
            let variables = Variables::from_iter([("FSGATHER_COMPRESS", text)]);
            match Builder::default().settings(&variables) {
                Ok(_) => assert!(has_it, "{text}"),
                Err(error) => {
                    assert!(
                        error
                            .to_string()
                            .contains(&format!("cargo feature `{text}`"))
                    );
                    assert!(!has_it, "{text}");
                }
            }
        }
    }
}
