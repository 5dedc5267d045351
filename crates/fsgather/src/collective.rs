//! One whole collective call, from this rank's payload to what it receives.

use std::{
    io::{ErrorKind, Read},
    sync::Arc,
};

use fsgather_core::{Call, Error, Operation, Rank, Site};
use fsgather_store::{Encoding, Payload};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    build_identity::type_tag,
    codec,
    communicator::Communicator,
    gathered::{self, Gathered, Parts},
    inner::{Inner, Route},
    place::Place,
    set_up,
    transfer::{
        incoming::{self, Incoming},
        outgoing::{Outgoing, Ready},
        relay,
        session::Session,
    },
};

impl Communicator {
    pub(crate) fn all_gather_by<T>(
        &self,
        route: &Route,
        value: &T,
        site: Site,
    ) -> Result<Vec<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let call = Call::new(Operation::AllGather, site).with_type(type_tag::<T>());
        self.gather_everywhere(
            route,
            call,
            codec::POSTCARD,
            |session, outgoing| codec::encode(session, value, outgoing),
            |rank, payload| gathered::as_value(&self.inner, rank, &payload),
        )
    }

    pub(crate) fn gather_by<T>(
        &self,
        route: &Route,
        value: &T,
        root: u32,
        site: Site,
    ) -> Result<Gathered<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let root = self.world_size().rank(root)?;
        let call = Call::new(Operation::Gather, site)
            .with_root(root)
            .with_type(type_tag::<T>());
        self.gather_on_root(
            route,
            call,
            codec::POSTCARD,
            |session, outgoing| codec::encode(session, value, outgoing),
            |inner, rank, payload| gathered::as_value(inner, rank, &payload),
        )
    }

    pub(crate) fn gather_everywhere<R>(
        &self,
        route: &Route,
        call: Call,
        encoding: Encoding,
        give: impl FnOnce(&Session<'_>, &mut Outgoing<'_>) -> Result<(), Error>,
        take: impl FnMut(Rank, Payload) -> Result<R, Error>,
    ) -> Result<Vec<R>, Error> {
        let Collected {
            session,
            incoming,
            acknowledge,
        } = collective(&self.inner, route, call, encoding, give)?;
        let received = incoming::read_all(&session, incoming.unwrap_or_default(), take)
            .map_err(|cause| session.fail(cause))?;
        finish(&session, acknowledge);
        Ok(received)
    }

    pub(crate) fn gather_on_root<T>(
        &self,
        route: &Route,
        call: Call,
        encoding: Encoding,
        give: impl FnOnce(&Session<'_>, &mut Outgoing<'_>) -> Result<(), Error>,
        take: gathered::Take<T>,
    ) -> Result<Gathered<T>, Error> {
        let Collected {
            session, incoming, ..
        } = collective(&self.inner, route, call, encoding, give)?;
        session.succeed();
        Ok(match incoming {
            None => Gathered::NotRecipient,
            Some(incoming) => Gathered::All(Parts::new(
                Arc::clone(&self.inner),
                session.ticket.clone(),
                incoming,
                take,
            )),
        })
    }

    /// A broadcast is a gather on all ranks in which only the root has something to give.
    pub(crate) fn broadcast_from(
        &self,
        root: Rank,
        call: Call,
        encoding: Encoding,
        give: impl FnOnce(&Session<'_>, &mut Outgoing<'_>) -> Result<(), Error>,
    ) -> Result<Payload, Error> {
        let is_root = self.rank() == root;
        let Collected {
            session,
            incoming,
            acknowledge,
        } = collective(
            &self.inner,
            self.inner.default_route(),
            call,
            encoding,
            |session, outgoing| {
                if is_root {
                    give(session, outgoing)
                } else {
                    Ok(())
                }
            },
        )?;
        let part = incoming.unwrap_or_default().into_iter().nth(root.index());
        let payload = part
            .ok_or_else(|| session.raised("the root's part is missing"))
            .and_then(|part| part.read(&self.inner, root, &mut |bytes| session.moved(bytes)))
            .map_err(|cause| session.fail(cause))?;
        finish(&session, acknowledge);
        Ok(payload)
    }
}

/// What a call has come to before anything large is read.
struct Collected<'a> {
    session: Session<'a>,
    /// One for each rank, on recipients.
    incoming: Option<Vec<Incoming>>,
    /// Whether the owners of payloads have to be told when all has been read.
    acknowledge: bool,
}

/// Takes this rank's payload from `give`, and learns from the others where theirs are.
fn collective<'a>(
    inner: &'a Inner,
    route: &Route,
    call: Call,
    encoding: Encoding,
    give: impl FnOnce(&Session<'_>, &mut Outgoing<'_>) -> Result<(), Error>,
) -> Result<Collected<'a>, Error> {
    let place = set_up::place_for(inner, route, &call.site)?;
    let session = Session::begin(inner, call)?;
    let ready = publish(&session, &place, encoding, give).map_err(|cause| session.fail(cause))?;
    let verdict = session
        .decide(ready.contribution)
        .inspect_err(|_| place.forget(&session.ticket))?;
    let relayed = relay::run(
        &*inner.exchange,
        &session.ticket,
        &ready.rest,
        verdict.further_rounds,
    )
    .map_err(|failure| session.over(failure))?;
    let acknowledge = verdict
        .table
        .as_ref()
        .is_some_and(|table| table.acknowledge);
    if !acknowledge {
        // A single recipient removes what it has read.
        place.hand_over(&session.ticket);
    }
    let incoming = verdict
        .table
        .map(|table| Incoming::sort(table, relayed))
        .transpose()
        .map_err(|cause| session.fail(cause))?;
    Ok(Collected {
        session,
        incoming,
        acknowledge,
    })
}

fn publish(
    session: &Session<'_>,
    place: &Place,
    encoding: Encoding,
    give: impl FnOnce(&Session<'_>, &mut Outgoing<'_>) -> Result<(), Error>,
) -> Result<Ready, Error> {
    if let Place::Files(files) = place {
        files.check()?;
    }
    let mut outgoing = Outgoing::new(session, place, encoding);
    give(session, &mut outgoing)?;
    outgoing.finish()
}

/// Ends a call that everybody receives, once all of it has been read.
fn finish(session: &Session<'_>, acknowledge: bool) {
    if acknowledge {
        session.inner.exchange.done(&session.ticket);
    }
    session.succeed();
}

/// Copies a source to where the payload goes, a chunk at a time.
pub(crate) fn copy(
    session: &Session<'_>,
    source: &mut dyn Read,
    outgoing: &mut Outgoing<'_>,
) -> Result<(), Error> {
    const AT_ONCE: usize = 1 << 20;
    let mut chunk = vec![0; AT_ONCE];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => outgoing.take(&chunk[..read])?,
            // A source that has nothing for long says so: time to see whether the call still stands.
            Err(error) if error.kind() == ErrorKind::Interrupted => session.moved(0)?,
            Err(error) => {
                return Err(session.raised(error.to_string()));
            }
        }
    }
}
