//! Rank 0's server: [`serve`] lets members in, and refuses other processes.

use std::{io, sync::Arc, time::Duration};

use fsgather_core::{Backoff, Error, Rank};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    join::config::IsRunning,
    message::{JoinReply, JoinRequest, RefusalReason, ToCoordinator, ToMember},
    tcp::{
        acceptor,
        connection::{Connection, ConnectionReader, HANDSHAKE_LIMIT, TransportError},
        descriptors,
        node::TcpNode,
        noise::Credentials,
        tasks,
    },
    thread_call::ThreadCall,
    wire::ConnectionPurpose,
};

/// Accepts connections for as long as it is run.
pub(crate) async fn serve(
    node: Arc<TcpNode>,
    listeners: Vec<TcpListener>,
    credentials: Credentials,
    is_running: Arc<IsRunning>,
) {
    let answering = |stream| {
        answer(
            Arc::clone(&node),
            node.next_serial(),
            stream,
            credentials.clone(),
            Arc::clone(&is_running),
        )
    };
    acceptor::keep(listeners, answering, |error| give_up(&node, error)).await;
}

/// Ends a world that cannot form, since no other rank can be let in.
fn give_up(node: &TcpNode, error: &io::Error) {
    let why = descriptors::explain(error, "accept4");
    let cause = Error::rendezvous(format!("rank 0 cannot let all ranks join: {why}"));
    node.coordinate(|coordinator, _| {
        if !coordinator.is_open() && coordinator.failure().is_none() {
            coordinator.give_up(&cause);
        }
    });
}

/// Brings one connection from its first byte to its purpose. Later steps run in tasks of their own, so that this one is
/// finished, and will not be aborted, once the other side is known.
async fn answer(
    node: Arc<TcpNode>,
    serial: usize,
    stream: TcpStream,
    credentials: Credentials,
    is_running: Arc<IsRunning>,
) {
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
        (ConnectionPurpose::Control, ToCoordinator::Join(JoinRequest::Join(join))) => {
            let rank = join.rank;
            let mut refused = Some(connection);
            let its = Arc::clone(&node);
            let refusal = node.join(join, serial, |frames| {
                if let Some(Connection { reader, writer }) = refused.take() {
                    tasks::spawn(frames.write_to(writer));
                    tasks::spawn(async move {
                        its.serve_member(rank, serial, reader).await;
                        await_return(&its, rank, is_running).await;
                    });
                }
            });
            if let (Some(refusal), Some(connection)) = (refusal, refused) {
                tasks::spawn(refuse(connection, refusal));
            }
        }
        (ConnectionPurpose::Mismatch, ToCoordinator::Join(JoinRequest::Join(join))) => {
            let refusal = node.coordinate(|coordinator, _| coordinator.report_mismatch(&join));
            if let Some(refusal) = refusal {
                tasks::spawn(refuse(connection, refusal));
            }
        }
        (ConnectionPurpose::Watch, ToCoordinator::Join(JoinRequest::Watch { rank, nonce })) => {
            let known = node
                .coordinate(|coordinator, _| coordinator.is_watched_by(rank, nonce))
                .unwrap_or(false);
            if known && connection.writer.keep_alive().is_ok() {
                tasks::spawn(watch(node, rank, connection));
            }
        }
        _ => tracing::debug!("a connection began with a message out of place"),
    }
}

