//! One try to be accepted over TCP, [`attempt`], and the wait after it, [`await_welcome`].

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use fsgather_core::{Error, Rank};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    join::event::{JoinEvent, Joining},
    message::{CallReply, EndReply, Join, JoinReply, JoinRequest, ToCoordinator, ToMember},
    tcp::{
        connection::{Connection, ConnectionReader, HANDSHAKE_LIMIT, TransportError},
        descriptors,
        noise::Credentials,
    },
    wire::ConnectionPurpose,
};

/// A world that may be ours.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    /// Communicator in its record; none if it left none.
    pub(crate) communicator: Option<Uuid>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) credentials: Credentials,
    /// Purpose of the connection: to join, or to learn why that cannot be.
    pub(crate) purpose: ConnectionPurpose,
}

/// Tries all addresses of a candidate at the same time, and asks the first that answers to join.
pub(crate) async fn attempt(candidate: Candidate, join: Join) -> (String, JoinEvent) {
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
                let event = ask(connection, address, &candidate.credentials, join).await;
                return (candidate.name, event);
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
                    // Without a record the two cases look the same.
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
    let event = match (foreign, unable) {
        (Some(theirs), _) => JoinEvent::Foreign(theirs, failures),
        (None, Some(own)) => JoinEvent::Unable(own),
        (None, None) if somebody_answers => JoinEvent::Failed(failures),
        (None, None) => JoinEvent::Unreachable(failures),
    };
    (candidate.name, event)
}

/// Asks to join over a fresh connection.
async fn ask(
    mut connection: Connection,
    address: SocketAddr,
    credentials: &Credentials,
    join: Join,
) -> JoinEvent {
    let asked = async {
        connection
            .writer
            .send(&ToCoordinator::Join(JoinRequest::Join(join)))
            .await?;
        connection.reader.next::<ToMember>().await
    };
    match tokio::time::timeout(HANDSHAKE_LIMIT, asked).await {
        Ok(Ok(ToMember::Join(JoinReply::Forming { coordinator }))) => {
            let joining = Joining {
                writer: connection.writer,
                address,
                credentials: credentials.clone(),
            };
            JoinEvent::Forming {
                coordinator,
                connection: Some((Box::new(joining), connection.reader)),
            }
        }
        Ok(Ok(ToMember::Join(JoinReply::Refused { reason }))) => JoinEvent::Refused(reason),
        Ok(Ok(_)) => JoinEvent::Failed("an answer out of place".into()),
        Ok(Err(error)) => JoinEvent::Failed(error.to_string()),
        Err(_) => JoinEvent::Failed(TransportError::Silent.to_string()),
    }
}

/// Waits for the end of a world's forming, as long as it takes: rank 0 keeps the time. Counts rank 0's messages meanwhile.
pub(crate) async fn await_welcome(mut reader: ConnectionReader, words: &AtomicUsize) -> JoinEvent {
    loop {
        let said = reader.next::<ToMember>().await;
        words.fetch_add(1, Ordering::Relaxed);
        match said {
            Ok(ToMember::Join(JoinReply::Welcome(welcome))) => {
                return JoinEvent::WelcomeOverTcp(welcome, reader);
            }
            Ok(ToMember::Call(CallReply::Abort { cause, .. })) => {
                return JoinEvent::Refused(cause.into());
            }
            Ok(ToMember::End(EndReply::Bye { .. })) => return JoinEvent::Lost("it left".into()),
            Ok(ToMember::Join(JoinReply::Moved)) => return JoinEvent::Moved,
            Ok(_) => {}
            Err(end) => return JoinEvent::Lost(end.to_string()),
        }
    }
}
