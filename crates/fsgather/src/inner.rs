//! What all handles of one communicator share: [`Inner`].

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use fsgather_core::{
    Call, ChannelId, Epoch, Error, Exchange, GatherId, Operation, Peer, PeerFailure, ProcessId,
    Rank, Site,
};
use fsgather_store::Encoding;
use uuid::Uuid;

use crate::{
    blocking,
    place::{FilePlace, Place},
    set_up::{self, Ground},
    settings::Transport,
    transfer::{
        incoming::Incoming,
        outgoing::{self, Outgoing},
        relay,
        session::Session,
    },
};

/// Which place a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Files, memory, or whatever works.
    pub(crate) transport: Transport,
    /// Another directory than the communicator's own.
    pub(crate) directory: Option<PathBuf>,
}

/// What is known of a world that has formed.
pub(crate) struct World {
    pub(crate) communicator: Uuid,
    pub(crate) processes: Vec<ProcessId>,
    pub(crate) inline_limit: u64,
    pub(crate) route: Route,
    pub(crate) call_site: Option<Site>,
}

/// One rank's membership of a world, and where its payloads go.
pub(crate) struct Inner {
    pub(crate) exchange: Box<dyn Exchange>,
    /// Payloads up to this travel on the control plane, in bytes.
    inline_setting: u64,
    /// What set-ups need to know.
    pub(crate) ground: Ground,
    /// What messages call the place of all calls, if not their places in the program.
    pub(crate) call_site: Option<Site>,
    pub(crate) communicator: Uuid,
    pub(crate) processes: Vec<ProcessId>,
    /// The route of calls that ask for nothing else.
    route: Route,
    places: Mutex<Vec<(Route, Place)>>,
    /// Gathers whose payloads have not all been read.
    pub(crate) open_gathers: AtomicUsize,
    /// The process that made this; a forked child inherits it, but nothing that it stands for.
    process: u32,
    ended: Mutex<bool>,
}

impl Inner {
    /// Takes a place in a world, and agrees with the others on where payloads go. `site` is where the
    /// communicator is made.
    pub(crate) fn new(
        exchange: Box<dyn Exchange>,
        world: World,
        ground: Ground,
        site: &Site,
    ) -> Result<Arc<Self>, Error> {
        let inner = Arc::new(Self {
            exchange,
            inline_setting: world.inline_limit,
            ground,
            call_site: world.call_site,
            communicator: world.communicator,
            processes: world.processes,
            route: world.route.clone(),
            places: Mutex::default(),
            open_gathers: AtomicUsize::new(0),
            process: std::process::id(),
            ended: Mutex::new(false),
        });
        let weak = Arc::downgrade(&inner);
        inner
            .exchange
            .set_reclaim_sink(Arc::new(move |channel, epoch, owner| {
                if let Some(inner) = weak.upgrade() {
                    inner.reclaim(channel, epoch, owner);
                }
            }));
        inner.place_for(&world.route, site)?;
        Ok(inner)
    }

    /// A world whose exchange carries payloads of any size.
    pub(crate) fn in_memory(exchange: Box<dyn Exchange>, processes: Vec<ProcessId>) -> Arc<Self> {
        Arc::new(Self {
            exchange,
            inline_setting: u64::MAX,
            ground: Ground::nowhere(),
            call_site: None,
            communicator: Uuid::nil(),
            processes,
            route: Route {
                transport: Transport::Memory,
                directory: None,
            },
            places: Mutex::default(),
            open_gathers: AtomicUsize::new(0),
            process: std::process::id(),
            ended: Mutex::new(false),
        })
    }

    pub(crate) fn me(&self) -> Peer {
        let rank = self.exchange.rank();
        let peer = self.exchange.peers().get(rank.index()).cloned();
        peer.unwrap_or_else(|| Peer {
            rank,
            host: "this host".into(),
            pid: std::process::id(),
        })
    }

    pub(crate) fn inline_limit(&self) -> usize {
        outgoing::inline_limit(self.inline_setting, self.exchange.body_limit())
    }

    /// The route of calls that ask for nothing else.
    pub(crate) fn default_route(&self) -> &Route {
        &self.route
    }

    /// The place that a route leads to; found out together with all other ranks the first time.
    pub(crate) fn place_for(&self, route: &Route, site: &Site) -> Result<Place, Error> {
        let mut places = self.lock_places();
        let known = places.iter().find(|(known, place)| {
            known == route
                // A communicator that has found its own directory shared does not ask twice.
                || (route.directory.is_none()
                    && known.directory.is_none()
                    && route.transport == Transport::Filesys
                    && matches!(place, Place::Files(_)))
        });
        if let Some((_, place)) = known {
            return Ok(place.clone());
        }
        let place = set_up::run(self, route, site)?;
        places.push((route.clone(), place.clone()));
        Ok(place)
    }

    /// The gather directory of this id, if this communicator has it.
    pub(crate) fn files_of(&self, id: GatherId) -> Option<Arc<FilePlace>> {
        self.lock_places()
            .iter()
            .find_map(|(_, place)| match place {
                Place::Files(files) if files.directory().facts().id == id => {
                    Some(Arc::clone(files))
                }
                _ => None,
            })
    }

