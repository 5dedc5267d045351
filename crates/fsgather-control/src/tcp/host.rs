//! A world over TCP: [`host`] forms it, [`enter`] takes a place in it.

use std::{
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot};
use uuid::Uuid;

use crate::{
    carrier::Carrier,
    join::{
        addresses,
        config::{self, Config, Control, Joined, Meeting},
        event::{EnteredTcp, JoinFailure, JoinedWorld},
        job_credentials::JobCredentials,
        record::{RendezvousRecord, UnreachableReport},
        record_keeper::{RecordKeeper, is_settled},
        refusal,
        search::{Search, Whereabouts},
        seeker::seek,
    },
    machines::Machines,
    message::{JoinRequest, ToCoordinator},
    tcp::{
        carrier::TcpCarrier,
        connection::{self, Connection, TransportError},
        descriptors,
        node::TcpNode,
        noise::Credentials,
        runtime::CallerRuntime,
        server, tasks,
    },
    thread_call::{ThreadCall, without_a_thread},
    wire::ConnectionPurpose,
};
use fsgather_core::{
    Activity, Backoff, ChannelId, Error, Phase, ProcessId, Rank, RendezvousBackend, lock,
    sys::random::fresh,
};

/// Time within which ranks answer what they are doing, unless their hosts are very busy.
const LEAD: Duration = Duration::from_secs(2);

/// Time within which ranks that look for rank 0 at an address ask it again. There is no directory in which they would find
/// the refusal of a meeting that has failed.
const RETRY_TIME: Duration = Duration::from_secs(3);

/// The reason why rank 0 has no world over TCP.
pub(crate) enum NotFormed {
    /// There will be none at all.
    Failed(Error),
    /// TCP does not work.
    Unreachable {
        /// The proof, as a sentence.
        why: String,
        /// True if there was a record that others can have seen.
        is_posted: bool,
    },
}

impl From<Error> for NotFormed {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The error of a runtime that cannot be started.
pub(crate) fn no_runtime(error: &std::io::Error) -> Error {
    let why = descriptors::explain(error, "epoll_create1 or eventfd2");
    Error::config(format!("cannot start the network runtime: {why}"))
}

fn start_runtime(config: &Config) -> Result<CallerRuntime, Error> {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| no_runtime(&error))?;
    CallerRuntime::new(
        runtime,
        format!("fsgather-{}", config.rank),
        &config.threads(),
    )
    .map_err(|error| without_a_thread(&error))
}

