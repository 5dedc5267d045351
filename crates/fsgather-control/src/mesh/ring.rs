//! An all-gather in which payloads go from neighbour to neighbour: [`Ring`].
//!
//! Each rank sends its own payload and hands on what it receives while that is still arriving; [`Course`] determines the
//! routes. A payload enters each rank once, and each host once from another host.

use std::sync::Arc;

use fsgather_core::{CallId, Error, Rank};

use super::{
    REPORT, SLICE, TransferStep,
    core::Core,
    course::Course,
    host_memory::HostMemory,
    incoming::{Incoming, Passed},
    inflow::Inflow,
    link::Link,
    outflow::{Begun, Outflow, RingPayload},
    stream::StreamOrigin,
};

/// A rank's input of a ring; the same on all members except `own`.
#[derive(Clone, Copy, Debug)]
pub struct RingPart<'a> {
    /// The ranks of the world that take part, in the order of the ring.
    pub members: &'a [Rank],
    /// Host of each member, by any numbers; the members of one host follow each other.
    pub hosts: &'a [usize],
    /// This rank's payload.
    pub own: &'a [u8],
    /// Lengths of all payloads, in the order of the ring, in bytes.
    pub lens: &'a [u64],
    /// True if payloads have checksums on their way; without them members notice another payload, and one that is not
    /// whole, but not a changed byte.
    pub has_checksums: bool,
    /// Memory that this rank shares with all other members on its host, if it does; the same on all of these.
    pub host_memory: Option<HostMemory<'a>>,
}

/// One rank's side of a ring.
pub(super) struct Ring<'a> {
    members: usize,
    /// All incoming payloads, from any neighbour.
    incoming: Vec<Incoming>,
    /// From one neighbour, or from two if one of them is on another host.
    inflows: Vec<Inflow>,
    outflows: Vec<Outflow<'a>>,
    host_memory: Option<HostMemory<'a>>,
}

impl<'a> Ring<'a> {
    /// Prepares a rank's part, which may have been begun; nothing moves.
    pub(super) fn new(
        core: &Arc<Core>,
        call: CallId,
        part: &RingPart<'a>,
        begun: Vec<Begun>,
    ) -> Result<Self, Error> {
        let RingPart {
            members,
            hosts,
            own,
            lens,
            has_checksums,
            host_memory,
        } = *part;
        let (place, course) = check(core, part)?;
        let origin = |place: usize| StreamOrigin {
            communicator: core.communicator(),
            call,
            rank: members[place],
            len: lens[place],
            has_checksums,
        };
        let is_here = |other: usize| hosts[other] == hosts[place];
        // Members of this host have these without a ring.
        let is_placed = |other: usize| host_memory.is_some_and(|memory| memory.has(other));
        let mut incoming = Vec::new();
        let mut index_of = vec![None; members.len()];
        let mut inflows = Vec::new();
        for leg in course.receives {
            let mut expected = Vec::new();
            for place in leg.payloads {
                if lens[place] == 0 || is_placed(place) {
                    continue;
                }
                index_of[place] = Some(incoming.len());
                expected.push(incoming.len());
                let (origin, is_here) = (origin(place), is_here(leg.neighbour));
                incoming.push(match host_memory {
                    Some(_) if is_here => Incoming::untold(place, origin),
                    Some(memory) => Incoming::new(core, place, origin, (memory.begin)(origin.len))?,
                    None => Incoming::new(core, place, origin, None)?,
                });
            }
            let from = members[leg.neighbour];
            inflows.push(Inflow::new(Arc::clone(core), call, from, expected));
        }
        let mut outflows = Vec::new();
        for leg in course.sends {
            let is_here = is_here(leg.neighbour);
            let to_send = leg.payloads.into_iter().filter(|place| lens[*place] > 0);
            let to_send = to_send.filter(|place| !(is_here && is_placed(*place)));
            let outgoing = to_send.filter_map(|sent| {
                let placed = host_memory.and_then(|memory| memory.placed(sent));
                match placed {
                    _ if sent == place => Some(RingPayload::Here(origin(place), own)),
                    Some(placed) => Some(RingPayload::Here(origin(sent), placed)),
                    None => index_of[sent].map(RingPayload::HandedOn),
                }
            });
            let to = members[leg.neighbour];
            let (outgoing, hands_over) = (outgoing.collect(), is_here && host_memory.is_some());
            outflows.push(Outflow::new(
                Arc::clone(core),
                call,
                to,
                hands_over,
                outgoing,
            ));
        }
        // Each stream begins with the own payload.
        for begun in begun.into_iter().filter(Begun::is_fresh) {
            if let Some(flow) = outflows.iter_mut().find(|flow| flow.to() == begun.to()) {
                flow.go_on(begun);
            }
        }
        Ok(Self {
            members: members.len(),
            outflows,
            incoming,
            inflows,
            host_memory,
        })
    }

    /// A neighbour to which this rank needs a link that it does not have, if it has anything to send.
    pub(super) fn needs_link_to(&self) -> Option<Rank> {
        let mut lacking = self.outflows.iter().filter(|flow| flow.lacks_link());
        lacking.next().map(Outflow::to)
    }

