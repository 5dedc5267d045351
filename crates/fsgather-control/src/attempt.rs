//! One try to be taken in over TCP: [`attempt`], and what follows it: [`await_welcome`].

use std::net::SocketAddr;

use fsgather_core::{Error, Rank};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    descriptors,
    message::{Join, ToCoordinator, ToMember, Welcome},
    noise::Credentials,
    transport::{Connection, HANDSHAKE_LIMIT, Reader, TransportError, Writer},
    wire::Purpose,
};

/// A world that may be ours.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    /// What its record says it is; none if it left none.
    pub(crate) communicator: Option<Uuid>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) credentials: Credentials,
    /// What a connection is for: to join, or to hear why that cannot be.
    pub(crate) purpose: Purpose,
}

/// A connection over which a world has taken us in.
pub(crate) struct Joining {
    pub(crate) writer: Writer,
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
}

/// What came of a try.
pub(crate) enum Outcome {
    /// It has taken us in: who rank 0 is, and the connection.
    Forming(String, Box<Joining>, Reader),
    /// It has formed without us.
    Formed(String),
    /// Somebody else has started it.
    Elsewhere(String),
    /// It says no.
    Refused(Error),
    /// There is no way to any of its addresses.
    Unreachable(String),
    /// A build with another wire protocol answers: with which, and what was tried.
    Foreign(u16, String),
    /// It is not ours, or does not answer.
    Failed(String),
    /// This process cannot try.
    Unable(Error),
}

/// What a world that is forming came to.
pub(crate) enum Ending {
    Welcome(Welcome, Reader),
    Aborted(Error),
    Lost(String),
    /// It forms anew in another way.
    Moved,
}

/// Tries all addresses of a candidate at the same time, and asks the first that answers to join.
pub(crate) async fn attempt(candidate: Candidate, join: Join) -> (Candidate, Outcome) {
    let mut connects = JoinSet::new();
    for address in candidate.addresses.clone() {
        let credentials = candidate.credentials.clone();
        let purpose = candidate.purpose;
        connects.spawn(async move {
            let connection = Connection::open(address, &credentials, purpose, Rank::ZERO).await;
            (address, connection)
        });
    }
    let mut failures = Vec::new();
    let mut somebody_answers = false;
    let mut foreign = None;
    let mut unable = None;
    while let Some(connected) = connects.join_next().await {
        match connected {
            Ok((address, Ok(connection))) => {
                let outcome = ask(connection, address, &candidate.credentials, join).await;
                return (candidate, outcome);
            }
            Ok((address, Err(error))) => {
                somebody_answers |= !matches!(error, TransportError::Unreachable(_));
                match &error {
                    TransportError::Version(theirs) => foreign = Some(*theirs),
                    TransportError::Unreachable(own) if descriptors::is_exhausted(own) => {
                        let why = format!("this rank cannot connect to rank 0: {error}");
                        unable = Some(Error::rendezvous(why));
                    }
                    _ => {}
                }
                failures.push(match (&error, candidate.communicator) {
                    // Nothing tells the two apart where there is no record.
                    (TransportError::NotAuthentic, None) => {
                        format!("{address}: {error}, or one that was given another FSGATHER_SECRET")
                    }
                    _ => format!("{address}: {error}"),
                });
            }
            Err(_) => {}
        }
    }
    failures.sort();
    let failures = failures.join(", ");
    let outcome = match (foreign, unable) {
        (Some(theirs), _) => Outcome::Foreign(theirs, failures),
        (None, Some(own)) => Outcome::Unable(own),
        (None, None) if somebody_answers => Outcome::Failed(failures),
        (None, None) => Outcome::Unreachable(failures),
    };
    (candidate, outcome)
}

/// Asks to join over a fresh connection.
async fn ask(
    mut connection: Connection,
    address: SocketAddr,
    credentials: &Credentials,
    join: Join,
) -> Outcome {
    let asked = async {
        connection.writer.send(&ToCoordinator::Join(join)).await?;
        connection.reader.next::<ToMember>().await
    };
    match tokio::time::timeout(HANDSHAKE_LIMIT, asked).await {
        Ok(Ok(ToMember::Forming { coordinator })) => {
            let joining = Joining {
                writer: connection.writer,
                address,
                credentials: credentials.clone(),
            };
            Outcome::Forming(coordinator, Box::new(joining), connection.reader)
        }
        Ok(Ok(ToMember::Formed { running })) => Outcome::Formed(running),
        Ok(Ok(ToMember::Elsewhere { why })) => Outcome::Elsewhere(why),
        Ok(Ok(ToMember::Abort { cause, .. })) => Outcome::Refused(cause),
        Ok(Ok(_)) => Outcome::Failed("an answer out of place".into()),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(_) => Outcome::Failed(TransportError::Silent.to_string()),
    }
}

/// Waits for the end of a world's forming, as long as it takes: rank 0 keeps the time.
pub(crate) async fn await_welcome(mut reader: Reader) -> Ending {
    loop {
        match reader.next::<ToMember>().await {
            Ok(ToMember::Welcome(welcome)) => return Ending::Welcome(welcome, reader),
            Ok(ToMember::Abort { cause, .. }) => return Ending::Aborted(cause),
            Ok(ToMember::Bye { .. }) => return Ending::Lost("it left".into()),
            Ok(ToMember::Moved) => return Ending::Moved,
            Ok(_) => {}
            Err(end) => return Ending::Lost(end.to_string()),
        }
    }
}
