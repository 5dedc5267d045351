//! Accepts connections: [`keep`] lets authenticated ranks in, and keeps other connections from exhausting it.
//!
//! At most [`WAITING_LIMIT`] connections are unauthenticated at a time, for two seconds each; when one more arrives, the
//! oldest is dropped. A rank that is dropped this way tries again. So ten thousand silent connections cost thirty-two
//! descriptors and do not disturb ranks that are in.

use std::{collections::VecDeque, future::Future, io, task::Poll, time::Duration};

use fsgather_core::{Backoff, sys::is_denied};
use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

use crate::{
    forked::keep_from_children,
    tcp::{descriptors, tasks},
};

/// Number of connections that may be unauthenticated at a time.
const WAITING_LIMIT: usize = 32;

/// Accepts connections for as long as it is run; `answer` brings each from its first byte to its purpose.
///
/// Once the other side is known, later steps have to run in a task of their own, so that `answer` is finished and will not
/// be aborted. `report_refusal` gets the error each time that this process begins to be refused connections, because it may
/// not open more files or `accept4` is denied: processes that have connected then get no answer.
pub(crate) async fn keep<F>(
    listeners: Vec<TcpListener>,
    answer: impl Fn(TcpStream) -> F,
    report_refusal: impl Fn(&io::Error),
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut waiting: VecDeque<AbortHandle> = VecDeque::new();
    let mut pauses = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));
    let mut is_refused = false;
    loop {
        let stream = match accept(&listeners).await {
            Ok(stream) => {
                keep_from_children(&stream);
                pauses.reset();
                is_refused = false;
                stream
            }
            Err(error) => {
                if !is_refused && (descriptors::is_exhausted(&error) || is_denied(&error)) {
                    is_refused = true;
                    let why = descriptors::explain(&error, "accept4");
                    fsgather_core::warn!("connections of other ranks have to wait: {why}");
                    report_refusal(&error);
                }
                tracing::debug!("cannot accept a connection: {error}");
                // A connection that is not let in yet may make room.
                if let Some(oldest) = waiting.pop_front() {
                    oldest.abort();
                }
                tokio::time::sleep(pauses.next_pause()).await;
                continue;
            }
        };
        waiting.retain(|task| !task.is_finished());
        if waiting.len() >= WAITING_LIMIT
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.abort();
        }
        waiting.push_back(tasks::spawn(answer(stream)).abort_handle());
    }
}

/// The next connection at any of these listeners.
pub(crate) async fn accept(listeners: &[TcpListener]) -> io::Result<TcpStream> {
    std::future::poll_fn(|context| {
        let ready = listeners
            .iter()
            .find_map(|listener| match listener.poll_accept(context) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            });
        ready.map_or(Poll::Pending, |accepted| {
            Poll::Ready(accepted.map(|(stream, _)| stream))
        })
    })
    .await
}
