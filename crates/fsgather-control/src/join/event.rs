//! The events of a member's search: [`JoinEvent`] of each world that may be its own; [`JoinedWorld`] or [`JoinFailure`] at the end.

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

/// The result of asking one world to accept this rank.
pub(crate) enum JoinEvent {
    /// Rank 0 has accepted this process and waits for the others.
    Forming {
        /// Rank 0: host and pid.
        coordinator: String,
        /// The connection to it, in both directions, if the world is over TCP.
        connection: Option<(Box<Joining>, ConnectionReader)>,
    },
    /// Rank 0 does not accept this process, or the world has failed.
    Refused(RefusalReason),
    /// This process cannot continue.
    Unable(Error),
    /// There is no way to any of its addresses.
    Unreachable(String),
    /// A build with another wire protocol answers: that protocol, and the tries.
    Foreign(u16, String),
    /// It is not ours, or no process is there.
    Failed(String),
    /// The world has formed, over TCP.
    WelcomeOverTcp(Welcome, ConnectionReader),
    /// The world has formed, over files.
    WelcomeOverFiles(Box<EnteredFiles>),
    /// Rank 0 was lost after it had accepted this process.
    Lost(String),
    /// The world forms anew in another way.
    Moved,
}

/// A connection to a world that has accepted us.
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
    /// Its address, for the second connection.
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
}

/// The reason why a rank has not joined.
#[derive(Debug)]
pub(crate) enum JoinFailure {
    /// The others do not learn this from another rank.
    Own(Error),
    /// The others know it, or it concerns only this rank.
    Known(Error),
}

impl From<Error> for JoinFailure {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}
