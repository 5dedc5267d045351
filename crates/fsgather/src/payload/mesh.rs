//! Payloads over connections between ranks: announced, and passed on from neighbour to neighbour.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use fsgather_control::mesh::{
    Begun, Halted, HostMemory, Mesh, Passed, RingPart, Source as Offered,
};
use fsgather_core::{CallId, CompressionSetting, Contribution, Error, Leaves, Rank, Recipients};

use crate::{
    call::guard::CallGuard,
    payload::{
        header::PayloadHeader,
        input::HeldInput,
        part::IncomingPart,
        retention::Retention,
        shared_memory::{Reach, Share},
        writer::{Ready, body},
    },
    setup::warn_once,
};

/// The connections between the members of a group, and their agreements. Groups get it from the world, so it uses the
/// ranks' numbers in the world. Each group [knows for itself](crate::group_state::GroupState::ring_order) in which
/// order payloads go round it.
#[derive(Clone)]
pub(crate) struct MeshPath {
    pub(crate) connections: Arc<Mesh>,
    /// The number of each rank's host; the numbers are arbitrary.
    pub(crate) hosts: Arc<BTreeMap<Rank, usize>>,
    /// True if payloads have checksums on their way.
    pub(crate) has_checksums: bool,
}

impl MeshPath {
    fn lend(&self, call: CallId, source: Offered) {
        if self.has_checksums {
            self.connections.offer(call, source);
        } else {
            self.connections.offer_without_checksums(call, source);
        }
    }
}

/// Announces a payload that travels over connections between ranks.
pub(super) fn announced<'b>(
    guard: &CallGuard,
    mesh: &MeshPath,
    retention: Retention,
    own: HeldInput<'b>,
) -> Result<Ready<'b>, Error> {
    let ticket = &guard.ticket;
    let len = own.len();
    let is_only_reader = ticket.call.recipients() == Recipients::Only(guard.inner.exchange.rank());
    if !is_only_reader {
        warn_if_compression_is_ignored(guard);
    }
    let (leaves, own) = match retention {
        // Both neighbours are in the call as long as this rank is.
        Retention::Passing => (Leaves::Nothing, own),
        Retention::Kept | Retention::KeptForReader if is_only_reader => {
            (Leaves::Nothing, own.into_kept())
        }
        Retention::Kept | Retention::KeptForReader => {
            let own = own.into_kept();
            let offered = match &own {
                HeldInput::Spooled(spool) => spool.offered(),
                other => Offered::Memory(other.to_bytes()),
            };
            mesh.lend(ticket.id(), offered);
            (Leaves::WithOwner, own)
        }
    };
    Ok(Ready {
        contribution: Contribution {
            body: body(guard, PayloadHeader::Linked { len })?,
            leaves,
            further_rounds: 0,
        },
        own,
        len,
    })
}

/// Warns once if this rank asks for compression, which payloads that travel by link do not have.
fn warn_if_compression_is_ignored(guard: &CallGuard) {
    let compression = guard.inner.world.compression;
    if compression != CompressionSetting::None {
        warn_once(format!(
            "{} sends payloads by TCP, which FSGATHER_COMPRESS={compression} does not compress; set FSGATHER_TRANSPORT=filesys \
             to send compressed files, or FSGATHER_COMPRESS=none",
            guard.inner.me(),
        ));
    }
}

/// Connects to the ranks that this rank sends to. An unreachable rank is better reported now than after the verdict.
pub(crate) fn prepare(guard: &CallGuard, mesh: &MeshPath) -> Result<(), Error> {
    let next = next_in_ring(guard, mesh);
    let timeout = guard
        .ticket
        .call
        .timeout
        .unwrap_or(mesh.connections.timeout());
    next.into_iter().try_for_each(|next| {
        mesh.connections
            .prepare_for(guard.ticket.id(), next, timeout, &mut |bytes| {
                guard.moved(bytes)
            })
    })
}

