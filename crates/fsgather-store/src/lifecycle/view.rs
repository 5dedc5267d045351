//! The user and the time of a look at a directory: [`View`].

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

/// The user and the time of a look at a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) own: OwnUid,
    pub(crate) now: SystemTime,
    /// When that was, by this host's clock.
    at: Instant,
}

impl View {
    /// Whose files ours are in a directory, and the server's time. Where nothing can be written nothing
    /// can be removed either, and the local clock will do for what is shown.
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

    /// The same view at the server's present time, as far as it has gone on since then. While this host sleeps its own
    /// clock stands still, and everything seems younger than it is.
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

/// The server's time where no file can be made. Where only room is lacking, things can be removed all the same.
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
