//! A world of one: [`Solo`].

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Call, ChannelId, Contribution, Epoch, Error, Exchange, Peer, Phase, Rank, ReclaimSink, Round,
    Site, Step, Table, Ticket, Verdict, WorldSize,
};

#[derive(Default)]
struct State {
    next: Epoch,
    held: BTreeMap<Step, Contribution>,
    owed: BTreeMap<Epoch, ChannelId>,
    failure: Option<Error>,
    /// Whether the failure has been returned to the caller already.
    told: bool,
    sink: Option<ReclaimSink>,
}

/// The exchange of a world of one rank: no file, no socket, no thread.
///
/// It keeps the same rules as the others, so that a job tested alone behaves alike in company.
pub struct Solo {
    peers: [Peer; 1],
    state: Mutex<State>,
}

impl Solo {
    /// The world of the process `pid` on `host`.
    #[must_use]
    pub fn new(host: impl Into<String>, pid: u32) -> Self {
        let me = Peer {
            rank: Rank::ZERO,
            host: host.into(),
            pid,
        };
        Self {
            peers: [me],
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A failure is told as it is the first time.
    fn check(&mut self) -> Result<(), Error> {
        match &self.failure {
            None => Ok(()),
            Some(failure) => {
                let failure = failure.clone();
                let told = std::mem::replace(&mut self.told, true);
                Err(if told { failure.poisoned() } else { failure })
            }
        }
    }
}

impl Exchange for Solo {
    fn rank(&self) -> Rank {
        Rank::ZERO
    }

    fn world_size(&self) -> WorldSize {
        WorldSize::ONE
    }

    fn peers(&self) -> &[Peer] {
        &self.peers
    }

    fn body_limit(&self) -> usize {
        usize::MAX
    }

    fn begin(&self, call: Call) -> Result<Ticket, Error> {
        let mut state = self.lock();
        state.check()?;
        let epoch = state.next;
        state.next = epoch.next();
        Ok(Ticket {
            channel: ChannelId::WORLD,
            epoch,
            call: Arc::new(call),
        })
    }

    fn contribute(
        &self,
        ticket: &Ticket,
        round: Round,
        contribution: Contribution,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        state.check()?;
        if contribution.leaves_payload {
            state.owed.insert(ticket.epoch, ticket.channel);
        }
        state.held.insert(ticket.step(round), contribution);
        Ok(())
    }

    fn wait(&self, ticket: &Ticket, round: Round) -> Result<Verdict, Error> {
        let mut state = self.lock();
        state.check()?;
        match state.held.remove(&ticket.step(round)) {
            Some(Contribution {
                body,
                leaves_payload,
                further_rounds,
            }) => Ok(Verdict {
                table: Some(Table {
                    bodies: vec![body],
                    acknowledge: leaves_payload,
                }),
                further_rounds,
            }),
            None => Err(Error::config(format!(
                "{ticket} was waited for without a contribution, or twice"
            ))),
        }
    }

    fn fail(&self, ticket: &Ticket, phase: Phase, cause: Error) -> Error {
        let [me] = &self.peers;
        let cause = cause.raised_by(me, ticket.activity(phase));
        let mut state = self.lock();
        state.told = true;
        state.failure.get_or_insert(cause).clone()
    }

    fn progress(&self, _ticket: &Ticket, _phase: Phase, _bytes: u64) -> Result<(), Error> {
        self.lock().check()
    }

    fn done(&self, ticket: &Ticket) {
        let mut state = self.lock();
        if let (Some(channel), Some(sink)) = (state.owed.remove(&ticket.epoch), &state.sink) {
            sink(channel, ticket.epoch, Rank::ZERO);
        }
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        self.lock().sink = Some(sink);
    }

    fn interrupt(&self, cause: Error) {
        self.lock().failure.get_or_insert(cause);
    }

    fn close(&self, _site: Site) -> Result<(), Error> {
        let mut state = self.lock();
        state.check()?;
        state.failure = Some(Error::config("this communicator is closed"));
        Ok(())
    }

    fn leave(&self, cause: Option<Error>) -> bool {
        if let Some(cause) = cause {
            self.interrupt(cause);
        }
        true
    }
}

impl fmt::Debug for Solo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Solo")
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}
