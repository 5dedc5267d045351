//! The input and the result of a meeting: [`Config`], [`Joined`].

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

pub use fsgather_core::Control;
use uuid::Uuid;

use crate::{
    carrier::Carrier,
    join::{
        addresses::InterfaceFilter,
        job_credentials::JobCredentials,
        record::{Addressee, RendezvousRecord},
    },
    message::Join,
    rank_exchange::RankExchange,
};
use fsgather_core::{
    Activity, BackgroundThreads, Error, Exchange, Interrupt, Look, MailboxFactory, Peer, Phase,
    ProcessId, Rank, RendezvousBackend, Start, WorldSize, sys::random::fresh,
};

/// All contributions to one exchange together stay below this, in bytes.
const TABLE_LIMIT: usize = 4 << 20;

/// Tells whether a process is running; used once a pid has been pinned, to see that it is the right one.
pub type IsRunning = dyn Fn(&ProcessId) -> bool + Send + Sync;

/// The way in which ranks find rank 0.
#[derive(Clone)]
pub enum Meeting {
    /// Rank 0 leaves a record with all its addresses and a fresh secret; the others find it.
    Board(Arc<dyn RendezvousBackend>),
    /// Rank 0 listens at a known address.
    Address {
        /// Rank 0's host, as the others can resolve it.
        host: String,
        /// Port on which it listens, on all its interfaces.
        port: u16,
        /// Stands for the world in the handshake; all ranks must give the same.
        communicator: Uuid,
        /// Secret that members need to join.
        secret: [u8; 32],
    },
}

/// Returns the failure of the rank that has ended first, if any rank that a function selects has ended.
pub type FindEnded = dyn Fn(&dyn Fn(Rank) -> bool) -> Option<Error> + Send + Sync;

/// Returns ranks that show no sign of work any more, each with the failure of a meeting that they have not joined.
pub type FindIdle = dyn Fn() -> Vec<(Rank, Error)> + Send + Sync;

/// Reports about ranks that run and are no longer waited for, because they are idle.
#[derive(Clone)]
pub struct IdleWatch {
    /// Time without a sign of work after which a rank is reported.
    pub limit: Duration,
    /// Finds these ranks.
    pub find: Arc<FindIdle>,
}

impl IdleWatch {
    /// Returns the failure of a meeting that this rank has not joined, if it is idle.
    pub(crate) fn failure_of(&self, rank: Rank) -> Option<Error> {
        let mut idle = (self.find)().into_iter();
        idle.find_map(|(idle, failure)| (idle == rank).then_some(failure))
    }
}

/// All input of a meeting.
#[derive(Clone)]
pub struct Config {
    /// The rank of this process.
    pub rank: Rank,
    /// Number of ranks.
    pub world_size: WorldSize,
    /// This process.
    pub process: ProcessId,
    /// The process that started it, if its job has no id of its own.
    pub start: Option<Start>,
    /// True if a user has named its job.
    pub is_named: bool,
    /// Number of times that its launcher has restarted the job, if it counts that. Launchers may count on each host for themselves.
    pub attempt: Option<u32>,
    /// The error that keeps this rank from taking part. It meets the others to report it.
    pub problem: Option<Error>,
    /// The inode of this process's network namespace; 0 when unknown.
    pub network_namespace: u64,
    /// Name of this job in messages.
    pub job: String,
    /// Time for which nothing may move before a call fails; rank 0's counts.
    pub timeout: Duration,
    /// True if no user has set that time-out: then ranks that work get all the time that they need.
    pub is_patient: bool,
    /// Maximum time for meeting.
    pub join_timeout: Duration,
    /// Ports on which rank 0 listens when it leaves a record; 0 for any free port.
    pub ports: RangeInclusive<u16>,
    /// Selects the addresses that rank 0 publishes.
    pub interfaces: Arc<InterfaceFilter>,
    /// The way in which ranks find rank 0.
    pub meeting: Meeting,
    /// Key and secret that all processes of this job share.
    pub job_credentials: JobCredentials,
    /// True if nothing may go over a network in plain text: then no world moves to marker files.
    pub encrypt: bool,
    /// The carrier of messages; rank 0's choice counts.
    pub control: Control,
    /// Creates mailboxes for marker files, if these can be used.
    pub mailboxes: Option<Arc<dyn MailboxFactory>>,
    /// Ends joining, and all calls after it. A waiting thread polls it, if it has to be polled.
    pub interrupt: Interrupt,
    /// Tells if a process of this host is running.
    pub is_running: Arc<IsRunning>,
    /// Finds ranks of this job that are known to have ended; their launcher may report it.
    pub find_ended: Arc<FindEnded>,
    /// Finds ranks of this job that are idle, if their launcher reports them.
    pub idle_watch: Option<IdleWatch>,
    /// Looks at this process or at another one of this host, for ranks that wait for it. Without it rank 0 asks no rank,
    /// and other ranks do not answer.
    pub look: Option<Arc<Look>>,
}

