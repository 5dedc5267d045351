//! All settings of a communicator, from what variables and launchers say: [`Settings`].
//!
//! For each the order is: argument, our own variable, the Python original's variable, what the launcher
//! says, default. Everything here is a pure function over [`Variables`]; what an argument says replaces a
//! field afterwards, with [`Setting::argument`].

mod choice;
mod entries;
mod interfaces;
mod parse;
mod ports;
mod read;
mod secret;
mod setting;
#[cfg(test)]
mod tests;

pub use choice::{Control, Progress, Transport};
pub use fsgather_store::CompressionSetting;
pub use interfaces::InterfaceFilter;
pub use parse::{DirMode, RendezvousSetting};
pub use ports::PortRange;
pub use secret::Secret;
pub use setting::{Origin, Setting};

use std::{path::PathBuf, time::Duration};

use fsgather_core::{Error, JobKey, Rank, WorldSize};

use self::read::Reader;
use crate::{
    environment::{self, Variables},
    launcher::{self, Detection},
};

/// How long ranks wait for each other to meet, when nobody says otherwise.
pub const DEFAULT_JOIN_TIMEOUT: Duration = Duration::from_mins(5);

/// How long a call waits since anything last moved, when nobody says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

/// The largest payload that makes no file, in bytes, when nobody says otherwise.
pub const DEFAULT_INLINE_LIMIT: u64 = 64 << 10;

/// All inline payloads of one call together are at most this long, in bytes.
const MOST_INLINE: u64 = 4 << 20;

/// What a member must know to join, as far as the environment says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSetting {
    /// The secret itself.
    Given(Secret),
    /// A file that holds it, in a form that [`Secret::parse`] reads. It has not been opened yet.
    File(PathBuf),
}

