//! The words of a program for its communicator, before variables and the launcher say the rest: [`Arguments`].

use std::{path::PathBuf, time::Duration};

use fsgather_core::{Error, WorldSize};

use crate::{
    environment::Variables,
    settings::{
        CompressionSetting, Control, DirMode, RendezvousSetting, Setting, Settings, Transport,
    },
};

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
    /// Which rank this process is; needs `world_size`.
    pub rank: Option<u32>,
    /// How many ranks there are; needs `rank`.
    pub world_size: Option<u32>,
    /// Where ranks meet; `Some(None)` by a way that no setting can name.
    pub rendezvous: Option<Option<RendezvousSetting>>,
    /// The shared directory.
    pub directory: Option<PathBuf>,
    /// The mode of gather directories.
    pub directory_mode: Option<u32>,
    /// The way payloads take.
    pub transport: Option<Transport>,
    /// How ranks talk to each other.
    pub control: Option<Control>,
    /// How long nothing may move before a call fails.
    pub timeout: Option<Duration>,
    /// How long ranks wait for each other to meet.
    pub join_timeout: Option<Duration>,
    /// The largest payload that makes no file, in bytes.
    pub inline_limit: Option<u64>,
    /// How payload files are compressed.
    pub compression: Option<CompressionSetting>,
    /// What tells this job apart from others.
    pub job: Option<String>,
}

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
        let timeouts = [self.timeout, self.join_timeout];
        if timeouts.iter().flatten().any(Duration::is_zero) {
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
        set(&mut settings.rendezvous, self.rendezvous.clone());
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

    #[test]
    fn compression_that_cannot_be_had_is_refused_before_ranks_meet() {
        let wrong = compressed(CompressionSetting::Zstd { level: 23 });
        let error = wrong.settle(&Variables::default()).unwrap_err();
        assert!(error.to_string().contains("zstd"), "{error}");
        for (text, setting) in [
            ("lz4", CompressionSetting::Lz4),
            ("zstd", CompressionSetting::Zstd { level: 3 }),
        ] {
            let variables = Variables::from_iter([("FSGATHER_COMPRESS", text)]);
            match (setting.check(), Arguments::default().settle(&variables)) {
                (Ok(()), settled) => assert!(settled.is_ok(), "{text}"),
                (Err(_), settled) => {
                    let error = settled.unwrap_err().to_string();
                    assert!(
                        error.contains(&format!("cargo feature `{text}`")),
                        "{error}"
                    );
                }
            }
        }
    }

    #[test]
    fn rank_and_world_size_are_given_together() {
        for (rank, world_size) in [(Some(0), None), (None, Some(2))] {
            let arguments = Arguments {
                rank,
                world_size,
                ..Arguments::default()
            };
            let error = arguments.settle(&Variables::default()).unwrap_err();
            assert!(error.to_string().contains("give both or neither"));
        }
    }
}
