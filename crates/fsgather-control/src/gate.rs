//! Rank 0's door: [`serve`] lets members in, and refuses those who cannot be.

use std::sync::Arc;

use fsgather_core::Rank;
use tokio::net::{TcpListener, TcpStream};

use crate::{
    door,
    hub::Hub,
    message::{ToCoordinator, ToMember},
    noise::Credentials,
    transport::{Connection, HANDSHAKE_LIMIT, Reader, TransportError},
    wire::Purpose,
};

/// Accepts connections for as long as it is run.
pub(crate) async fn serve(hub: Arc<Hub>, listener: TcpListener, credentials: Credentials) {
    door::keep(listener, |stream| {
        answer(Arc::clone(&hub), stream, credentials.clone())
    })
    .await;
}

/// Brings one connection from its first byte to its purpose. What follows runs in tasks of its own,
/// so that this one is finished, and not to be aborted, once the other side is known.
async fn answer(hub: Arc<Hub>, stream: TcpStream, credentials: Credentials) {
    let (mut connection, purpose) = match Connection::accept(stream, &credentials, Rank::ZERO).await
    {
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