/// Forms a world on rank 0. If TCP does not work and files may, ranks that have joined are sent to look again.
pub(crate) fn host(config: &Config) -> Result<Joined, NotFormed> {
    let runtime = start_runtime(config)?;
    descriptors::check(config.world_size)?;
    let now = Instant::now();
    let (credentials, ports) = match &config.meeting {
        Meeting::Board(_) => (
            fresh_credentials(&config.job_credentials),
            config.ports.clone(),
        ),
        Meeting::Address {
            port,
            communicator,
            secret,
            ..
        } => {
            let credentials = Credentials {
                communicator: *communicator,
                secret: *secret,
                job_credentials: credentials_at_an_address(&config.job_credentials),
            };
            (credentials, *port..=*port)
        }
    };
    let communicator = Uuid::new_v4();
    let machines = Machines::of_root(config, communicator, LEAD, now);
    let node = Arc::new(TcpNode::over_tcp(machines, config.world_size.count()));
    // From here on members can learn of failures.
    let (listeners, port) = listen(config, &runtime, ports)?;
    runtime.spawn(server::serve(
        Arc::clone(&node),
        listeners,
        credentials.clone(),
        Arc::clone(&config.is_running),
    ));
    runtime.spawn({
        let node = Arc::clone(&node);
        async move { node.keep_time().await }
    });
    node.obey_interrupt(config);
    node.open_eyes(config);
    let board = match &config.meeting {
        Meeting::Board(board) => Some(Arc::clone(board)),
        Meeting::Address { .. } => None,
    };
    let posted = board.as_ref().map_or(Ok(()), |board| {
        leave_word(config, &**board, port, &credentials)
    });
    let formed = posted.and_then(|()| {
        runtime.run_asking(
            form(config, &node, board.as_ref(), &credentials),
            &config.interrupt,
        )?
    });
    let line = TcpCarrier::new(Arc::clone(&node), runtime, board.clone());
    match formed {
        Ok(processes) => {
            line.watch_siblings(config, &processes);
            Ok(config::joined(config, communicator, processes, true, line))
        }
        Err(NotFormed::Failed(failure)) => {
            let failure = config::raised_while_joining(config, failure);
            line.tell(&failure);
            if board.is_none() && config.interrupt.reason().is_none() && !has_waited(&failure) {
                line.linger(RETRY_TIME);
            }
            line.give_up(&failure);
            Err(failure.into())
        }
        Err(unreachable)
            if config.control == Control::Auto && config.mailboxes.is_some() && !config.encrypt =>
        {
            node.coordinate(|coordinator, _| coordinator.move_on());
            line.settle(Duration::from_secs(1));
            line.shut_down();
            Err(unreachable)
        }
        Err(NotFormed::Unreachable { why, is_posted }) => {
            let failure = cannot_be_reached(&why, config.encrypt);
            line.give_up(&failure);
            match board {
                Some(board) if is_posted => {
                    refusal::refuse(config, &*board, credentials.communicator, &failure);
                }
                Some(board) => refusal::refuse_unseen(config, &*board, &failure),
                None => {}
            }
            Err(failure.into())
        }
    }
}

/// Returns true if all ranks that were there have had the time to ask.
const fn has_waited(failure: &Error) -> bool {
    matches!(failure, Error::Timeout { .. })
}

/// Leaves the record for the others.
///
/// It runs on the caller's thread, which may be the only one that is allowed to: a program's own rendezvous may be bound to
/// it. Meanwhile the progress thread answers ranks that have found the record.
fn leave_word(
    config: &Config,
    board: &dyn RendezvousBackend,
    port: u16,
    credentials: &Credentials,
) -> Result<(), NotFormed> {
    let record = record(config, port, credentials)?;
    if record.addresses.is_empty() {
        let host = &config.process.host;
        return Err(NotFormed::Unreachable {
            why: format!("{host}, where rank 0 is, has no network address"),
            is_posted: false,
        });
    }
    Ok(board.post(&record.to_bytes())?)
}

/// Waits until all have come or something fails.
async fn form(
    config: &Config,
    node: &Arc<TcpNode>,
    board: Option<&Arc<dyn RendezvousBackend>>,
    credentials: &Credentials,
) -> Result<Vec<ProcessId>, NotFormed> {
    let (object, objected) = oneshot::channel();
    if let Some(board) = board {
        let keeper = Arc::new(RecordKeeper::new(config, Arc::clone(board)));
        let (its, communicator) = (Arc::clone(node), credentials.communicator);
        tasks::spawn(async move { tend(keeper, &its, communicator, object).await });
    }
    let formed = node.until(|member, coordinator| {
        if let Some(failure) = member.failure(ChannelId::WORLD) {
            return Some(Err(NotFormed::Failed(failure.clone())));
        }
        coordinator
            .filter(|coordinator| coordinator.is_open())
            .map(|coordinator| Ok(coordinator.processes()))
    });
    tokio::select! {
        biased;
        formed = formed => formed,
        Ok(UnreachableReport { peer, tried, .. }) = objected => {
            Err(NotFormed::Unreachable {
                why: format!("{peer} cannot reach rank 0 over TCP (tried {tried})"),
                is_posted: true,
            })
        }
    }
}

