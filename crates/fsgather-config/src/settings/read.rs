//! Reads each setting from its variables, in the order in which they count.

use std::{path::PathBuf, time::Duration};

use fsgather_core::Error;

use super::{Origin, Secret, SecretSetting, Setting, Transport, choice::Choice, parse};
use crate::{
    environment::{self, Variables, refusal},
    launcher::{Detection, Family},
};

/// Reads variables by a parser each.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a Variables);

impl Reader<'_> {
    /// The value of a variable if it is set.
    fn read<T>(
        self,
        name: &'static str,
        parser: impl FnOnce(&str) -> Option<T>,
        wrong: &str,
        example: &str,
    ) -> Result<Option<Setting<T>>, Error> {
        match self.0.get(name) {
            None => Ok(None),
            Some(text) => match parser(text) {
                Some(value) => Ok(Some(Setting::variable(value, name))),
                None => Err(refusal(name, text, wrong, example)),
            },
        }
    }

    /// The value of a variable, or a default.
    pub(super) fn or<T>(
        self,
        name: &'static str,
        parser: impl FnOnce(&str) -> Option<T>,
        wrong: &str,
        example: &str,
        default: T,
    ) -> Result<Setting<T>, Error> {
        let read = self.read(name, parser, wrong, example)?;
        Ok(read.unwrap_or(Setting::default(default)))
    }

    /// The value of a variable, or nothing.
    pub(super) fn optional<T>(
        self,
        name: &'static str,
        parser: impl FnOnce(&str) -> Option<T>,
        wrong: &str,
        example: &str,
    ) -> Result<Setting<Option<T>>, Error> {
        self.or(name, |text| parser(text).map(Some), wrong, example, None)
    }

    pub(super) fn choice<T: Choice + Default>(
        self,
        name: &'static str,
        wrong: &str,
        example: &str,
    ) -> Result<Setting<T>, Error> {
        self.or(name, T::of_word, wrong, example, T::default())
    }

    pub(super) fn duration(
        self,
        name: &'static str,
        example: &str,
        default: Duration,
    ) -> Result<Setting<Duration>, Error> {
        let wrong = "is not a duration above 0 with a unit";
        self.or(name, parse::duration, wrong, example, default)
    }
}

/// A local number, which detection has settled, with who said it.
pub(super) fn local(
    variables: &Variables,
    name: &'static str,
    detection: &Detection,
    value: Option<u32>,
) -> Setting<Option<u32>> {
    let origin = match (variables.get(name), value, detection.family) {
        (Some(_), _, _) => Origin::Variable(name),
        (None, None, _) | (None, _, Family::Alone | Family::Explicit | Family::Fsgather) => {
            Origin::Default
        }
        (None, Some(_), launcher) => Origin::Launcher(launcher),
    };
    Setting { value, origin }
}

/// `FSGATHER_DIR`, else the original's variable.
pub(super) fn directory(variables: &Variables) -> Setting<Option<PathBuf>> {
    [environment::DIR, environment::EXP_DIR]
        .into_iter()
        .find_map(|name| {
            let path = variables.get(name)?;
            Some(Setting::variable(Some(path.into()), name))
        })
        .unwrap_or(Setting::default(None))
}

/// `FSGATHER_TRANSPORT`, else the original's switches, the file system's first.
pub(super) fn transport(read: Reader<'_>) -> Result<Setting<Transport>, Error> {
    let own = read.read(
        environment::TRANSPORT,
        Transport::of_word,
        "is not auto, filesys or memory",
        "filesys",
    )?;
    let old = [
        (environment::MDETR_FILESYS_REDUCE, Transport::Filesys),
        (environment::MDETR_CPU_REDUCE, Transport::Memory),
    ];
    let old = || {
        old.into_iter()
            .find(|(name, _)| read.0.is_exactly_one(name))
            .map(|(name, value)| Setting::variable(value, name))
    };
    Ok(own
        .or_else(old)
        .unwrap_or(Setting::default(Transport::Auto)))
}

/// `FSGATHER_ROOT_ONLY`, else the original's switch.
pub(super) fn root_only(read: Reader<'_>) -> Result<Setting<bool>, Error> {
    let own = read.read(
        environment::ROOT_ONLY,
        parse::switch,
        "is neither 0 nor 1",
        "1",
    )?;
    let old = || {
        let name = environment::MDETR_FILESYS_REDUCE_RANK_0_ONLY;
        let on = read.0.is_exactly_one(name);
        on.then(|| Setting::variable(true, name))
    };
    Ok(own.or_else(old).unwrap_or(Setting::default(false)))
}

/// `FSGATHER_JOB`, else the launcher's job id.
pub(super) fn job(variables: &Variables, detection: &Detection) -> Setting<Option<String>> {
    match (variables.get(environment::JOB), &detection.job) {
        // What torchrun calls a job without a name is no name, wherever it comes from.
        (Some(job), _) => {
            Setting::variable((job != "none").then(|| job.to_owned()), environment::JOB)
        }
        (None, Some(job)) => Setting {
            value: Some(job.clone()),
            origin: Origin::Launcher(detection.family),
        },
        (None, None) => Setting::default(None),
    }
}

/// `FSGATHER_SECRET`, else `FSGATHER_SECRET_FILE`.
pub(super) fn secret(variables: &Variables) -> Result<Setting<Option<SecretSetting>>, Error> {
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
            Some(SecretSetting::File(path.into())),
            environment::SECRET_FILE,
        ),
    })
}
