//! The result of a search for a world: [`Found`] or [`Unmet`].

use std::net::SocketAddr;

use fsgather_core::Error;

use crate::{markers::Entered, message::Welcome, noise::Credentials, transport::Connection};

/// A world that has taken us in.
pub(crate) enum Found {
    Tcp(Box<FoundTcp>),
    Markers(Box<Entered>),
}

/// A world over TCP that has taken us in.
pub(crate) struct FoundTcp {
    pub(crate) welcome: Welcome,
    pub(crate) nonce: u128,
    pub(crate) connection: Connection,
    /// How it was reached, for the second connection.
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
}

/// Why a search has come to nothing.
#[derive(Debug)]
pub(crate) enum Unmet {
    /// The others hear this from nobody else.
    Own(Error),
    /// The others know, or it concerns this rank alone.
    Known(Error),
}

impl From<Error> for Unmet {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}
