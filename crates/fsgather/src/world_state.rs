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

/// Maximum time for which a communicator that has left sends payloads that others are fetching. It has left when no
/// rank needs them, or when that cannot be known any more.
const LAST_SENDING: Duration = Duration::from_millis(500);

/// The state that the communicator of all ranks and its groups share.
pub(crate) struct WorldState {
    pub(crate) communicator: Uuid,
    /// The rank of this process in the world, which may differ from its rank in the group that makes a call.
    pub(crate) rank: Rank,
    /// The processes of all ranks, by rank.
    pub(crate) processes: Vec<ProcessId>,
    /// The facts that set-ups need.
    pub(crate) context: LocalContext,
    /// Maximum size of payloads that travel on the control plane, in bytes.
    pub(crate) inline_setting: u64,
    /// The compression of payload files.
    pub(crate) compression: CompressionSetting,
    /// The payloads that this rank verifies, by its own settings; its groups agree on the strictest setting.
    pub(crate) verify: Verify,
    /// The name of the place of all calls in messages, if it is not their places in the program.
    pub(crate) call_site: Option<Site>,
    /// Ends all calls from outside.
    pub(crate) interrupt: Interrupt,
    /// True if calls find out where payloads go. Any group may do so first, and ranks may learn it at different times.
    pub(crate) sets_up_later: bool,
    /// True if its program uses it only for calls that move no payloads.
    pub(crate) moves_no_payloads: bool,
    /// The default request of calls, by the settings of this rank.
    told: PathRequest,
    /// The default request of calls that all ranks have agreed on before any of them makes a call.
    agreed: OnceLock<PathRequest>,
    /// The path of that request, as far as this rank knows it.
    settled: Mutex<Option<PayloadPath>>,
    /// Direct connections to other ranks, for all groups.
    pub(crate) links: Links,
    /// Memory that ranks of this host share, for all groups.
    pub(crate) shared_memory: SharedMemory,
    /// Gather directories, of all groups.
    pub(crate) directories: Directories,
    /// Calls of the file system that may hang.
    pub(crate) file_calls: FileCalls,
    /// Calls of all groups whose results have not been taken.
    pub(crate) open_calls: OpenCalls,
    /// The recorder of the calls of all groups.
    pub(crate) observer: Observer,
    /// Ranks that are known to be lost.
    lost: Mutex<BTreeSet<Rank>>,
    /// The process that made this. A forked child inherits the state, but must not act for the parent.
    process: u32,
}

impl WorldState {
    /// Starts the upkeep of a gather directory; its owner gives the period of its heartbeat.
    pub(crate) fn care_for(
        &self,
        directory: &GatherDir,
        beat: Option<Duration>,
    ) -> Result<Care, Error> {
        self.directories.care_for(directory, beat, &self.threads())
    }

    /// Returns the owner of the background threads of this world.
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

    /// Returns the number of ranks.
    pub(crate) fn size(&self) -> Result<WorldSize, Error> {
        WorldSize::new(u32::try_from(self.processes.len()).unwrap_or(u32::MAX))
    }

    /// Returns true if this process is a forked child of the one that joined.
    pub(crate) fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    /// Returns the default request of calls.
    pub(crate) fn request(&self) -> &PathRequest {
        self.agreed.get().unwrap_or(&self.told)
    }

    /// Records the default request that all ranks have agreed on.
    pub(crate) fn agree_on(&self, request: PathRequest) {
        self.agreed.get_or_init(|| request);
    }

    /// Records the path of that request. If groups find several paths at the same time, all ranks keep the same one in
    /// the end.
    pub(crate) fn settle(&self, payload_path: PayloadPath) {
        let mut settled = lock(&self.settled);
        if settled
            .as_ref()
            .is_none_or(|known| known.id() < payload_path.id())
        {
            *settled = Some(payload_path);
        }
    }

    /// Returns the path of that request, as far as this rank knows it; other ranks may learn it later, or earlier.
    pub(crate) fn settled(&self) -> Option<PayloadPath> {
        lock(&self.settled).clone()
    }

    /// Returns the request and its path if the path is older than any group, so that all ranks know it.
    pub(crate) fn settled_from_the_start(&self) -> Option<(PathRequest, PayloadPath)> {
        let payload_path = self.settled().filter(|_| !self.sets_up_later)?;
        Some((self.request().clone(), payload_path))
    }

    /// Removes a payload that no rank needs any more.
    pub(crate) fn reclaim(&self, id: PayloadId, is_own: bool) {
        self.directories.reclaim(id, is_own);
        if is_own && let Some(mesh) = self.links.mesh() {
            mesh.withdraw(CallId {
                channel: id.channel,
                epoch: id.epoch,
            });
        }
    }

    /// Records an event of a call, for the observer.
    pub(crate) fn observe(&self, ticket: &Ticket, event: CallEvent<'_>) {
        self.observer.observe(ticket, event);
    }

    /// Records the rank that a failure reports as lost, and reports the failure to the process that started this rank.
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
        // A failure in a forked child is not a failure of the world.
        if failure.needs_post_mortem() && !self.is_foreign() {
            self.observer.fail(self.speaks());
        }
    }

    /// Returns true if this rank reports for all ranks: it is the first of the ranks that are left.
    fn speaks(&self) -> bool {
        let lost = lock(&self.lost);
        (0..self.rank.get()).all(|before| lost.contains(&Rank::new(before)))
    }

    /// Returns true if a rank is known to be lost.
    pub(crate) fn is_lost(&self, rank: Rank) -> bool {
        lock(&self.lost).contains(&rank)
    }

    /// Waits until the data that others are fetching from this process's memory has been sent.
    pub(crate) fn end_sending(&self) {
        if let Some(mesh) = self.links.mesh() {
            mesh.shut_down(LAST_SENDING);
        }
    }

    /// Returns a directory in which the ranks have met, or could have met.
    pub(crate) fn shared_directory(&self) -> Option<&Path> {
        self.context.known.first().map(|(path, _)| path.as_path())
    }

    /// Removes the files that this rank must remove, after it has left. `closed`: all ranks have closed the world
    /// together.
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
