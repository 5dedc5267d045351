//! The words of a program for its communicator, before variables and the launcher say the rest: [`Arguments`].

use std::{path::PathBuf, time::Duration};

use fsgather_core::{Error, Rank, WorldSize};

use crate::{
    environment::Variables,
    settings::{
        CompressionSetting, Control, DirMode, RendezvousSetting, Setting, Settings, Trace,
        Transport, Verify,
    },
    words::{FromWord, Word},
    working_directory::absolute,
};

macro_rules! define_arguments {
    ($(
        $(#[$note:meta])*
        $field:ident: $type:ty {
            variable {
                $constant:ident = $name:literal $(or $($older:ident)+)?: $meaning:literal $([$($page:literal),+])?
                $(; $($second:tt)*)?
            }
            help $help:tt
            value $value:tt
            argument { $($argument:ident: $said:ty = $setting:expr)? }
        }
    )*) => {
        /// What a program says; `None` leaves a setting to variables, the launcher and the default.
        ///
        /// ```
        /// use fsgather_config::{arguments::Arguments, environment::Variables, settings::Origin};
        ///
        /// let arguments = Arguments { job: Some("nightly".into()), ..Arguments::default() };
        /// let settings = arguments.settle(&Variables::from_iter([("FSGATHER_JOB", "other")]))?;
        /// assert_eq!(settings.job.value.as_deref(), Some("nightly"));
        /// assert_eq!(settings.job.origin, Origin::Argument);
        /// # Ok::<(), fsgather_core::Error>(())
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Arguments {
            $($(
                #[doc = $meaning]
                pub $argument: Option<$said>,
            )?)*
        }

        impl Arguments {
            /// Takes what a program says of the argument of this name, where it says so in words: as the Python package does.
            ///
            /// # Errors
            ///
            /// [`Error::Config`] for a name or a value that is none.
            pub fn take(&mut self, name: &str, word: Word) -> Result<(), Error> {
                match name {
                    $($(stringify!($argument) => {
                        self.$argument = Some(FromWord::from_word(name, word)?);
                    })?)*
                    _ => return Err(Error::config(format!("there is no argument {name}"))),
                }
                Ok(())
            }

            /// Puts what is said here in the place of what variables say.
            fn replace(&self, settings: &mut Settings) -> Result<(), Error> {
                $($(if let Some(said) = self.$argument.clone() {
                    let setting: fn($said) -> Result<$type, Error> = $setting;
                    settings.$field = Setting::argument(setting(said)?);
                })?)*
                Ok(())
            }
        }
    };
}

settings_table!(define_arguments);

impl Arguments {
    /// The settings of a communicator: these, and what variables say besides.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a value that cannot be, and for a rank without a world size or the other way round.
    pub fn settle(&self, variables: &Variables) -> Result<Settings, Error> {
        let mut settings = match (self.rank, self.world_size) {
            (Some(rank), Some(world_size)) => {
                let world_size = WorldSize::new(world_size)?;
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
        self.replace(&mut settings)?;
        Ok(settings)
    }
}

/// A place to meet, with an absolute path.
fn absolute_place(rendezvous: RendezvousSetting) -> RendezvousSetting {
    match rendezvous {
        RendezvousSetting::File(directory) => RendezvousSetting::File(absolute(directory)),
        other => other,
    }
}

/// A time-out that a program gives.
fn above_zero(timeout: Duration) -> Result<Duration, Error> {
    if timeout.is_zero() {
        return Err(Error::config(
            "a time-out of 0 would fail every call; give a longer one",
        ));
    }
    Ok(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Origin;

    fn compressed(setting: CompressionSetting) -> Arguments {
        Arguments {
            compression: Some(setting),
            ..Arguments::default()
        }
    }

    #[test]
    fn relative_paths_of_a_program_become_absolute() {
        let here = std::env::current_dir().unwrap();
        let arguments = Arguments {
            directory: Some("gathers".into()),
            rendezvous: Some(Some(RendezvousSetting::File("met".into()))),
            ..Arguments::default()
        };
        let settings = arguments.settle(&Variables::default()).unwrap();
        assert_eq!(settings.directory.value, Some(here.join("gathers")));
        let met = RendezvousSetting::File(here.join("met"));
        assert_eq!(settings.rendezvous.value, Some(met));
    }

    #[test]
    fn compression_is_taken_from_the_program_before_the_variable() {
        let variables = Variables::from_iter([("FSGATHER_COMPRESS", "none")]);
        let settings = compressed(CompressionSetting::None).settle(&variables);
        assert_eq!(settings.unwrap().compression.origin, Origin::Argument);
        let settings = Arguments::default().settle(&variables).unwrap();
        assert_eq!(
            settings.compression.origin,
            Origin::Variable("FSGATHER_COMPRESS")
        );
    }
}
