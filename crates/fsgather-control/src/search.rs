//! What a member knows when it starts to look for its world: [`Search`].

use std::sync::Arc;

use fsgather_core::Noticeboard;

use crate::{config::Config, message::Join, noise::Credentials};

/// Where rank 0 may be.
#[derive(Clone)]
pub(crate) enum Whereabouts {
    /// It leaves word here.
    Board(Arc<dyn Noticeboard>),
    /// It listens at a known address.
    Address {
        host: String,
        port: u16,
        credentials: Credentials,
    },
}

/// What a member knows when it starts to look.
pub(crate) struct Search {
    pub(crate) whereabouts: Whereabouts,
    pub(crate) join: Join,
    pub(crate) config: Config,
}
