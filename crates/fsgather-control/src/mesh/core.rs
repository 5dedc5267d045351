//! The state that callers and the tasks of a mesh share: [`Core`].

use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fsgather_core::{
    Activity, Error, Missing, Peer, PeerFailure, Phase, ProcessId, Rank, RollCall, duration_text,
    lock,
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    join::{addresses::Network, job_credentials::JobCredentials},
    tcp::{
        connection::{Connection, TransportError},
        noise::Credentials,
        tasks,
    },
};

use super::{
    MeshAddress, MeshConfig,
    offers::Offers,
    pool::{Idle, Parked},
    stalls::Stalls,
};

/// One rank's side of a mesh, except the runtime.
pub(super) struct Core {
    pub(super) rank: Rank,
    pub(super) credentials: Credentials,
    pub(super) timeout: Duration,
    network_namespace: u64,
    processes: Vec<ProcessId>,
    /// Addresses that the others have reported, by rank.
    addresses: Mutex<Vec<Option<MeshAddress>>>,
    pub(super) idle: Idle,
    pub(super) parked: Parked,
    pub(super) offers: Offers,
    pub(super) deliveries: Deliveries,
    pub(super) stalls: Stalls,
    /// Number of links that others have made to this rank.
    pub(super) accepted: AtomicU64,
}

impl Core {
    pub(super) fn new(config: &MeshConfig) -> Self {
        Self {
            rank: config.rank,
            credentials: Credentials {
                communicator: config.communicator,
                secret: config.secret,
                // The secret belongs to this very world.
                job_credentials: JobCredentials::default(),
            },
            timeout: config.timeout,
            network_namespace: config.network_namespace,
            processes: config.processes.clone(),
            addresses: Mutex::new(vec![None; config.processes.len()]),
            idle: Idle::default(),
            parked: Parked::default(),
            offers: Offers::default(),
            deliveries: Deliveries::default(),
            stalls: Stalls::default(),
            accepted: AtomicU64::new(0),
        }
    }

    pub(super) const fn communicator(&self) -> Uuid {
        self.credentials.communicator
    }

    /// Number of ranks.
    pub(super) fn world_size(&self) -> usize {
        self.processes.len()
    }

    /// Stores the address of a rank, and returns true if there is such a rank.
    pub(super) fn know(&self, rank: Rank, address: MeshAddress) -> bool {
        let mut addresses = lock(&self.addresses);
        let Some(known) = addresses.get_mut(rank.index()) else {
            return false;
        };
        *known = Some(address);
        true
    }

    /// Address of a rank, if that has been reported.
    pub(super) fn address(&self, rank: Rank) -> Option<MeshAddress> {
        let addresses = lock(&self.addresses);
        addresses.get(rank.index()).cloned().flatten()
    }

    fn process(&self, rank: Rank) -> Option<&ProcessId> {
        self.processes.get(rank.index())
    }

    /// A rank as messages name it.
    pub(super) fn peer(&self, rank: Rank) -> Peer {
        let process = self.process(rank);
        Peer {
            rank,
            host: process.map_or_else(String::new, |process| process.host.clone()),
            pid: process.map_or(0, |process| process.pid),
        }
    }

    /// The network of this rank, as far as loopback addresses go.
    pub(super) fn network(&self) -> Network<'_> {
        Network {
            boot_id: self.boot_id(self.rank),
            namespace: self.network_namespace,
        }
    }

    pub(super) fn boot_id(&self, rank: Rank) -> &str {
        self.process(rank)
            .map_or("", |process| process.boot_id.as_str())
    }

    /// Returns true if a connection to another rank needs no protection: the rank is on this host, and so is the whole connection.
    pub(super) fn is_safe(&self, other: Rank, connection: &Connection) -> bool {
        let (ours, theirs) = (self.boot_id(self.rank), self.boot_id(other));
        ours == theirs && !ours.is_empty() && connection.is_within_host()
    }

    /// The error of a transfer whose link to a rank has failed with an error of the operating system.
    pub(super) fn lost(&self, peer: Rank, error: io::Error) -> Error {
        self.lost_because(peer, TransportError::from_read(error).to_string())
    }

    pub(super) fn lost_because(&self, peer: Rank, how: impl Into<String>) -> Error {
        let failure = PeerFailure::LinkLost {
            other: self.peer(peer),
            how: how.into(),
        };
        self.failed(self.rank, failure)
    }

    pub(super) fn failed(&self, peer: Rank, failure: PeerFailure) -> Error {
        Error::peer_failed(
            self.peer(peer),
            Activity::outside(Phase::Publishing),
            failure,
        )
    }

    /// The error of received data that differs from what `writer` sent.
    pub(super) fn corrupt(&self, writer: Rank, reason: impl Into<String>) -> Error {
        Error::corrupt(
            "a payload sent directly",
            reason,
            Some(self.peer(writer)),
            Some(self.peer(self.rank)),
        )
    }

    /// The error of a transfer in which nothing has moved for too long.
    pub(super) fn timed_out(&self, waited_for: &[Rank], timeout: Duration) -> Error {
        let missing = waited_for.iter().map(|&rank| {
            let Peer { rank, host, pid } = self.peer(rank);
            Missing {
                rank,
                process: Some((host, pid)),
                last_seen: None,
            }
        });
        Error::timed_out(
            "moving payloads between ranks",
            timeout,
            missing.collect(),
            RollCall::default(),
            if timeout == self.timeout {
                format!(
                    "set FSGATHER_TIMEOUT to more than {} to wait longer",
                    duration_text(timeout)
                )
            } else {
                "give this call a longer time-out to wait longer".into()
            },
        )
    }
}

/// Payloads that are being fetched from this rank now.
#[derive(Default)]
pub(super) struct Deliveries {
    under_way: AtomicUsize,
    ended: Notify,
}

/// One of these payloads, while it is being fetched.
pub(super) struct Delivery<'a>(&'a Deliveries);

impl Deliveries {
    pub(super) fn begin(&self) -> Delivery<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Delivery(self)
    }

    /// Returns true if none is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    /// Waits until none is under way.
    pub(super) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.is_idle() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        let _ = tasks::wake(|| self.0.ended.notify_waiters());
    }
}
