//! One whole collective call, from this rank's payload to its results: [`StartedCall`] after it has been announced,
//! [`ReceivedParts`] after all ranks have announced theirs.

use std::{sync::Arc, time::Duration};

use fsgather_control::mesh::Begun;
use fsgather_core::{Call, CallEvent, Contribution, Error, Leaves, Rank, Route, Verdict};
use fsgather_store::Payload;

use crate::{
    call::guard::CallGuard,
    group_state::GroupState,
    join::local_context::is_dispensable,
    parts::{Parts, Take},
    payload::{
        bound::Bound,
        header::PayloadHeader,
        host_reading::read_for_each_other,
        input::{HeldInput, PayloadInput},
        mesh::{self, Passing},
        part::{self, Announced, IncomingPart},
        path::PayloadPath,
        path_request::PathRequest,
        relay,
        retention::Retention,
        shared_memory::Share,
        writer::{InputWriter, Ready, body},
    },
    setup,
};
use fsgather_config::settings::Transport;

/// A call whose payload has been published and announced: the verdict, and reading, remain.
pub(crate) struct StartedCall<'a> {
    guard: CallGuard,
    payload_path: PayloadPath,
    own: HeldInput<'a>,
    /// The transfers of its payload to neighbours that have begun already.
    begun: Vec<Begun>,
    retention: Retention,
    /// The memory that the members share, if they do.
    share: Option<Share>,
    /// The result, if the call already has its verdict: ranks that send through rank 0 do so together.
    decided: Option<ReceivedParts>,
}

/// The state of a call before any large payload is read.
pub(crate) struct ReceivedParts {
    /// One for each rank, on recipients.
    pub(crate) incoming: Option<Vec<IncomingPart>>,
    /// True if the owners of payloads wait for the message that all has been read.
    pub(crate) acknowledge: bool,
}

/// The decision of all ranks.
pub(crate) enum Decision {
    /// The verdict.
    Verdict(Verdict),
    /// The verdict arrived while the call was started, and its effects have been carried out.
    Followed(ReceivedParts),
}

impl<'a> StartedCall<'a> {
    /// Takes this rank's payload and announces it to the others.
    pub(crate) fn new(
        inner: &Arc<GroupState>,
        request: &PathRequest,
        mut call: Call,
        retention: Retention,
        input: PayloadInput<'a>,
    ) -> Result<Self, Error> {
        call.way = Some(Box::new(request.way()));
        let payload_path = setup::payload_path_for(inner, request, &call)?;
        let guard = CallGuard::begin(inner, call)?;
        let by_ring = matches!(
            (&payload_path, retention),
            (PayloadPath::Mesh(_), Retention::Passing)
        );
        let share = Share::of(inner, request, &guard.ticket, by_ring);
        let place = Place {
            request,
            payload_path: &payload_path,
            share: share.as_ref(),
        };
        let ready = match publish(&guard, &place, retention, input) {
            // All ranks learn it by the verdict, before any payload moves.
            Err(Error::TooLarge { size, .. }) => {
                place.take_back(&guard);
                refusal(&guard, size)
            }
            ready => ready,
        };
        let ready = ready.map_err(|cause| guard.fail(cause));
        let ready = ready.inspect_err(|_| place.take_back(&guard))?;
        let route = PayloadHeader::route(&ready.contribution.body);
        guard
            .contribute(ready.contribution, ready.len)
            .inspect_err(|_| place.take_back(&guard))?;
        let begun = match (&payload_path, retention, route) {
            // Until the verdict, another rank may exceed the bound.
            (PayloadPath::Mesh(mesh), Retention::Passing, Route::Link)
                if ready.own.len() > 0 && guard.ticket.call.bound.is_none() =>
            {
                mesh::begin(&guard, mesh, ready.own.as_slice())
            }
            _ => Vec::new(),
        };
        let mut started = Self {
            guard,
            payload_path,
            own: ready.own,
            begun,
            retention,
            share,
            decided: None,
        };
        if retention == Retention::Kept {
            // No thread waits yet, so the announcement must be sent explicitly. All ranks may have arrived by now, and
            // one may already be gone: only the verdict shows if the call has failed.
            drop(started.guard.moved(0));
            started.guard.inner.exchange.send_on();
            if matches!(started.payload_path, PayloadPath::Relay)
                && let Some(decision) = started.decide(None)?
            {
                started.decided = Some(started.follow(decision)?);
            }
        }
        Ok(started)
    }

