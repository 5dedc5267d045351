//! The configuration of a mesh: [`MeshConfig`], [`MeshAddress`].

use std::{net::SocketAddr, ops::RangeInclusive, sync::Arc, time::Duration};

use fsgather_core::{BackgroundThreads, ProcessId, Rank};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::join::addresses::InterfaceFilter;

/// The input of a mesh; the same on all ranks except `rank`, `ports`, `interfaces` and `network_namespace`.
#[derive(Clone)]
pub struct MeshConfig {
    /// The rank of this process in the world.
    pub rank: Rank,
    /// The identity of the world.
    pub communicator: Uuid,
    /// Secret that only its ranks know.
    pub secret: [u8; 32],
    /// Ports to listen on; 0 for any free port. Each rank of a host needs a port for itself.
    pub ports: RangeInclusive<u16>,
    /// Selects the addresses that other ranks receive.
    pub interfaces: Arc<InterfaceFilter>,
    /// The inode of this process's network namespace; 0 when unknown.
    pub network_namespace: u64,
    /// Time for which nothing may move before a transfer fails.
    pub timeout: Duration,
    /// The processes of all ranks of the world, in rank order.
    pub processes: Vec<ProcessId>,
    /// The owner of the background threads of its world.
    pub threads: BackgroundThreads,
}

impl MeshConfig {
    /// The name of the thread that runs its links.
    pub(super) fn thread_name(&self) -> String {
        format!("fsg-mesh-{}", self.rank)
    }
}

/// Addresses of a rank, as it sends them to all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshAddress {
    /// All addresses on which it listens, loopback ones last.
    pub addresses: Vec<SocketAddr>,
    /// Its host's boot id: loopback addresses mean this rank only from the same host.
    pub boot_id: String,
    /// Inode of its network namespace, in which alone loopback addresses mean this rank; 0 when unknown.
    pub network_namespace: u64,
}
