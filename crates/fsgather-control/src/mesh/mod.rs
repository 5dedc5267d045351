//! Payloads directly from rank to rank, through memory and sockets alone: [`Mesh`].
//!
//! The ranks agree over the star of the control plane what to move; the mesh moves it. Each rank listens, and reports its
//! address to the ranks that it exchanges payloads with ([`Mesh::address`], [`Mesh::know`]). Then there are two ways:
//!
//! - a [ring](Mesh::ring) brings the payloads of all members to all members, from neighbour to neighbour;
//! - a [pull](Mesh::pull) fetches one payload from the rank that [offers](Mesh::offer) it.
//!
//! # Links
//!
//! A *link* is one TCP connection from one rank to another, for transfers that the first one begins. It is authenticated
//! and encrypted like connections of the control plane, unless it does not leave the host. It carries one transfer at a
//! time; a link is kept for the next one if the transfer ended well, and closed otherwise. So a transfer that stalls or
//! fails does not affect others, and payloads that a receiver does not want yet stay with their sender.
//! `docs/design/links.md` has the bytes.
//!
//! # Threads
//!
//! There is one runtime, run by the thread that waits (see `tcp::runtime`). Callers' buffers are borrowed, never copied,
//! and their `progress` is called outside of the runtime.
//!
//! # Modules
//!
//! - `stream`, `header`: the bytes that go over a link (pure).
//! - `link`: one connection. `pool`: those that are not used. `dial`, `attend`: the two sides of one.
//! - `ring`, `course` (pure): its routes; `inflow` and `outflow`, its two sides; `incoming`, the data that arrives;
//!   `host_memory`, in which members of a host hand it on;
//!   `pull`, of one payload: `fetch`, its data, `ahead`, before it is wanted; `offers`.
//! - `stalls`: transfers in which nothing moves. `core`: their shared state. `engine`: runs them.

mod config;
mod course;
mod header;
mod idle;
mod stream;

mod link;
mod offers;
mod pool;
mod stalls;

mod ahead;
mod attend;
mod core;
mod dial;
mod engine;

mod fetch;
mod host_memory;
mod incoming;
mod inflow;
mod outflow;
mod pull;
mod ring;

/// Reads any bytes as the beginning of a transfer, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_reading(bytes: &[u8]) {
    header::try_reading(bytes);
    if let Ok(address) = fsgather_core::read_message::<MeshAddress>(bytes) {
        let _ = format!("{address:?}");
    }
}

pub use config::{MeshAddress, MeshConfig};
pub use host_memory::HostMemory;
pub use incoming::Passed;
pub use offers::Source;
pub use outflow::Begun;
pub use pull::Pull;
pub use ring::RingPart;

/// Places of the members to which the member of a ring at `place` sends; `hosts` are those of [`RingPart`].
#[must_use]
pub fn neighbours(place: usize, hosts: &[usize]) -> Vec<usize> {
    let course = course::Course::of(place, hosts).unwrap_or_default();
    course.sends.iter().map(|leg| leg.neighbour).collect()
}

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fsgather_core::{CallId, Error, Progress, Rank};

use crate::join::addresses;

use engine::Engine;
use link::Link;
use outflow::{Outflow, RingPayload};
use ring::Ring;
use stalls::Eye;
use stream::StreamOrigin;

/// Number of bytes that are received or sent, and hashed, at a time: few enough to be in the cache still.
const PIECE: usize = 256 << 10;

/// Number of bytes after which progress is reported to the caller.
const REPORT: u64 = 1 << 20;

/// Maximum time between progress reports to the caller.
const SLICE: Duration = Duration::from_millis(100);

/// Result of a try to move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferStep {
    /// This many bytes have moved.
    Moved(usize),
    /// The link is not ready.
    Blocked,
    /// There is nothing to move, as yet or any more.
    Nothing,
}

impl TransferStep {
    const fn bytes(self) -> u64 {
        match self {
            Self::Moved(bytes) => bytes as u64,
            Self::Blocked | Self::Nothing => 0,
        }
    }
}

/// A ring that this rank could not finish.
///
/// It keeps the links. Until it is dropped, the neighbours see a rank without progress rather than a lost one, so that this
/// rank can report the cause before they guess one.
#[must_use = "the neighbours take this rank for lost when it is dropped"]
pub struct Halted {
    /// Cause of the failure.
    pub cause: Error,
    links: Vec<Link>,
}

impl From<Error> for Halted {
    fn from(cause: Error) -> Self {
        let links = Vec::new();
        Self { cause, links }
    }
}

