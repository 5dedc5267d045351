//! How one call is made: [`CallOptions`].

use std::{panic::Location, path::PathBuf, time::Duration};

use fsgather_core::{Call, Error, Operation, Site};

use crate::{communicator::Communicator, route::Route, settings::Transport};

/// Longer than any job, and short enough for clocks.
const FOR_EVER: Duration = Duration::from_hours(100 * 365 * 24);

/// How one call is made, where that differs from the communicator's own way.
///
/// For the calls of [`Communicator`] whose names end in `_with` or `_pieces`. All ranks have to say the same
/// of transport, directory and bound, as they have to make the same calls.
///
/// ```
/// use std::time::Duration;
///
/// use fsgather::{CallOptions, Communicator};
///
/// let how = CallOptions {
///     timeout: Some(Duration::from_secs(60)),
///     site: Some("eval.py:12".into()),
///     ..CallOptions::default()
/// };
/// Communicator::solo().barrier_with(&how)?;
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Which way a large payload takes; else the communicator's. What a way needs is set up by the first
    /// call that takes it.
    pub transport: Option<Transport>,
    /// The shared directory, where payloads go through files; else the communicator's.
    pub directory: Option<PathBuf>,
    /// How long nothing may move before this call fails, also in moving what it brings; else the
    /// communicator's time-out. While ranks are waited for the longest counts of those who have come.
    pub timeout: Option<Duration>,
    /// How many bytes each rank's payload may have, as in
    /// [`all_gather_list`](Communicator::all_gather_list). Nothing to a call without payloads.
    pub bound: Option<u64>,
    /// What messages call the place of the call, such as `eval.py:12`; else where it is in Rust.
    pub site: Option<String>,
}

impl CallOptions {
    /// A call of `operation` that is made so, from `location` if nothing else is said; an error if that is
    /// plainly wrong.
    pub(crate) fn call<C>(
        &self,
        communicator: &Communicator<C>,
        operation: Operation,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::config(
                "a time-out of 0 would fail every call; give a longer one",
            ));
        }
        if self
            .directory
            .as_ref()
            .is_some_and(|named| named.as_os_str().is_empty())
        {
            return Err(Error::config(
                "the directory of this call has an empty name; name one on a shared file system, or none",
            ));
        }
        Ok(Call {
            bound: self.bound,
            patience: self.timeout.map(|timeout| timeout.min(FOR_EVER)),
            ..Call::new(operation, self.site(communicator, location))
        })
    }

    /// The same for a call that has no payload which could be bounded.
    pub(crate) fn unbounded_call<C>(
        &self,
        communicator: &Communicator<C>,
        operation: Operation,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        Ok(Call {
            bound: None,
            ..self.call(communicator, operation, location)?
        })
    }

    /// The place of the call, for messages.
    pub(crate) fn site<C>(&self, communicator: &Communicator<C>, location: &Location<'_>) -> Site {
        match &self.site {
            Some(name) => Site::named(name),
            None => communicator.here(location),
        }
    }

    /// The way that the payload takes.
    pub(crate) fn route(&self, default: &Route) -> Route {
        let transport = self.transport.unwrap_or(default.transport);
        let uses_files = transport != Transport::Memory;
        let directory = self.directory.as_ref().or(default.directory.as_ref());
        Route {
            transport,
            directory: directory.filter(|_| uses_files).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_the_communicator_has_it() {
        let default = Route {
            transport: Transport::Filesys,
            directory: None,
        };
        assert_eq!(CallOptions::default().route(&default), default);
        let elsewhere = CallOptions {
            directory: Some("/shared".into()),
            ..CallOptions::default()
        };
        let route = elsewhere.route(&default);
        assert_eq!(route.transport, Transport::Filesys);
        assert_eq!(route.directory, Some("/shared".into()));
    }

    #[test]
    fn a_directory_is_nothing_to_memory() {
        let default = Route {
            transport: Transport::Auto,
            directory: None,
        };
        let how = CallOptions {
            transport: Some(Transport::Memory),
            directory: Some("/shared".into()),
            ..CallOptions::default()
        };
        assert_eq!(how.route(&default).directory, None);
    }
}
