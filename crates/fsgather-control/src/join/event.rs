//! The story of a member's search: of each world that may be its own, [`JoinEvent`]; at the end a [`JoinedWorld`] or a
//! [`JoinFailure`].

use std::net::SocketAddr;

use fsgather_core::Error;

use crate::{
    files::EnteredFiles,
    message::{RefusalReason, Welcome},
    tcp::{
        connection::{Connection, ConnectionReader, ConnectionWriter},
        noise::Credentials,
    },
};

/// What has become of asking one world to be taken in.
pub(crate) enum JoinEvent {
    /// Rank 0 has taken this process in and waits for the others.
    Forming {
        /// Rank 0: host and pid.
        coordinator: String,
        /// The connection to it, in both directions, where the world is over TCP.
        connection: Option<(Box<Joining>, ConnectionReader)>,
    },
    /// Rank 0 does not take this process in, or the world has failed.
    Refused(RefusalReason),
    /// This process cannot go on.
    Unable(Error),
    /// There is no way to any of its addresses.
    Unreachable(String),
    /// A build with another wire protocol answers: with which, and what was tried.
    Foreign(u16, String),
    /// It is not ours, or nobody is there.
    Failed(String),
    /// The world has formed, over TCP.
    WelcomeOverTcp(Welcome, ConnectionReader),
    /// The world has formed, over files.
    WelcomeOverFiles(Box<EnteredFiles>),
    /// Rank 0 was lost after it had taken this process in.
    Lost(String),
    /// The world forms anew in another way.
    Moved,
}

/// A connection over which a world has taken us in.
pub(crate) struct Joining {
    pub(crate) writer: ConnectionWriter,
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
}

/// A world that has formed with this rank.
pub(crate) enum JoinedWorld {
    Tcp(Box<EnteredTcp>),
    Files(Box<EnteredFiles>),
}

/// A world over TCP that has formed with this rank.
pub(crate) struct EnteredTcp {
    pub(crate) welcome: Welcome,
    pub(crate) nonce: u128,
    pub(crate) connection: Connection,
    /// How it was reached, for the second connection.
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
}

/// The reason why a rank has not joined.
#[derive(Debug)]
pub(crate) enum JoinFailure {
    /// The others hear this from nobody else.
    Own(Error),
    /// The others know, or it concerns this rank alone.
    Known(Error),
}

impl From<Error> for JoinFailure {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}
