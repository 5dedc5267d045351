//! Keeper of rank 0's record while its world forms, [`RecordKeeper`]; and the removal of the record at the end, [`take_down`].

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_core::{
    BackgroundThreads, Backoff, ChannelId, Error, Rank, RendezvousBackend, duration_text,
    sys::clock,
};
use uuid::Uuid;

use crate::{
    coordinator::Coordinator,
    join::{
        config::{self, Config, FindEnded, IdleWatch},
        record::{Addressee, UnreachableReport},
        refusal,
        rivals::RivalSearch,
    },
    member::Member,
    node::{Medium, Node},
};

/// Maximum time that removing the record may take.
const TAKE_DOWN_LIMIT: Duration = Duration::from_secs(2);

/// Keeps rank 0's record visible until the world has formed, and reads reports that others have left for it.
///
/// Its calls of the rendezvous backend may hang, so each carrier makes them beside its other work.
pub(crate) struct RecordKeeper {
    board: Arc<dyn RendezvousBackend>,
    addressee: Addressee,
    find_ended: Arc<FindEnded>,
    rivals: Option<RivalSearch>,
    idle_watch: Option<IdleWatch>,
    posted: Instant,
    look_back_after: Duration,
    has_looked_back: AtomicBool,
}

/// Findings for rank 0.
#[derive(Default)]
pub(crate) struct Tended {
    /// The failure of this meeting, if others have left one or claim this rank.
    refusal: Option<Error>,
    /// Idle ranks, each with the failure of a world that it has not joined.
    idle: Vec<(Rank, Error)>,
    /// The result of an earlier meeting of this job.
    pub(super) earlier: Option<String>,
}

impl RecordKeeper {
    /// Begins when the record has been posted.
    pub(crate) fn new(config: &Config, board: Arc<dyn RendezvousBackend>) -> Self {
        Self {
            board,
            addressee: config::addressee(config),
            find_ended: Arc::clone(&config.find_ended),
            rivals: RivalSearch::new(config),
            idle_watch: config.idle_watch.clone(),
            posted: clock::now(),
            look_back_after: refusal::looking_back_after(config.join_timeout),
            has_looked_back: AtomicBool::new(false),
        }
    }

    /// The pauses between two looks.
    pub(crate) const fn pauses() -> Backoff {
        Backoff::new(Duration::from_millis(25), Duration::from_secs(1))
    }

    /// Tends the record once.
    pub(crate) fn tend(&self) -> Tended {
        let is_late = clock::since(self.posted) >= self.look_back_after;
        let earlier = if is_late && !self.has_looked_back.swap(true, Ordering::Relaxed) {
            refusal::earlier_failure(&*self.board, &self.addressee)
        } else {
            None
        };
        let others = self
            .board
            .tend(clock::since(self.posted))
            .unwrap_or_else(|error| {
                tracing::debug!("the rendezvous record could not be tended: {error}");
                Vec::new()
            });
        Tended {
            refusal: refusal::refusal_in(&others, &self.addressee)
                .or_else(|| (self.find_ended)(&|rank| rank != Rank::ZERO))
                .or_else(|| self.rivals.as_ref()?.find(&*self.board, is_late)),
            idle: self
                .idle_watch
                .as_ref()
                .map_or_else(Vec::new, |watch| (watch.find)()),
            earlier,
        }
    }

    /// Reports of ranks that cannot reach this world.
    pub(crate) fn unreachable_reports(&self, communicator: Uuid) -> Vec<UnreachableReport> {
        refusal::unreachable_reports(&*self.board, communicator)
    }

    /// Removes the records of crashed runs, once the world has formed.
    pub(crate) fn sweep(&self) {
        self.board.sweep();
    }
}

impl Tended {
    /// Reports to the coordinator; breaks if there will be no world.
    pub(crate) fn report<M: Medium>(self, node: &Node<M>) -> ControlFlow<()> {
        if let Some(failure) = self.earlier {
            node.coordinate(|coordinator, _| coordinator.record_earlier_failure(failure));
        }
        if !self.idle.is_empty() {
            node.coordinate(|coordinator, _| coordinator.give_up_idle(&self.idle));
        }
        let Some(refusal) = self.refusal else {
            return ControlFlow::Continue(());
        };
        node.coordinate(|coordinator, _| {
            if !coordinator.is_open() {
                coordinator.give_up(&refusal);
            }
        });
        ControlFlow::Break(())
    }
}