impl fmt::Debug for Halted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Halted")
            .field("cause", &self.cause)
            .field("links", &self.links.len())
            .finish()
    }
}

/// All direct connections of one rank, for all channels of its world.
///
/// Several threads may use it at the same time for different calls. Dropping it ends all links at once;
/// [`shut_down`](Self::shut_down) waits until others have fetched their payloads.
pub struct Mesh {
    engine: Arc<Engine>,
    address: MeshAddress,
}

impl Mesh {
    /// Listens, and serves others from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] when no port of the range is free, [`Error::Config`] when no address is left
    /// to tell, or no thread can be started.
    pub fn listen(config: &MeshConfig) -> Result<Self, Error> {
        if config.processes.len() <= config.rank.index() {
            return Err(Error::config(format!(
                "rank {} in a mesh of {} ranks",
                config.rank,
                config.processes.len()
            )));
        }
        let (engine, port) = Engine::start(config)?;
        let address = MeshAddress {
            addresses: addresses::publishable(port, &*config.interfaces)?,
            boot_id: engine.core().boot_id(config.rank).to_owned(),
            network_namespace: config.network_namespace,
        };
        Ok(Self {
            engine: Arc::new(engine),
            address,
        })
    }

    /// Address of this rank, for the ranks that it exchanges payloads with.
    #[must_use]
    pub const fn address(&self) -> &MeshAddress {
        &self.address
    }