/// The settings of a communicator, each with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Who this rank is.
    pub detection: Detection,
    /// The number of this process among the ranks on its host, as detected.
    pub local_rank: Setting<Option<u32>>,
    /// How many ranks there are on this host, as detected.
    pub local_size: Setting<Option<u32>>,
    /// Where `all_gather_via_filesys/` is made. `None`: nobody said, and the default depends on the host.
    pub directory: Setting<Option<PathBuf>>,
    /// The mode of gather directories.
    pub dir_mode: Setting<DirMode>,
    /// The way payloads take.
    pub transport: Setting<Transport>,
    /// Whether the function `all_gather` returns the list on rank 0 only.
    pub root_only: Setting<bool>,
    /// How ranks talk to each other.
    pub control: Setting<Control>,
    /// Where ranks meet. `None`: in the directory.
    pub rendezvous: Setting<Option<RendezvousSetting>>,
    /// What tells this job apart from others; the launcher's job id if nobody says otherwise.
    pub job: Setting<Option<String>>,
    /// What members must know to join besides what rank 0 draws. `None`: nothing; at an address it is derived.
    pub secret: Setting<Option<SecretSetting>>,
    /// Whether nothing may go over a network in plain text by any way. Connections between hosts never do.
    pub encrypt: Setting<bool>,
    /// How long ranks wait for each other to meet.
    pub join_timeout: Setting<Duration>,
    /// How long a call waits since anything last moved.
    pub timeout: Setting<Duration>,
    /// Where to listen.
    pub port: Setting<PortRange>,
    /// Which addresses to publish.
    pub interfaces: Setting<InterfaceFilter>,
    /// The largest payload that makes no file, in bytes, before [`Settings::inline_bound`] limits it.
    pub inline_limit: Setting<u64>,
    /// How payload files of this rank are compressed. Whether this build can do so is not checked here.
    pub compression: Setting<CompressionSetting>,
    /// A `tracing` filter; not checked here.
    pub log: Setting<String>,
    /// Whether long work shows how far it has come.
    pub progress: Setting<Progress>,
    /// What is worth a warning: unknown variables with names like ours.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Resolves all settings, and finds out who this rank is from the launcher's variables.
    ///
    /// ```
    /// use fsgather_config::{environment::Variables, settings::{Origin, Settings, Transport}};
    ///
    /// let settings = Settings::resolve(&Variables::from_iter([
    ///     ("MDETR_FILESYS_REDUCE", "1"),
    ///     ("FSGATHER_TIMEOUT", "2h"),
    /// ]))?;
    /// assert_eq!(settings.transport.value, Transport::Filesys);
    /// assert_eq!(settings.transport.origin, Origin::Variable("MDETR_FILESYS_REDUCE"));
    /// assert_eq!(settings.timeout.value.as_secs(), 7200);
    /// # Ok::<(), fsgather_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a value that cannot be understood, naming variable, text and an example of a
    /// right one, and whatever [`launcher::detect`] refuses.
    pub fn resolve(variables: &Variables) -> Result<Self, Error> {
        variables.check_text()?;
        Self::of(launcher::detect(variables)?, variables)
    }

    /// Resolves all settings of a program that names rank and world size itself, so that no launcher is
    /// asked.
    ///
    /// # Errors
    ///
    /// Those of [`Settings::resolve`], except what launchers are refused for; and [`Error::Config`] for a
    /// rank outside of the world.
    pub fn resolve_as(
        rank: Rank,
        world_size: WorldSize,
        variables: &Variables,
    ) -> Result<Self, Error> {
        variables.check_text()?;
        Self::of(launcher::explicit(variables, rank, world_size)?, variables)
    }

    /// All that is wrong with these variables, not only what [`Settings::resolve`] finds first.
    ///
    /// ```
    /// use fsgather_config::{environment::Variables, settings::Settings};
    ///
    /// let wrong = Settings::errors(&Variables::from_iter([
    ///     ("FSGATHER_TIMEOUT", "30"),
    ///     ("FSGATHER_PORT", "ssh"),
    /// ]));
    /// assert_eq!(wrong.len(), 2);
    /// ```
    #[must_use]
    pub fn errors(variables: &Variables) -> Vec<Error> {
        // Whether numbers of ranks fit is a matter of several variables, which only `resolve` looks at.
        let nobody = launcher::explicit(&Variables::default(), Rank::ZERO, WorldSize::ONE);
        let mut errors: Vec<Error> = environment::ALL
            .iter()
            .filter_map(|variable| Self::of(nobody.clone().ok()?, &variables.only(variable)).err())
            .collect();
        if let Err(error) = Self::resolve(variables)
            && !errors.contains(&error)
        {
            errors.push(error);
        }
        errors
    }

    fn of(detection: Detection, variables: &Variables) -> Result<Self, Error> {
        let reader = Reader(variables);
        Ok(Self {
            local_rank: read::local(
                variables,
                environment::LOCAL_RANK,
                &detection,
                detection.local_rank,
            ),
            local_size: read::local(
                variables,
                environment::LOCAL_WORLD_SIZE,
                &detection,
                detection.local_size,
            ),
            directory: read::directory(variables),
            dir_mode: reader.or(
                environment::DIR_MODE,
                DirMode::parse,
                "is not a mode that gives everything to the owner and nothing to strangers",
                "0770",
                DirMode::PRIVATE,
            )?,
            transport: read::transport(reader)?,
            root_only: read::root_only(reader)?,
            control: reader.choice(environment::CONTROL, "is not auto, tcp or markers", "tcp")?,
            rendezvous: reader.optional(
                environment::RENDEZVOUS,
                RendezvousSetting::parse,
                "is neither file://DIR nor tcp://HOST:PORT",
                "tcp://node1:60001",
            )?,
            job: read::job(variables, &detection),
            secret: read::secret(variables)?,
            encrypt: reader.or(
                environment::ENCRYPT,
                parse::switch,
                "is neither 0 nor 1",
                "1",
                false,
            )?,
            join_timeout: reader.duration(environment::JOIN_TIMEOUT, "5m", DEFAULT_JOIN_TIMEOUT)?,
            timeout: reader.duration(environment::TIMEOUT, "30m", DEFAULT_TIMEOUT)?,
            port: reader.or(
                environment::PORT,
                PortRange::parse,
                "is neither 0, nor a port, nor a range of ports",
                "60001-60999",
                PortRange::ANY,
            )?,
            interfaces: reader.or(
                environment::INTERFACE,
                InterfaceFilter::parse,
                "is no list of interfaces and address blocks",
                "ib0,10.1.0.0/16",
                InterfaceFilter::any(),
            )?,
            inline_limit: reader.or(
                environment::INLINE_LIMIT,
                parse::size,
                "is not a size",
                "64KiB",
                DEFAULT_INLINE_LIMIT,
            )?,
            compression: reader.or(
                environment::COMPRESS,
                |text| text.parse().ok(),
                "is not none, lz4, zstd or zstd:LEVEL with a level from -131072 to 22",
                "zstd:3",
                CompressionSetting::None,
            )?,
            log: reader.or(
                environment::LOG,
                |text| Some(text.to_owned()),
                "is not a filter",
                "fsgather=debug",
                "warn".to_owned(),
            )?,
            progress: reader.choice(environment::PROGRESS, "is not auto or off", "off")?,
            warnings: variables.warnings(),
            detection,
        })
    }

    /// The largest payload that makes no file in a world of this size, in bytes: the setting, or less when
    /// all ranks' payloads together would come to more than 4 MiB.
    #[must_use]
    pub fn inline_bound(&self, world_size: WorldSize) -> u64 {
        let share = MOST_INLINE / u64::from(world_size.get());
        self.inline_limit.value.min(share)
    }

    /// Whether this job has a name that no other one has at the same time.
    #[must_use]
    pub fn has_own_name(&self) -> bool {
        match self.job.origin {
            Origin::Argument | Origin::Variable(_) => self.job.value.is_some(),
            Origin::Launcher(_) | Origin::Default => self.detection.has_own_id,
        }
    }

    /// Takes over what the launcher's process, rather than its variables, says of the job.
    pub fn take_launched_job(&mut self, job: String) {
        if matches!(self.job.origin, Origin::Launcher(_) | Origin::Default) {
            self.job = Setting {
                value: Some(job.clone()),
                origin: Origin::Launcher(self.detection.family),
            };
        }
        self.detection.job = Some(job);
        self.detection.has_own_id = true;
    }

    /// Whether the program itself, rather than a variable, has said where its ranks meet.
    #[must_use]
    pub fn has_said_where(&self) -> bool {
        self.directory.origin == Origin::Argument || self.rendezvous.origin == Origin::Argument
    }

    /// What tells this world apart before its ranks have met.
    ///
    /// `number` is that of the communicator within its process, `uid` the user.
    #[must_use]
    pub fn job_key(&self, uid: u32, number: u32) -> JobKey {
        JobKey {
            uid,
            family: self.detection.family.key().to_owned(),
            job: self.job.value.clone(),
            // Agents of torchrun count restarts each for itself.
            attempt: self
                .detection
                .attempt
                .clone()
                .filter(|_| self.detection.family != launcher::Family::Torchrun),
            world_size: self.detection.world_size,
            number,
            master: self.detection.master_for_key(),
        }
    }
}
