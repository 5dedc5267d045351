//! The number of an attempt: [`AttemptClaim`].

use std::path::{Path, PathBuf};

use fsgather_core::Error;

use crate::{
    layout::SampleFileName,
    os::{directory, remove},
    samples::sample_directory::SampleDirectory,
};

/// The number of an attempt, which no other attempt in the directory gets if all see its files before this is dropped.
///
/// Only numbers depend on it: results of attempts of one number would count all the same. A claim that a killed process
/// leaves behind costs its number.
#[derive(Debug)]
pub struct AttemptClaim {
    /// A directory: making one succeeds for one process, on each file system.
    path: PathBuf,
    number: u32,
}

impl AttemptClaim {
    /// Claims the first free number from `first` on.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the directory cannot be read or written, [`Error::Config`] if there are no more numbers, and
    /// [`Error::Incompatible`] if another version of fsgather wrote the last file.
    pub fn take(samples: &Path, first: u32) -> Result<Self, Error> {
        let mut number = first;
        while number <= SampleFileName::MAX_ATTEMPT {
            let path = samples.join(format!("samples-a{number:06}"));
            let is_made = directory::make(&path, 0o777)
                .map_err(|error| Error::storage("make directory", &path, &error))?;
            if is_made {
                let claim = Self { path, number };
                // Another attempt may have claimed this number before, and made its files since these were listed.
                let last = SampleDirectory::last_attempt(samples)?;
                if last < number {
                    return Ok(claim);
                }
                number = last + 1;
            } else {
                number += 1;
            }
        }
        Err(Error::config(format!(
            "{} has had {} attempts, and cannot have more; name another directory",
            samples.display(),
            SampleFileName::MAX_ATTEMPT
        )))
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for AttemptClaim {
    fn drop(&mut self) {
        remove::rmdir_or_leave(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::samples::tests::{header, name};

    #[test]
    fn attempts_that_open_together_get_numbers_of_their_own() {
        let place = tempfile::tempdir().unwrap();
        let open = || {
            let claim = AttemptClaim::take(place.path(), 1).unwrap();
            let name = name(claim.number(), 0);
            let bytes = header().to_bytes(name, b"").unwrap();
            std::fs::write(place.path().join(name.to_string()), bytes).unwrap();
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..5).for_each(|_| open()));
            }
        });
        let names = SampleDirectory::names(place.path()).unwrap();
        let is_new = |pair: &[SampleFileName]| pair[0].attempt < pair[1].attempt;
        assert!(names.windows(2).all(is_new), "{names:?}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 40);
    }

    #[test]
    fn claims_that_were_left_behind_cost_their_number() {
        let place = tempfile::tempdir().unwrap();
        std::mem::forget(AttemptClaim::take(place.path(), 1).unwrap());
        assert_eq!(AttemptClaim::take(place.path(), 1).unwrap().number(), 2);
        let last = SampleFileName::MAX_ATTEMPT;
        std::mem::forget(AttemptClaim::take(place.path(), last).unwrap());
        let none = AttemptClaim::take(place.path(), last)
            .unwrap_err()
            .to_string();
        assert!(none.contains("name another directory"), "{none}");
    }
}