/// Watches whether a process that may ask again has ended instead, if that can be seen.
async fn await_return(node: &TcpNode, rank: Rank, is_running: Arc<IsRunning>) {
    let mut pauses = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    let missed = || node.coordinate(|coordinator, _| coordinator.is_missed(rank));
    while let Some(process) = missed().flatten() {
        let is_running = Arc::clone(&is_running);
        let runs = ThreadCall::start(move || is_running(&process));
        if let Ok(false) = runs.finish().await {
            node.coordinate(|coordinator, _| coordinator.stays_away(rank));
        } else {
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }
}

/// Sends a process the reason why it cannot join, and waits until it has read that.
async fn refuse(mut connection: Connection, reason: RefusalReason) {
    let refusal = ToMember::Join(JoinReply::Refused { reason });
    if connection.writer.send(&refusal).await.is_ok() {
        connection.writer.shut().await;
        let _ = tokio::time::timeout(HANDSHAKE_LIMIT, connection.reader.drain()).await;
    }
}

/// Waits for the end of a silent connection.
async fn watch(node: Arc<TcpNode>, rank: Rank, connection: Connection) {
    let how = silence(connection.reader).await;
    node.coordinate(|coordinator, now| match how {
        // The process closed it, or died: its last messages may still be on the other connection.
        TransportError::Closed => coordinator.suspect(rank, now),
        other => coordinator.lost(rank, &other.to_string()),
    });
}

/// Reads from a connection without messages until it ends.
pub(crate) async fn silence(mut reader: ConnectionReader) -> TransportError {
    match reader.next::<ToMember>().await {
        Ok(_) => TransportError::Stranger,
        Err(end) => end,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::SocketAddr,
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        time::Instant,
    };

    use fsgather_core::{Activity, ChannelId, Phase, ProcessId, WorldSize};
    use fsgather_testkit::pace::within_patience;
    use uuid::Uuid;

    use super::*;
    use crate::{
        coordinator::Coordinator,
        fixtures,
        join::{
            config::{Config, Meeting},
            job_credentials::JobCredentials,
        },
        machines::Machines,
        message::{CallRequest, Join, Probe},
    };

    /// Rank 0 of a world of two ranks that is forming, with its server open. It has no timer, so that nothing fails here
    /// because of time.
    struct TestServer {
        node: Arc<TcpNode>,
        address: SocketAddr,
        credentials: Credentials,
        /// True if the processes that have joined run, as far as rank 0 can see.
        runs: Arc<AtomicBool>,
    }

    fn join(rank: u32) -> Join {
        fixtures::join(rank, 2, rank.into())
    }

    impl TestServer {
        async fn open() -> Self {
            let credentials = Credentials {
                communicator: Uuid::nil(),
                secret: [1; 32],
                job_credentials: JobCredentials::default(),
            };
            let runs = Arc::new(AtomicBool::new(true));
            let its = Arc::clone(&runs);
            let is_running: Arc<IsRunning> = Arc::new(move |_| its.load(Ordering::SeqCst));
            let meeting = Meeting::Address {
                host: "localhost".into(),
                port: 0,
                communicator: credentials.communicator,
                secret: credentials.secret,
            };
            let world_size = WorldSize::new(2).unwrap();
            let config = Config {
                is_running: Arc::clone(&is_running),
                ..Config::new(Rank::ZERO, world_size, ProcessId::default(), meeting)
            };
            let machines = Machines::of_root(&config, Uuid::nil(), Duration::ZERO, Instant::now());
            let node = Arc::new(TcpNode::over_tcp(machines, 2));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (its, known) = (Arc::clone(&node), credentials.clone());
            tokio::spawn(serve(its, vec![listener], known, is_running));
            Self {
                node,
                address,
                credentials,
                runs,
            }
        }

        async fn connect(&self) -> Connection {
            let purpose = ConnectionPurpose::Control;
            let (to, rank) = (self.address, Rank::ZERO);
            let connection = Connection::open(to, &self.credentials, purpose, rank);
            connection.await.unwrap()
        }

        /// Asks to be rank 1, and gets the answer that the world is forming.
        async fn ask(&self) -> Connection {
            let mut connection = self.connect().await;
            let join = ToCoordinator::Join(JoinRequest::Join(join(1)));
            connection.writer.send(&join).await.unwrap();
            let answer = connection.reader.next::<ToMember>().await.unwrap();
            assert!(
                matches!(answer, ToMember::Join(JoinReply::Forming { .. })),
                "{answer:?}"
            );
            connection
        }

        async fn missed(&self) {
            let missed = |coordinator: Option<&Coordinator>| coordinator?.is_missed(Rank::new(1));
            self.node.until(|_, coordinator| missed(coordinator)).await;
        }

        async fn failure(&self) -> Error {
            let failure = |coordinator: Option<&Coordinator>| coordinator?.failure();
            self.node.until(|_, coordinator| failure(coordinator)).await
        }
    }

    /// Runs a test for which no time passes, so that no limit of a connection ends it on a busy machine.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of `ThreadCall` would not hold the clock; without one the test may panic"
    )]
    fn with_stopped_clock(test: impl Future<Output = ()>) {
        within_patience(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let (_test_runs, test_has_ended) = mpsc::channel::<()>();
                // The clock would jump to the next limit whenever all tasks wait, but not while a blocking task runs.
                tokio::task::spawn_blocking(move || test_has_ended.recv());
                test.await;
            });
        });
    }

    #[test]
    fn what_is_queued_for_a_rank_has_not_been_handed_over() {
        with_stopped_clock(async {
            let server = TestServer::open().await;
            assert!(server.node.is_flushed());
            let frames = server.node.attach(Rank::new(1), 1);
            let joins = |coordinator: &mut Coordinator, now| coordinator.join(join(1), now);
            let answer = server.node.coordinate(joins);
            assert_eq!(answer, Some(Ok(())));
            assert!(!server.node.is_flushed());
            drop(frames);
        });
    }

    #[test]
    fn who_gives_a_try_up_and_asks_again_is_in() {
        with_stopped_clock(async {
            let server = TestServer::open().await;
            // It is the last to join: the welcome goes to a connection that is closed.
            drop(server.ask().await);
            server.missed().await;
            let mut again = server.ask().await;
            let welcome = again.reader.next::<ToMember>().await.unwrap();
            assert!(
                matches!(welcome, ToMember::Join(JoinReply::Welcome(_))),
                "{welcome:?}"
            );
            let coordinator = server.node.coordinate(|c, _| (c.failure(), c.is_open()));
            assert_eq!(coordinator, Some((None, true)));
            // From now on it knows that it is in: the end of its connection is its own.
            let word = ToCoordinator::Call(CallRequest::Fail {
                channel: ChannelId::of_group(ChannelId::WORLD, &[Rank::ZERO], 7),
                cause: Error::config("of a group that nobody knows"),
                activity: Activity::outside(Phase::Computing),
            });
            again.writer.send(&word).await.unwrap();
            drop(again);
            let failure = server.failure().await.to_string();
            assert!(failure.contains("rank 1"), "{failure}");
        });
    }

    #[test]
    fn a_request_on_an_older_connection_replaces_no_newer_one() {
        with_stopped_clock(async {
            let server = TestServer::open().await;
            let mut before = server.connect().await;
            let mut again = server.ask().await;
            // It has been on its way for longer.
            let join = ToCoordinator::Join(JoinRequest::Join(join(1)));
            before.writer.send(&join).await.unwrap();
            let end = before.reader.next::<ToMember>().await.unwrap_err();
            assert!(matches!(end, TransportError::Closed), "{end:?}");
            drop(before);
            let welcome = again.reader.next::<ToMember>().await.unwrap();
            assert!(
                matches!(welcome, ToMember::Join(JoinReply::Welcome(_))),
                "{welcome:?}"
            );
            again
                .writer
                .send(&ToCoordinator::Probe(Probe::Ask))
                .await
                .unwrap();
            let answer = again.reader.next::<ToMember>().await.unwrap();
            assert!(matches!(answer, ToMember::Probe(Probe::Here)), "{answer:?}");
            assert_eq!(server.node.coordinate(|c, _| c.failure()), Some(None));
        });
    }

    #[test]
    fn who_gives_a_try_up_and_has_ended_is_lost_at_once() {
        with_stopped_clock(async {
            let server = TestServer::open().await;
            let connection = server.ask().await;
            server.runs.store(false, Ordering::SeqCst);
            drop(connection);
            let failure = server.failure().await.to_string();
            assert!(failure.contains("rank 1"), "{failure}");
        });
    }
}
