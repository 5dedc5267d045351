//! The options of calls and handles: [`CallOptions`], [`HandleOptions`].

use std::{path::PathBuf, time::Duration};

use fsgather_config::settings::Transport;
use fsgather_core::Site;

/// How one call is made, for programs that keep it: [`Communicator::call_with`](crate::Communicator::call_with).
/// [`CallBuilder`](crate::CallBuilder) describes each field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// [`CallBuilder::timeout`](crate::CallBuilder::timeout).
    pub timeout: Option<Duration>,
    /// [`CallBuilder::bound`](crate::CallBuilder::bound).
    pub bound: Option<u64>,
    /// [`CallBuilder::tag`](crate::CallBuilder::tag).
    pub tag: Option<String>,
    /// [`CallBuilder::site`](crate::CallBuilder::site).
    pub site: Option<String>,
}

/// How the calls of one handle are made.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandleOptions {
    /// The transport of large payloads, if not the communicator's own.
    pub(crate) transport: Option<Transport>,
    /// The shared directory, if not the communicator's own.
    pub(crate) directory: Option<PathBuf>,
    /// Options of the single call for which the handle was made.
    pub(crate) call: CallOptions,
    /// The place of that call, where it is known already.
    pub(crate) site: Option<Site>,
}
