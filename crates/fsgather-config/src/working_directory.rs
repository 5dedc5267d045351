//! Relative paths, made absolute when they are read: [`absolute`], and [`remember`] for those of variables.
//!
//! Programs such as those of Hydra change their working directory while they run. A path that an argument names is relative to the
//! directory at that moment; one of a variable to the directory in which the process has begun, as far as that was remembered.

use std::{
    path::{self, Path, PathBuf},
    sync::OnceLock,
};

/// The working directory when it was first asked for; `None` if it had been removed.
static AT_START: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Returns the working directory in which this process has begun: the one of the first call.
///
/// Python's extension module calls this when it is imported; other programs when they first read variables.
pub fn remember() -> Option<&'static Path> {
    let at_start = AT_START.get_or_init(|| std::env::current_dir().ok());
    at_start.as_deref()
}

/// Returns the path relative to the working directory as it is now. An empty path stays empty, for others to refuse.
#[must_use]
pub fn absolute(path: PathBuf) -> PathBuf {
    path::absolute(&path).unwrap_or(path)
}

/// Returns the path relative to `base`, if there is one.
pub(crate) fn absolute_in(base: Option<&Path>, path: &Path) -> PathBuf {
    base.map_or_else(|| path.to_owned(), |base| base.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_path_becomes_one_of_the_working_directory() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute("a/b".into()), here.join("a/b"));
        assert_eq!(absolute("/a/b".into()), PathBuf::from("/a/b"));
        assert_eq!(absolute(PathBuf::new()), PathBuf::new());
        assert_eq!(remember(), Some(here.as_path()));
    }

    #[test]
    fn relative_variable_belongs_to_first_directory() {
        let start = Some(Path::new("/start"));
        assert_eq!(
            absolute_in(start, Path::new("a")),
            PathBuf::from("/start/a")
        );
        assert_eq!(absolute_in(start, Path::new("/a")), PathBuf::from("/a"));
        assert_eq!(absolute_in(None, Path::new("a")), PathBuf::from("a"));
    }
}
