//! The state that the communicator of all ranks and its groups share: [`WorldState`].

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use fsgather_config::{error_file, settings::Verify};
use fsgather_core::{
    BackgroundThreads, CallEvent, CallId, CompressionSetting, Departure, Error, Interrupt,
    PeerFailure, ProcessId, Rank, Site, Ticket, WorldSize, lock,
};
use fsgather_store::{Care, FileCalls, GatherDir, PayloadId};
use uuid::Uuid;

use crate::{
    call::open_calls::OpenCalls,
    join::local_context::LocalContext,
    observer::Observer,
    payload::{
        directories::{Directories, Ending},
        links::Links,
        path::PayloadPath,
        path_request::PathRequest,
        shared_memory::SharedMemory,
    },
};

/// Time for which a communicator that has left goes on handing over payloads that others are fetching. It has left
/// when nobody needs them, or nobody can tell any more.
const LAST_SENDING: Duration = Duration::from_millis(500);

/// What the communicator of all ranks and its groups share.
pub(crate) struct WorldState {
    pub(crate) communicator: Uuid,
    /// Which rank of the world this process is, whatever its place in the group that makes a call.
    pub(crate) rank: Rank,
    /// Where all ranks run, by rank.
    pub(crate) processes: Vec<ProcessId>,
    /// What set-ups need to know.
    pub(crate) context: LocalContext,
    /// Payloads up to this travel on the control plane, in bytes.
    pub(crate) inline_setting: u64,
    /// How payload files are compressed.
    pub(crate) compression: CompressionSetting,
    /// Which payloads this rank was told to verify; its groups agree on the strictest.
    pub(crate) verify: Verify,
    /// What messages call the place of all calls, if not their places in the program.
    pub(crate) call_site: Option<Site>,
    /// Ends all calls from outside.
    pub(crate) interrupt: Interrupt,
    /// Whether calls find out where payloads go, which any group may do first, and each rank may know at another time.
    pub(crate) sets_up_later: bool,
    /// Whether its program uses it only for calls that move no payloads.
    pub(crate) moves_no_payloads: bool,
    /// The request of calls that ask for nothing else, as this rank was told,
    told: PathRequest,
    /// and as all ranks have agreed before any of them makes a call.
    agreed: OnceLock<PathRequest>,
    /// Where that leads, as far as this rank knows.
    settled: Mutex<Option<PayloadPath>>,
    /// Direct connections to other ranks, for all groups.
    pub(crate) links: Links,
    /// Memory that ranks of this host share, for all groups.
    pub(crate) shared_memory: SharedMemory,
    /// Gather directories, of all groups.
    pub(crate) directories: Directories,
    /// Calls of the file system that may not come back.
    pub(crate) file_calls: FileCalls,
    /// Calls of which something is still to be had, in all groups.
    pub(crate) open_calls: OpenCalls,
    /// The recorder of the calls of all groups.
    pub(crate) observer: Observer,
    /// Ranks that are known to be lost.
    lost: Mutex<BTreeSet<Rank>>,
    /// The process that made this; a forked child inherits it, but nothing that it stands for.
    process: u32,
}

impl WorldState {
    /// Has a gather directory taken care of; its owner gives the period of its beat.
    pub(crate) fn care_for(
        &self,
        directory: &GatherDir,
        beat: Option<Duration>,
    ) -> Result<Care, Error> {
        self.directories.care_for(directory, beat, &self.threads())
    }

    /// The owner of the background threads of this world.
    pub(crate) fn threads(&self) -> BackgroundThreads {
        BackgroundThreads::new(self.interrupt.clone())
    }

    pub(crate) fn new(
        communicator: Uuid,
        rank: Rank,
        processes: Vec<ProcessId>,
        inline_setting: u64,
        told: PathRequest,
        context: LocalContext,
    ) -> Self {
        let observer = Observer::of_thread(rank, &processes);
        Self {
            communicator,
            rank,
            processes,
            context,
            inline_setting,
            compression: CompressionSetting::None,
            verify: Verify::default(),
            call_site: None,
            interrupt: Interrupt::default(),
            sets_up_later: false,
            moves_no_payloads: false,
            told,
            agreed: OnceLock::new(),
            settled: Mutex::default(),
            links: Links::default(),
            shared_memory: SharedMemory::default(),
            directories: Directories::default(),
            file_calls: FileCalls::default(),
            open_calls: OpenCalls::default(),
            observer,
            lost: Mutex::default(),
            process: std::process::id(),
        }
    }