    /// One whole call: takes this rank's payload from `give`, and returns what it receives.
    pub(crate) fn collective<'a>(
        &'a self,
        route: &Route,
        call: Call,
        encoding: Encoding,
        give: impl FnOnce(&Session<'_>, &mut Outgoing<'_>) -> Result<(), Error>,
    ) -> Result<(Session<'a>, Option<Vec<Incoming>>, bool), Error> {
        let place = self.place_for(route, &call.site)?;
        let session = Session::begin(self, call)?;
        let ready =
            publish(&session, &place, encoding, give).map_err(|cause| session.fail(cause))?;
        let verdict = session
            .decide(ready.contribution)
            .inspect_err(|_| place.forget(&session.ticket))?;
        let exchange = &*self.exchange;
        let relayed = relay::run(
            exchange,
            &session.ticket,
            &ready.rest,
            verdict.further_rounds,
        )
        .map_err(|failure| session.over(failure))?;
        let Some(table) = verdict.table else {
            // The root removes what it has read.
            place.hand_over(&session.ticket);
            return Ok((session, None, false));
        };
        let acknowledge = table.acknowledge;
        if !acknowledge {
            place.hand_over(&session.ticket);
        }
        let incoming = Incoming::sort(table, relayed).map_err(|cause| session.fail(cause))?;
        Ok((session, Some(incoming), acknowledge))
    }

    /// Ends a call that everybody receives, once all of it has been read.
    pub(crate) fn finish(&self, session: &Session<'_>, acknowledge: bool) {
        if acknowledge {
            self.exchange.done(&session.ticket);
        }
        session.succeed();
    }

    /// A barrier.
    pub(crate) fn barrier(&self, site: Site) -> Result<(), Error> {
        self.exchange
            .exchange(Call::new(Operation::Barrier, site), Bytes::new())
            .map(drop)
    }

    fn reclaim(&self, channel: ChannelId, epoch: Epoch, owner: Rank) {
        // The payload of a rank that has gone is removed with the directory: nobody can call any more.
        if owner != self.exchange.rank() {
            return;
        }
        for (_, place) in self.lock_places().iter() {
            if let Place::Files(files) = place {
                files.reclaim_own(channel, epoch);
            }
        }
    }

    /// Ends the communicator together with all other ranks.
    pub(crate) fn close(&self, site: Site) -> Result<(), Error> {
        if self.process != std::process::id() {
            return Err(Error::config(
                "this communicator belongs to the parent process; a forked child cannot close it",
            ));
        }
        let open = self.open_gathers.load(Ordering::SeqCst);
        if open > 0 {
            return Err(Error::config(format!(
                "{open} gathered results of this communicator have not been read to their end; read or drop \
                 them before close"
            )));
        }
        if std::mem::replace(&mut *self.lock_ended(), true) {
            return Err(Error::config("this communicator is closed"));
        }
        let closed = self.exchange.close(site);
        self.clean_up(self.exchange.leave(None));
        closed
    }

    /// Leaves without the others.
    pub(crate) fn leave(&self, cause: Option<Error>) {
        if self.process == std::process::id() && !std::mem::replace(&mut *self.lock_ended(), true) {
            self.clean_up(self.exchange.leave(cause));
        }
    }

    /// Removes what this rank has to remove. `in_good_hands`: on rank 0 nobody else uses the directory
    /// any more, elsewhere rank 0 is there to remove it.
    fn clean_up(&self, in_good_hands: bool) {
        let places = std::mem::take(&mut *self.lock_places());
        let is_root = self.exchange.rank() == Rank::ZERO;
        for (_, place) in places {
            let Place::Files(files) = &place else {
                continue;
            };
            files.finish();
            let directory = files.directory();
            let marked = match (is_root, in_good_hands) {
                (true, true) => {
                    let removal = directory.remove();
                    if !removal.is_complete() {
                        tracing::warn!("{removal}");
                    }
                    Ok(())
                }
                (true, false) => directory.mark_finished(),
                (false, true) => Ok(()),
                // So that nobody has to guess later whether its owner still lives.
                (false, false) => directory.mark_aborted("rank 0 was lost"),
            };
            if let Err(error) = marked {
                tracing::warn!("the gather directory stays: {error}");
            }
        }
    }

    /// What the others are told when this rank goes because its program panics.
    pub(crate) fn panicked(&self) -> Error {
        Error::PeerFailed {
            peer: self.me(),
            activity: fsgather_core::Activity::outside(fsgather_core::Phase::Computing),
            failure: PeerFailure::Raised {
                message: "it panicked".into(),
            },
        }
    }

    fn lock_places(&self) -> MutexGuard<'_, Vec<(Route, Place)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn publish(
    session: &Session<'_>,
    place: &Place,
    encoding: Encoding,
    give: impl FnOnce(&Session<'_>, &mut Outgoing<'_>) -> Result<(), Error>,
) -> Result<outgoing::Ready, Error> {
    if let Place::Files(files) = place {
        files.check()?;
    }
    let mut outgoing = Outgoing::new(session, place, encoding);
    give(session, &mut outgoing)?;
    outgoing.finish()
}

impl Drop for Inner {
    fn drop(&mut self) {
        let cause = std::thread::panicking().then(|| self.panicked());
        blocking::wherever(|| self.leave(cause));
    }
}
