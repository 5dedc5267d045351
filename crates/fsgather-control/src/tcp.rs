//! A world over TCP: [`host`] brings it together, [`enter`] takes a place in it.

use std::{
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, Backoff, ChannelId, Error, Phase, ProcessId, Rank, RendezvousBackend, lock,
};
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot};
use uuid::Uuid;

use crate::{
    accept, addresses,
    aside::{Aside, without_a_thread},
    bond::Bond,
    caller_runtime::CallerRuntime,
    carrier::Carrier,
    config::{self, Config, Control, Joined, Meeting},
    coordinator::Coordinator,
    descriptors,
    found::{Found, FoundTcp, Unmet},
    join::seek,
    machines::Machines,
    message::ToCoordinator,
    noise::Credentials,
    random::fresh,
    record::{Hearer, Objection, Record},
    refusal,
    search::{Search, Whereabouts},
    tcp_carrier::TcpCarrier,
    tcp_node::TcpNode,
    transport::{self, Connection, TransportError},
    wire::Purpose,
};

/// What rank 0's attempt has come to.
pub(crate) enum Hosted {
    /// A world.
    Formed(Joined),
    /// The proof that it does not work, as a sentence; whoever has joined was told to look again.
    Unreachable(String),
}

/// What ended the forming of a world.
enum Settled {
    Formed(Vec<ProcessId>),
    Failed(Error),
    /// TCP does not work.
    Unreachable {
        why: String,
        /// Whether there was a record that others can have seen.
        is_posted: bool,
    },
}

/// That a runtime cannot be had.
pub(crate) fn no_runtime(error: &std::io::Error) -> Error {
    let why = descriptors::explain(error);
    Error::config(format!("cannot start the network runtime: {why}"))
}

fn start_baton(config: &Config) -> Result<CallerRuntime, Error> {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| no_runtime(&error))?;
    CallerRuntime::new(runtime, format!("fsgather-{}", config.rank))
        .map_err(|error| without_a_thread(&error))
}