    /// How many ranks it has.
    pub(crate) fn size(&self) -> Result<WorldSize, Error> {
        WorldSize::new(u32::try_from(self.processes.len()).unwrap_or(u32::MAX))
    }

    /// Whether this process is a forked child of the one that joined.
    pub(crate) fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    /// The request of calls that ask for nothing else.
    pub(crate) fn request(&self) -> &PathRequest {
        self.agreed.get().unwrap_or(&self.told)
    }

    /// Notes the request that all ranks have agreed on for calls that ask for nothing else.
    pub(crate) fn agree_on(&self, request: PathRequest) {
        self.agreed.get_or_init(|| request);
    }

    /// Notes where that request leads. Of several answers, which groups may have found at the same time, all ranks keep
    /// the same one in the end.
    pub(crate) fn settle(&self, payload_path: PayloadPath) {
        let mut settled = lock(&self.settled);
        if settled
            .as_ref()
            .is_none_or(|known| known.id() < payload_path.id())
        {
            *settled = Some(payload_path);
        }
    }

    /// Where that request leads, as far as this rank knows; others may know it later, or earlier.
    pub(crate) fn settled(&self) -> Option<PayloadPath> {
        lock(&self.settled).clone()
    }

    /// The same where that is older than any group, so that all ranks know it.
    pub(crate) fn settled_from_the_start(&self) -> Option<(PathRequest, PayloadPath)> {
        let payload_path = self.settled().filter(|_| !self.sets_up_later)?;
        Some((self.request().clone(), payload_path))
    }

    /// Removes a payload that nobody needs any more.
    pub(crate) fn reclaim(&self, id: PayloadId, is_own: bool) {
        self.directories.reclaim(id, is_own);
        if is_own && let Some(mesh) = self.links.mesh() {
            mesh.withdraw(CallId {
                channel: id.channel,
                epoch: id.epoch,
            });
        }
    }

    /// Notes what has happened to a call, for those who show it.
    pub(crate) fn observe(&self, ticket: &Ticket, event: CallEvent<'_>) {
        self.observer.observe(ticket, event);
    }

    /// Notes whom a failure shows to be lost, and leaves it for who has started this rank.
    pub(crate) fn record_failure(&self, failure: &Error) {
        error_file::record(failure);
        if let Error::PeerFailed {
            peer,
            failure: PeerFailure::Lost { .. } | PeerFailure::OutcomeUnknown { .. },
            ..
        } = failure.root_cause()
        {
            lock(&self.lost).insert(peer.rank);
        }
        // What fails in a forked child has not failed in the world.
        if failure.needs_post_mortem() && !self.is_foreign() {
            self.observer.fail(self.speaks());
        }
    }

    /// Whether it is for this rank to say what concerns all: it is the first of those that are left.
    fn speaks(&self) -> bool {
        let lost = lock(&self.lost);
        (0..self.rank.get()).all(|before| lost.contains(&Rank::new(before)))
    }

    /// Whether a rank is known to be lost.
    pub(crate) fn is_lost(&self, rank: Rank) -> bool {
        lock(&self.lost).contains(&rank)
    }

    /// Lets what others are fetching from this process's memory be sent.
    pub(crate) fn end_sending(&self) {
        if let Some(mesh) = self.links.mesh() {
            mesh.shut_down(LAST_SENDING);
        }
    }

    /// A directory in which the ranks have met, or could have.
    pub(crate) fn shared_directory(&self) -> Option<&Path> {
        self.context.known.first().map(|(path, _)| path.as_path())
    }

    /// Removes what this rank has to remove, once it has left. `closed`: all ranks have closed the world together.
    pub(crate) fn clean_up(&self, closed: bool, departure: &Departure) {
        self.directories.end_all(&Ending {
            me: self.rank,
            closed,
            in_good_hands: departure.in_good_hands,
            is_undecided: &|channel, epoch| departure.is_undecided(channel, epoch),
            is_lost: &|rank| self.is_lost(rank),
        });
        self.shared_memory.release();
        let alone = self.settled().is_none() && self.context.known.is_empty();
        self.observer.end(closed, alone);
    }
}