/// Keeps the record alive until the world has formed. A rank that cannot reach us is reported.
async fn tend(
    keeper: Arc<RecordKeeper>,
    node: &TcpNode,
    communicator: Uuid,
    object: oneshot::Sender<UnreachableReport>,
) {
    let mut object = Some(object);
    let mut pauses = RecordKeeper::pauses();
    loop {
        let settled = node.until(|member, coordinator| is_settled(member, coordinator));
        let pause = pauses.next_pause();
        let its = Arc::clone(&keeper);
        if let Ok(formed) = tokio::time::timeout(pause, settled).await {
            if formed {
                drop(ThreadCall::start(move || its.sweep()));
            }
            return;
        }
        let looked = ThreadCall::start(move || (its.tend(), its.unreachable_reports(communicator)));
        let (tended, reports) = match looked.finish().await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::debug!("the rendezvous record was not tended: {error}");
                continue;
            }
        };
        if tended.report(node).is_break() {
            return;
        }
        let report = reports.into_iter().next();
        if let Some(report) = report
            && let Some(object) = object.take()
        {
            let _ = object.send(report);
        }
    }
}

fn cannot_be_reached(why: &str, encrypt: bool) -> Error {
    if encrypt {
        return Error::rendezvous(format!(
            "{why}, and FSGATHER_ENCRYPT=1 does not let messages go through files in plain text instead. Set \
             FSGATHER_INTERFACE to the network that all hosts share, or FSGATHER_ENCRYPT=0 on all ranks"
        ));
    }
    Error::rendezvous(format!(
        "{why}. Set FSGATHER_INTERFACE to the network that all hosts share, or FSGATHER_CONTROL=auto \
         and a shared FSGATHER_DIR to go through files where TCP does not work"
    ))
}

/// Looks for the world until this rank is in; the caller's runtime runs a world over TCP from then on.
pub(crate) fn seek_world(config: &Config) -> Result<(JoinedWorld, CallerRuntime), JoinFailure> {
    let runtime = start_runtime(config).map_err(JoinFailure::Own)?;
    let search = Search {
        whereabouts: match &config.meeting {
            Meeting::Board(board) => Whereabouts::Board(Arc::clone(board)),
            Meeting::Address {
                host,
                port,
                communicator,
                secret,
            } => Whereabouts::Address {
                host: host.clone(),
                port: *port,
                credentials: Credentials {
                    communicator: *communicator,
                    secret: *secret,
                    job_credentials: credentials_at_an_address(&config.job_credentials),
                },
            },
        },
        join: config::join_request(config),
        config: config.clone(),
    };
    let (interrupted, interruption) = oneshot::channel();
    let interrupted = Mutex::new(Some(interrupted));
    config.interrupt.on_raise(move |reason| {
        let sender = lock(&interrupted).take();
        if let Some(sender) = sender {
            let _ = sender.send(reason.to_owned());
        }
    });
    let interrupted = async {
        match interruption.await {
            Ok(reason) => {
                let joining = Activity::outside(Phase::Joining);
                Error::raised(config::own_peer(config), joining, reason)
            }
            // The interrupt cannot be raised any more.
            Err(_) => std::future::pending().await,
        }
    };
    let found = runtime.run_asking(seek(search, interrupted), &config.interrupt);
    let found = found.map_err(JoinFailure::Own)??;
    Ok((found, runtime))
}

