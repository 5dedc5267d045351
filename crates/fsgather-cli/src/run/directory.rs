//! Where the ranks of a run gather.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf, absolute},
};

use fsgather::{Error, StorageCause};
use rustix::process::geteuid;

use crate::environment;

/// The gather directory: the one given, else the inherited one, else the default of this machine.
///
/// It is absolute, so that ranks may change their working directory.
///
/// # Errors
///
/// [`Error::Config`] when the one given is no directory, [`Error::Storage`] when the default cannot be
/// made or is not safe to use.
pub(super) fn choose(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(given) = given {
        if !given.is_dir() {
            return Err(Error::config(format!(
                "--dir {}: no such directory; make it first, with `mkdir -p`",
                given.display()
            )));
        }
        return make_absolute(given);
    }
    match environment::gather_directory() {
        Some(inherited) => make_absolute(&inherited),
        None => private_directory(Path::new("/tmp"), geteuid().as_raw()),
    }
}

fn make_absolute(path: &Path) -> Result<PathBuf, Error> {
    absolute(path).map_err(|error| Error::storage("make absolute", path, &error))
}

/// Makes `fsgather-<uid>` below a directory that everybody may write to, or finds it fit for use.
fn private_directory(parent: &Path, uid: u32) -> Result<PathBuf, Error> {
    let path = parent.join(format!("fsgather-{uid}"));
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::storage("make directory", path, &error));
        }
        // What was there may be anybody's; and what we have just made is checked likewise.
        _ => {}
    }
    let found = fs::symlink_metadata(&path)
        .map_err(|error| Error::storage("examine", path.clone(), &error))?;
    let objection = if !found.is_dir() {
        "it is not a directory, or a link to one".to_owned()
    } else if found.uid() != uid {
        format!(
            "it belongs to user {}, not to you (user {uid})",
            found.uid()
        )
    } else if found.permissions().mode() & 0o022 != 0 {
        "others may write to it; take that away with `chmod 700`".to_owned()
    } else {
        return Ok(path);
    };
    let cause = StorageCause::described(format!("{objection}; or choose another with --dir"));
    Err(Error::storage("gather in", path, cause))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn uid() -> u32 {
        geteuid().as_raw()
    }

    #[test]
    fn the_default_is_made_private_and_found_again() {
        let parent = tempfile::tempdir().unwrap();
        let path = private_directory(parent.path(), uid()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(private_directory(parent.path(), uid()).unwrap(), path);
    }

    #[test]
    fn what_somebody_else_may_have_put_there_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join(format!("fsgather-{}", uid()));
        let refusal = || {
            private_directory(parent.path(), uid())
                .unwrap_err()
                .to_string()
        };

        symlink("/", &place).unwrap();
        assert!(refusal().contains("not a directory"), "{}", refusal());
        fs::remove_file(&place).unwrap();

        fs::write(&place, "").unwrap();
        assert!(refusal().contains("not a directory"), "{}", refusal());
        fs::remove_file(&place).unwrap();

        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refusal().contains("others may write"), "{}", refusal());
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let stranger = uid() + 1;
        let refusal = private_directory(parent.path(), stranger)
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("belongs to user"), "{refusal}");
    }

    #[test]
    fn a_given_directory_must_exist() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(choose(Some(parent.path())).unwrap(), parent.path());
        let error = choose(Some(&parent.path().join("missing"))).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
    }
}