impl Config {
    /// The owner of the background threads of this world.
    pub(crate) fn threads(&self) -> BackgroundThreads {
        BackgroundThreads::new(self.interrupt.clone())
    }

    /// Returns the time without a sign of work after which a missing rank ends the meeting, if it does.
    pub(crate) fn idle_limit(&self) -> Option<Duration> {
        self.idle_watch.as_ref().map(|watch| watch.limit)
    }

    /// The configuration of a rank that meets the others in this way, over TCP, with default settings.
    #[must_use]
    pub fn new(rank: Rank, world_size: WorldSize, process: ProcessId, meeting: Meeting) -> Self {
        Self {
            rank,
            world_size,
            process,
            start: None,
            is_named: false,
            attempt: None,
            problem: None,
            network_namespace: 0,
            job: "this job".into(),
            timeout: Duration::from_secs(60),
            is_patient: false,
            join_timeout: Duration::from_secs(60),
            ports: 0..=0,
            interfaces: Arc::new(|_, _| true),
            meeting,
            job_credentials: JobCredentials::default(),
            encrypt: false,
            control: Control::Tcp,
            mailboxes: None,
            interrupt: Interrupt::default(),
            is_running: Arc::new(|_| true),
            find_ended: Arc::new(|_| None),
            idle_watch: None,
            look: None,
        }
    }
}

/// A world that has formed.
pub struct Joined {
    /// This rank's place in it.
    pub exchange: Box<dyn Exchange>,
    /// The identity of the world.
    pub communicator: Uuid,
    /// The processes of all ranks, in rank order.
    pub processes: Vec<ProcessId>,
    /// True if ranks exchange messages over the network rather than by files.
    pub is_networked: bool,
}

pub(crate) fn join_request(config: &Config) -> Join {
    Join {
        rank: config.rank,
        world_size: config.world_size,
        nonce: fresh(),
        process: config.process.clone(),
        timeout: config.timeout,
        start: config.start,
        attempt: config.attempt,
        fingerprint: config.job_credentials.fingerprint(),
    }
}

/// The process that refusals have to concern to count for this rank.
pub(crate) fn addressee(config: &Config) -> Addressee {
    Addressee {
        process: config.process.clone(),
        start: config.start,
        is_named: config.is_named,
        key: config.job_credentials.key,
    }
}

/// A record of this rank with the fields that every record has.
pub(crate) fn record(config: &Config) -> RendezvousRecord {
    RendezvousRecord {
        communicator: Uuid::nil(),
        secret: fresh(),
        addresses: Vec::new(),
        markers: None,
        refusal: None,
        refuser: None,
        world_size: config.world_size,
        host: config.process.host.clone(),
        boot_id: config.process.boot_id.clone(),
        network_namespace: config.network_namespace,
        fingerprint: config.job_credentials.fingerprint(),
    }
}

pub(crate) fn joined(
    config: &Config,
    communicator: Uuid,
    processes: Vec<ProcessId>,
    is_networked: bool,
    carrier: impl Carrier,
) -> Joined {
    let peers = (0..)
        .map(Rank::new)
        .zip(&processes)
        .map(|(rank, process)| Peer {
            rank,
            host: process.host.clone(),
            pid: process.pid,
        })
        .collect();
    let limit = Some(TABLE_LIMIT);
    let interrupt = config.interrupt.clone();
    let exchange = RankExchange::new(
        config.rank,
        config.world_size,
        peers,
        limit,
        interrupt,
        carrier,
    );
    Joined {
        exchange: Box::new(exchange),
        communicator,
        processes,
        is_networked,
    }
}

/// A failure of this rank itself, with its name for the ranks that receive it.
pub(crate) fn raised_while_joining(config: &Config, failure: Error) -> Error {
    failure.raised_by(&own_peer(config), Activity::outside(Phase::Joining))
}

pub(crate) fn own_peer(config: &Config) -> Peer {
    Peer {
        rank: config.rank,
        host: config.process.host.clone(),
        pid: config.process.pid,
    }
}
