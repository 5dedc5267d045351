//! A world over TCP: [`join`].

use std::{
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, Backoff, ChannelId, Error, Exchange, Interrupt, Noticeboard, Peer, PeerFailure,
    Phase, ProcessId, Rank, WorldSize,
};
use tokio::{net::TcpListener, runtime::Runtime};
use uuid::Uuid;

use crate::{
    addresses::{self, InterfaceFilter},
    baton::Baton,
    coordinator::{Coordinator, World},
    gate,
    hub::Hub,
    join::{Found, Search, Whereabouts, seek},
    line::Line,
    member::Member,
    message::{Join, ToCoordinator},
    noise::Credentials,
    record::Record,
    seat::Seat,
    siblings::IsRunning,
    transport::{self, Connection, TransportError},
    wire::Purpose,
};

/// All contributions to one exchange together stay below this, in bytes.
const TABLE_LIMIT: usize = 4 << 20;

/// How ranks find rank 0.
#[derive(Clone)]
pub enum Meeting {
    /// Rank 0 leaves a record with all its addresses and a fresh secret; the others find it.
    Board(Arc<dyn Noticeboard>),
    /// Rank 0 listens at a known address.
    Address {
        /// Rank 0's host, as the others can resolve it.
        host: String,
        /// Where it listens, on all its interfaces.
        port: u16,
        /// Stands for the world in the handshake; all ranks must give the same.
        communicator: Uuid,
        /// What members must know to join.
        secret: [u8; 32],
    },
}

/// All that joining needs to know.
#[derive(Clone)]
pub struct Config {
    /// Which rank this process is.
    pub rank: Rank,
    /// How many ranks there are.
    pub world_size: WorldSize,
    /// This process.
    pub process: ProcessId,
    /// The inode of this process's network namespace; 0 when unknown.
    pub network_namespace: u64,
    /// What messages call this job.
    pub job: String,
    /// How long nothing may move before a call fails; rank 0's counts.
    pub patience: Duration,
    /// How long meeting may take in all.
    pub join_patience: Duration,
    /// Where rank 0 listens when it leaves a record; 0 for any free port.
    pub ports: RangeInclusive<u16>,
    /// Which addresses rank 0 publishes.
    pub interfaces: Arc<InterfaceFilter>,
    /// How ranks find rank 0.
    pub meeting: Meeting,
    /// Ends joining, and all calls after it.
    pub interrupt: Interrupt,
    /// Tells whether a process of this host is running.
    pub is_running: Arc<IsRunning>,
}

/// A world that has formed.
pub struct Joined {
    /// This rank's place in it.
    pub exchange: Box<dyn Exchange>,
    /// The identity of the world.
    pub communicator: Uuid,
    /// Where every rank runs, in rank order.
    pub processes: Vec<ProcessId>,
}

/// Meets the other ranks.
///
/// # Errors
///
/// - [`Error::Timeout`] names ranks that did not come; on members, rank 0.
/// - [`Error::Rendezvous`] when the ranks do not fit together: the same rank twice, different world
///   sizes, a world that has formed already, nothing reachable.
/// - [`Error::PeerFailed`] when a rank was lost after it had joined.
/// - [`Error::Config`] and [`Error::Storage`] when rank 0 cannot listen or leave word.
pub fn join(config: &Config) -> Result<Joined, Error> {
    let runtime = runtime()?;
    if let Some(reason) = config.interrupt.reason() {
        return Err(raised(
            &own_peer(config),
            Activity::outside(Phase::Joining),
            &reason,
        ));
    }
    let name = format!("fsgather-{}", config.rank);
    let baton = Baton::new(runtime, name)
        .map_err(|error| Error::config(format!("cannot start a thread: {error}")))?;
    if config.rank == Rank::ZERO {
        join_as_coordinator(config, baton)
    } else {
        join_as_member(config, baton)
    }
}

fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::config(format!("cannot start the network runtime: {error}")))
}

fn join_request(config: &Config) -> Join {
    Join {
        rank: config.rank,
        world_size: config.world_size,
        nonce: Uuid::new_v4().as_u128(),
        process: config.process.clone(),
        patience: config.patience,
    }
}

fn coordinator_peer(process: &ProcessId) -> Peer {
    Peer {
        rank: Rank::ZERO,
        host: process.host.clone(),
        pid: process.pid,
    }
}