/// Brings a world together on rank 0.
pub(crate) fn host(config: &Config) -> Result<Hosted, Error> {
    let runtime = start_baton(config)?;
    descriptors::check(config.world_size)?;
    let now = Instant::now();
    let (credentials, ports) = match &config.meeting {
        Meeting::Board(_) => (fresh_credentials(&config.bond), config.ports.clone()),
        Meeting::Address {
            port,
            communicator,
            secret,
            ..
        } => {
            let credentials = Credentials {
                communicator: *communicator,
                secret: *secret,
                bond: bond_at_an_address(&config.bond),
            };
            (credentials, *port..=*port)
        }
    };
    let communicator = Uuid::new_v4();
    let machines = Machines::of_root(config, communicator, now);
    let node = Arc::new(TcpNode::over_tcp(machines, config.world_size.count()));
    // From here on members can be told what goes wrong.
    let (listeners, port) = listen(config, &runtime, ports)?;
    runtime.spawn(accept::serve(
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
    node.join_self(config::join_request(config));
    let board = match &config.meeting {
        Meeting::Board(board) => Some(Arc::clone(board)),
        Meeting::Address { .. } => None,
    };
    let failed = board
        .as_ref()
        .and_then(|board| leave_word(config, &**board, port, &credentials));
    let settled = match failed {
        Some(failed) => failed,
        None => runtime.run_asking(
            form(config, &node, board.as_ref(), &credentials),
            &config.interrupt,
        ),
    };
    let line = TcpCarrier::new(Arc::clone(&node), runtime, board.clone());
    match settled {
        Settled::Formed(processes) => {
            line.watch_siblings(config.rank, &processes, &config.is_running);
            let joined = config::joined(config, communicator, processes, true, line);
            Ok(Hosted::Formed(joined))
        }
        Settled::Failed(failure) => {
            line.give_up(&failure);
            Err(failure)
        }
        Settled::Unreachable { why, .. }
            if config.control == Control::Auto && config.office.is_some() && !config.encrypt =>
        {
            node.coordinate(|coordinator, _| coordinator.move_on());
            line.settle(Duration::from_secs(1));
            line.shut_down();
            Ok(Hosted::Unreachable(why))
        }
        Settled::Unreachable { why, is_posted } => {
            let failure = cannot_be_reached(&why, config.encrypt);
            line.give_up(&failure);
            match board {
                Some(board) if is_posted => {
                    refusal::refuse(config, &*board, credentials.communicator, &failure);
                }
                Some(board) => refusal::refuse_unseen(config, &*board, &failure),
                None => {}
            }
            Err(failure)
        }
    }
}

/// Leaves word for the others; what has become of the world if that cannot be.
///
/// On the caller's thread, which may be the only one that is allowed to: a program's own rendezvous may be
/// bound to it. Meanwhile the progress thread answers those who have found it.
fn leave_word(
    config: &Config,
    board: &dyn RendezvousBackend,
    port: u16,
    credentials: &Credentials,
) -> Option<Settled> {
    let record = match record(config, port, credentials) {
        Ok(record) if record.addresses.is_empty() => {
            let host = &config.process.host;
            return Some(Settled::Unreachable {
                why: format!("{host}, where rank 0 is, has no network address"),
                is_posted: false,
            });
        }
        Ok(record) => record,
        Err(failure) => return Some(Settled::Failed(failure)),
    };
    board.post(&record.to_bytes()).err().map(Settled::Failed)
}

/// Waits until all have come or something goes wrong.
async fn form(
    config: &Config,
    node: &Arc<TcpNode>,
    board: Option<&Arc<dyn RendezvousBackend>>,
    credentials: &Credentials,
) -> Settled {
    let (object, objected) = oneshot::channel();
    if let Some(board) = board {
        let tending = Tending {
            board: Arc::clone(board),
            node: Arc::clone(node),
            communicator: credentials.communicator,
            hearer: config::hearer(config),
        };
        let (its, board, timeout) = (Arc::clone(node), Arc::clone(board), config.join_timeout);
        let earlier = refusal::look_back(board, timeout, config::hearer(config));
        tokio::spawn(async move {
            let failure = earlier.await;
            its.coordinate(|coordinator, _| coordinator.note_earlier_failure(failure));
        });
        tokio::spawn(tending.run(object));
    }
    let settled = node.until(|member, coordinator| {
        if let Some(failure) = member.failure(ChannelId::WORLD) {
            return Some(Settled::Failed(failure.clone()));
        }
        coordinator
            .filter(|coordinator| coordinator.is_open())
            .map(|coordinator| Settled::Formed(coordinator.processes()))
    });
    tokio::select! {
        biased;
        settled = settled => settled,
        Ok(Objection { peer, tried, .. }) = objected => {
            Settled::Unreachable {
                why: format!("{peer} cannot reach rank 0 over TCP (tried {tried})"),
                is_posted: true,
            }
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
pub(crate) fn seek_world(config: &Config) -> Result<(Found, CallerRuntime), Unmet> {
    let runtime = start_baton(config).map_err(Unmet::Own)?;
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
                    bond: bond_at_an_address(&config.bond),
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
            // Nobody can throw the switch any more.
            Err(_) => std::future::pending().await,
        }
    };
    let found = runtime.run_asking(seek(search, interrupted), &config.interrupt)?;
    Ok((found, runtime))
}

/// Takes the place in a world that has formed.
pub(crate) fn enter(
    config: &Config,
    found: FoundTcp,
    runtime: CallerRuntime,
) -> Result<Joined, Error> {
    let FoundTcp {
        welcome,
        nonce,
        connection: Connection { reader, writer },
        address,
        credentials,
    } = found;
    let machines = Machines::of_member(config.rank, &welcome)?;
    let processes = welcome.processes;
    let node = Arc::new(TcpNode::over_tcp(machines, 1));
    let (serial, frames) = node.attach(Rank::ZERO);
    runtime.spawn(frames.write_to(writer));
    let its = Arc::clone(&node);
    runtime.spawn(async move { its.serve_coordinator(serial, reader).await });
    let its = Arc::clone(&node);
    runtime.spawn(async move { its.keep_time().await });
    let watch = WatchLine {
        address,
        credentials,
        hello: ToCoordinator::Watch {
            rank: config.rank,
            nonce,
        },
    };
    // From its first call on a member has to notice when rank 0's host vanishes.
    let watched = runtime.run(watch.open());
    runtime.spawn(watch.watch(Arc::clone(&node), watched));
    node.obey_interrupt(config);
    let line = TcpCarrier::new(node, runtime, None);
    line.watch_siblings(config.rank, &processes, &config.is_running);
    Ok(config::joined(
        config,
        welcome.communicator,
        processes,
        true,
        line,
    ))
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
            Connection::open(self.address, &self.credentials, Purpose::Watch, Rank::ZERO).await?;
        connection.writer.keep_alive()?;
        connection.writer.send(&self.hello).await?;
        Ok(connection)
    }

    /// Waits for the end of the second connection, which is the end of rank 0's host; opens it again if
    /// it could not be opened the first time.
    async fn watch(self, node: Arc<TcpNode>, first: Result<Connection, TransportError>) {
        let mut pauses = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut opened = first;
        loop {
            match opened {
                Ok(connection) => {
                    match accept::silence(connection.reader).await {
                        // The first connection tells of the end of the process, after its last words.
                        TransportError::Closed => {}
                        vanished => node.act(|member, _| member.lost(&vanished.to_string())),
                    }
                    return;
                }
                Err(error) => {
                    tracing::debug!("no second connection to rank 0 yet: {error}");
                    tokio::time::sleep(pauses.next_jittered(fresh())).await;
                    opened = self.open().await;
                }
            }
        }
    }
}

/// Looks after rank 0's record while the world forms.
struct Tending {
    board: Arc<dyn RendezvousBackend>,
    node: Arc<TcpNode>,
    communicator: Uuid,
    /// This rank.
    hearer: Hearer,
}

impl Tending {
    /// Keeps the record visible until the world has formed, then removes those of crashed runs. A rank
    /// that cannot reach us is reported.
    async fn run(self, object: oneshot::Sender<Objection>) {
        let mut object = Some(object);
        let posted = Instant::now();
        let mut pauses = Backoff::new(Duration::from_millis(25), Duration::from_secs(1));
        loop {
            let settled = self.node.until(|member, coordinator| {
                let open = coordinator.is_some_and(Coordinator::is_open);
                let gone = coordinator.is_some_and(Coordinator::is_gone);
                (open || gone || member.failure(ChannelId::WORLD).is_some()).then_some(open)
            });
            let pause = pauses.next_pause();
            let board = Arc::clone(&self.board);
            if let Ok(formed) = tokio::time::timeout(pause, settled).await {
                if formed {
                    drop(Aside::start(move || board.sweep()));
                }
                return;
            }
            let communicator = self.communicator;
            let tended = Aside::start(move || {
                let others = board.tend(posted.elapsed()).unwrap_or_else(|error| {
                    tracing::debug!("the rendezvous record could not be tended: {error}");
                    Vec::new()
                });
                (others, refusal::objections(&*board, communicator))
            });
            let (others, objections) = match tended.finish().await {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!("the rendezvous record was not tended: {error}");
                    continue;
                }
            };
            if let Some(refusal) = refusal::refusal_in(&others, &self.hearer) {
                self.node.coordinate(|coordinator, _| {
                    if !coordinator.is_open() {
                        coordinator.give_up(&refusal);
                    }
                });
                return;
            }
            let objection = objections.into_iter().next();
            if let Some(objection) = objection
                && let Some(object) = object.take()
            {
                let _ = object.send(objection);
            }
        }
    }
}

fn record(config: &Config, port: u16, credentials: &Credentials) -> Result<Record, Error> {
    Ok(Record {
        communicator: credentials.communicator,
        secret: credentials.secret,
        addresses: addresses::publishable(port, &*config.interfaces)?,
        ..config::record(config)
    })
}

fn fresh_credentials(bond: &Bond) -> Credentials {
    Credentials {
        communicator: Uuid::new_v4(),
        secret: fresh(),
        bond: bond.clone(),
    }
}

/// Where there is no record, the secret of the handshake is the one that was given, or stands for it.
fn bond_at_an_address(bond: &Bond) -> Bond {
    Bond {
        key: bond.key,
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
    runtime.run(async { transport::listen_as(Rank::ZERO, host, &place, ports, setting) })
}