/// Removes rank 0's record, and does not wait for a file system that hangs: this is its process's end.
pub(crate) fn take_down(board: &Arc<dyn RendezvousBackend>) {
    take_down_within(TAKE_DOWN_LIMIT, board);
}

fn take_down_within(limit: Duration, board: &Arc<dyn RendezvousBackend>) {
    let its = Arc::clone(board);
    let started = BackgroundThreads::default().start("fsgather-0-end", move || its.take_down());
    let Ok(started) = started else {
        return board.take_down();
    };
    if !started.ends_within(limit) {
        fsgather_core::warn!(
            "the record of this world may stay in {}: its file system has not answered for {}",
            board.place(),
            duration_text(limit)
        );
    }
}

/// Returns `None` while the record is needed, and then true if the world has formed.
pub(crate) fn is_settled(member: &Member, coordinator: Option<&Coordinator>) -> Option<bool> {
    let open = coordinator.is_some_and(Coordinator::is_open);
    let gone = coordinator.is_some_and(Coordinator::is_gone);
    (open || gone || member.failure(ChannelId::WORLD).is_some()).then_some(open)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    };

    use fsgather_core::{ProcessId, WorldSize, lock};
    use fsgather_testkit::MemoryBackend;

    use super::*;

    /// A backend that takes its record back once the test lets it.
    struct Slow {
        lets: Mutex<Receiver<()>>,
        taken: Mutex<Sender<()>>,
    }

    impl RendezvousBackend for Slow {
        fn post(&self, _: &[u8]) -> Result<(), Error> {
            Ok(())
        }

        fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
            Ok(Vec::new())
        }

        fn take_down(&self) {
            let _ = lock(&self.lets).recv();
            let _ = lock(&self.taken).send(());
        }

        fn place(&self) -> String {
            "/shared".into()
        }
    }

    #[test]
    fn rank_0_learns_of_ranks_that_have_ended() {
        let board: Arc<dyn RendezvousBackend> = Arc::new(MemoryBackend::default());
        let meeting = crate::join::Meeting::Board(Arc::clone(&board));
        let world_size = WorldSize::new(2).unwrap();
        let mut config = Config::new(Rank::ZERO, world_size, ProcessId::default(), meeting);
        let refusal =
            |config: &Config| RecordKeeper::new(config, Arc::clone(&board)).tend().refusal;
        assert_eq!(refusal(&config), None);
        config.find_ended = Arc::new(|is_wanted| {
            let ended = is_wanted(Rank::new(1)) && !is_wanted(Rank::ZERO);
            ended.then(|| Error::rendezvous("rank 1 has ended"))
        });
        let told = refusal(&config).unwrap().to_string();
        assert!(told.contains("rank 1 has ended"), "{told}");
        let idle = (
            Rank::new(1),
            Error::rendezvous("rank 1 shows no sign of work"),
        );
        let found = idle.clone();
        config.idle_watch = Some(IdleWatch {
            limit: Duration::from_secs(1800),
            find: Arc::new(move || vec![found.clone()]),
        });
        let keeper = RecordKeeper::new(&config, Arc::clone(&board));
        assert_eq!(keeper.tend().idle, [idle]);
    }

    #[test]
    fn the_end_awaits_record_removal_but_no_hung_file_system() {
        let ((lets, let_go), (tell, told)) = (channel(), channel());
        let board = Slow {
            lets: Mutex::new(let_go),
            taken: Mutex::new(tell),
        };
        let board: Arc<dyn RendezvousBackend> = Arc::new(board);
        take_down_within(Duration::from_millis(20), &board);
        assert!(told.try_recv().is_err());
        // One continues, and the next finds it let already.
        lets.send(()).unwrap();
        lets.send(()).unwrap();
        told.recv().unwrap();
        take_down(&board);
        told.try_recv().unwrap();
    }
}
