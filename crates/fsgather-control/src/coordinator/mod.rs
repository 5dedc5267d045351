//! Rank 0's side of the control plane, as a machine without I/O: [`Coordinator`].
//!
//! A world is a `FormingStage` until all ranks have joined, and a moment longer if they may be of two jobs; then it is an
//! `OpenStage`. It *has failed* once its meeting or its own channel has, and is *gone* when all have been sent a goodbye. It still
//! answers processes that ask to join then, as its stage does.

mod action;
mod admission;
mod departures;
mod forming;
mod open;
mod roster;
mod sighting;
mod world;

use std::time::Instant;

use fsgather_core::{ChannelId, Error, ProcessId, Rank, RankNames, RollCall};

pub use self::{action::Action, world::World};
use self::{
    action::ActionQueue, departures::Departures, forming::FormingStage, open::OpenStage,
    roster::Roster,
};
pub(crate) use admission::{claimed_twice_by_name, way_out_of_starts};

use crate::message::{EndReply, EndRequest, Join, JoinReply, Probe, RefusalReason, ToCoordinator};

/// The stage of a world.
#[derive(Clone, Debug)]
enum Stage {
    /// Ranks are still joining.
    Forming(Box<FormingStage>),
    /// All ranks have joined.
    Open(Box<OpenStage>),
}

/// The state machine of rank 0: events in, [`Action`]s out; it owns no clock, socket or thread.
#[derive(Clone, Debug)]
pub struct Coordinator {
    stage: Stage,
    /// Ranks that count as lost soon.
    departures: Departures,
    is_gone: bool,
}

impl Coordinator {
    /// A world that begins to form `now`.
    #[must_use]
    pub fn new(world: World, now: Instant) -> Self {
        Self {
            stage: Stage::Forming(Box::new(FormingStage::new(world, now))),
            departures: Departures::default(),
            is_gone: false,
        }
    }

    /// Sets the names of ranks in messages from now on.
    pub fn name_ranks(&mut self, names: &RankNames) {
        if let Stage::Open(open) = &mut self.stage {
            open.name_ranks(names);
        }
    }

