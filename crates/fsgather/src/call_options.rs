//! Options of calls that are made in another way than the communicator's own: [`CallOptions`].

use std::{path::PathBuf, time::Duration};

use fsgather_config::settings::Transport;
use fsgather_core::Site;

/// How a call is made, where that differs from the communicator's own way, for programs that keep it:
/// [`Communicator::call_with`](crate::Communicator::call_with). [`CallBuilder`](crate::CallBuilder) says what each means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// [`CallBuilder::transport`](crate::CallBuilder::transport).
    pub transport: Option<Transport>,
    /// [`CallBuilder::directory`](crate::CallBuilder::directory).
    pub directory: Option<PathBuf>,
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
pub(crate) struct CallSettings {
    pub(crate) options: CallOptions,
    /// The place of the call, where it is known already.
    pub(crate) site: Option<Site>,
}
