//! The knowledge with which a member starts to look for its world: [`Search`].

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use fsgather_core::RendezvousBackend;

use crate::{
    join::{
        config::{self, Config},
        refusal,
    },
    message::Join,
    tcp::noise::Credentials,
};

/// The place where rank 0 may be.
#[derive(Clone)]
pub(crate) enum Whereabouts {
    /// It leaves a record here.
    Board(Arc<dyn RendezvousBackend>),
    /// It listens at a known address.
    Address {
        host: String,
        port: u16,
        credentials: Credentials,
    },
}

/// A member's knowledge when it starts to look.
pub(crate) struct Search {
    pub(crate) whereabouts: Whereabouts,
    pub(crate) join: Join,
    pub(crate) config: Config,
}

impl Whereabouts {
    /// Its name in messages.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Board(board) => board.place(),
            Self::Address { host, port, .. } => format!("tcp://{host}:{port}"),
        }
    }

    /// Returns true if a name that others may have resolved otherwise means this host here.
    pub(crate) fn means_this_host(&self, addresses: &[SocketAddr]) -> bool {
        match self {
            Self::Board(_) => false,
            Self::Address { host, .. } => {
                host.parse::<IpAddr>().is_err()
                    && addresses.iter().all(|address| address.ip().is_loopback())
            }
        }
    }
}

impl Search {
    /// The result of an earlier meeting of this job; never ends if there is none.
    pub(crate) fn look_back(&self) -> impl Future<Output = String> + use<> {
        let Self {
            whereabouts,
            config,
            ..
        } = self;
        let board = match whereabouts {
            Whereabouts::Board(board) => Some(Arc::clone(board)),
            Whereabouts::Address { .. } => None,
        };
        let timeout = config.join_timeout;
        let addressee = config::addressee(config);
        async move {
            match board {
                Some(board) => refusal::look_back(board, timeout, addressee).await,
                None => std::future::pending().await,
            }
        }
    }
}
