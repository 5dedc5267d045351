//! The transport that rank 0 was told, as the other ranks learn it: [`ToldTransport`].

use fsgather_config::settings::Transport;
use serde::{Deserialize, Serialize};

use crate::{group_state::GroupState, payload::path_request::PathRequest};

/// A transport and its origin.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ToldTransport {
    pub(super) value: Transport,
    /// Whether a setting of the user or of the program says so, not a command that moves no payloads.
    pub(super) is_setting: bool,
}

impl ToldTransport {
    /// Returns that of this rank.
    pub(super) fn own(inner: &GroupState, request: &PathRequest) -> Self {
        Self {
            value: request.transport,
            is_setting: !inner.world.moves_no_payloads,
        }
    }
}
