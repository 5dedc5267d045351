//! Several ranks in one process, each with a mesh of its own, over real sockets.

use std::{sync::Arc, time::Duration};

use fsgather_control::mesh::{Halted, Mesh, MeshAddress, MeshConfig, Passed};
use fsgather_core::{CallId, ChannelId, Epoch, Error, ProcessId, Rank};
use uuid::Uuid;

/// Shared settings of the ranks of a bed.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) communicator: Uuid,
    pub(crate) secret: [u8; 32],
    pub(crate) timeout: Duration,
    pub(crate) processes: Vec<ProcessId>,
}

impl Bed {
    /// This many ranks on one host.
    pub(crate) fn new(ranks: u32) -> Self {
        let process = |rank| ProcessId {
            host: format!("n{rank}"),
            boot_id: "one host".into(),
            pid: 100 + rank,
            ..ProcessId::default()
        };
        Self {
            communicator: Uuid::new_v4(),
            secret: [7; 32],
            timeout: Duration::from_secs(120),
            processes: (0..ranks).map(process).collect(),
        }
    }

    /// The mesh of one rank, which knows no other one yet.
    pub(crate) fn listen(&self, rank: u32) -> Mesh {
        Mesh::listen(&MeshConfig {
            rank: Rank::new(rank),
            communicator: self.communicator,
            secret: self.secret,
            ports: 0..=0,
            interfaces: Arc::new(|_, address| address.is_loopback()),
            network_namespace: 0,
            timeout: self.timeout,
            processes: self.processes.clone(),
            threads: fsgather_core::BackgroundThreads::default(),
        })
        .unwrap()
    }

    /// The meshes of all ranks, which know each other.
    pub(crate) fn meshes(&self) -> Vec<Mesh> {
        self.meshes_by(|_, address| address)
    }

    /// The same, with other addresses for each rank than the true ones.
    pub(crate) fn meshes_by(&self, tell: impl Fn(u32, MeshAddress) -> MeshAddress) -> Vec<Mesh> {
        let ranks = u32::try_from(self.processes.len()).unwrap();
        let meshes: Vec<Mesh> = (0..ranks).map(|rank| self.listen(rank)).collect();
        for (rank, mesh) in meshes.iter().enumerate() {
            let addresses = (0..).zip(&meshes).map(|(other, its)| {
                let address = MeshAddress {
                    // Loopback is the only network here, on all of the named hosts.
                    boot_id: self.processes[rank].boot_id.clone(),
                    ..its.address().clone()
                };
                tell(other, address)
            });
            know_all(mesh, addresses);
        }
        meshes
    }
}

/// Gives a mesh the addresses of all ranks, in rank order.
pub(crate) fn know_all(mesh: &Mesh, addresses: impl IntoIterator<Item = MeshAddress>) {
    for (rank, address) in (0..).zip(addresses) {
        mesh.know(Rank::new(rank), address).unwrap();
    }
}

/// A call of the world.
pub(crate) fn call(epoch: u64) -> CallId {
    on_channel(0, epoch)
}

pub(crate) fn on_channel(channel: u64, epoch: u64) -> CallId {
    CallId {
        channel: ChannelId::new(channel),
        epoch: Epoch::new(epoch),
    }
}

pub(crate) fn ranks(count: usize) -> Vec<Rank> {
    (0..).map(Rank::new).take(count).collect()
}

/// The payload of a rank: bytes that are different everywhere.
pub(crate) fn payload(rank: u32, len: usize) -> Vec<u8> {
    let seed = u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // A period that fits into no power of two, so that bytes in a wrong place are wrong.
    let mut period = Vec::with_capacity(65_528);
    for index in 0..8_191_u64 {
        let word = (index ^ seed).wrapping_mul(0xd6e8_feb8_6659_fd93);
        period.extend_from_slice(&(word ^ (word >> 32)).to_le_bytes());
    }
    period.truncate(65_521);
    let mut payload = Vec::with_capacity(len);
    while payload.len() < len {
        let rest = len - payload.len();
        payload.extend_from_slice(&period[..rest.min(period.len())]);
    }
    payload
}

/// Ignores progress.
#[expect(clippy::unnecessary_wraps, reason = "this is what progress is told")]
pub(crate) fn ignore(_: u64) -> Result<(), Error> {
    Ok(())
}

/// Runs the same on every rank at the same time, and returns the results in rank order.
pub(crate) fn on_all<R: Send>(meshes: &[Mesh], act: impl Fn(u32, &Mesh) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..)
            .zip(meshes)
            .map(|(rank, mesh)| scope.spawn(move || act(rank, mesh)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Runs a ring with payloads of these lengths on all ranks, and returns what each got, or its error.
pub(crate) fn ring(
    meshes: &[Mesh],
    call: CallId,
    lens: &[usize],
) -> Vec<Result<Vec<Vec<u8>>, Error>> {
    let announced: Vec<u64> = lens.iter().map(|&len| len as u64).collect();
    on_all(meshes, |rank, mesh| {
        let own = payload(rank, lens[rank as usize]);
        let members = ranks(lens.len());
        mesh.ring(call, &members, &own, &announced, &mut ignore)
    })
}

/// The payloads of a ring, in memory of their own.
pub(crate) fn in_bytes(passed: Result<Vec<Passed>, Halted>) -> Result<Vec<Vec<u8>>, Halted> {
    passed.map(|passed| passed.into_iter().map(Passed::into_bytes).collect())
}

/// Checks that a rank got what the others had.
pub(crate) fn check(rank: usize, lens: &[usize], got: &[Vec<u8>]) {
    assert_eq!(got.len(), lens.len());
    for (other, &len) in lens.iter().enumerate() {
        let expected = if other == rank {
            Vec::new()
        } else {
            payload(u32::try_from(other).unwrap(), len)
        };
        assert!(
            got[other] == expected,
            "rank {rank} got another payload of rank {other}"
        );
    }
}
