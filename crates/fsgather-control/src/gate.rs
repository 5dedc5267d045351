//! Rank 0's door: [`serve`] lets members in and keeps strangers from wearing it out.
//!
//! At most [`WAITING_LIMIT`] connections are unauthenticated at a time, for two seconds each; when one
//! more comes, the oldest goes. A member that is pushed out this way tries again. So ten thousand silent
//! connections cost thirty-two descriptors and do not disturb those who are in.

use std::{collections::VecDeque, sync::Arc};

use fsgather_core::Rank;
use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

use crate::{
    hub::Hub,
    message::{ToCoordinator, ToMember},
    noise::Credentials,
    transport::{Connection, HANDSHAKE_LIMIT, Reader, TransportError},
    wire::Purpose,
};

/// How many connections may be unauthenticated at a time.
const WAITING_LIMIT: usize = 32;

/// Accepts connections for as long as it is run.
pub(crate) async fn serve(hub: Arc<Hub>, listener: TcpListener, credentials: Credentials) {
    let mut waiting: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: make room rather than spin.
                tracing::debug!("cannot accept a connection: {error}");
                if let Some(oldest) = waiting.pop_front() {
                    oldest.abort();
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            }
        };
        waiting.retain(|task| !task.is_finished());
        if waiting.len() >= WAITING_LIMIT
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.abort();
        }
        let answer = answer(Arc::clone(&hub), stream, credentials.clone());
        waiting.push_back(tokio::spawn(answer).abort_handle());
    }
}

/// Brings one connection from its first byte to its purpose. What follows runs in tasks of its own,
/// so that this one is finished, and not to be aborted, once the other side is known.
async fn answer(hub: Arc<Hub>, stream: TcpStream, credentials: Credentials) {
    let (mut connection, purpose) = match Connection::accept(stream, &credentials).await {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::debug!("a connection was turned away: {error}");
            return;
        }
    };
    let first = connection.reader.next::<ToCoordinator>();
    let Ok(Ok(first)) = tokio::time::timeout(HANDSHAKE_LIMIT, first).await else {
        return;
    };
    match (purpose, first) {
        (Purpose::Control, ToCoordinator::Join(join)) => {
            let rank = join.rank;
            let mut refused = Some(connection);
            let its = Arc::clone(&hub);
            let refusal = hub.join(join, |serial, frames| {
                if let Some(Connection { reader, writer }) = refused.take() {
                    tokio::spawn(frames.write_to(writer));
                    tokio::spawn(async move { its.serve_member(rank, serial, reader).await });
                }
            });
            if let (Some(refusal), Some(connection)) = (refusal, refused) {
                tokio::spawn(refuse(connection, refusal));
            }
        }
        (Purpose::Watch, ToCoordinator::Watch { rank, nonce }) => {
            let known = hub
                .coordinate(|coordinator, _| coordinator.knows(rank, nonce))
                .unwrap_or(false);
            if known && connection.writer.keep_alive().is_ok() {
                tokio::spawn(watch(hub, rank, connection));
            }
        }
        _ => tracing::debug!("a connection began with a message out of place"),
    }
}

/// Tells a process why it cannot join, and waits until it has heard.
async fn refuse(mut connection: Connection, refusal: ToMember) {
    if connection.writer.send(&refusal).await.is_ok() {
        connection.writer.shut().await;
        let _ = tokio::time::timeout(HANDSHAKE_LIMIT, connection.reader.drain()).await;
    }
}

/// Waits for the end of a silent connection.
async fn watch(hub: Arc<Hub>, rank: Rank, connection: Connection) {
    let how = silence(connection.reader).await;
    hub.coordinate(|coordinator, now| match how {
        // The process closed it, or died: its last words may still be on the other connection.
        TransportError::Closed => coordinator.suspect(rank, now),
        other => coordinator.lost(rank, &other.to_string()),
    });
}

/// Reads from a connection on which nothing is said, until it ends.
pub(crate) async fn silence(mut reader: Reader) -> TransportError {
    match reader.next::<ToMember>().await {
        Ok(_) => TransportError::Stranger,
        Err(end) => end,
    }
}
