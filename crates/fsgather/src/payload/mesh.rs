//! Payloads over connections between ranks: announced, and passed on from neighbour to neighbour.

use std::{ops::Deref, sync::Arc};

use bytes::Bytes;
use fsgather_control::mesh::{
    Begun, CallId, Halted, Mesh, RingPart, Source as Offered, neighbours,
};
use fsgather_core::{Contribution, Error, Leaves, Recipients};

use crate::{
    call::guard::CallGuard,
    payload::{
        header::PayloadHeader,
        input::HeldInput,
        part::IncomingPart,
        path::call_id,
        retention::Retention,
        writer::{Ready, body},
    },
};

/// The connections between the members of a group, and what they have agreed on.
#[derive(Clone)]
pub(crate) struct MeshPath {
    pub(crate) mesh: Arc<Mesh>,
    /// In which order payloads go round.
    pub(crate) order: Arc<RingOrder>,
    /// Whether payloads have checksums on their way.
    pub(crate) has_checksums: bool,
}

/// In which order the members of a group form a ring: host by host, so that as little as can be goes between hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RingOrder {
    /// The places that members have in the group, in the order of the ring.
    places: Vec<usize>,
    /// The host of each of these, by a number.
    hosts: Vec<usize>,
}

impl RingOrder {
    /// The order of members of these hosts, in the order of their group: hosts by their first members.
    pub(crate) fn of<H: PartialEq>(hosts: &[H]) -> Self {
        let first = |place: &usize| hosts.iter().position(|other| *other == hosts[*place]);
        let mut places: Vec<usize> = (0..hosts.len()).collect();
        // Members of one host stay in the order of the group.
        places.sort_by_key(first);
        let hosts = places.iter().filter_map(first).collect();
        Self { places, hosts }
    }

    /// To which places in the group one sends in the ring; the next host before its own.
    pub(crate) fn after(&self, place: usize) -> Vec<usize> {
        let own = self.places.iter().position(|other| *other == place);
        let next = own.map_or_else(Vec::new, |own| neighbours(own, &self.hosts));
        next.into_iter()
            .filter_map(|next| self.places.get(next).copied())
            .collect()
    }

    /// What is in the order of the group, in that of the ring.
    fn arrange<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let arranged = self.places.iter().filter_map(|place| all.get(*place));
        arranged.copied().collect()
    }
}

impl Deref for MeshPath {
    type Target = Mesh;

    fn deref(&self) -> &Mesh {
        &self.mesh
    }
}

impl MeshPath {
    fn lend(&self, call: CallId, source: Offered) {
        if self.has_checksums {
            self.offer(call, source);
        } else {
            self.offer_without_checksums(call, source);
        }
    }
}

/// Announces a payload that is handed over by connections between ranks.
pub(super) fn announced<'b>(
    guard: &CallGuard,
    mesh: &MeshPath,
    retention: Retention,
    own: HeldInput<'b>,
) -> Result<Ready<'b>, Error> {
    let ticket = &guard.ticket;
    let len = own.len();
    let is_only_reader = ticket.call.recipients() == Recipients::Only(guard.inner.exchange.rank());
    let (leaves, own) = match retention {
        // Both neighbours are in the call as long as we are.
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
            mesh.lend(call_id(ticket), offered);
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

/// Connects to those that this rank sends to, which is better told of now than after the verdict if they cannot be reached.
pub(crate) fn prepare(guard: &CallGuard, mesh: &MeshPath) -> Result<(), Error> {
    let inner = &guard.inner;
    let next = mesh.order.after(inner.exchange.rank().index());
    let timeout = guard.ticket.call.timeout.unwrap_or(mesh.timeout());
    let mut next = next.into_iter().filter_map(|next| inner.members.get(next));
    next.try_for_each(|next| {
        mesh.prepare_for(call_id(&guard.ticket), *next, timeout, &mut |bytes| {
            guard.moved(bytes)
        })
    })
}

/// Sends the beginning of a payload that has been announced to those that this rank is connected to, which have it sooner if
/// the call goes well. What of that does not work is done when it has.
pub(crate) fn begin(guard: &CallGuard, mesh: &MeshPath, own: &[u8]) -> Vec<Begun> {
    // The announcement goes first: others wait for it.
    if guard.moved(0).is_err() {
        return Vec::new();
    }
    let inner = &guard.inner;
    let next = mesh.order.after(inner.exchange.rank().index());
    let next = next.into_iter().filter_map(|next| inner.members.get(next));
    let call = call_id(&guard.ticket);
    next.filter_map(|next| mesh.begin_ring(call, *next, own, mesh.has_checksums))
        .collect()
}

/// Moves the payloads of a call in which all wait for each other, from neighbour to neighbour.
pub(crate) fn pass_on(
    guard: &CallGuard,
    mesh: &MeshPath,
    bodies: &[Bytes],
    own: &HeldInput<'_>,
    begun: Vec<Begun>,
    incoming: &mut [IncomingPart],
) -> Result<(), Halted> {
    let inner = &guard.inner;
    let lens: Vec<u64> = bodies
        .iter()
        .map(|body| match PayloadHeader::from_body(body) {
            Some(PayloadHeader::Linked { len }) => len,
            _ => 0,
        })
        .collect();
    if lens.iter().all(|len| *len == 0) {
        return Ok(());
    }
    let timeout = guard.ticket.call.timeout;
    let part = RingPart {
        members: &mesh.order.arrange(&inner.members),
        hosts: &mesh.order.hosts,
        own: own.as_slice(),
        lens: &mesh.order.arrange(&lens),
        has_checksums: mesh.has_checksums,
    };
    let passed = mesh.ring_within(
        timeout.unwrap_or(mesh.timeout()),
        call_id(&guard.ticket),
        &part,
        begun,
        &mut guard.turning(),
    )?;
    for (place, passed) in mesh.order.places.iter().zip(passed) {
        let is_there = lens.get(*place).is_some_and(|len| *len > 0);
        if let Some(part) = incoming.get_mut(*place).filter(|_| is_there) {
            *part = IncomingPart::Here(passed.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_come_one_after_the_other() {
        let order = RingOrder::of(&["a", "b", "a", "c", "b"]);
        assert_eq!(order.places, [0, 2, 1, 4, 3]);
        assert_eq!(order.hosts, [0, 0, 1, 1, 3]);
        let after: Vec<Vec<usize>> = (0..5).map(|place| order.after(place)).collect();
        assert_eq!(after, [vec![2], vec![4], vec![1, 0], vec![0], vec![3, 1]]);
        assert_eq!(order.arrange(&[10, 11, 12, 13, 14]), [10, 12, 11, 14, 13]);
        assert_eq!(RingOrder::of(&["a"]).after(0), [0; 0]);
    }

    proptest! {
        #[test]
        fn everybody_is_in_it_once_and_every_host_is_left_once(hosts in prop::collection::vec(0..9_u8, 1..40)) {
            let order = RingOrder::of(&hosts);
            let mut all = order.places.clone();
            all.sort_unstable();
            prop_assert_eq!(all, (0..hosts.len()).collect::<Vec<_>>());
            let leaving = (0..hosts.len())
                .flat_map(|place| order.after(place).into_iter().map(move |next| (place, next)))
                .filter(|(place, next)| hosts[*place] != hosts[*next]);
            let count = hosts.iter().collect::<std::collections::BTreeSet<_>>().len();
            prop_assert_eq!(leaving.count(), if count > 1 { count } else { 0 });
        }
    }
}
