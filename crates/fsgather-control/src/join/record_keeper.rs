//! Looks after rank 0's record while its world forms: [`RecordKeeper`].

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_core::{Backoff, ChannelId, Error, RendezvousBackend};
use fsgather_system::clock;
use uuid::Uuid;

use crate::{
    coordinator::Coordinator,
    join::{
        config::{self, Config},
        record::{Addressee, UnreachableReport},
        refusal,
    },
    member::Member,
    node::{Medium, Node},
};

/// Keeps rank 0's record visible until the world has formed, and sees what others have left for it.
///
/// Its calls of the rendezvous backend may hang, so each carrier makes them beside what else it does.
pub(crate) struct RecordKeeper {
    board: Arc<dyn RendezvousBackend>,
    addressee: Addressee,
    posted: Instant,
    look_back_after: Duration,
    has_looked_back: AtomicBool,
}

/// What others have left for rank 0.
#[derive(Default)]
pub(crate) struct Tended {
    /// Why there will be no world.
    refusal: Option<Error>,
    /// What an earlier meeting of this job has come to.
    pub(super) earlier: Option<String>,
}

impl RecordKeeper {
    /// Begins when the record has been posted.
    pub(crate) fn new(config: &Config, board: Arc<dyn RendezvousBackend>) -> Self {
        Self {
            board,
            addressee: config::addressee(config),
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
            refusal: refusal::refusal_in(&others, &self.addressee),
            earlier,
        }
    }

    /// The ranks that have said that they cannot reach this world.
    pub(crate) fn unreachable_reports(&self, communicator: Uuid) -> Vec<UnreachableReport> {
        refusal::unreachable_reports(&*self.board, communicator)
    }

    /// Removes the records of crashed runs, once the world has formed.
    pub(crate) fn sweep(&self) {
        self.board.sweep();
    }
}

impl Tended {
    /// Tells the coordinator; breaks when there will be no world.
    pub(crate) fn report<M: Medium>(self, node: &Node<M>) -> ControlFlow<()> {
        if let Some(failure) = self.earlier {
            node.coordinate(|coordinator, _| coordinator.record_earlier_failure(failure));
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

/// Whether the record is needed no longer, and then whether the world has formed.
pub(crate) fn is_settled(member: &Member, coordinator: Option<&Coordinator>) -> Option<bool> {
    let open = coordinator.is_some_and(Coordinator::is_open);
    let gone = coordinator.is_some_and(Coordinator::is_gone);
    (open || gone || member.failure(ChannelId::WORLD).is_some()).then_some(open)
}