/// Takes the place in a world that has formed.
pub(crate) fn enter(
    config: &Config,
    found: EnteredTcp,
    runtime: CallerRuntime,
) -> Result<Joined, Error> {
    let EnteredTcp {
        welcome,
        nonce,
        connection: Connection { reader, writer },
        address,
        credentials,
    } = found;
    let machines = Machines::of_member(config.rank, &welcome)?;
    let processes = welcome.processes;
    let node = Arc::new(TcpNode::over_tcp(machines, 1));
    let serial = node.next_serial();
    let frames = node.attach(Rank::ZERO, serial);
    runtime.spawn(frames.write_to(writer));
    let its = Arc::clone(&node);
    runtime.spawn(async move { its.serve_coordinator(serial, reader).await });
    let its = Arc::clone(&node);
    runtime.spawn(async move { its.keep_time().await });
    let watch = WatchLine {
        address,
        credentials,
        hello: ToCoordinator::Join(JoinRequest::Watch {
            rank: config.rank,
            nonce,
        }),
    };
    // A member has to notice when rank 0's host vanishes; its calls need not wait for this connection.
    runtime.spawn(watch.watch(Arc::clone(&node)));
    runtime.nudge();
    node.obey_interrupt(config);
    node.open_eyes(config);
    let line = TcpCarrier::new(node, runtime, None);
    line.watch_siblings(config, &processes);
    Ok(config::joined(
        config,
        welcome.communicator,
        processes,
        true,
        line,
    ))
}

/// The data to open the silent second connection to rank 0.
struct WatchLine {
    address: SocketAddr,
    credentials: Credentials,
    hello: ToCoordinator,
}

impl WatchLine {
    async fn open(&self) -> Result<Connection, TransportError> {
        let mut connection = Connection::open(
            self.address,
            &self.credentials,
            ConnectionPurpose::Watch,
            Rank::ZERO,
        )
        .await?;
        connection.writer.keep_alive()?;
        connection.writer.send(&self.hello).await?;
        Ok(connection)
    }

    /// Opens the second connection, again if that fails, and waits for its end, which is the end of rank 0's host.
    async fn watch(self, node: Arc<TcpNode>) {
        let mut pauses = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.open().await {
                Ok(connection) => {
                    match server::silence(connection.reader).await {
                        // The first connection shows the end of the process, after its last messages.
                        TransportError::Closed => {}
                        vanished => node.act(|member, _| member.lost(&vanished.to_string())),
                    }
                    return;
                }
                Err(error) => {
                    tracing::debug!("no second connection to rank 0 yet: {error}");
                    tokio::time::sleep(pauses.next_jittered(fresh())).await;
                }
            }
        }
    }
}

fn record(
    config: &Config,
    port: u16,
    credentials: &Credentials,
) -> Result<RendezvousRecord, Error> {
    Ok(RendezvousRecord {
        communicator: credentials.communicator,
        secret: credentials.secret,
        addresses: addresses::publishable(port, &*config.interfaces)
            .map_err(|error| with_own_name(config, error))?,
        ..config::record(config)
    })
}

/// All ranks receive the error, so it has to say whose interfaces these are.
fn with_own_name(config: &Config, error: Error) -> Error {
    match error {
        Error::Rendezvous {
            message, unreached, ..
        } => {
            let message = format!("rank {} on {}: {message}", config.rank, config.process.host);
            match unreached {
                Some(rank) => Error::unreached(message, rank),
                None => Error::rendezvous(message),
            }
        }
        other => other,
    }
}

fn fresh_credentials(job_credentials: &JobCredentials) -> Credentials {
    Credentials {
        communicator: Uuid::new_v4(),
        secret: fresh(),
        job_credentials: job_credentials.clone(),
    }
}

/// Without a record the handshake's secret is the given one itself, or a substitute, so that none is mixed in.
fn credentials_at_an_address(job_credentials: &JobCredentials) -> JobCredentials {
    JobCredentials {
        key: job_credentials.key,
        secret: None,
    }
}

fn listen(
    config: &Config,
    runtime: &CallerRuntime,
    ports: RangeInclusive<u16>,
) -> Result<(Vec<TcpListener>, u16), Error> {
    let (setting, named) = match &config.meeting {
        Meeting::Board(_) => ("FSGATHER_PORT", None),
        Meeting::Address { host, .. } => ("FSGATHER_RENDEZVOUS", Some(host.as_str())),
    };
    let place = addresses::to_listen_at(&*config.interfaces, named)?;
    let host = &config.process.host;
    runtime.run(async { connection::listen_as(Rank::ZERO, host, &place, ports, setting) })?
}
