//! How a world comes together, whatever carries its messages: [`join`].

use std::{
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, Error, Exchange, Interrupt, Noticeboard, Peer, PeerFailure, Phase, PostOffice,
    ProcessId, Rank, WorldSize,
};
use uuid::Uuid;

use crate::{
    addresses::InterfaceFilter,
    driver::Driver,
    join::Found,
    markers,
    message::Join,
    record::Record,
    seat::Seat,
    siblings::IsRunning,
    tcp::{self, Hosted},
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

/// What carries messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// TCP; marker files once it is clear, while the world forms, that a rank cannot reach rank 0.
    #[default]
    Auto,
    /// TCP, or an error.
    Tcp,
    /// Marker files.
    Markers,
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
    /// What carries messages; rank 0's choice counts.
    pub control: Control,
    /// Where marker files are left, if they can be.
    pub office: Option<Arc<dyn PostOffice>>,
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
    if let Some(reason) = config.interrupt.reason() {
        return Err(raised(
            &own_peer(config),
            Activity::outside(Phase::Joining),
            &reason,
        ));
    }
    let started = Instant::now();
    if config.rank != Rank::ZERO {
        let found = tcp::seek_world(config);
        if let Meeting::Board(board) = &config.meeting {
            // Objections, which have done what they were for.
            board.take_down();
        }
        return match found? {
            (Found::Tcp(found), baton) => tcp::enter(config, *found, baton),
            (Found::Markers(entered), _) => markers::enter(config, *entered),
        };
    }
    if config.control == Control::Markers {
        return host_over_markers(config, started);
    }
    match tcp::host(config)? {
        Hosted::Formed(joined) => Ok(joined),
        Hosted::Unreachable(why) => {
            tracing::warn!(
                "{why}; messages of this job go through files instead, which is slower. Set \
                 FSGATHER_INTERFACE to the network that all hosts share, or FSGATHER_CONTROL=markers to \
                 try no other way"
            );
            host_over_markers(config, started)
        }
    }
}

fn host_over_markers(config: &Config, started: Instant) -> Result<Joined, Error> {
    let (Meeting::Board(board), Some(office)) = (&config.meeting, &config.office) else {
        return Err(Error::config(
            "control through marker files needs a directory in which all ranks meet; name one with \
             FSGATHER_DIR",
        ));
    };
    markers::host(config, board, &**office, started)
}

pub(crate) fn join_request(config: &Config) -> Join {
    Join {
        rank: config.rank,
        world_size: config.world_size,
        nonce: Uuid::new_v4().as_u128(),
        process: config.process.clone(),
        patience: config.patience,
    }
}

pub(crate) fn coordinator_peer(process: &ProcessId) -> Peer {
    Peer {
        rank: Rank::ZERO,
        host: process.host.clone(),
        pid: process.pid,
    }
}

/// What a record of this rank says in any case.
pub(crate) fn record(config: &Config) -> Record {
    Record {
        communicator: Uuid::nil(),
        secret: rand::random(),
        addresses: Vec::new(),
        markers: None,
        refusal: None,
        world_size: config.world_size,
        host: config.process.host.clone(),
        boot_id: config.process.boot_id.clone(),
        network_namespace: config.network_namespace,
    }
}

pub(crate) fn joined(
    config: &Config,
    communicator: Uuid,
    processes: Vec<ProcessId>,
    driver: impl Driver + 'static,
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
    let body_limit = TABLE_LIMIT / config.world_size.count();
    let seat = Seat::new(config.rank, config.world_size, peers, body_limit, driver);
    Joined {
        exchange: Box::new(seat),
        communicator,
        processes,
    }
}

pub(crate) fn own_peer(config: &Config) -> Peer {
    Peer {
        rank: config.rank,
        host: config.process.host.clone(),
        pid: config.process.pid,
    }
}

/// A rank's own failure.
pub(crate) fn raised(peer: &Peer, activity: Activity, reason: &str) -> Error {
    Error::PeerFailed {
        peer: peer.clone(),
        activity,
        failure: PeerFailure::Raised {
            message: reason.to_owned(),
        },
    }
}
