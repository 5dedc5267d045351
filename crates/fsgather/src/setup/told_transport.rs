//! The transport of rank 0's settings, as the other ranks receive it: [`ToldTransport`].

use fsgather_config::settings::Transport;
use serde::{Deserialize, Serialize};

use crate::{group_state::GroupState, payload::path_request::PathRequest};

/// A transport and its origin.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ToldTransport {
    pub(super) value: Transport,
    /// True if a setting of the user or of the program chose it, false if a command that moves no payloads did.
    pub(super) is_setting: bool,
}

impl ToldTransport {
    /// Returns the transport of this rank.
    pub(super) fn own(inner: &GroupState, request: &PathRequest) -> Self {
        Self {
            value: request.transport,
            is_setting: !inner.world.moves_no_payloads,
        }
    }
}
