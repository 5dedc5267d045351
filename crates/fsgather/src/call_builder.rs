//! Calls with options of their own: [`CallBuilder`]; and how all calls are made.

use std::{ops::Deref, panic::Location, path::PathBuf, sync::Arc, time::Duration};

use fsgather_config::{settings::Transport, working_directory};
use fsgather_core::{Call, Error, Operation, Rank, Site};

use crate::{
    call::{
        blocking::step_aside,
        started::{ReceivedParts, StartedCall},
    },
    call_options::{CallOptions, HandleOptions},
    codec::Postcard,
    communicator::Communicator,
    group_state::GroupState,
    payload::{input::PayloadInput, path_request::PathRequest, retention::Retention},
    pending::Pending,
};

/// Longer than any job, and short enough for clocks.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How long a tag may be, in bytes: it travels with every call, and messages may name thousands.
const LONGEST_TAG: usize = 256;

/// One call with options of its own, from [`Communicator::call`].
///
/// It has the calls of [`Communicator`], in the same order with those. All ranks have to give the same bound and tag, as they
/// have to make the same calls.
///
/// ```
/// use std::time::Duration;
///
/// use fsgather::Communicator;
///
/// let communicator = Communicator::solo();
/// let scores = communicator
///     .call()
///     .timeout(Duration::from_secs(60))
///     .bound(1 << 20)
///     .all_gather(&0.25)?;
/// assert_eq!(scores, [0.25]);
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before one of the calls is made"]
pub struct CallBuilder<C = Postcard> {
    communicator: Communicator<C>,
}

impl<C: Clone> Communicator<C> {
    /// Begins a call with options of its own: another time-out, a bound, a tag, or another place in the program.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let communicator = fsgather::Communicator::solo();
    /// communicator.call().timeout(Duration::from_secs(60)).barrier()?;
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    pub fn call(&self) -> CallBuilder<C> {
        self.call_with(&CallOptions::default())
    }

    /// Begins a call with these options.
    pub fn call_with(&self, options: &CallOptions) -> CallBuilder<C> {
        let mut communicator = self.handle(Arc::clone(&self.inner), self.codec.clone());
        communicator.options.call = options.clone();
        CallBuilder { communicator }
    }

    /// The same membership through another handle, whose large payloads take this transport. A transport is set up by the first
    /// call that needs it.
    ///
    /// Making a handle is local and cheap, and all handles share the order of calls. All ranks have to make each call through
    /// handles with the same transport and directory; if they differ, the call fails on all of them at once. Closing one
    /// handle closes all.
    ///
    /// ```
    /// use fsgather::{Communicator, Transport};
    ///
    /// let communicator = Communicator::solo();
    /// let by_files = communicator.with_transport(Transport::Filesys).with_directory("/shared/scratch");
    /// assert_eq!(by_files.all_gather(&7)?, [7]);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[must_use]
    pub fn with_transport(&self, transport: Transport) -> Self {
        let mut handle = self.handle(Arc::clone(&self.inner), self.codec.clone());
        handle.options.transport = Some(transport);
        handle
    }

    /// The same for the shared directory, where payloads go through files.
    #[must_use]
    pub fn with_directory(&self, directory: impl Into<PathBuf>) -> Self {
        let mut handle = self.handle(Arc::clone(&self.inner), self.codec.clone());
        handle.options.directory = Some(working_directory::absolute(directory.into()));
        handle
    }
}

impl<C> Deref for CallBuilder<C> {
    type Target = Communicator<C>;

    fn deref(&self) -> &Communicator<C> {
        &self.communicator
    }
}

