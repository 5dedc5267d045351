//! One whole collective call, from this rank's payload to what it receives: [`Started`] when it has been
//! announced, [`Received`] when all have.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fsgather_control::mesh::{Halted, Mesh};
use fsgather_core::{Call, Error, Rank, Verdict};
use fsgather_rendezvous::local_context::is_dispensable;
use fsgather_store::Payload;

#[cfg(feature = "ndarray")]
use crate::transfer::stream::Stream;
use crate::{
    group_state::GroupState,
    parts::{Parts, Take},
    place::{Place, call_id},
    route::Route,
    set_up,
    transfer::{
        announcement::Announcement,
        incoming::{self, Incoming},
        manner::Manner,
        outgoing::{Outgoing, Ready},
        relay,
        session::Session,
        source::{Input, Own},
    },
};
use fsgather_config::settings::Transport;

/// A call whose payload has been published and announced: what remains is the verdict, and reading.
pub(crate) struct Started<'a> {
    session: Session,
    place: Place,
    own: Own<'a>,
    manner: Manner,
    /// Through rank 0 ranks hand over together, so that the call has come to its verdict already.
    early: Option<Received>,
}

/// What a call has come to before anything large is read.
pub(crate) struct Received {
    /// One for each rank, on recipients.
    pub(crate) incoming: Option<Vec<Incoming>>,
    /// Whether the owners of payloads have to be told when all has been read.
    pub(crate) acknowledge: bool,
}

impl<'a> Started<'a> {
    /// Takes this rank's payload and announces it to the others.
    pub(crate) fn new(
        inner: &Arc<GroupState>,
        route: &Route,
        mut call: Call,
        manner: Manner,
        input: Input<'a>,
    ) -> Result<Self, Error> {
        call.way = Some(Box::new(route.way()));
        let place = set_up::place_for(inner, route, &call)?;
        let session = Session::begin(inner, call)?;
        let ready =
            publish(&session, route, &place, manner, input).map_err(|cause| session.fail(cause))?;
        session
            .contribute(ready.contribution, ready.len)
            .inspect_err(|_| forget(&session, &place))?;
        let mut started = Self {
            session,
            place,
            own: ready.own,
            manner,
            early: None,
        };
        if manner == Manner::Kept {
            // Nobody waits yet, so that the announcement has to be sent on its way. All may have come by now, and one
            // of them may be gone already: only the verdict tells whether the call has failed.
            drop(started.session.moved(0));
            if matches!(started.place, Place::Relay) {
                started.early = started.receive(None)?;
            }
        }
        Ok(started)
    }

    /// Waits for the verdict, for `limit` at most, and for what has to come before the call can be left.
    pub(crate) fn receive(&mut self, limit: Option<Duration>) -> Result<Option<Received>, Error> {
        if let Some(received) = self.early.take() {
            return Ok(Some(received));
        }
        let session = &self.session;
        let verdict = session.verdict(limit)?;
        verdict.map(|verdict| self.follow(verdict)).transpose()
    }

    fn follow(&mut self, verdict: Verdict) -> Result<Received, Error> {
        let session = &self.session;
        let relayed = relay::run(
            &*session.inner.exchange,
            &session.ticket,
            self.own.as_slice(),
            verdict.further_rounds,
            |bytes| session.inner.world.ledger.moved(&session.ticket, bytes),
        )
        .map_err(|failure| session.over(failure))?;
        let acknowledge = verdict
            .table
            .as_ref()
            .is_some_and(|table| table.acknowledge);
        if self.manner == Manner::KeptForReader {
            self.place.hand_over(&session.ticket);
        }
        let own = std::mem::replace(&mut self.own, Own::Gone);
        let incoming = verdict
            .table
            .map(|table| {
                let bodies = table.bodies.clone();
                let mut incoming =
                    Incoming::sort(&session.inner, &self.place, &session.ticket, table, relayed)
                        .map_err(|cause| session.fail(cause))?;
                if let (Place::Mesh(mesh), Manner::Passing) = (&self.place, self.manner) {
                    // The links end after the others have been told why.
                    pass_on(session, mesh, &bodies, &own, &mut incoming)
                        .map_err(|halted| session.fail(halted.cause.clone()))?;
                }
                // What this rank has handed in itself need not come back to it.
                let me = session.inner.exchange.rank().index();
                if let (true, Some(part)) = (own.len() > 0, incoming.get_mut(me)) {
                    part.take_own(own);
                }
                Ok(incoming)
            })
            .transpose()?;
        Ok(Received {
            incoming,
            acknowledge,
        })
    }

    /// Reads everything that a call brings to all of its recipients, in the order that spreads the load.
    pub(crate) fn read_all<R>(
        &self,
        received: Received,
        take: impl Fn(&GroupState, Rank, Payload) -> Result<R, Error>,
    ) -> Result<Vec<R>, Error> {
        let session = &self.session;
        let incoming = received.incoming.unwrap_or_default();
        let taking = |rank, payload| take(&session.inner, rank, payload);
        let results =
            incoming::read_all(session, incoming, taking).map_err(|cause| session.fail(cause))?;
        self.end(received.acknowledge);
        Ok(results)
    }

    /// Reads the payload of one rank that a call brings to all.
    pub(crate) fn read_one(&self, received: Received, rank: Rank) -> Result<Payload, Error> {
        let session = &self.session;
        let incoming = received.incoming.unwrap_or_default();
        let part = incoming.into_iter().nth(rank.index());
        let payload = part
            .ok_or_else(|| session.raised("the root's part is missing"))
            .and_then(|part| part.read(&session.inner, rank, &mut |bytes| session.moved(bytes)))
            .map_err(|cause| session.fail(cause))?;
        self.end(received.acknowledge);
        Ok(payload)
    }

