//! The options of the calls of a handle: [`Options`].

use std::{path::PathBuf, time::Duration};

use fsgather_config::{settings::Transport, working_directory};
use fsgather_core::{Call, Error, Operation, Site};

/// Maximum time-out: longer than any job, and short enough for clocks.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Maximum length of a tag, in bytes: it travels with every call, and messages may name thousands.
const LONGEST_TAG: usize = 256;

/// The options of the calls of a [handle](crate::Communicator::with). Options that are not set are those of the
/// communicator.
///
/// ```
/// use std::time::Duration;
///
/// use fsgather::{Communicator, Options};
///
/// let communicator = Communicator::solo();
/// let quick = communicator.with(Options::new().timeout(Duration::from_secs(60)).tag("scores"));
/// assert_eq!(quick.all_gather(&0.25)?, [0.25]);
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "options change nothing until a handle is made with them"]
pub struct Options {
    pub(crate) transport: Option<Transport>,
    pub(crate) directory: Option<PathBuf>,
    timeout: Option<Duration>,
    bound: Option<u64>,
    tag: Option<String>,
    pub(crate) site: Option<Site>,
}

impl Options {
    /// Sets nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how large payloads travel. A transport is set up by the first call that needs it.
    ///
    /// All ranks must make each call with the same transport and directory; if they differ, the call fails on all of them at
    /// once.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Sets the shared directory for payloads that travel as files.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(working_directory::absolute(directory.into()));
        self
    }

    /// Sets the time without any progress after which a call fails, also while payloads are read. While the call waits
    /// for ranks, the longest time-out of the ranks that have arrived counts.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the maximum number of bytes in the payload of each rank. Ranks compare the bound, and each payload with it,
    /// before any data moves. A larger payload is [`Error::TooLarge`] on all ranks, which names the rank and its size;
    /// the communicator stays usable. Calls without payloads ignore the bound.
    ///
    /// ```
    /// use fsgather::{Communicator, Error, Options};
    ///
    /// let small = Communicator::solo().with(Options::new().bound(16));
    /// assert_eq!(small.all_gather(&0.25)?, [0.25]);
    /// let refused = small.all_gather(&"x".repeat(100)).unwrap_err();
    /// assert!(matches!(refused, Error::TooLarge { size: 101, bound: 16, .. }));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn bound(mut self, bytes: u64) -> Self {
        self.bound = Some(bytes);
        self
    }

    /// Sets the purpose of the calls, in 1 to 256 bytes. Messages name it. Ranks that call at one line with different
    /// tags, such as those that walk maps in different orders, get [`Error::Desync`] with both instead of each other's
    /// data.
    ///
    /// ```
    /// use fsgather::{Communicator, Options};
    ///
    /// let communicator = Communicator::solo();
    /// for (name, score) in [("bleu", 0.25), ("rouge", 0.5)] {
    ///     let handle = communicator.with(Options::new().tag(name));
    ///     assert_eq!(handle.all_gather(&score)?, [score]);
    /// }
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Sets the name of the place of the calls in messages, such as `eval.py:12`; by default it is their place in the
    /// sources.
    pub fn site(self, name: impl AsRef<str>) -> Self {
        self.at(Site::named(name.as_ref()))
    }

    /// Sets the place of the calls, if it is known already.
    pub(crate) fn at(mut self, site: Site) -> Self {
        self.site = Some(site);
        self
    }

    /// Returns these options, with those of `base` where these are not set.
    pub(crate) fn over(self, base: &Self) -> Self {
        Self {
            transport: self.transport.or(base.transport),
            directory: self.directory.or_else(|| base.directory.clone()),
            timeout: self.timeout.or(base.timeout),
            bound: self.bound.or(base.bound),
            tag: self.tag.or_else(|| base.tag.clone()),
            site: self.site.or_else(|| base.site.clone()),
        }
    }

    /// Returns the options that a group inherits: transport, directory and time-out.
    pub(crate) fn of_groups(&self) -> Self {
        Self {
            transport: self.transport,
            directory: self.directory.clone(),
            timeout: self.timeout,
            ..Self::default()
        }
    }

    /// Returns a call of `operation` with these options, at `site`. Fails if the options are plainly wrong.
    pub(crate) fn call(&self, operation: Operation, site: Site) -> Result<Call, Error> {
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::config(
                "a time-out of 0 would fail every call; give a longer one",
            ));
        }
        let is_named = |named: &PathBuf| !named.as_os_str().is_empty();
        if !self.directory.as_ref().is_none_or(is_named) {
            return Err(Error::config(
                "the directory of this handle has an empty name; name one on a shared file system, or none",
            ));
        }
        let tag = self.tag.as_deref();
        if let Some(tag) = tag.filter(|tag| !(1..=LONGEST_TAG).contains(&tag.len())) {
            return Err(Error::config(format!(
                "the tag of this call has {} bytes; give 1 to {LONGEST_TAG}",
                tag.len()
            )));
        }
        let call = Call {
            bound: self.bound,
            timeout: self.timeout.map(|timeout| timeout.min(FOR_EVER)),
            ..Call::new(operation, site)
        };
        Ok(match tag {
            Some(tag) => call.tagged(tag),
            None => call,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Communicator;

    #[test]
    fn what_is_not_set_is_as_the_communicator_has_it() {
        let communicator = Communicator::solo();
        let default = communicator.inner.default_request();
        assert_eq!(communicator.with(Options::new()).request(), *default);
        let handle = communicator.with(Options::new().transport(Transport::Filesys));
        let request = handle.with(Options::new().directory("/shared")).request();
        assert_eq!(request.transport, Transport::Filesys);
        assert_eq!(request.directory, Some("/shared".into()));
    }

    #[test]
    fn a_tag_says_something_and_is_short() {
        let communicator = Communicator::solo();
        for (tag, is_right) in [("", false), ("bleu", true), (&*"x".repeat(257), false)] {
            let handle = communicator.with(Options::new().tag(tag));
            assert_eq!(handle.barrier().is_ok(), is_right);
        }
    }

    #[test]
    fn a_directory_is_nothing_to_memory() {
        let options = Options::new().directory("/shared");
        let handle = Communicator::solo().with(options.transport(Transport::Memory));
        assert_eq!(handle.request().directory, None);
    }

    #[test]
    fn groups_inherit_where_payloads_go_and_how_long_they_wait() {
        let options = Options::new()
            .transport(Transport::Filesys)
            .timeout(Duration::from_secs(60));
        let more = options.clone().tag("x").bound(1).site("eval.py:1");
        assert_eq!(more.of_groups(), options);
    }
}
