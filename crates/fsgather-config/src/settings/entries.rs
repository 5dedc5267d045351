//! All settings as a list for people to read.

use std::time::Duration;

use fsgather_core::{bytes_text, typed_duration_text};

use super::{Origin, SecretSetting, Setting, Settings};
use crate::{
    environment,
    launcher::{Detection, Family},
};

impl Settings {
    /// Notes every setting and where it comes from, for whoever looks at the level of debugging.
    pub fn log(&self) {
        for (name, value, origin) in self.entries() {
            tracing::debug!("setting {name}: {value} ({origin})");
        }
    }

    /// All settings for people to read: the variable that would set it, the value, and where that is from.
    ///
    /// A secret is not shown. The order is that of the reference page.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, String, Origin)> {
        fn shown<T>(
            name: &'static str,
            setting: &Setting<T>,
            text: impl Fn(&T) -> String,
        ) -> (&'static str, String, Origin) {
            (name, text(&setting.value), setting.origin)
        }
        fn or<T: ToString>(value: Option<&T>, nothing: &str) -> String {
            value.map_or_else(|| nothing.to_owned(), ToString::to_string)
        }
        let duration = |value: &Duration| typed_duration_text(*value);
        let switch = |value: &bool| u8::from(*value).to_string();
        let Detection {
            family,
            rank,
            world_size,
            ..
        } = &self.detection;
        vec![
            shown(environment::DIR, &self.directory, |value| {
                let default = if self.detection.is_on_one_host() {
                    "/tmp/fsgather-<uid>"
                } else {
                    "the working directory"
                };
                or(value.as_ref().map(|path| path.display()).as_ref(), default)
            }),
            shown(environment::DIR_MODE, &self.dir_mode, ToString::to_string),
            shown(environment::TRANSPORT, &self.transport, ToString::to_string),
            shown(environment::ROOT_ONLY, &self.root_only, switch),
            shown(environment::CONTROL, &self.control, ToString::to_string),
            shown(environment::RENDEZVOUS, &self.rendezvous, |value| {
                let nothing = match self.rendezvous.origin {
                    Origin::Argument => "the program's own",
                    _ => "the directory",
                };
                or(value.as_ref(), nothing)
            }),
            shown(environment::JOB, &self.job, |value| {
                or(value.as_ref(), "none")
            }),
            shown(environment::SECRET, &self.secret, |value| match value {
                None => "drawn or derived".to_owned(),
                Some(SecretSetting::Given(_)) => "given".to_owned(),
                Some(SecretSetting::File(path)) => format!("in {}", path.display()),
            }),
            shown(environment::ENCRYPT, &self.encrypt, switch),
            (
                environment::RANK,
                rank.to_string(),
                said_by(*family, environment::RANK),
            ),
            (
                environment::WORLD_SIZE,
                world_size.to_string(),
                said_by(*family, environment::WORLD_SIZE),
            ),
            shown(environment::LOCAL_RANK, &self.local_rank, |value| {
                or(value.as_ref(), "unknown")
            }),
            shown(environment::LOCAL_WORLD_SIZE, &self.local_size, |value| {
                or(value.as_ref(), "unknown")
            }),
            shown(environment::JOIN_TIMEOUT, &self.join_timeout, duration),
            shown(environment::TIMEOUT, &self.timeout, duration),
            shown(environment::PORT, &self.port, |value| {
                if value.is_any() {
                    "any".to_owned()
                } else {
                    value.to_string()
                }
            }),
            shown(
                environment::INTERFACE,
                &self.interfaces,
                ToString::to_string,
            ),
            shown(environment::INLINE_LIMIT, &self.inline_limit, |value| {
                let bound = self.inline_bound(*world_size);
                if bound < *value {
                    format!(
                        "{}, but {} in a world of {world_size}",
                        bytes_text(*value),
                        bytes_text(bound)
                    )
                } else {
                    bytes_text(*value)
                }
            }),
            shown(
                environment::COMPRESS,
                &self.compression,
                ToString::to_string,
            ),
            shown(environment::LOG, &self.log, Clone::clone),
            shown(environment::PROGRESS, &self.progress, ToString::to_string),
        ]
    }
}

/// Where rank or world size come from when this family was believed; `name` is our own variable for it.
fn said_by(family: Family, name: &'static str) -> Origin {
    match family {
        Family::Explicit => Origin::Argument,
        Family::Fsgather => Origin::Variable(name),
        // An indexed Job does not say how many pods it has.
        Family::Kubernetes if name == environment::WORLD_SIZE => Origin::Variable(name),
        Family::Alone => Origin::Default,
        launcher => Origin::Launcher(launcher),
    }
}
