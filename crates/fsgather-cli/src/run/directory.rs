//! Chooses the directory in which the ranks of a run gather.

use std::path::{Path, PathBuf, absolute};

use fsgather::Error;
use fsgather_config::environment::{self, Variables};

/// The gather directory: the one given, else the inherited one, else the default of this machine.
///
/// It is absolute, so that ranks may change their working directory.
///
/// # Errors
///
/// [`Error::Config`] when the one given is no directory, [`Error::Storage`] when the default cannot be
/// made or is not safe to use.
pub(super) fn choose(given: Option<&Path>) -> Result<PathBuf, Error> {
    match named(given)? {
        Some(named) => Ok(named),
        None => fsgather::bindings::local_directory().map_err(advise_dir),
    }
}

/// Adds to the failure of the default directory that another one can be named.
fn advise_dir(mut error: Error) -> Error {
    if let Error::Storage { cause, .. } = &mut error
        && !cause.message.contains("; ")
    {
        cause
            .message
            .push_str("; name another directory with --dir");
    }
    error
}

/// The directory that is named: the one given, else the inherited one. It is absolute.
///
/// # Errors
///
/// [`Error::Config`] when the one given is no directory.
pub(crate) fn named(given: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    if let Some(given) = given {
        if !given.is_dir() {
            let reason = if given.exists() {
                "it is not a directory; name one"
            } else {
                "no such directory; make it first, with `mkdir -p`"
            };
            return Err(Error::config(format!(
                "--dir {}: {reason}",
                given.display()
            )));
        }
        return make_absolute(given).map(Some);
    }
    let variables = Variables::of_process();
    let inherited = [environment::DIR, environment::EXP_DIR]
        .into_iter()
        .find_map(|name| variables.get(name));
    inherited
        .map(|inherited| make_absolute(Path::new(inherited)))
        .transpose()
}

fn make_absolute(path: &Path) -> Result<PathBuf, Error> {
    absolute(path).map_err(|error| Error::storage("make absolute", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_directory_that_fails_is_reported_with_a_way_out() {
        let error = std::io::Error::from(std::io::ErrorKind::ReadOnlyFilesystem);
        let error = advise_dir(Error::storage("make directory", "/tmp/x", &error));
        assert!(
            error
                .to_string()
                .ends_with("; name another directory with --dir"),
            "{error}"
        );
    }

    #[test]
    fn a_given_directory_must_exist() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(choose(Some(parent.path())).unwrap(), parent.path());
        let error = choose(Some(&parent.path().join("missing"))).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
    }
}
