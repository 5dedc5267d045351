//! What the communicator of all ranks and its groups share: [`World`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fsgather_core::{ChannelId, Epoch, GatherId, Interrupt, ProcessId, Site};
use fsgather_store::{CompressionSetting, PayloadId};
use uuid::Uuid;

use crate::{
    ground::Ground,
    inner::lock,
    place::{FilePlace, Place},
    route::Route,
    settings::Transport,
};

/// How long a communicator that is dropped goes on handing over payloads that others have still to read.
const LAST_SENDING: Duration = Duration::from_secs(5);

/// The same after a failure, when everybody is leaving.
const FAILED_LAST_SENDING: Duration = Duration::from_millis(500);

/// What the communicator of all ranks and its groups share.
pub(crate) struct World {
    pub(crate) communicator: Uuid,
    pub(crate) processes: Vec<ProcessId>,
    /// What set-ups need to know.
    pub(crate) ground: Ground,
    /// Payloads up to this travel on the control plane, in bytes.
    pub(crate) inline_setting: u64,
    /// How payload files are compressed.
    pub(crate) compression: CompressionSetting,
    /// What messages call the place of all calls, if not their places in the program.
    pub(crate) call_site: Option<Site>,
    /// Ends all calls from outside.
    pub(crate) interrupt: Interrupt,
    /// The route of calls that ask for nothing else.
    route: Route,
    /// Never held over a call of the exchange: reclaiming, which looks here, may happen inside of one.
    places: Mutex<Vec<(Route, Place)>>,
    /// Held while a place is being found out, which is one thing at a time.
    pub(crate) setting_up: Mutex<()>,
    /// Gathers whose payloads have not all been read, in all groups.
    pub(crate) open_gathers: AtomicUsize,
    /// The latest call that has succeeded of each group that this rank has made a call in.
    decided: Mutex<BTreeMap<ChannelId, Option<Epoch>>>,
    /// Whether any call has failed.
    has_failed: AtomicBool,
    /// The process that made this; a forked child inherits it, but nothing that it stands for.
    process: u32,
}

impl World {
    pub(crate) fn new(
        communicator: Uuid,
        processes: Vec<ProcessId>,
        inline_setting: u64,
        route: Route,
        ground: Ground,
    ) -> Self {
        Self {
            communicator,
            processes,
            ground,
            inline_setting,
            compression: CompressionSetting::None,
            call_site: None,
            interrupt: Interrupt::default(),
            route,
            places: Mutex::default(),
            setting_up: Mutex::default(),
            open_gathers: AtomicUsize::new(0),
            decided: Mutex::default(),
            has_failed: AtomicBool::new(false),
            process: std::process::id(),
        }
    }

    /// Whether this process is a forked child of the one that joined.
    pub(crate) fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// The place that a route leads to, if that has been found out.
    pub(crate) fn known_place(&self, route: &Route) -> Option<Place> {
        let places = lock(&self.places);
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
        lock(&self.places).push((route, place));
    }

    /// The connections between ranks, if they have been made for another route.
    pub(crate) fn known_mesh(&self) -> Option<Place> {
        let places = lock(&self.places);
        let mut places = places.iter().map(|(_, place)| place);
        places
            .find(|place| matches!(place, Place::Mesh(_)))
            .cloned()
    }

    /// The gather directory of this id, if this communicator has it.
    pub(crate) fn files_of(&self, id: GatherId) -> Option<Arc<FilePlace>> {
        lock(&self.places)
            .iter()
            .find_map(|(_, place)| match place {
                Place::Files(files) if files.directory().facts().id == id => {
                    Some(Arc::clone(files))
                }
                _ => None,
            })
    }

    /// Removes a payload that nobody needs any more.
    pub(crate) fn reclaim(&self, id: PayloadId, is_own: bool) {
        for (_, place) in lock(&self.places).iter() {
            if is_own {
                place.reclaim_own(id.channel, id.epoch);
            } else if let Place::Files(files) = place {
                files.reclaim_of(id);
            }
        }
    }

    /// Notes that a call has begun.
    pub(crate) fn note_begun(&self, channel: ChannelId) {
        lock(&self.decided).entry(channel).or_default();
    }

    /// Notes that a call has succeeded.
    pub(crate) fn note_decided(&self, channel: ChannelId, epoch: Epoch) {
        let mut decided = lock(&self.decided);
        let latest = decided.entry(channel).or_default();
        *latest = (*latest).max(Some(epoch));
    }

    /// Whether a call has not succeeded, as far as this rank knows; of groups that it is no member of it
    /// knows nothing.
    fn is_undecided(&self, channel: ChannelId, epoch: Epoch) -> bool {
        let decided = lock(&self.decided);
        decided
            .get(&channel)
            .is_some_and(|latest| *latest < Some(epoch))
    }

    /// Notes that a call has failed.
    pub(crate) fn note_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Lets what others have still to read from this process's memory be read, in reasonable time.
    pub(crate) fn end_sending(&self) {
        if let Some(Place::Mesh(mesh)) = self.known_mesh() {
            mesh.shut_down(if self.has_failed.load(Ordering::Relaxed) {
                FAILED_LAST_SENDING
            } else {
                LAST_SENDING
            });
        }
    }

    /// Removes what this rank has to remove. `in_good_hands`: on rank 0 nobody else uses the directory
    /// any more, elsewhere rank 0 is there to remove it.
    pub(crate) fn clean_up(&self, is_root: bool, in_good_hands: bool) {
        let places = std::mem::take(&mut *lock(&self.places));
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
                    directory.discard_undecided(|channel, epoch| self.is_undecided(channel, epoch));
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
}