    /// Passes in a link that is needed.
    pub(super) fn send_over(&mut self, link: Link) {
        let mut flows = self.outflows.iter_mut();
        if let Some(flow) = flows.find(|flow| flow.to() == link.peer) {
            flow.send_over(link);
        }
    }

    /// Returns true if everything has arrived and has been handed on.
    pub(super) fn is_complete(&self) -> bool {
        let has_all = self.inflows.iter().all(Inflow::is_complete);
        has_all && self.outflows.iter().all(Outflow::is_complete)
    }

    /// Ranks that keep this rank from making progress.
    pub(super) fn waited_for(&self) -> Vec<Rank> {
        let silent = self.inflows.iter().filter(|flow| !flow.is_complete());
        let mut ranks: Vec<Rank> = silent.map(Inflow::from).collect();
        let full = self.outflows.iter().filter(|flow| flow.awaits_room());
        for to in full.map(Outflow::to) {
            if !ranks.contains(&to) {
                ranks.push(to);
            }
        }
        ranks
    }

    /// Gives up, and returns its links, which end when they are dropped.
    pub(super) fn into_links(self) -> Vec<Link> {
        let links = self.inflows.into_iter().filter_map(Inflow::into_link);
        let outgoing = self.outflows.into_iter().filter_map(Outflow::into_link);
        links.chain(outgoing).collect()
    }

    /// The received payloads, by place in the group; the entries of this rank, of empty payloads and of payloads that were
    /// placed before are empty.
    pub(super) fn into_payloads(self, core: &Core) -> Result<Vec<Passed>, Error> {
        let none = || Passed::Bytes(Vec::new());
        let mut payloads: Vec<Passed> = (0..self.members).map(|_| none()).collect();
        for incoming in self.incoming {
            let (place, from) = (incoming.place, incoming.origin().rank);
            let passed = incoming.into_passed(core, self.host_memory.as_ref());
            let passed = passed
                .ok_or_else(|| core.corrupt(from, "it has gone from memory that ranks share"))?;
            if let Some(payload) = payloads.get_mut(place) {
                *payload = passed;
            }
        }
        Ok(payloads)
    }

    /// Moves what can be moved, until there is enough for a report, nothing is left, or [`SLICE`] is over; returns the
    /// number of bytes.
    pub(super) async fn advance(&mut self) -> Result<u64, Error> {
        let until = tokio::time::Instant::now() + SLICE;
        let mut moved = 0;
        loop {
            let mut is_stuck = true;
            let mut note = |step: TransferStep| {
                is_stuck &= !matches!(step, TransferStep::Moved(_));
                moved += step.bytes();
            };
            for flow in &mut self.inflows {
                note(flow.step(&mut self.incoming, self.host_memory.as_ref())?);
            }
            for flow in &mut self.outflows {
                note(flow.step(&self.incoming)?);
            }
            if self.is_complete() {
                return Ok(moved);
            }
            if moved >= REPORT {
                // Other tasks and the sockets get their turn although this one could continue.
                tokio::task::yield_now().await;
                return Ok(moved);
            }
            if is_stuck && tokio::time::timeout_at(until, self.ready()).await.is_err() {
                return Ok(moved);
            }
        }
    }

    /// Waits until something may be moved.
    async fn ready(&mut self) {
        let mut inflows = self.inflows.iter_mut();
        let mut outflows = self.outflows.iter();
        // There are at most two of each.
        tokio::select! {
            () = can_receive(inflows.next()) => {}
            () = can_receive(inflows.next()) => {}
            () = can_send(outflows.next()) => {}
            () = can_send(outflows.next()) => {}
        }
    }
}

async fn can_receive(flow: Option<&mut Inflow>) {
    match flow {
        Some(flow) => flow.ready().await,
        None => std::future::pending().await,
    }
}

async fn can_send(flow: Option<&Outflow<'_>>) {
    match flow {
        Some(flow) => flow.ready().await,
        None => std::future::pending().await,
    }
}

/// Returns this rank's place in the group, and its course.
fn check(core: &Core, part: &RingPart<'_>) -> Result<(usize, Course), Error> {
    let RingPart {
        members, own, lens, ..
    } = part;
    let place = members.iter().position(|&member| member == core.rank);
    let known = members
        .iter()
        .all(|member| member.index() < core.world_size());
    let fits = [lens.len(), part.hosts.len()] == [members.len(); 2];
    let placed = part.host_memory.map(|memory| memory.placed.len());
    let fits = fits && placed.is_none_or(|placed| placed == members.len());
    let (Some(place), true, true) = (place, known, fits) else {
        return Err(Error::config(format!(
            "rank {} does not belong to the ring that it is to take part in",
            core.rank
        )));
    };
    if lens[place] != own.len() as u64 {
        return Err(Error::config(format!(
            "rank {} has announced {} bytes and hands in {}",
            core.rank,
            lens[place],
            own.len()
        )));
    }
    let course = Course::of(place, part.hosts);
    let course = course.ok_or_else(|| {
        Error::config(format!(
            "the members of a ring that rank {} is to take part in do not follow each other host by host",
            core.rank
        ))
    })?;
    Ok((place, course))
}