    /// Removes and returns the effects that are still to be carried out, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        self.queue().take()
    }

    /// Returns true if there is an effect that is still to be carried out.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        let queue = match &self.stage {
            Stage::Forming(forming) => &forming.queue,
            Stage::Open(open) => &open.queue,
        };
        !queue.is_empty()
    }

    /// Returns true if all ranks have joined.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Returns true if all have been sent a goodbye.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The reason for which the world has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        match &self.stage {
            Stage::Forming(forming) => forming.failure.clone(),
            Stage::Open(open) => open.failure(),
        }
    }

    /// Returns true if `rank` has joined and is still connected.
    #[must_use]
    pub fn is_connected(&self, rank: Rank) -> bool {
        self.roster().is_connected(rank)
    }

    /// Number of communicators: the world, and each group that is still needed.
    #[must_use]
    pub fn channels(&self) -> usize {
        match &self.stage {
            Stage::Forming(_) => 1,
            Stage::Open(open) => open.channels(),
        }
    }

    /// All members that are connected, except rank 0, each with the nonce of its process.
    pub fn connected_processes(&self) -> impl Iterator<Item = (Rank, u128)> + '_ {
        let ranks = self.roster().connected().into_iter();
        ranks
            .filter(|rank| *rank != Rank::ZERO)
            .filter_map(|rank| Some((rank, self.roster().get(rank)?.nonce)))
    }

    /// Host and process of every rank that has joined.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessId> {
        self.roster().processes()
    }

    /// Returns true if the process with this nonce is the one that joined as `rank`.
    #[must_use]
    pub fn knows(&self, rank: Rank, nonce: u128) -> bool {
        let member = self.roster().get(rank);
        member.is_some_and(|member| member.nonce == nonce)
    }

    /// Returns true if every connected member knows all failures so far, or no more messages will come.
    #[must_use]
    pub fn all_told(&self) -> bool {
        self.is_gone
            || match &self.stage {
                Stage::Forming(forming) => forming.all_told(),
                Stage::Open(open) => open.all_told(),
            }
    }

    /// Returns true if ranks are known to be in different calls and have not been sent the error.
    #[must_use]
    pub fn is_about_to_fail(&self) -> bool {
        matches!(&self.stage, Stage::Open(open) if open.is_about_to_fail())
    }

    /// Handles a process that asks to be a rank.
    ///
    /// If it is a member, the connection it asked over is the rank's connection from now on:
    /// the messages in [`take_actions`](Coordinator::take_actions) for that rank go there.
    ///
    /// # Errors
    ///
    /// The reason if it is not.
    pub fn join(&mut self, join: Join, now: Instant) -> Result<(), RefusalReason> {
        let rank = join.rank;
        match &mut self.stage {
            Stage::Forming(forming) => forming.join(join, self.is_gone, now)?,
            Stage::Open(open) => open.join(&join, self.is_gone)?,
        }
        self.departures.find(rank);
        self.open_if_complete(now);
        Ok(())
    }

    /// Handles a process that cannot be a member because it was given another secret than rank 0: returns the answer, and
    /// fails a world that is still forming.
    pub fn report_mismatch(&mut self, join: &Join) -> RefusalReason {
        match &mut self.stage {
            Stage::Forming(forming) => forming.report_mismatch(join),
            Stage::Open(open) => open.report_mismatch(join),
        }
    }

    /// Handles the end of a member's connection, noticed as `how` says.
    ///
    /// A process without a message since it joined may not know that it is a member: if rank 0 was slow to answer it has
    /// given up this connection, and asks again over another one. It is lost if it does not.
    pub fn disconnected(&mut self, rank: Rank, how: &str, now: Instant) {
        let member = self.roster().get(rank);
        let is_new = member.is_some_and(|member| !member.is_settled);
        let is_well = !self.is_gone && self.failure().is_none();
        if is_new && is_well && rank != Rank::ZERO {
            self.departures.miss(rank, how, now);
        } else {
            self.lost(rank, how);
        }
    }

    /// The process of a rank that may still ask again.
    #[must_use]
    pub fn is_missed(&self, rank: Rank) -> Option<ProcessId> {
        let member = self.roster().get(rank)?;
        let is_missed = !self.is_gone && self.departures.is_missed(rank);
        is_missed.then(|| member.process.clone())
    }

    /// Handles a rank that will not ask again.
    pub fn stays_away(&mut self, rank: Rank) {
        if let Some(how) = self.departures.find(rank) {
            self.lost(rank, &how);
        }
    }

    /// Handles a process that names its rank over another connection, and returns true if that is right. The process knows
    /// then that it is a member.
    pub fn is_watched_by(&mut self, rank: Rank, nonce: u128) -> bool {
        let knows = self.knows(rank, nonce);
        if knows && let Some(member) = self.roster_mut().get_mut(rank) {
            member.is_settled = true;
        }
        knows
    }

    /// Notes that a rank's process is reported to have ended.
    ///
    /// Its last messages may still be on their way, so it counts as lost only a little later. A report about rank 0 is
    /// wrong: it is this process here.
    pub fn suspect(&mut self, rank: Rank, now: Instant) {
        if rank != Rank::ZERO && self.is_connected(rank) {
            self.departures.suspect(rank, now);
        }
    }

    /// Returns true if the last messages of a rank that is reported to have ended are waited for.
    #[must_use]
    pub fn has_suspects(&self) -> bool {
        self.departures.has_suspects()
    }

    /// Ends the world, for a reason that all ranks receive.
    pub fn give_up(&mut self, cause: &Error) {
        match &mut self.stage {
            Stage::Forming(forming) => forming.give_up(cause),
            Stage::Open(open) => open.fail_channel(ChannelId::WORLD, cause),
        }
    }

    /// Ends a world that is still forming, if one of these ranks has not joined: they show no sign of work.
    pub fn give_up_idle(&mut self, idle: &[(Rank, Error)]) {
        if let Stage::Forming(forming) = &mut self.stage {
            forming.give_up_idle(idle);
        }
    }

    /// Notes the failure of an earlier meeting of this job, while ranks are missing: they may have been in it.
    pub fn record_earlier_failure(&mut self, failure: String) {
        if let Stage::Forming(forming) = &mut self.stage {
            forming.record_earlier_failure(failure);
        }
    }

    /// Handles a message of a member. Messages of members that are gone are ignored, and after the goodbye all are.
    pub fn on_message(&mut self, from: Rank, message: ToCoordinator, now: Instant) {
        if self.is_gone {
            return;
        }
        let Some(member) = self.roster_mut().connected_mut(from) else {
            if let ToCoordinator::End(EndRequest::Stay { .. }) = message {
                // It was taken for lost, and no rank counts on it any more.
                let needed = EndReply::Needed { by: Vec::new() };
                self.queue().send(vec![from], needed);
            }
            return;
        };
        // An answer about another rank does not show how long the member itself has been silent.
        if let ToCoordinator::Probe(Probe::Seen {
            number,
            who,
            whereabouts,
        }) = message
        {
            if let Stage::Open(open) = &mut self.stage {
                open.seen(from, number, who, whereabouts, now);
            }
            return;
        }
        member.heard = now;
        member.is_settled = true;
        match (message, &mut self.stage) {
            (ToCoordinator::Probe(Probe::Ask), _) => self.queue().send(vec![from], Probe::Here),
            (ToCoordinator::End(EndRequest::SiblingExited { rank }), _) => self.suspect(rank, now),
            (message, Stage::Forming(forming)) => forming.on_message(from, message),
            (message, Stage::Open(open)) => open.on_message(from, message, now),
        }
        if let Stage::Open(open) = &mut self.stage {
            open.look_after_staying(now);
        }
        self.end_if_over();
    }

    /// Handles the loss of a member's process or host, noticed as `how` says.
    ///
    /// Rank 0 is this process here, and lives, even if others report its loss: no other rank gives it a verdict.
    pub fn lost(&mut self, rank: Rank, how: &str) {
        self.departures.forget(rank);
        if self.is_gone || rank == Rank::ZERO || !self.is_connected(rank) {
            return;
        }
        match &mut self.stage {
            Stage::Forming(forming) => forming.lost(rank, how),
            Stage::Open(open) => open.lost(rank, how),
        }
        self.end_if_over();
    }

    /// Lets time pass: warns, and fails calls that have waited too long.
    pub fn tick(&mut self, now: Instant) {
        // First the ranks that have ended: no other rank has to wait for them, and no time-out names them.
        while let Some((rank, how)) = self.departures.first_due(now) {
            self.lost(rank, &how);
        }
        if self.is_gone {
            return;
        }
        match &mut self.stage {
            Stage::Forming(forming) => forming.tick(now),
            Stage::Open(open) => open.tick(now),
        }
        self.open_if_complete(now);
        self.end_if_over();
    }

    /// Handles that rank 0 continues after it was stopped. Waiting ranks learn of it: they have waited longer than it has, and
    /// would give it up before it can name the ranks that all wait for.
    pub fn wake(&mut self, now: Instant) {
        if let Stage::Open(open) = &mut self.stage
            && !self.is_gone
        {
            open.wake(now);
        }
    }

    /// The time at which [`tick`](Coordinator::tick) has to be called next, if nothing else happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        if self.is_gone {
            return None;
        }
        let ends = self.departures.next_due();
        match &self.stage {
            Stage::Forming(forming) => forming.next_tick().into_iter().chain(ends).min(),
            Stage::Open(open) => open.next_tick(ends),
        }
    }

    /// Asks these ranks, and others about them, what they are doing.
    pub(crate) fn look_at(&mut self, ranks: &[Rank], now: Instant) {
        if let Stage::Open(open) = &mut self.stage {
            open.look_at(ranks, now);
        }
    }

    /// The known activities of these ranks.
    pub(crate) fn roll_call(&self, ranks: &[Rank], now: Instant) -> RollCall {
        self.roster().roll_call(ranks, now)
    }

    /// Ends a world that is still forming because it will form anew in another way; members are asked to look again.
    pub fn move_on(&mut self) {
        if !self.is_gone {
            self.is_gone = true;
            let to = self.roster().connected();
            self.queue().send(to, JoinReply::Moved);
        }
    }

    /// Ends the world from rank 0's side without waiting for the others.
    pub fn abandon(&mut self) {
        if self.is_gone {
            return;
        }
        self.is_gone = true;
        match &mut self.stage {
            Stage::Forming(forming) => {
                let to = forming.roster.connected();
                forming.queue.send(to, EndReply::Bye { orderly: false });
            }
            Stage::Open(open) => open.say_goodbye(false),
        }
    }

    /// Opens a world that all ranks have joined.
    fn open_if_complete(&mut self, now: Instant) {
        if let Stage::Forming(forming) = &mut self.stage
            && forming.is_complete(now)
        {
            let open = forming.open(now);
            self.stage = Stage::Open(Box::new(open));
        }
    }

    /// Says goodbye once no rank takes part any more and all payloads have been read.
    fn end_if_over(&mut self) {
        if let Stage::Open(open) = &mut self.stage
            && !self.is_gone
            && open.is_over()
        {
            self.is_gone = true;
            open.say_goodbye(true);
        }
    }

    fn roster(&self) -> &Roster {
        match &self.stage {
            Stage::Forming(forming) => &forming.roster,
            Stage::Open(open) => &open.roster,
        }
    }

    fn roster_mut(&mut self) -> &mut Roster {
        match &mut self.stage {
            Stage::Forming(forming) => &mut forming.roster,
            Stage::Open(open) => &mut open.roster,
        }
    }

    fn queue(&mut self) -> &mut ActionQueue {
        match &mut self.stage {
            Stage::Forming(forming) => &mut forming.queue,
            Stage::Open(open) => &mut open.queue,
        }
    }
}