impl<C> CallBuilder<C> {
    /// How long nothing may move before this call fails, also in moving what it brings. While ranks are waited
    /// for the longest counts of those who have come.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.communicator.options.call.timeout = Some(timeout);
        self
    }

    /// How many bytes each rank's payload may have, as in [`all_gather_list`](Communicator::all_gather_list): a
    /// larger one is [`Error::TooLarge`] on all ranks. Nothing to a call without payloads.
    pub const fn bound(mut self, bytes: u64) -> Self {
        self.communicator.options.call.bound = Some(bytes);
        self
    }

    /// What the call is for, in 1 to 256 bytes: ranks that come to one line with different meanings, such as those that walk maps
    /// in different orders, get [`Error::Desync`] with both tags instead of each other's data. Messages name it.
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// for (name, score) in [("bleu", 0.25), ("rouge", 0.5)] {
    ///     assert_eq!(communicator.call().tag(name).all_gather(&score)?, [score]);
    /// }
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.communicator.options.call.tag = Some(tag.into());
        self
    }

    /// What messages call the place of the call, such as `eval.py:12`; else where it is in Rust.
    pub fn site(mut self, name: impl Into<String>) -> Self {
        self.communicator.options.call.site = Some(name.into());
        self
    }

    /// The place of the call, where it is known already.
    pub(crate) fn at(mut self, site: Site) -> Self {
        self.communicator.options.site = Some(site);
        self
    }

    /// As [`Communicator::close`]; the place counts.
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::close`].
    #[track_caller]
    pub fn close(self) -> Result<(), Error> {
        self.communicator.close()
    }
}

impl<C> Communicator<C> {
    /// A handle of this or another group, with the transport and directory of this one.
    pub(crate) fn handle<D>(&self, inner: Arc<GroupState>, codec: D) -> Communicator<D> {
        Communicator {
            inner,
            codec,
            options: HandleOptions {
                transport: self.options.transport,
                directory: self.options.directory.clone(),
                ..HandleOptions::default()
            },
        }
    }

    /// A call of `operation` that is made so, from `location` if nothing else is said; an error if that is
    /// plainly wrong.
    pub(crate) fn made(
        &self,
        operation: Operation,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        let options = &self.options.call;
        if options.timeout == Some(Duration::ZERO) {
            return Err(Error::config(
                "a time-out of 0 would fail every call; give a longer one",
            ));
        }
        let is_named = |named: &PathBuf| !named.as_os_str().is_empty();
        if !self.options.directory.as_ref().is_none_or(is_named) {
            return Err(Error::config(
                "the directory of this handle has an empty name; name one on a shared file system, or none",
            ));
        }
        let tag = options.tag.as_deref();
        if let Some(tag) = tag.filter(|tag| !(1..=LONGEST_TAG).contains(&tag.len())) {
            return Err(Error::config(format!(
                "the tag of this call has {} bytes; give 1 to {LONGEST_TAG}",
                tag.len()
            )));
        }
        let call = Call {
            bound: options.bound,
            timeout: options.timeout.map(|timeout| timeout.min(FOR_EVER)),
            ..Call::new(operation, self.place(location))
        };
        Ok(match tag {
            Some(tag) => call.tagged(tag),
            None => call,
        })
    }

    /// The same for a call that has no payload which could be bounded.
    pub(crate) fn unbounded(
        &self,
        operation: Operation,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        Ok(Call {
            bound: None,
            ..self.made(operation, location)?
        })
    }

    /// The root of a call, if there is such a rank.
    pub(crate) fn root(&self, root: impl Into<Rank>) -> Result<Rank, Error> {
        self.world_size().rank(root.into().get())
    }

    /// The same for a call with a root.
    pub(crate) fn rooted(
        &self,
        operation: Operation,
        root: Rank,
        location: &Location<'_>,
    ) -> Result<Call, Error> {
        let root = self.root(root)?;
        Ok(self.made(operation, location)?.with_root(root))
    }

    /// Makes a call, and reads what it brings.
    pub(crate) fn run<'b, R>(
        &self,
        call: Call,
        retention: Retention,
        input: PayloadInput<'b>,
        read: impl FnOnce(&StartedCall<'b>, ReceivedParts) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let inner = &self.inner;
        step_aside(|| {
            StartedCall::new(inner, &self.request(), call, retention, input)?.finish(read)
        })
    }

    /// Starts a call, which reads what it brings when it is asked for.
    pub(crate) fn start<R>(
        &self,
        call: Call,
        input: PayloadInput<'_>,
        read: impl FnOnce(&StartedCall<'static>, ReceivedParts) -> Result<R, Error> + Send + 'static,
    ) -> Result<Pending<R>, Error> {
        let inner = &self.inner;
        let started =
            step_aside(|| StartedCall::new(inner, &self.request(), call, Retention::Kept, input))?;
        Ok(Pending::new(started.detached(), read))
    }

    /// The place of the call, for messages.
    pub(crate) fn place(&self, location: &Location<'_>) -> Site {
        let named = self.options.call.site.as_deref().map(Site::named);
        let known = named.or_else(|| self.options.site.clone());
        known.unwrap_or_else(|| self.here(location))
    }

    /// The way that the payload takes.
    pub(crate) fn request(&self) -> PathRequest {
        let default = self.inner.default_request();
        let transport = self.options.transport.unwrap_or(default.transport);
        let uses_files = transport != Transport::Memory;
        let directory = self.options.directory.as_ref();
        let directory = directory.or(default.directory.as_ref());
        PathRequest {
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
        let communicator = Communicator::solo();
        let default = communicator.inner.default_request();
        assert_eq!(communicator.call().request(), *default);
        let handle = communicator.with_transport(Transport::Filesys);
        let request = handle.with_directory("/shared").call().request();
        assert_eq!(request.transport, Transport::Filesys);
        assert_eq!(request.directory, Some("/shared".into()));
    }

    #[test]
    fn a_tag_says_something_and_is_short() {
        let communicator = Communicator::solo();
        for (tag, is_right) in [("", false), ("bleu", true), (&*"x".repeat(257), false)] {
            assert_eq!(communicator.call().tag(tag).barrier().is_ok(), is_right);
        }
    }

    #[test]
    fn a_directory_is_nothing_to_memory() {
        let communicator = Communicator::solo();
        let handle = communicator.with_directory("/shared");
        assert_eq!(
            handle.with_transport(Transport::Memory).request().directory,
            None
        );
    }
}
