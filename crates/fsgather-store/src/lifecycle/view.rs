//! User and time with which a directory is examined: [`View`].

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use fsgather_core::sys::clock;

use crate::{
    directory::trial,
    os::{
        directory::{self, OwnUid},
        listing,
    },
};

/// User and time with which a directory is examined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) own: OwnUid,
    pub(crate) now: SystemTime,
    /// Time of the look, by this host's clock.
    at: Instant,
}

impl View {
    /// Determines the owner of files that this process makes in a directory, and the server's time. If no file can be written,
    /// none can be removed either, and the local clock is good enough for display.
    pub(crate) fn of(directory: &Path) -> Self {
        let (own, now) = match trial::look_at_own(directory) {
            Ok(tried) => (tried.own, tried.now),
            Err(error) => {
                tracing::debug!(path = %directory.display(), %error, "cannot write");
                let own = OwnUid(rustix::process::geteuid().as_raw());
                (own, touched_at(directory))
            }
        };
        Self {
            own,
            now,
            at: clock::now(),
        }
    }

    /// Returns the same view at the present time of the server, by the time that has passed here. While this host sleeps its
    /// clock stops, so everything seems younger than it is.
    pub(crate) fn again(self) -> Self {
        Self {
            now: self.now + clock::since(self.at),
            at: clock::now(),
            ..self
        }
    }

    pub(crate) fn age_of(self, changed: SystemTime) -> Duration {
        self.now.duration_since(changed).unwrap_or_default()
    }
}

/// Returns the server's time if no file can be made. If only space is missing, entries can be removed all the same.
fn touched_at(directory: &Path) -> SystemTime {
    directory::touch(directory)
        .and_then(|()| listing::examine_path(directory))
        .map_or_else(|_| clock::wall(), |found| found.changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_ages_as_its_clock_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let view = View::of(place.path());
        let before = View {
            now: view.now - Duration::from_secs(100),
            at: view.at.checked_sub(Duration::from_secs(50)).unwrap(),
            ..view
        };
        let again = before.again();
        let went_on = again.now.duration_since(before.now).unwrap();
        assert!(went_on >= Duration::from_secs(50), "{went_on:?}");
        assert!(again.at >= view.at);
    }
}