    /// Waits for the verdict, for `limit` at most.
    pub(crate) fn decide(&mut self, limit: Option<Duration>) -> Result<Option<Decision>, Error> {
        if let Some(received) = self.decided.take() {
            return Ok(Some(Decision::Followed(received)));
        }
        let verdict = self.guard.verdict(limit)?;
        Ok(verdict.map(Decision::Verdict))
    }

    /// Waits for everything that must arrive before the call can be left.
    pub(crate) fn follow(&mut self, decision: Decision) -> Result<ReceivedParts, Error> {
        let verdict = match decision {
            Decision::Verdict(verdict) => verdict,
            Decision::Followed(received) => return Ok(received),
        };
        let guard = &self.guard;
        if let Some(excess) = excess(guard, &verdict) {
            take_back(guard, &self.payload_path, self.share.as_ref());
            return Err(guard.over(excess));
        }
        let relayed = relay::run(
            &*guard.inner.exchange,
            &guard.ticket,
            self.own.as_slice(),
            verdict.further_rounds,
            |bytes| guard.observe(CallEvent::Moved { bytes }),
        )
        .map_err(|failure| guard.over(failure))?;
        let acknowledge = verdict
            .table
            .as_ref()
            .is_some_and(|table| table.acknowledge);
        if self.retention == Retention::KeptForReader {
            self.payload_path.hand_over(&guard.ticket);
        }
        let own = std::mem::replace(&mut self.own, HeldInput::Gone);
        let incoming = verdict
            .table
            .map(|table| {
                let bodies = table.bodies;
                let announced = Announced {
                    inner: &guard.inner,
                    payload_path: &self.payload_path,
                    share: self.share.as_ref(),
                    keeps: matches!(own, HeldInput::Shared(_)),
                    ticket: &guard.ticket,
                };
                let mut incoming = announced
                    .parts(&bodies, relayed)
                    .map_err(|cause| guard.fail(cause))?;
                if let (PayloadPath::Mesh(mesh), Retention::Passing) =
                    (&self.payload_path, self.retention)
                {
                    // The links end after the others have received the reason.
                    let begun = std::mem::take(&mut self.begun);
                    let passing = Passing {
                        bodies: &bodies,
                        own: &own,
                        share: self.share.as_ref(),
                    };
                    mesh::pass_on(guard, mesh, &passing, begun, &mut incoming)
                        .map_err(|halted| guard.fail(halted.cause.clone()))?;
                }
                // The input of this rank need not come back to it.
                let me = guard.inner.exchange.rank().index();
                if let (true, Some(part)) = (own.is_own_part(), incoming.get_mut(me)) {
                    part.take_own(own);
                }
                Ok(incoming)
            })
            .transpose()?;
        if let Some(share) = &mut self.share {
            share.close();
        }
        Ok(ReceivedParts {
            incoming,
            acknowledge,
        })
    }

    /// Reads all payloads of a call whose recipients are all ranks, in the order that spreads the load.
    pub(crate) fn read_all<R>(
        &self,
        received: ReceivedParts,
        take: impl Fn(&GroupState, Rank, Payload) -> Result<R, Error>,
    ) -> Result<Vec<R>, Error> {
        let guard = &self.guard;
        let mut incoming = received.incoming.unwrap_or_default();
        // All ranks are in the call now, and none is elsewhere.
        if let (PayloadPath::Files(_), Retention::Passing) = (&self.payload_path, self.retention) {
            incoming = read_for_each_other(guard, incoming).map_err(|cause| guard.fail(cause))?;
        }
        let taking = |rank, payload| take(&guard.inner, rank, payload);
        let results = part::read_all(guard, incoming, taking).map_err(|cause| guard.fail(cause))?;
        self.end(received.acknowledge);
        Ok(results)
    }

    /// Reads the payload of one rank that all ranks receive.
    pub(crate) fn read_one(&self, received: ReceivedParts, rank: Rank) -> Result<Payload, Error> {
        let guard = &self.guard;
        let incoming = received.incoming.unwrap_or_default();
        let part = incoming.into_iter().nth(rank.index());
        let payload = part
            .ok_or_else(|| guard.raised("the root's part is missing"))
            .and_then(|part| part.read(&guard.inner, rank, &mut |bytes| guard.moved(bytes)))
            .map_err(|cause| guard.fail(cause))?;
        self.end(received.acknowledge);
        Ok(payload)
    }