/// Sends the beginning of an announced payload to the next ranks on other hosts, which get it sooner if the call
/// succeeds. Parts that cannot be sent now are sent after the verdict. Within a host it would save nothing, and wake a
/// receiver once more.
pub(crate) fn begin(guard: &CallGuard, mesh: &MeshPath, own: &[u8]) -> Vec<Begun> {
    let inner = &guard.inner;
    let me = inner.members.get(inner.exchange.rank().index());
    let own_host = me.and_then(|me| mesh.hosts.get(me));
    let mut next = next_in_ring(guard, mesh);
    next.retain(|next| mesh.hosts.get(next) != own_host);
    // The announcement goes first: others wait for it.
    if next.is_empty() || guard.moved(0).is_err() {
        return Vec::new();
    }
    let call = guard.ticket.id();
    next.into_iter()
        .filter_map(|next| {
            mesh.connections
                .begin_ring(call, next, own, mesh.has_checksums)
        })
        .collect()
}

/// Returns the ranks to which this rank sends in the ring of its group, by their numbers in the world.
fn next_in_ring(guard: &CallGuard, mesh: &MeshPath) -> Vec<Rank> {
    let inner = &guard.inner;
    let next = inner.ring_order(mesh).after(inner.exchange.rank().index());
    next.into_iter()
        .filter_map(|next| inner.members.get(next).copied())
        .collect()
}

/// The payloads that are passed on in a call in which all ranks wait for each other.
pub(crate) struct Passing<'a> {
    /// The announcements of all ranks.
    pub(crate) bodies: &'a [Bytes],
    /// This rank's payload.
    pub(crate) own: &'a HeldInput<'a>,
    /// Memory that members share.
    pub(crate) share: Option<&'a Share>,
}

/// Moves the payloads of a call in which all wait for each other, from neighbour to neighbour. Ranks of a host that
/// share memory read the payloads that each of them has placed there, and place payloads from other hosts there once
/// for all of them.
pub(crate) fn pass_on(
    guard: &CallGuard,
    mesh: &MeshPath,
    passing: &Passing<'_>,
    begun: Vec<Begun>,
    incoming: &mut [IncomingPart],
) -> Result<(), Halted> {
    let inner = &guard.inner;
    let announced: Vec<Option<PayloadHeader>> = passing
        .bodies
        .iter()
        .map(PayloadHeader::from_body)
        .collect();
    let lens: Vec<u64> = announced
        .iter()
        .map(|announced| match announced {
            Some(PayloadHeader::Linked { len }) => *len,
            Some(PayloadHeader::Placed(location)) => location.len(),
            _ => 0,
        })
        .collect();
    if lens.iter().all(|len| *len == 0) {
        return Ok(());
    }
    let timeout = guard.ticket.call.timeout;
    let order = inner.ring_order(mesh);
    let own = passing.own.as_slice();
    let me = inner.exchange.rank().index();
    let placed: Vec<Option<&[u8]>> = announced
        .iter()
        .zip(incoming.iter())
        .enumerate()
        .map(|(place, both)| match both {
            (Some(PayloadHeader::Placed(_)), _) if place == me => Some(own),
            (_, IncomingPart::Shared(leased)) => Some(&**leased),
            _ => None,
        })
        .collect();
    let placed = order.arrange(&placed);
    let of_host = passing.share.filter(|share| share.reach() == Reach::Host);
    let find_room = |len| of_host.and_then(|share| share.begin(inner, len));
    let part = RingPart {
        members: &order.arrange(&inner.members),
        hosts: order.hosts(),
        own,
        lens: &order.arrange(&lens),
        has_checksums: mesh.has_checksums,
        host_memory: of_host.map(|share| HostMemory {
            arenas: share.arenas(),
            placed: &placed,
            begin: &find_room,
        }),
    };
    let passed = mesh.connections.ring_within(
        timeout.unwrap_or(mesh.connections.timeout()),
        guard.ticket.id(),
        &part,
        begun,
        &mut guard.turning(),
    )?;
    for (place, passed) in order.places().iter().zip(passed) {
        let is_passed = lens.get(*place).is_some_and(|len| *len > 0);
        let part = incoming.get_mut(*place).filter(|_| is_passed);
        // A placed payload is in memory already.
        let Some(part) = part.filter(|part| !matches!(part, IncomingPart::Shared(_))) else {
            continue;
        };
        *part = match passed {
            Passed::Bytes(bytes) => IncomingPart::Here(bytes.into()),
            Passed::Shared(leased) => IncomingPart::Shared(leased),
        };
    }
    Ok(())
}
