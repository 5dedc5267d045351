//! A world of one: [`Solo`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    Call, ChannelId, Contribution, Departure, Epoch, Error, Exchange, Peer, Phase, Rank,
    ReclaimSink, Round, Site, Step, Table, Ticket, Verdict, WorldSize, lock::lock,
};

/// What a world shares with its groups.
#[derive(Default)]
struct World {
    /// The channels in use.
    channels: BTreeSet<ChannelId>,
    /// Why everything has failed.
    failure: Option<Error>,
    ended: bool,
    sink: Option<ReclaimSink>,
}

#[derive(Default)]
struct State {
    next: Epoch,
    /// How many calls of the program have started.
    calls: u64,
    held: BTreeMap<Step, Contribution>,
    /// Calls with a payload that its owner will remove.
    owed: BTreeSet<Epoch>,
    failure: Option<Error>,
    /// Whether the failure has been returned to the caller already.
    told: bool,
    ended: bool,
}

/// The exchange of a world of one rank: no file, no socket, no thread.
///
/// It keeps the same rules as the others, so that a job tested alone behaves alike in company.
pub struct Solo {
    peers: [Peer; 1],
    channel: ChannelId,
    world: Arc<Mutex<World>>,
    state: Mutex<State>,
}

impl Solo {
    /// The world of the process `pid` on `host`.
    #[must_use]
    pub fn new(host: impl Into<String>, pid: u32) -> Self {
        Self::of(
            Peer {
                rank: Rank::ZERO,
                host: host.into(),
                pid,
            },
            ChannelId::WORLD,
        )
    }

    /// A group of one member of a world, on a channel of its own.
    #[must_use]
    pub fn of(member: Peer, channel: ChannelId) -> Self {
        Self {
            peers: [member],
            channel,
            world: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// The state of this channel, if calls can be made on it. A failure is told as it is the first time.
    fn check(&self) -> Result<MutexGuard<'_, State>, Error> {
        let world = lock(&self.world);
        let mut state = lock(&self.state);
        if world.ended || state.ended {
            return Err(Error::closed());
        }
        let failure = state.failure.as_ref().or(world.failure.as_ref());
        match failure.cloned() {
            None => Ok(state),
            Some(failure) => {
                let told = std::mem::replace(&mut state.told, true);
                Err(if told { failure.poisoned() } else { failure })
            }
        }
    }

    /// Ends this channel, and with the world everything. Nobody reads any more what it has left.
    fn end(&self) {
        let (owed, sink) = {
            let mut world = lock(&self.world);
            world.channels.remove(&self.channel);
            world.ended |= self.channel == ChannelId::WORLD;
            let mut state = lock(&self.state);
            state.ended = true;
            (std::mem::take(&mut state.owed), world.sink.clone())
        };
        for epoch in owed {
            if let Some(sink) = &sink {
                sink(self.channel, epoch, Rank::ZERO);
            }
        }
    }
}

impl Exchange for Solo {
    fn channel(&self) -> ChannelId {
        self.channel
    }

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
        let mut state = self.check()?;
        let epoch = state.next;
        state.next = epoch.next();
        let call = call.counted(&mut state.calls);
        Ok(Ticket {
            channel: self.channel,
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
        let mut state = self.check()?;
        if contribution.leaves.is_acknowledged() {
            state.owed.insert(ticket.epoch);
        }
        state.held.insert(ticket.step(round), contribution);
        Ok(())
    }

    fn wait_for(
        &self,
        ticket: &Ticket,
        round: Round,
        _limit: Option<Duration>,
    ) -> Result<Option<Verdict>, Error> {
        let mut state = self.check()?;
        match state.held.remove(&ticket.step(round)) {
            Some(Contribution {
                body,
                leaves,
                further_rounds,
            }) => Ok(Some(Verdict {
                table: Some(Table {
                    bodies: vec![body],
                    acknowledge: leaves.is_acknowledged(),
                }),
                further_rounds,
                last: self.peers.first().map(|me| me.rank),
            })),
            None => Err(Error::config(format!(
                "{ticket} was waited for without a contribution, or twice"
            ))),
        }
    }

    fn abandon(&self, ticket: &Ticket) {
        let (first, last) = (Round::VERDICT, Round::new(u32::MAX));
        let rounds = ticket.step(first)..=ticket.step(last);
        let held = {
            let mut state = lock(&self.state);
            let held: Vec<Step> = state.held.range(rounds).map(|(step, _)| *step).collect();
            for step in &held {
                state.held.remove(step);
            }
            !held.is_empty()
        };
        if held {
            self.done(ticket);
        }
    }

    fn fail(&self, ticket: &Ticket, phase: Phase, cause: Error) -> Error {
        let [me] = &self.peers;
        let cause = cause.raised_by(me, ticket.activity(phase));
        let world = lock(&self.world);
        let mut state = lock(&self.state);
        state.told = true;
        let failure = state.failure.as_ref().or(world.failure.as_ref());
        let agreed = failure.cloned().unwrap_or(cause);
        state.failure = Some(agreed.clone());
        agreed
    }

    fn progress(&self, _ticket: &Ticket, _phase: Phase, _bytes: u64) -> Result<(), Error> {
        self.check().map(drop)
    }

    fn done(&self, ticket: &Ticket) {
        let is_owed = lock(&self.state).owed.remove(&ticket.epoch);
        let sink = lock(&self.world).sink.clone();
        if is_owed && let Some(sink) = sink {
            sink(ticket.channel, ticket.epoch, Rank::ZERO);
        }
    }

    fn set_reclaim_sink(&self, sink: ReclaimSink) {
        lock(&self.world).sink = Some(sink);
    }

    fn interrupt(&self, cause: Error) {
        let mut world = lock(&self.world);
        if self.channel == ChannelId::WORLD {
            world.failure.get_or_insert(cause);
        } else {
            lock(&self.state).failure.get_or_insert(cause);
        }
    }

    fn group(&self, channel: ChannelId, members: &[Rank]) -> Result<Box<dyn Exchange>, Error> {
        let mut world = lock(&self.world);
        if world.ended || lock(&self.state).ended {
            return Err(Error::closed());
        }
        if members != [Rank::ZERO] {
            return Err(Error::config(
                "the only group in a world of one rank is that rank",
            ));
        }
        if channel == ChannelId::WORLD || !world.channels.insert(channel) {
            return Err(Error::config("this group is in use already"));
        }
        Ok(Box::new(Self {
            peers: self.peers.clone(),
            channel,
            world: Arc::clone(&self.world),
            state: Mutex::default(),
        }))
    }

    fn close(&self, _site: Site) -> Result<(), Error> {
        let checked = self.check().map(drop);
        self.end();
        checked
    }

    fn leave(&self, cause: Option<Error>) -> Departure {
        if let Some(cause) = cause {
            self.interrupt(cause);
        }
        self.end();
        Departure {
            in_good_hands: true,
            undecided: Vec::new(),
        }
    }
}

impl Drop for Solo {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Solo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Solo")
            .field("peers", &self.peers)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