    /// Reads everything piece by piece, in the order that spreads the load, but for this rank's own part.
    #[cfg(feature = "ndarray")]
    pub(crate) fn read_streams(
        &self,
        received: Received,
        mut take: impl FnMut(Rank, &mut Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let session = &self.session;
        let inner = &session.inner;
        let me = inner.exchange.rank();
        let mut parts: Vec<Option<Incoming>> = received
            .incoming
            .unwrap_or_default()
            .into_iter()
            .map(Some)
            .collect();
        for index in incoming::reading_order(me, parts.len()) {
            let rank = Rank::new(u32::try_from(index).unwrap_or(u32::MAX));
            let Some(part) = parts.get_mut(index).and_then(Option::take) else {
                continue;
            };
            let file = part.file().cloned();
            if rank != me {
                part.open(inner, rank, session.moving())
                    .and_then(|mut stream| take(rank, &mut stream))
                    .map_err(|cause| session.fail(cause))?;
            }
            if !received.acknowledge {
                Incoming::remove(inner, file.as_ref());
            }
        }
        self.end(received.acknowledge);
        Ok(())
    }

    /// Lets the root of a gather read by and by; nothing elsewhere.
    pub(crate) fn parts<T>(&self, received: Received, take: Take<T>) -> Option<Parts<T>> {
        let Received {
            incoming,
            acknowledge,
        } = received;
        if incoming.is_some() {
            self.session.hand_over();
        } else {
            self.session.succeed();
        }
        Some(Parts::new(
            Arc::clone(&self.session.inner),
            self.session.ticket.clone(),
            incoming?,
            acknowledge,
            take,
        ))
    }

    /// Gives up what this rank would receive.
    pub(crate) fn abandon(&mut self) {
        if let Some(received) = self.early.take() {
            return self.end(received.acknowledge);
        }
        self.session.abandon();
    }

    /// Waits for the verdict and reads what the call has brought.
    pub(crate) fn finish<R>(
        &mut self,
        read: impl FnOnce(&Self, Received) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.receive(None)? {
            Some(received) => read(self, received),
            None => Err(Error::closed()),
        }
    }

    /// The same call without the caller's bytes, for calls whose payload has been taken in full.
    pub(crate) fn detached(self) -> Started<'static> {
        Started {
            session: self.session,
            place: self.place,
            own: self.own.into_kept(),
            manner: self.manner,
            early: self.early,
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    fn end(&self, acknowledge: bool) {
        if acknowledge {
            self.session.inner.exchange.done(&self.session.ticket);
        }
        self.session.succeed();
    }
}

fn publish<'a>(
    session: &Session,
    route: &Route,
    place: &Place,
    manner: Manner,
    input: Input<'a>,
) -> Result<Ready<'a>, Error> {
    if let Place::Files(files) = place {
        files.check()?;
    }
    let context = &session.inner.world.context;
    let is_named = route.directory.is_some() || context.named.is_some();
    // Messages that go through files had better not carry payloads for which there is no room.
    let has_another_way = route.transport == Transport::Auto && context.links.is_some();
    let is_dispensable = |problem: &Error| has_another_way && is_dispensable(problem, is_named);
    let outgoing = Outgoing::new(session, place, manner, input.encoding, &is_dispensable);
    let ready = outgoing.take_all(input.source)?;
    if let (Place::Mesh(mesh), 1..) = (place, ready.own.len()) {
        // A neighbour that cannot be reached is better told of before the verdict than after it.
        let inner = &session.inner;
        let next = inner.exchange.rank().index() + 1;
        let next = inner.members.get(next % inner.members.len());
        if let (Some(next), Manner::Passing) = (next, manner) {
            let timeout = session.ticket.call.timeout;
            mesh.prepare_for(
                call_id(&session.ticket),
                *next,
                timeout.unwrap_or(mesh.timeout()),
                &mut |bytes| session.moved(bytes),
            )?;
        }
    }
    Ok(ready)
}

/// Removes this rank's payload of a call that it could not hand in. What was handed in is rank 0's to judge.
fn forget(session: &Session, place: &Place) {
    let ticket = &session.ticket;
    place.reclaim_own(ticket.channel, ticket.epoch);
}

/// Moves the payloads of a call in which all wait for each other, from neighbour to neighbour.
fn pass_on(
    session: &Session,
    mesh: &Mesh,
    bodies: &[Bytes],
    own: &Own<'_>,
    incoming: &mut [Incoming],
) -> Result<(), Halted> {
    let inner = &session.inner;
    let lens: Vec<u64> = bodies
        .iter()
        .map(|body| match Announcement::from_body(body) {
            Some(Announcement::Linked { len }) => len,
            _ => 0,
        })
        .collect();
    if lens.iter().all(|len| *len == 0) {
        return Ok(());
    }
    let timeout = session.ticket.call.timeout;
    let passed = mesh.ring_within(
        timeout.unwrap_or(mesh.timeout()),
        call_id(&session.ticket),
        &inner.members,
        own.as_slice(),
        &lens,
        &mut session.turning(),
    )?;
    for ((part, passed), len) in incoming.iter_mut().zip(passed).zip(lens) {
        if len > 0 {
            *part = Incoming::Here(passed.into());
        }
    }
    Ok(())
}