    /// Time for which nothing may move in a transfer, unless its call has its own.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.engine.core().timeout
    }

    /// Stores the address of a rank, as that has last reported it. Before that the rank can reach this one, but this one
    /// cannot reach it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a rank that is none of this world.
    pub fn know(&self, rank: Rank, address: MeshAddress) -> Result<(), Error> {
        let core = self.engine.core();
        if core.know(rank, address) {
            return Ok(());
        }
        Err(Error::config(format!(
            "the address of rank {rank} for a mesh of {} ranks",
            core.world_size()
        )))
    }

    /// Makes sure that there is a link to a rank, so that a transfer to or from it cannot fail for lack of one.
    ///
    /// Tries all addresses of that rank several times, for some ten seconds at most. `progress` is called
    /// with 0 meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] naming both ranks, the addresses and the results of the tries, or the error of `progress`.
    pub fn prepare(&self, to: Rank, progress: &mut Progress<'_>) -> Result<(), Error> {
        if to == self.engine.core().rank {
            return Ok(());
        }
        let link = self.engine.link_to(to, progress)?;
        self.engine.core().idle.put(link);
        Ok(())
    }

    /// Does the same for a call that is going to need the link: it waits for a stopped rank for `timeout` without progress,
    /// and [`stalled`](Self::stalled) reports that meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`prepare`](Self::prepare), and [`Error::Timeout`] naming that rank.
    pub fn prepare_for(
        &self,
        call: CallId,
        to: Rank,
        timeout: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        if to != self.engine.core().rank {
            let link = self.engine.link_for(call, to, timeout, progress)?;
            self.engine.core().idle.put(link);
        }
        Ok(())
    }

    /// Brings the payloads of all `members` of a group, as if on one host, to all of them; all must call this.
    ///
    /// `members` are ranks of the world in the order of the group, `own` is this rank's payload, and `lens` has the length
    /// of each payload, in the same order; all members must give the same. `progress` is called with the bytes received and
    /// sent since the last time.
    ///
    /// The payloads come back in that order. The own entry is empty: the caller has it.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] when there is no way to the next member, [`Error::PeerFailed`] when the link to
    /// a neighbour is lost, [`Error::Corrupt`] when something else arrived than what its origin sent,
    /// [`Error::Timeout`] naming the neighbours that are waited for when nothing moved for too long,
    /// [`Error::Storage`] when there is no memory, or the error of `progress`.
    pub fn ring(
        &self,
        call: CallId,
        members: &[Rank],
        own: &[u8],
        lens: &[u64],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let part = RingPart {
            members,
            hosts: &vec![0; members.len()],
            own,
            lens,
            has_checksums: true,
            host_memory: None,
        };
        let passed = self.ring_within(self.timeout(), call, &part, Vec::new(), progress);
        let passed = passed.map_err(|halted| halted.cause)?.into_iter();
        Ok(passed.map(Passed::into_bytes).collect())
    }

    /// Runs a ring for a call with a time-out of its own, of members on several hosts, with checksums or, if all members
    /// have agreed on that, without, and continues what this rank has [begun](Self::begin_ring). Members that share memory
    /// hand on there what arrives from other hosts. On an error the links to the neighbours are kept.
    ///
    /// # Errors
    ///
    /// Those of [`ring`](Self::ring), each as [`Halted`].
    pub fn ring_within(
        &self,
        timeout: Duration,
        call: CallId,
        part: &RingPart<'_>,
        begun: Vec<Begun>,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Passed>, Halted> {
        let mut ring = Ring::new(self.engine.core(), call, part, begun)?;
        if let Err(cause) = self.turn(&mut ring, timeout, call, progress) {
            let links = ring.into_links();
            return Err(Halted { cause, links });
        }
        self.engine.leave_to_itself();
        Ok(ring.into_payloads(self.engine.core())?)
    }

    /// Sends the beginning of this rank's own payload to a neighbour in a ring, as much as goes without waiting, before all
    /// members are known to take part: bytes that fit into a window have arrived by then. Returns `None` if there is no
    /// link yet, as [`prepare_for`](Self::prepare_for) makes one.
    #[must_use]
    pub fn begin_ring(
        &self,
        call: CallId,
        to: Rank,
        own: &[u8],
        has_checksums: bool,
    ) -> Option<Begun> {
        let core = self.engine.core();
        let link = core.idle.take(to, Some(call.channel))?;
        let origin = StreamOrigin {
            communicator: core.communicator(),
            call,
            rank: core.rank,
            len: own.len() as u64,
            has_checksums,
        };
        let outgoing = vec![RingPayload::Here(origin, own)];
        let mut outflow = Outflow::new(Arc::clone(core), call, to, false, outgoing);
        outflow.send_over(link);
        let begun = self.engine.run(async {
            // Lets the runtime find out whether the socket takes bytes.
            tokio::task::yield_now().await;
            outflow.begin()
        });
        begun.ok().flatten()
    }

    /// Drives the ring until everything has arrived and has been handed on.
    fn turn(
        &self,
        ring: &mut Ring<'_>,
        timeout: Duration,
        call: CallId,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let engine = &self.engine;
        while let Some(to) = ring.needs_link_to() {
            ring.send_over(engine.link_for(call, to, timeout, progress)?);
        }
        let core = engine.core();
        let mut eye = Eye::new(&core.stalls, call, timeout);
        while !ring.is_complete() {
            let moved = engine.run(ring.advance())??;
            eye.saw(moved, || ring.waited_for());
            progress(moved)?;
            eye.check(|| core.timed_out(&ring.waited_for(), timeout))?;
        }
        Ok(())
    }

    /// Lets others fetch this rank's payload of a call, until it is [withdrawn](Self::withdraw).
    pub fn offer(&self, call: CallId, source: Source) {
        self.offer_checked(call, source, true);
    }

    /// Offers a payload without checksums, if the ranks that may fetch it have agreed to it: readers notice another
    /// payload, and one that is not whole, but not a changed byte.
    pub fn offer_without_checksums(&self, call: CallId, source: Source) {
        self.offer_checked(call, source, false);
    }

    fn offer_checked(&self, call: CallId, source: Source, has_checksums: bool) {
        // No rank can ask a mesh that is shut down, or a forked child's.
        if self.engine.check().is_ok() {
            self.engine.core().offers.offer(call, source, has_checksums);
            self.engine.leave_to_itself();
        }
    }

    /// Ends an offer, and frees the payload once no rank fetches it any more. A rank that asks later gets an error.
    pub fn withdraw(&self, call: CallId) {
        if self.engine.check().is_ok() {
            self.engine.core().offers.withdraw(call);
            self.engine.leave_to_itself();
        }
    }

    /// Begins to fetch the payload of another rank, which has announced a length of `len` bytes.
    ///
    /// If there is a link already, the payload is requested at once, so that its beginning is on its way while another one
    /// is read. The other rank may offer it later; this one waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] in a forked child, for a rank that is not there, and for the own one.
    pub fn pull(&self, call: CallId, from: Rank, len: u64) -> Result<Pull, Error> {
        let core = self.engine.core();
        if from == core.rank || from.index() >= core.world_size() {
            return Err(Error::config(format!(
                "rank {} cannot fetch a payload from rank {from}",
                core.rank
            )));
        }
        self.engine.check()?;
        Ok(Pull::new(Arc::clone(&self.engine), call, from, len))
    }

    /// Ranks of the world that this rank waits for in a call, and the time for which nothing has moved; `None` while something does.
    #[must_use]
    pub fn stalled(&self, call: CallId) -> Option<(Vec<Rank>, Duration)> {
        self.engine.core().stalls.of(call)
    }

    /// Number of links that others have made to this rank so far.
    #[must_use]
    pub fn links_accepted(&self) -> u64 {
        self.engine.core().accepted.load(Ordering::Relaxed)
    }

    /// Ends all links, once all offers have been withdrawn and the transfers under way have been sent, after `limit` at the
    /// latest. Nothing can be moved after that.
    pub fn shut_down(&self, limit: Duration) {
        self.engine.shut_down(limit);
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mesh")
            .field("rank", &self.engine.core().rank)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fsgather_core::{ChannelId, Epoch, ProcessId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn bytes_of_a_step_are_those_that_have_moved() {
        assert_eq!(TransferStep::Moved(70_000).bytes(), 70_000);
        assert_eq!(
            TransferStep::Blocked.bytes() + TransferStep::Nothing.bytes(),
            0
        );
    }

    fn meshes() -> [Mesh; 2] {
        let meshes = [0, 1].map(|rank| {
            Mesh::listen(&MeshConfig {
                rank: Rank::new(rank),
                communicator: Uuid::nil(),
                secret: [1; 32],
                ports: 0..=0,
                interfaces: Arc::new(|_, _| true),
                network_namespace: 0,
                timeout: Duration::from_secs(20),
                processes: vec![ProcessId::default(); 2],
                threads: fsgather_core::BackgroundThreads::default(),
            })
            .unwrap()
        });
        let addresses = meshes.each_ref().map(|mesh| mesh.address().clone());
        for mesh in &meshes {
            for (rank, address) in (0..).zip(addresses.clone()) {
                mesh.know(Rank::new(rank), address).unwrap();
            }
        }
        meshes
    }

    fn call() -> CallId {
        CallId {
            channel: ChannelId::WORLD,
            epoch: Epoch::FIRST,
        }
    }

    #[test]
    fn threads_may_share_a_mesh() {
        fn shareable<T: Send + Sync>() {}
        fn movable<T: Send>() {}
        shareable::<Mesh>();
        movable::<Pull>();
    }

    #[test]
    fn what_was_begun_early_stays_for_as_long_as_its_sender_waits() {
        let [one, other] = meshes();
        let (to, timeout) = (Rank::new(1), one.timeout());
        one.prepare_for(call(), to, timeout, &mut |_| Ok(()))
            .unwrap();
        let begun = one.begin_ring(call(), to, b"abc", true).unwrap();
        let parked = &other.engine.core().parked;
        let arrived = other.engine.run(parked.take(call(), Rank::ZERO));
        // It is kept for the call again, and its time is up, with unread bytes in it.
        let (serial, _taken) = parked.put(call(), arrived.unwrap());
        assert!(!parked.expire(call(), Rank::ZERO, serial));
        assert!(begun.is_fresh());
        drop(begun);
        while !parked.expire(call(), Rank::ZERO, serial) {
            std::thread::yield_now();
        }
        // The link that has taken its place is not expired by it.
        assert!(parked.expire(call(), Rank::ZERO, serial + 1));
    }

    #[test]
    fn a_forked_child_can_use_nothing_and_its_end_changes_nothing() {
        let [one, mut other] = meshes();
        other.offer(call(), Source::Memory(Bytes::from_static(b"abc")));
        let fetch = || {
            let pull = one.pull(call(), Rank::new(1), 3).unwrap();
            pull.read_to_end(&mut |_| Ok(())).unwrap()
        };
        assert_eq!(fetch(), b"abc");
        let core = Arc::clone(other.engine.core());
        // A child has a copy with the parent's process id in it.
        Arc::get_mut(&mut other.engine)
            .unwrap()
            .pretend_to_be_copied();
        let members = [0, 1].map(Rank::new);
        let ring = other.ring(call(), &members, b"", &[1, 0], &mut |_| Ok(()));
        assert!(ring.unwrap_err().to_string().contains("forked child"));
        let prepared = other.prepare(Rank::ZERO, &mut |_| Ok(()));
        assert!(prepared.unwrap_err().to_string().contains("forked child"));
        assert!(other.pull(call(), Rank::ZERO, 1).is_err());
        other.withdraw(call());
        other.shut_down(Duration::from_secs(1));
        drop(other);
        // The parent continues over the same link.
        assert_eq!(fetch(), b"abc");
        assert_eq!(core.accepted.load(Ordering::Relaxed), 1);
    }
}
