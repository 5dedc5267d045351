//! Finds the calls that the ranks of jobs have recorded: [`CallsSearch`].

use std::{
    collections::BTreeSet,
    fs,
    path::{self, Path, PathBuf},
};

use fsgather::Error;
use fsgather_core::ProcessId;
use fsgather_observe::trace::{
    black_box::Extent,
    world::{self, World},
};
use fsgather_store::{layout::rendezvous_path, this_process};

use super::inspect::{directories, settings};
use crate::{failure::Failure, shell_word::shell_word};

/// The directories that are searched for calls.
pub(crate) struct CallsSearch {
    directories: Vec<PathBuf>,
    /// True if all jobs of this host are searched, because no directory was named.
    all_here: bool,
    pub(crate) me: ProcessId,
}

impl CallsSearch {
    /// Searches the directories that arguments or variables name, otherwise the default ones and this host.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is wrong, or `/proc` does not show this process.
    pub(super) fn of_arguments(named: &[PathBuf]) -> Result<Self, Failure> {
        let settings = settings()?;
        let absolute = |directory: PathBuf| path::absolute(&directory).unwrap_or(directory);
        let directories = directories(named, &settings)?;
        Ok(Self {
            directories: directories.into_iter().map(absolute).collect(),
            all_here: named.is_empty() && settings.directory.value.is_none(),
            me: this_process()?,
        })
    }

    /// Searches this directory and this host.
    ///
    /// # Errors
    ///
    /// Returns an error if `/proc` does not show this process.
    pub(crate) fn of_run(directory: &Path) -> Result<Self, Failure> {
        Ok(Self {
            directories: vec![directory.to_owned()],
            all_here: true,
            me: this_process()?,
        })
    }

    /// Returns the worlds whose calls are found, each once.
    ///
    /// # Errors
    ///
    /// Returns an error if a directory cannot be listed.
    pub(crate) fn worlds(&self, extent: Extent) -> Result<Vec<World>, Failure> {
        let mut worlds: Vec<World> = Vec::new();
        let mut places: Vec<PathBuf> = Vec::new();
        for directory in &self.directories {
            if let Some((parent, world)) = calls_file(directory) {
                let mut of_file = world::find(&[parent], false, &self.me, extent)?;
                of_file.retain(|found| found.communicator.simple().to_string() == world);
                worlds.extend(of_file);
            } else {
                places.push(rendezvous_of(directory)?);
            }
        }
        if self.all_here {
            places.extend(
                rendezvous_in_use()
                    .into_iter()
                    .filter(|place| !self.covers(place)),
            );
        }
        for found in world::find(&places, self.all_here, &self.me, extent)? {
            let is_same = |known: &World| known.communicator == found.communicator;
            if !worlds.iter().any(is_same) {
                worlds.push(found);
            }
        }
        Ok(worlds)
    }

    fn covers(&self, rendezvous: &Path) -> bool {
        let mut directories = self.directories.iter();
        directories
            .any(|directory| rendezvous_path(directory) == rendezvous || directory == rendezvous)
    }

    /// Returns the directories.
    pub(super) fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Returns the directories for a message, as words of a shell.
    pub(super) fn text(&self) -> String {
        let words = self.directories.iter();
        let words: Vec<String> = words
            .map(|place| shell_word(&place.display().to_string()))
            .collect();
        words.join(", ")
    }
}

/// Returns the rendezvous directories with calls of running processes of this host: each rank maps the file of its calls. Processes of other
/// users are visible to root only.
fn rendezvous_in_use() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let maps = processes.filter_map(|process| fs::read_to_string(process.path().join("maps")).ok());
    maps.flat_map(|maps| {
        maps.lines()
            .filter_map(rendezvous_in_line)
            .collect::<Vec<_>>()
    })
    // Another mount namespace has other directories.
    .filter(|place| fs::read_dir(place).is_ok())
    .collect()
}

/// Returns the rendezvous directory of a file of calls, if a line of `/proc/<pid>/maps` names one.
fn rendezvous_in_line(line: &str) -> Option<PathBuf> {
    let path = Path::new(line.get(line.find('/')?..)?);
    let is_of_calls = path.file_name()?.to_str()?.starts_with("calls-");
    let place = path.parent()?;
    let is_rendezvous = place.file_name() == rendezvous_path(Path::new("")).file_name();
    (is_of_calls && is_rendezvous).then(|| place.to_owned())
}

/// Returns the directory and the world of a file of calls, if this is one.
fn calls_file(path: &Path) -> Option<(PathBuf, String)> {
    let (parent, name) = (path.parent()?, path.file_name()?.to_str()?);
    let world = name.strip_prefix("calls-")?.split('-').next()?;
    path.is_file()
        .then(|| (parent.to_owned(), world.to_owned()))
}

/// Returns the rendezvous directory of a directory that jobs may have gathered through.
fn rendezvous_of(directory: &Path) -> Result<PathBuf, Failure> {
    let is_rendezvous = directory.file_name() == rendezvous_path(Path::new("")).file_name();
    let directory = directory
        .parent()
        .filter(|_| is_rendezvous)
        .unwrap_or(directory);
    let found = fs::read_dir(directory);
    found.map_err(|error| Error::storage("list", directory, &error))?;
    Ok(rendezvous_path(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_have_a_rendezvous_directory() {
        let place = tempfile::tempdir().unwrap();
        let rendezvous = rendezvous_path(place.path());
        for named in [place.path(), &rendezvous] {
            assert_eq!(rendezvous_of(named).unwrap(), rendezvous);
        }
        assert!(rendezvous_of(&place.path().join("missing")).is_err());
        let file = place.path().join("file");
        fs::write(&file, b"x").unwrap();
        assert!(rendezvous_of(&file).is_err());
    }

    #[test]
    fn mapped_files_of_calls_lead_to_their_directory() {
        let line = |path: &str| format!("7f00-7f01 rw-s 00000000 00:2f 42    {path}");
        let found = |path: &str| rendezvous_in_line(&line(path));
        let place = rendezvous_path(Path::new("/a b"));
        let calls = place.join("calls-01ab-r0");
        assert_eq!(found(calls.to_str().unwrap()), Some(place.clone()));
        for other in [
            "",
            "[heap]",
            "/x/calls-01ab-r0",
            place.join("room").to_str().unwrap(),
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
