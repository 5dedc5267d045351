//! Which place a call asks for: [`Route`].

use std::path::PathBuf;

use crate::settings::Transport;

/// Which place a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Files, memory, or whatever works.
    pub(crate) transport: Transport,
    /// Another directory than the communicator's own.
    pub(crate) directory: Option<PathBuf>,
}
