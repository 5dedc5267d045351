//! All settings of a communicator, from what variables and launchers say: [`Settings`].
//!
//! The table of them is `table.rs`. Here:
//!
//! | file | holds |
//! |---|---|
//! | `value.rs` | what types of settings have in common: how one is read, typed and refused |
//! | `choice.rs`, `parse.rs`, `interfaces.rs`, `ports.rs`, `secret.rs` | the types |
//! | `setting.rs` | a value and where it comes from |
//! | `read.rs`, `show.rs` | settings that several variables or the launcher decide, and those that are not shown as typed |
//! | `variables.rs` | the description of all variables, which the reference page (`page.rs`) and help tell |
//!
//! For each the order is: argument, our own variable, the Python original's variable, what the launcher
//! says, default. Everything here is a pure function over [`Variables`]; what an argument says replaces a
//! field afterwards, with [`Setting::argument`].

mod choice;
mod interfaces;
#[cfg(test)]
mod page;
mod parse;
mod ports;
mod read;
mod secret;
mod setting;
mod show;
#[cfg(test)]
mod tests;
mod value;
mod variables;

pub use choice::{Choice, ShowProgress, Trace, Transport, Verify};
pub use fsgather_core::CompressionSetting;
pub use fsgather_core::Control;
pub use interfaces::InterfaceFilter;
pub use parse::{DirMode, RendezvousSetting};
pub use ports::PortRange;
pub use secret::{Secret, SecretSetting};
pub use setting::{Origin, Setting};
pub use variables::{Variable, variables};

use std::{path::PathBuf, time::Duration};

use fsgather_core::{Error, JobKey, Rank, WorldSize, plain_line};

use self::{read::SettingReader, value::SettingValue};
use crate::{
    environment::{self, Variables},
    launcher::{self, Detection},
};

/// The time that ranks wait for each other to meet, by default.
pub const DEFAULT_JOIN_TIMEOUT: Duration = Duration::from_secs(1800);

/// The time that a call waits since anything last moved, by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// Memory that a rank shares with others of its host, in bytes, when nobody says otherwise.
pub const DEFAULT_SHARED_MEMORY: u64 = 256 << 20;

/// The largest payload that makes no file, in bytes, when nobody says otherwise.
pub const DEFAULT_INLINE_LIMIT: u64 = 64 << 10;

/// All inline payloads of one call together are at most this long, in bytes.
const MOST_INLINE: u64 = 4 << 20;

/// Defines [`Settings`], and how they are read and shown.
macro_rules! define_settings {
    ($(
        $(#[$note:meta])*
        $field:ident: $type:ty {
            variable {
                $constant:ident = $name:literal $(or $($older:ident)+)?: $meaning:literal $([$($page:literal),+])?
                $(; $($second:tt)*)?
            }
            help $help:tt
            value $value:tt
            argument $argument:tt
        }
    )*) => {
        /// The settings of a communicator, each with where it comes from.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Settings {
            /// Who this rank is.
            pub detection: Detection,
            $(
                #[doc = $meaning]
                $(#[doc = ""] #[$note])*
                pub $field: Setting<$type>,
            )*
            /// What is worth a warning: unknown variables with names like ours.
            pub warnings: Vec<String>,
        }

        impl Settings {
            fn of(detection: Detection, variables: &Variables) -> Result<Self, Error> {
                let reader = SettingReader { variables, detection: &detection };
                Ok(Self {
                    $($field: read!(reader, environment::$constant, $value),)*
                    warnings: variables.warnings(),
                    detection,
                })
            }

            /// All settings for people to read: the variable that would set it, the value, and where that is from.
            ///
            /// A secret is not shown. The order is that of the reference page.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, String, Origin)> {
                vec![$((environment::$constant, show!(self, $field, $value), self.$field.origin)),*]
            }
        }
    };
}

/// Reads one setting as the table says.
macro_rules! read {
    ($reader:ident, $name:expr, { default $default:expr, such as $example:literal $(, show $show:expr)? }) => {
        $reader.or($name, $example, $default)?
    };
    ($reader:ident, $name:expr, { default $default:expr, such as $example:literal, else $older:expr }) => {
        $reader.or_older($name, $example, $older, $default)?
    };
    ($reader:ident, $name:expr, { read $read:expr, show $show:expr }) => {
        $read(&$reader)?
    };
    ($reader:ident, $name:expr, { take $take:expr, show $show:expr }) => {
        $take(&$reader)
    };
}

/// Shows one setting as the table says, or as one would type it.
macro_rules! show {
    ($settings:ident, $field:ident, { default $default:expr, such as $example:literal $(, else $older:expr)? }) => {
        SettingValue::typed(&$settings.$field.value)
    };
    ($settings:ident, $field:ident, { default $default:expr, such as $example:literal, show $show:expr }) => {
        $show($settings)
    };
    ($settings:ident, $field:ident, { read $read:expr, show $show:expr }) => {
        $show($settings)
    };
    ($settings:ident, $field:ident, { take $take:expr, show $show:expr }) => {
        $show($settings)
    };
}

settings_table!(define_settings);

impl Settings {
    /// Notes every setting and where it comes from, for whoever looks at the level of debugging.
    pub fn log(&self) {
        for (name, value, origin) in self.entries() {
            let value = plain_line(&value);
            tracing::debug!("setting {name}: {value} ({origin})");
        }
    }

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
        let mut errors: Vec<Error> = environment::own_names()
            .filter_map(|name| Self::of(nobody.clone().ok()?, &variables.only(name)).err())
            .collect();
        if let Err(error) = Self::resolve(variables)
            && !errors.contains(&error)
        {
            errors.push(error);
        }
        errors
    }

    /// The largest payload that makes no file in a world of this size, in bytes: the setting, or less when
    /// all ranks' payloads together would come to more than 4 MiB.
    #[must_use]
    pub fn inline_bound(&self, world_size: WorldSize) -> u64 {
        let share = MOST_INLINE / u64::from(world_size.get());
        self.inline_limit.value.min(share)
    }

    /// Returns true if the user has named this job. Another job may have the same name.
    #[must_use]
    pub fn is_named(&self) -> bool {
        let is_given = matches!(self.job.origin, Origin::Argument | Origin::Variable(_));
        is_given && self.job.value.is_some()
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
            launch: self
                .detection
                .job
                .clone()
                .filter(|_| self.detection.has_own_id),
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