fn join_as_coordinator(config: &Config, baton: Baton) -> Result<Joined, Error> {
    check_descriptors(config.world_size)?;
    let now = Instant::now();
    let (credentials, ports) = match &config.meeting {
        Meeting::Board(_) => (fresh_credentials(), config.ports.clone()),
        Meeting::Address {
            port,
            communicator,
            secret,
            ..
        } => {
            let credentials = Credentials {
                communicator: *communicator,
                secret: *secret,
            };
            (credentials, *port..=*port)
        }
    };
    let communicator = Uuid::new_v4();
    let world = World {
        world_size: config.world_size,
        communicator,
        job: config.job.clone(),
        patience: config.patience,
        join_patience: config.join_patience,
    };
    let member = Member::new(
        Rank::ZERO,
        coordinator_peer(&config.process),
        config.patience,
        now,
    );
    let coordinator = Coordinator::new(world, now);
    let hub = Arc::new(Hub::new(
        Rank::ZERO,
        member,
        Some(coordinator),
        config.world_size.count(),
    ));
    // From here on members can be told what goes wrong.
    let listener = baton.run(async { listen(config, ports) })?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    baton.spawn(gate::serve(Arc::clone(&hub), listener, credentials.clone()));
    baton.spawn({
        let hub = Arc::clone(&hub);
        async move { hub.keep_time().await }
    });
    interrupt_by(config, &hub);
    hub.join_self(join_request(config));
    let outcome = baton.run(async {
        if let Meeting::Board(board) = &config.meeting {
            let record = record(config, port, &credentials)?.to_bytes();
            post(Arc::clone(board), record).await?;
            tokio::spawn(tend(Arc::clone(board), Arc::clone(&hub)));
        }
        hub.until(|member, coordinator| {
            let failure = member.failure(ChannelId::WORLD);
            match failure {
                Some(failure) => Some(Err(failure.clone())),
                None => coordinator
                    .filter(|coordinator| coordinator.is_open())
                    .map(|coordinator| Ok(coordinator.processes())),
            }
        })
        .await
    });
    let board = match &config.meeting {
        Meeting::Board(board) => Some(Arc::clone(board)),
        Meeting::Address { .. } => None,
    };
    let line = Line::new(Arc::clone(&hub), baton, board);
    let processes = match outcome {
        Ok(processes) => processes,
        Err(failure) => {
            line.give_up(&failure);
            return Err(failure);
        }
    };
    line.watch_siblings(config.rank, &processes, &config.is_running);
    Ok(joined(config, communicator, processes, line))
}

fn join_as_member(config: &Config, baton: Baton) -> Result<Joined, Error> {
    let join = join_request(config);
    let nonce = join.nonce;
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
                },
            },
        },
        join,
        network_namespace: config.network_namespace,
        patience: config.join_patience,
    };
    let (interrupted, interruption) = tokio::sync::oneshot::channel();
    let interrupted = Mutex::new(Some(interrupted));
    config.interrupt.on_raise(move |reason| {
        let sender = interrupted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(sender) = sender {
            let _ = sender.send(reason.to_owned());
        }
    });
    let found = baton.run(async {
        tokio::select! {
            found = seek(search) => found,
            Ok(reason) = interruption => Err(raised(&own_peer(config), Activity::outside(Phase::Joining), &reason)),
        }
    })?;
    let Found {
        welcome,
        connection: Connection { reader, writer },
        address,
        credentials,
    } = found;
    let now = Instant::now();
    let processes = welcome.processes;
    let coordinator = processes
        .first()
        .map(coordinator_peer)
        .ok_or_else(|| Error::rendezvous("rank 0 named no processes in its welcome"))?;
    let member = Member::new(config.rank, coordinator, welcome.patience, now);
    let hub = Arc::new(Hub::new(config.rank, member, None, 1));
    let (serial, frames) = hub.attach(Rank::ZERO);
    baton.spawn(frames.write_to(writer));
    let its = Arc::clone(&hub);
    baton.spawn(async move { its.serve_coordinator(serial, reader).await });
    let its = Arc::clone(&hub);
    baton.spawn(async move { its.keep_time().await });
    let watch = WatchLine {
        address,
        credentials,
        hello: ToCoordinator::Watch {
            rank: config.rank,
            nonce,
        },
    };
    // From its first call on a member has to notice when rank 0's host vanishes.
    let watched = baton.run(watch.open());
    baton.spawn(watch.watch(Arc::clone(&hub), watched));
    interrupt_by(config, &hub);
    let line = Line::new(hub, baton, None);
    line.watch_siblings(config.rank, &processes, &config.is_running);
    Ok(joined(config, welcome.communicator, processes, line))
}

fn joined(config: &Config, communicator: Uuid, processes: Vec<ProcessId>, line: Line) -> Joined {
    let peers = (0..)
        .map(Rank::new)
        .zip(&processes)
        .map(|(rank, process)| Peer {
            rank,
            host: process.host.clone(),
            pid: process.pid,
        })
        .collect();
    let body_limit = TABLE_LIMIT / config.world_size.count();
    let seat = Seat::new(config.rank, config.world_size, peers, body_limit, line);
    Joined {
        exchange: Box::new(seat),
        communicator,
        processes,
    }
}

/// How to open the silent second connection to rank 0.
struct WatchLine {
    address: SocketAddr,
    credentials: Credentials,
    hello: ToCoordinator,
}

impl WatchLine {
    async fn open(&self) -> Result<Connection, TransportError> {
        let mut connection =
            Connection::open(self.address, &self.credentials, Purpose::Watch).await?;
        connection.writer.keep_alive()?;
        connection.writer.send(&self.hello).await?;
        Ok(connection)
    }

