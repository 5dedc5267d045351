//! What all handles of one communicator share: [`Inner`].

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use fsgather_core::{
    Activity, ChannelId, Epoch, Error, Exchange, GatherId, Peer, PeerFailure, Phase, ProcessId,
    Rank, Site,
};
use fsgather_store::{CompressionSetting, PayloadId};
use uuid::Uuid;

use crate::{
    blocking,
    ground::Ground,
    place::{FilePlace, Place},
    settings::Transport,
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
    pub(crate) compression: CompressionSetting,
    pub(crate) route: Route,
    pub(crate) call_site: Option<Site>,
}

/// One rank's membership of a world, and where its payloads go.
pub(crate) struct Inner {
    pub(crate) exchange: Box<dyn Exchange>,
    /// Payloads up to this travel on the control plane, in bytes.
    inline_setting: u64,
    /// How payload files are compressed.
    pub(crate) compression: CompressionSetting,
    /// What set-ups need to know.
    pub(crate) ground: Ground,
    /// What messages call the place of all calls, if not their places in the program.
    pub(crate) call_site: Option<Site>,
    pub(crate) communicator: Uuid,
    pub(crate) processes: Vec<ProcessId>,
    /// The route of calls that ask for nothing else.
    route: Route,
    /// Never held over a call of the exchange: reclaiming, which looks here, may happen inside of one.
    places: Mutex<Vec<(Route, Place)>>,
    /// Held while a place is being found out, which is one thing at a time.
    pub(crate) setting_up: Mutex<()>,
    /// Gathers whose payloads have not all been read.
    pub(crate) open_gathers: AtomicUsize,
    /// The latest call that has succeeded.
    pub(crate) decided: Mutex<Option<Epoch>>,
    /// The process that made this; a forked child inherits it, but nothing that it stands for.
    process: u32,
    ended: Mutex<bool>,
}

impl Inner {
    /// Takes a place in a world.
    pub(crate) fn new(exchange: Box<dyn Exchange>, world: World, ground: Ground) -> Arc<Self> {
        let inner = Arc::new(Self {
            exchange,
            inline_setting: world.inline_limit,
            compression: world.compression,
            ground,
            call_site: world.call_site,
            communicator: world.communicator,
            processes: world.processes,
            route: world.route,
            places: Mutex::default(),
            setting_up: Mutex::default(),
            open_gathers: AtomicUsize::new(0),
            decided: Mutex::default(),
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
        inner
    }

    /// A world whose exchange carries payloads of any size, so that nothing is left to be reclaimed.
    pub(crate) fn in_memory(exchange: Box<dyn Exchange>, processes: Vec<ProcessId>) -> Arc<Self> {
        let world = World {
            communicator: Uuid::nil(),
            processes,
            inline_limit: u64::MAX,
            compression: CompressionSetting::None,
            route: Route {
                transport: Transport::Memory,
                directory: None,
            },
            call_site: None,
        };
        Self::new(exchange, world, Ground::nowhere())
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

    /// Payloads up to this travel on the control plane, in bytes.
    pub(crate) fn inline_setting(&self) -> u64 {
        self.inline_setting
    }

    /// The route of calls that ask for nothing else.
    pub(crate) fn default_route(&self) -> &Route {
        &self.route
    }

    /// The place that a route leads to, if that has been found out.
    pub(crate) fn known_place(&self, route: &Route) -> Option<Place> {
        let places = self.lock_places();
        let known = places.iter().find(|(known, place)| {
            known == route
                // A communicator that has found its own directory shared does not ask twice.
                || (route.directory.is_none()
                    && known.directory.is_none()
                    && route.transport == Transport::Filesys
                    && matches!(place, Place::Files(_)))
        });
        known.map(|(_, place)| place.clone())
    }

    /// Keeps what was found out about a route.
    pub(crate) fn keep_place(&self, route: Route, place: Place) {
        self.lock_places().push((route, place));
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

    fn reclaim(&self, channel: ChannelId, epoch: Epoch, owner: Rank) {
        let is_own = owner == self.exchange.rank();
        for (_, place) in self.lock_places().iter() {
            if let Place::Files(files) = place {
                if is_own {
                    files.reclaim_own(channel, epoch);
                } else {
                    files.reclaim_of(PayloadId {
                        channel,
                        epoch,
                        rank: owner,
                    });
                }
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
                // Whoever leaves last removes it.
                (true, false) => {
                    let decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
                    directory.discard_undecided(*decided);
                    directory.mark_finished()
                }
                (false, true) => Ok(()),
                (false, false) if directory.remove_if_unused() => Ok(()),
                // So that nobody has to guess later whether its owner still lives.
                (false, false) => directory.mark_aborted("rank 0 was lost or has left"),
            };
            match marked {
                Ok(()) => {}
                // Rank 0 was taken for lost, and has removed it all the same.
                Err(_) if !directory.path().exists() => {}
                Err(error) => tracing::warn!("the gather directory stays: {error}"),
            }
        }
    }

    /// What the others are told when this rank goes because its program panics.
    pub(crate) fn panicked(&self) -> Error {
        Error::PeerFailed {
            peer: self.me(),
            activity: Activity::outside(Phase::Computing),
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

impl Drop for Inner {
    fn drop(&mut self) {
        let cause = std::thread::panicking().then(|| self.panicked());
        blocking::wherever(|| self.leave(cause));
    }
}
