//! Shows those settings that people read otherwise than one would type them.

use fsgather_core::bytes_text;

use super::{Origin, SecretSetting, Settings};

fn or<T: ToString>(value: Option<T>, nothing: &str) -> String {
    value.map_or_else(|| nothing.to_owned(), |value| value.to_string())
}

pub(super) fn directory(settings: &Settings) -> String {
    let default = if settings.detection.is_on_one_host() {
        "/tmp/fsgather-<uid>"
    } else {
        "the working directory"
    };
    or(
        settings.directory.value.as_ref().map(|path| path.display()),
        default,
    )
}

pub(super) fn rendezvous(settings: &Settings) -> String {
    let nothing = match settings.rendezvous.origin {
        Origin::Argument => "the program's own",
        _ => "the directory",
    };
    or(settings.rendezvous.value.as_ref(), nothing)
}

pub(super) fn job(settings: &Settings) -> String {
    or(settings.job.value.as_ref(), "none")
}

pub(super) fn secret(settings: &Settings) -> String {
    match &settings.secret.value {
        None => "drawn or derived".to_owned(),
        Some(SecretSetting::Given(_)) => "given".to_owned(),
        Some(SecretSetting::File(path)) => format!("in {}", path.display()),
    }
}

pub(super) fn rank(settings: &Settings) -> String {
    settings.rank.value.to_string()
}

pub(super) fn world_size(settings: &Settings) -> String {
    settings.world_size.value.to_string()
}

pub(super) fn local_rank(settings: &Settings) -> String {
    or(settings.local_rank.value, "unknown")
}

pub(super) fn local_size(settings: &Settings) -> String {
    or(settings.local_size.value, "unknown")
}

pub(super) fn port(settings: &Settings) -> String {
    let ports = settings.port.value;
    or((!ports.is_any()).then_some(ports), "any")
}

pub(super) fn inline_limit(settings: &Settings) -> String {
    let world_size = settings.world_size.value;
    let (limit, bound) = (
        settings.inline_limit.value,
        settings.inline_bound(world_size),
    );
    if bound < limit {
        let (limit, bound) = (bytes_text(limit), bytes_text(bound));
        format!("{limit}, but {bound} in a world of {world_size}")
    } else {
        bytes_text(limit)
    }
}