    /// Returns the parts for the root of a gather, which reads them one by one; `None` on other ranks.
    pub(crate) fn parts<T>(&self, received: ReceivedParts, take: Take<T>) -> Option<Parts<T>> {
        let ReceivedParts {
            incoming,
            acknowledge,
        } = received;
        if incoming.is_some() {
            self.guard.hand_over();
        } else {
            self.guard.succeed();
        }
        Some(Parts::new(
            Arc::clone(&self.guard.inner),
            self.guard.ticket.clone(),
            incoming?,
            acknowledge,
            take,
        ))
    }

    /// Gives up the data that this rank would receive.
    pub(crate) fn abandon(&mut self) {
        if let Some(received) = self.decided.take() {
            return self.end(received.acknowledge);
        }
        self.guard.abandon();
    }

    /// Waits for the verdict and reads the payloads of the call.
    pub(crate) fn finish<R>(
        &mut self,
        read: impl FnOnce(&Self, ReceivedParts) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let decision = self.decide(None)?.ok_or_else(Error::closed)?;
        let received = self.follow(decision)?;
        read(self, received)
    }

    /// Returns the same call without the caller's bytes, for calls whose payload has been taken in full.
    pub(crate) fn detached(self) -> StartedCall<'static> {
        StartedCall {
            guard: self.guard,
            payload_path: self.payload_path,
            own: self.own.into_kept(),
            begun: self.begun,
            retention: self.retention,
            share: self.share,
            decided: self.decided,
        }
    }

    pub(crate) fn guard(&self) -> &CallGuard {
        &self.guard
    }

    fn end(&self, acknowledge: bool) {
        if acknowledge {
            self.guard.inner.exchange.done(&self.guard.ticket);
        }
        self.guard.succeed();
    }
}

/// The places where a payload may go.
struct Place<'a> {
    request: &'a PathRequest,
    payload_path: &'a PayloadPath,
    share: Option<&'a Share>,
}

impl Place<'_> {
    /// Removes this rank's payload of a call that it could not hand in. Rank 0 decides on payloads that were handed in.
    fn take_back(&self, guard: &CallGuard) {
        take_back(guard, self.payload_path, self.share);
    }
}

/// Removes this rank's payload of a call, which no rank reads.
fn take_back(guard: &CallGuard, payload_path: &PayloadPath, share: Option<&Share>) {
    let ticket = &guard.ticket;
    payload_path.reclaim_own(ticket.channel, ticket.epoch);
    if let Some(share) = share {
        share.withdraw();
    }
}

/// Announces that this rank's payload exceeds the bound of the call.
fn refusal<'a>(guard: &CallGuard, len: u64) -> Result<Ready<'a>, Error> {
    let body = body(guard, PayloadHeader::TooLarge { len })?;
    Ok(Ready {
        contribution: Contribution {
            leaves: Leaves::Refusal,
            ..Contribution::inline(body)
        },
        own: HeldInput::Gone,
        len: 0,
    })
}

/// Returns the error of a call if a payload exceeds its bound: that of the first such rank, on all ranks.
fn excess(guard: &CallGuard, verdict: &Verdict) -> Option<Error> {
    let bound = guard.ticket.call.bound?;
    let bodies = &verdict.table.as_ref()?.bodies;
    let mut ranks = (0..).map(Rank::new).zip(bodies);
    ranks.find_map(|(rank, body)| match PayloadHeader::from_body(body)? {
        PayloadHeader::TooLarge { len } => Some(Error::too_large(
            guard.inner.peer(rank).cloned()?,
            len,
            bound,
        )),
        _ => None,
    })
}

fn publish<'a>(
    guard: &CallGuard,
    place: &Place<'_>,
    retention: Retention,
    input: PayloadInput<'a>,
) -> Result<Ready<'a>, Error> {
    let (request, payload_path) = (place.request, place.payload_path);
    if let PayloadPath::Files(files) = payload_path {
        files.check()?;
    }
    let context = &guard.inner.world.context;
    let is_named = request.directory.is_some() || context.named.is_some();
    // Payloads without room in files should not fill files through messages either.
    let has_another_way = request.transport == Transport::Auto && context.links.is_some();
    let is_dispensable = |problem: &Error| has_another_way && is_dispensable(problem, is_named);
    let writer = InputWriter::new(
        guard,
        payload_path,
        retention,
        input.encoding,
        Bound::new(guard.ticket.call.bound, input.uncounted),
        place.share,
        &is_dispensable,
    );
    let ready = writer.take_all(input.source)?;
    if let (PayloadPath::Mesh(mesh), Retention::Passing, 1..) =
        (payload_path, retention, ready.own.len())
    {
        mesh::prepare(guard, mesh)?;
    }
    Ok(ready)
}
