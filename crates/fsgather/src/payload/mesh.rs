//! Payloads over connections between ranks: announced, and passed on from neighbour to neighbour.

use std::{ops::Deref, sync::Arc};

use bytes::Bytes;
use fsgather_control::mesh::{CallId, Halted, Mesh, RingPart, Source as Offered};
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
    /// Whether payloads have checksums on their way.
    pub(crate) has_checksums: bool,
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

/// Connects to the next rank, which is better told of now than after the verdict if it cannot be reached.
pub(crate) fn prepare(guard: &CallGuard, mesh: &Mesh) -> Result<(), Error> {
    let inner = &guard.inner;
    let next = inner.exchange.rank().index() + 1;
    let Some(next) = inner.members.get(next % inner.members.len()) else {
        return Ok(());
    };
    let timeout = guard.ticket.call.timeout;
    mesh.prepare_for(
        call_id(&guard.ticket),
        *next,
        timeout.unwrap_or(mesh.timeout()),
        &mut |bytes| guard.moved(bytes),
    )
}

/// Moves the payloads of a call in which all wait for each other, from neighbour to neighbour.
pub(crate) fn pass_on(
    guard: &CallGuard,
    mesh: &MeshPath,
    bodies: &[Bytes],
    own: &HeldInput<'_>,
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
        members: &inner.members,
        own: own.as_slice(),
        lens: &lens,
        has_checksums: mesh.has_checksums,
    };
    let passed = mesh.ring_within(
        timeout.unwrap_or(mesh.timeout()),
        call_id(&guard.ticket),
        &part,
        &mut guard.turning(),
    )?;
    for ((part, passed), len) in incoming.iter_mut().zip(passed).zip(lens) {
        if len > 0 {
            *part = IncomingPart::Here(passed.into());
        }
    }
    Ok(())
}
