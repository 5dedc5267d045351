//! An all-gather in which payloads go from neighbour to neighbour: [`Ring`].
//!
//! Each rank receives from its left neighbour and sends to its right one, at the same time: first its own
//! payload, then its left neighbour's, and so on, each handed on while it is still arriving. So every
//! payload crosses every link once, but for the one that leads to where it came from.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Error, Rank};

use super::{
    CallId, REPORT, SLICE, TransferStep,
    core::Core,
    inflow::{Incoming, Inflow},
    link::Link,
    outflow::{Outflow, RingPayload},
    stream::StreamOrigin,
};

/// How long a rank that has got and sent everything waits for its neighbour to say that it has, too.
/// Only whether the link is used again depends on it.
const LAST_WORD: Duration = Duration::from_millis(500);

/// What a rank has to say of a ring; the same on all members but for `own`.
#[derive(Clone, Copy, Debug)]
pub struct RingPart<'a> {
    /// The ranks of the world that take part, in the order of their group.
    pub members: &'a [Rank],
    /// This rank's payload.
    pub own: &'a [u8],
    /// How long everybody's is, in the order of the group, in bytes.
    pub lens: &'a [u64],
    /// Whether payloads have checksums on their way; without them members notice another payload, and one that is not
    /// whole, but not a changed byte.
    pub has_checksums: bool,
}

/// One rank's side of a ring.
pub(super) struct Ring<'a> {
    members: usize,
    inflow: Inflow,
    outflow: Outflow<'a>,
    /// When nothing was left but to hear the neighbour's last word.
    done_at: Option<Instant>,
}

impl<'a> Ring<'a> {
    /// Prepares a rank's part; nothing moves.
    pub(super) fn new(core: &Arc<Core>, call: CallId, part: &RingPart<'a>) -> Result<Self, Error> {
        let RingPart {
            members,
            own,
            lens,
            has_checksums,
        } = *part;
        let count = members.len();
        let place = check(core, members, own, lens)?;
        let mut incoming = Vec::new();
        let mut outgoing = Vec::new();
        for distance in 0..count {
            let place = (place + count - distance) % count;
            let origin = StreamOrigin {
                communicator: core.communicator(),
                call,
                rank: members[place],
                len: lens[place],
                has_checksums,
            };
            if origin.len == 0 {
                continue;
            }
            // The right neighbour's own payload is not sent back to it.
            if distance + 1 < count {
                outgoing.push(match distance {
                    0 => RingPayload::Own(origin),
                    _ => RingPayload::HandedOn(incoming.len()),
                });
            }
            if distance > 0 {
                incoming.push(Incoming::new(core, place, origin)?);
            }
        }
        let left = members[(place + count - 1) % count];
        let right = members[(place + 1) % count];
        Ok(Self {
            members: count,
            inflow: Inflow::new(Arc::clone(core), call, left, incoming),
            outflow: Outflow::new(Arc::clone(core), call, right, own, outgoing),
            done_at: None,
        })
    }

    /// To whom this rank needs a link that it does not have, if it has anything to send.
    pub(super) fn needs_link_to(&self) -> Option<Rank> {
        self.outflow.lacks_link().then(|| self.outflow.to())
    }

    /// Hands in the link to the right.
    pub(super) fn send_over(&mut self, link: Link) {
        self.outflow.send_over(link);
    }

    /// Whether everything has arrived and has been handed on.
    pub(super) fn is_complete(&self) -> bool {
        self.inflow.is_complete() && self.outflow.is_complete()
    }

    /// Who keeps this rank from getting on.
    pub(super) fn waited_for(&self) -> Vec<Rank> {
        let mut ranks = Vec::new();
        if !self.inflow.is_complete() {
            ranks.push(self.inflow.from());
        }
        if self.outflow.awaits_room() && !ranks.contains(&self.outflow.to()) {
            ranks.push(self.outflow.to());
        }
        ranks
    }

    /// Gives up; its links, which end when they are dropped.
    pub(super) fn into_links(self) -> Vec<Link> {
        let links = self.inflow.into_link().into_iter();
        links.chain(self.outflow.into_link()).collect()
    }

    /// What has arrived, by place in the group; the own place, and those of empty payloads, are empty.
    pub(super) fn into_payloads(self) -> Vec<Vec<u8>> {
        let mut payloads = vec![Vec::new(); self.members];
        for incoming in self.inflow.into_incoming() {
            let place = incoming.place;
            if let Some(payload) = payloads.get_mut(place) {
                *payload = incoming.into_bytes();
            }
        }
        payloads
    }

    /// Moves what can be moved, until there is enough for a report, nothing is left, or [`SLICE`] is
    /// over; how many bytes.
    pub(super) async fn advance(&mut self) -> Result<u64, Error> {
        let until = tokio::time::Instant::now() + SLICE;
        let mut moved = 0;
        loop {
            let received = self.inflow.step()?;
            let sent = self.outflow.step(self.inflow.incoming())?;
            moved += received.bytes() + sent.bytes();
            if self.is_complete() {
                return Ok(moved);
            }
            if moved >= REPORT {
                // Other tasks and the sockets get their turn although we could go on.
                tokio::task::yield_now().await;
                return Ok(moved);
            }
            let is_stuck = !matches!(received, TransferStep::Moved(_))
                && !matches!(sent, TransferStep::Moved(_));
            if is_stuck {
                let (inflow, outflow) = (&mut self.inflow, &self.outflow);
                let ready = async {
                    tokio::select! {
                        () = inflow.ready() => {}
                        () = outflow.ready() => {}
                    }
                };
                if tokio::time::timeout_at(until, ready).await.is_err() {
                    self.mind_last_word();
                    return Ok(moved);
                }
            }
        }
    }

    fn mind_last_word(&mut self) {
        if self.inflow.is_complete() && self.outflow.is_sent() {
            let done_at = *self.done_at.get_or_insert_with(Instant::now);
            if done_at.elapsed() >= LAST_WORD {
                self.outflow.give_up_last_word();
            }
        }
    }
}

/// This rank's place in the group.
fn check(core: &Core, members: &[Rank], own: &[u8], lens: &[u64]) -> Result<usize, Error> {
    let place = members.iter().position(|&member| member == core.rank);
    let known = members
        .iter()
        .all(|member| member.index() < core.world_size());
    let (Some(place), true, true) = (place, known, lens.len() == members.len()) else {
        return Err(Error::config(format!(
            "rank {} does not belong to the ring that it is to take part in",
            core.rank
        )));
    };
    if lens[place] == own.len() as u64 {
        Ok(place)
    } else {
        Err(Error::config(format!(
            "rank {} has announced {} bytes and hands in {}",
            core.rank,
            lens[place],
            own.len()
        )))
    }
}
