//! Reads each setting from its variables, in the order in which they count.

use std::path::PathBuf;

use fsgather_core::{Error, Rank, WorldSize};

use crate::{
    environment::{self, Variables, refusal},
    launcher::{Detection, Family},
    settings::{
        choice::Transport,
        parse::RendezvousSetting,
        secret::{Secret, SecretSetting},
        setting::{Origin, Setting},
        value::SettingValue,
    },
};

/// What settings are read from.
#[derive(Clone, Copy)]
pub(super) struct SettingReader<'a> {
    pub(super) variables: &'a Variables,
    pub(super) detection: &'a Detection,
}

impl SettingReader<'_> {
    /// The value of a variable, or a default.
    pub(super) fn or<T: SettingValue>(
        &self,
        name: &'static str,
        example: &str,
        default: T,
    ) -> Result<Setting<T>, Error> {
        self.or_older(name, example, |_| None, default)
    }

    /// The value of a variable, or what older ones say, or a default.
    pub(super) fn or_older<T: SettingValue>(
        &self,
        name: &'static str,
        example: &str,
        older: impl FnOnce(&Variables) -> Option<Setting<T>>,
        default: T,
    ) -> Result<Setting<T>, Error> {
        let Some(text) = self.variables.get(name) else {
            return Ok(older(self.variables).unwrap_or(Setting::default(default)));
        };
        match T::read(text) {
            Some(value) => Ok(Setting::variable(value, name)),
            None => Err(refusal(name, text, &T::wrong(), example)),
        }
    }

    /// Where rank or world size come from when this family was believed; `name` is our own variable for it.
    fn said_by(&self, name: &'static str) -> Origin {
        match self.detection.family {
            Family::Explicit => Origin::Argument,
            Family::Fsgather => Origin::Variable(name),
            // An indexed Job does not say how many pods it has.
            Family::Kubernetes if name == environment::WORLD_SIZE => Origin::Variable(name),
            Family::Alone => Origin::Default,
            launcher => Origin::Launcher(launcher),
        }
    }

    /// A local number, which detection has settled, with who said it.
    fn local(&self, name: &'static str, value: Option<u32>) -> Setting<Option<u32>> {
        let origin = match (self.variables.get(name), value, self.detection.family) {
            (Some(_), _, _) => Origin::Variable(name),
            (None, None, _) | (None, _, Family::Alone | Family::Explicit | Family::Fsgather) => {
                Origin::Default
            }
            (None, Some(_), launcher) => Origin::Launcher(launcher),
        };
        Setting { value, origin }
    }
}

/// The rank that was detected.
pub(super) fn rank(from: &SettingReader<'_>) -> Setting<Rank> {
    Setting {
        value: from.detection.rank,
        origin: from.said_by(environment::RANK),
    }
}

/// The world size that was detected.
pub(super) fn world_size(from: &SettingReader<'_>) -> Setting<WorldSize> {
    Setting {
        value: from.detection.world_size,
        origin: from.said_by(environment::WORLD_SIZE),
    }
}

/// The local rank that was detected.
pub(super) fn local_rank(from: &SettingReader<'_>) -> Setting<Option<u32>> {
    from.local(environment::LOCAL_RANK, from.detection.local_rank)
}

/// The local size that was detected.
pub(super) fn local_size(from: &SettingReader<'_>) -> Setting<Option<u32>> {
    from.local(environment::LOCAL_WORLD_SIZE, from.detection.local_size)
}

/// `FSGATHER_DIR`, else the original's variable.
pub(super) fn directory(from: &SettingReader<'_>) -> Setting<Option<PathBuf>> {
    let names = [environment::DIR, environment::EXP_DIR];
    let path = names.into_iter().find_map(|name| {
        let path = from.variables.get(name)?;
        Some(Setting::variable(Some(from.variables.path(path)), name))
    });
    path.unwrap_or(Setting::default(None))
}

/// `FSGATHER_RENDEZVOUS`.
pub(super) fn rendezvous(
    from: &SettingReader<'_>,
) -> Result<Setting<Option<RendezvousSetting>>, Error> {
    let mut setting = from.or(environment::RENDEZVOUS, "tcp://node1:60001", None)?;
    if let Some(RendezvousSetting::File(path)) = &mut setting.value {
        *path = from.variables.path(&path);
    }
    Ok(setting)
}

/// The original's switches, the file system's first.
pub(super) fn old_transport(variables: &Variables) -> Option<Setting<Transport>> {
    let old = [
        (environment::MDETR_FILESYS_REDUCE, Transport::Filesys),
        (environment::MDETR_CPU_REDUCE, Transport::Memory),
    ];
    let mut on = old
        .into_iter()
        .filter(|(name, _)| variables.is_exactly_one(name));
    on.next()
        .map(|(name, value)| Setting::variable(value, name))
}

/// The original's switch.
pub(super) fn old_root_only(variables: &Variables) -> Option<Setting<bool>> {
    let name = environment::MDETR_FILESYS_REDUCE_RANK_0_ONLY;
    let on = variables.is_exactly_one(name);
    on.then(|| Setting::variable(true, name))
}

/// `FSGATHER_JOB`, else the launcher's job id.
pub(super) fn job(from: &SettingReader<'_>) -> Setting<Option<String>> {
    match (from.variables.get(environment::JOB), &from.detection.job) {
        // What torchrun calls a job without a name is no name, wherever it comes from.
        (Some(job), _) => {
            Setting::variable((job != "none").then(|| job.to_owned()), environment::JOB)
        }
        (None, Some(job)) => Setting {
            value: Some(job.clone()),
            origin: Origin::Launcher(from.detection.family),
        },
        (None, None) => Setting::default(None),
    }
}

/// `FSGATHER_SECRET`, else `FSGATHER_SECRET_FILE`.
pub(super) fn secret(from: &SettingReader<'_>) -> Result<Setting<Option<SecretSetting>>, Error> {
    let variables = from.variables;
    if let Some(text) = variables.get(environment::SECRET) {
        // The text itself must not end up in a log.
        let secret = Secret::parse(text).ok_or_else(|| {
            Error::config(format!(
                "{} ({} characters, not shown) is not 32 bytes in hexadecimal or base64; a right one \
                 is printed by: openssl rand -hex 32",
                environment::SECRET,
                text.chars().count()
            ))
        })?;
        let given = Some(SecretSetting::Given(secret));
        return Ok(Setting::variable(given, environment::SECRET));
    }
    Ok(match variables.get(environment::SECRET_FILE) {
        None => Setting::default(None),
        Some(path) => Setting::variable(
            Some(SecretSetting::File(variables.path(path))),
            environment::SECRET_FILE,
        ),
    })
}