    /// Waits for the end of the second connection, which is the end of rank 0's host; opens it again if
    /// it could not be opened the first time.
    async fn watch(self, hub: Arc<Hub>, first: Result<Connection, TransportError>) {
        let mut pauses = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut opened = first;
        loop {
            match opened {
                Ok(connection) => {
                    match gate::silence(connection.reader).await {
                        // The first connection tells of the end of the process, after its last words.
                        TransportError::Closed => {}
                        vanished => hub.act(|member, _| member.lost(&vanished.to_string())),
                    }
                    return;
                }
                Err(error) => {
                    tracing::debug!("no second connection to rank 0 yet: {error}");
                    tokio::time::sleep(pauses.next_jittered(rand::random())).await;
                    opened = self.open().await;
                }
            }
        }
    }
}

async fn post(board: Arc<dyn Noticeboard>, record: Vec<u8>) -> Result<(), Error> {
    tokio::task::spawn_blocking(move || board.post(&record))
        .await
        .map_err(|_| Error::rendezvous("leaving word for the others was cut short"))?
}

/// Keeps the record visible until the world has formed, then removes those of crashed runs.
async fn tend(board: Arc<dyn Noticeboard>, hub: Arc<Hub>) {
    const EVERY: Duration = Duration::from_millis(25);
    let posted = Instant::now();
    let mut pauses = Backoff::new(EVERY, Duration::from_secs(1));
    loop {
        let settled = hub.until(|member, coordinator| {
            let open = coordinator.is_some_and(Coordinator::is_open);
            (open || member.failure(ChannelId::WORLD).is_some()).then_some(open)
        });
        let pause = pauses.next_pause();
        if let Ok(formed) = tokio::time::timeout(pause, settled).await {
            if formed {
                tokio::task::spawn_blocking(move || board.sweep());
            }
            return;
        }
        let its = Arc::clone(&board);
        let tended = tokio::task::spawn_blocking(move || its.tend(posted.elapsed()));
        if let Ok(Err(error)) = tended.await {
            tracing::debug!("the rendezvous record could not be tended: {error}");
        }
    }
}

fn record(config: &Config, port: u16, credentials: &Credentials) -> Result<Record, Error> {
    Ok(Record {
        communicator: credentials.communicator,
        secret: credentials.secret,
        addresses: addresses::publishable(port, &*config.interfaces)?,
        world_size: config.world_size,
        host: config.process.host.clone(),
        boot_id: config.process.boot_id.clone(),
        network_namespace: config.network_namespace,
    })
}

fn fresh_credentials() -> Credentials {
    Credentials {
        communicator: Uuid::new_v4(),
        secret: rand::random(),
    }
}

fn listen(config: &Config, ports: RangeInclusive<u16>) -> Result<TcpListener, Error> {
    let text = if ports.start() == ports.end() {
        format!("port {}", ports.start())
    } else {
        format!("any of the ports {} to {}", ports.start(), ports.end())
    };
    transport::listen(ports)
        .map(|(listener, _)| listener)
        .map_err(|error| {
            Error::rendezvous(format!(
                "rank 0 cannot listen on {text} of {}: {error}; choose another one with {}",
                config.process.host,
                match config.meeting {
                    Meeting::Board(_) => "FSGATHER_PORT",
                    Meeting::Address { .. } => "FSGATHER_RENDEZVOUS",
                }
            ))
        })
}

/// Members take two connections each, and the door some more.
fn check_descriptors(world_size: WorldSize) -> Result<(), Error> {
    const OTHERS: u64 = 128;
    let needed = 2 * u64::from(world_size.get()) + OTHERS;
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match allowed {
        Some(allowed) if allowed < needed => Err(Error::config(format!(
            "rank 0 of a world of {world_size} needs {needed} open files, the limit is {allowed}; raise it \
             with `ulimit -n {needed}` before the job starts"
        ))),
        _ => Ok(()),
    }
}

/// Makes the switch end all calls, with an error that names this rank.
fn interrupt_by(config: &Config, hub: &Arc<Hub>) {
    // The switch may outlive the communicator.
    let hub = Arc::downgrade(hub);
    let me = own_peer(config);
    config.interrupt.on_raise(move |reason| {
        if let Some(hub) = hub.upgrade() {
            let doing = hub.act(|member, _| member.doing());
            hub.interrupt(&raised(&me, doing, reason));
        }
    });
}

fn own_peer(config: &Config) -> Peer {
    Peer {
        rank: config.rank,
        host: config.process.host.clone(),
        pid: config.process.pid,
    }
}

/// A rank's own failure.
fn raised(peer: &Peer, activity: Activity, reason: &str) -> Error {
    Error::PeerFailed {
        peer: peer.clone(),
        activity,
        failure: PeerFailure::Raised {
            message: reason.to_owned(),
        },
    }
}
