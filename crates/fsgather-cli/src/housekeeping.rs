//! Surveys and removes leftovers of crashes in shared directories.
//!
//! The commands `inspect` and `clean` use this. `docs/guide/administrator.md` lists the files that are removed, and those that never are.

use std::path::PathBuf;

use fsgather_control::record::RendezvousRecord;
use fsgather_core::{Error, WorldSize};
use fsgather_store::{Rules, Surveyor};

use fsgather_config::settings::Settings;

/// A surveyor that reads the number of ranks from the record of a forming world.
///
/// # Errors
///
/// Returns [`Error::Storage`] if `/proc` does not show this process.
pub(crate) fn surveyor(rules: Rules) -> Result<Surveyor, Error> {
    let surveyor = Surveyor::new(rules)?;
    Ok(surveyor.reading(expected))
}

/// Number of ranks in a record; none if another version has written it, or it is something else.
fn expected(record: &[u8]) -> Option<WorldSize> {
    let record = RendezvousRecord::from_bytes(record).ok()?;
    Some(record.world_size)
}

/// The directories that communicators with these settings use: the named one, otherwise the working directory, and `/tmp/fsgather-<uid>` if
/// it exists.
///
/// # Errors
///
/// Returns [`Error::Storage`] if the working directory cannot be found.
pub(crate) fn default_directories(settings: &Settings) -> Result<Vec<PathBuf>, Error> {
    if let Some(named) = &settings.directory.value {
        return Ok(vec![named.clone()]);
    }
    let here = std::env::current_dir().map_err(|error| Error::storage("find", ".", &error))?;
    let uid = rustix::process::geteuid().as_raw();
    let local = PathBuf::from(format!("/tmp/fsgather-{uid}"));
    Ok([here]
        .into_iter()
        .chain(local.is_dir().then_some(local))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_directory_goes_before_the_defaults() {
        let directories = |pairs: &[(&str, &str)]| {
            let settings = Settings::resolve(&pairs.iter().copied().collect()).unwrap();
            default_directories(&settings).unwrap()
        };
        assert_eq!(
            directories(&[("FSGATHER_DIR", "/a"), ("EXP_DIR", "/b")]),
            [PathBuf::from("/a")]
        );
        assert_eq!(directories(&[("EXP_DIR", "/b")]), [PathBuf::from("/b")]);
        let here = std::env::current_dir().unwrap();
        assert!(directories(&[]).contains(&here));
    }
}
