//! Rank 0's side of the control plane, as a machine without I/O: [`Coordinator`].
//!
//! # Why it cannot give two verdicts
//!
//! Only the coordinator decides, and it decides a step in one place: `Coordinator::decide` (in `calls`) removes the
//! step's round before it releases, and `Coordinator::fail_channel` removes all of a channel's
//! rounds before it aborts and leaves a failure behind, after which no round is made for that channel any
//! more. A round that is gone cannot be decided again. Connections deliver in order, so no member
//! learns a release after the abort that followed it.
//!
//! # States
//!
//! *Forming* until all ranks have joined, and a moment longer where they may be of two jobs; then *open*; *failed* once the world's own channel has failed;
//! *gone* when everybody was told goodbye. A failed world still answers, with the error it keeps.

mod calls;
mod channel;
mod disagreement;
mod forming;
mod groups;
mod hearsay;
mod late_claims;
mod leaving;
mod roster;
mod round;
mod sightings;
mod stalls;
mod staying;
mod time;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, CallName, ChannelId, Epoch, Error, FIRST_WARNING, Leaves, PeerFailure, Phase,
    ProcessId, Rank, RankNames, Round as RoundNumber, Step, WorldSize,
};
use uuid::Uuid;

pub(crate) use self::late_claims::{claimed_twice_by_name, way_out_of_starts};
use self::{
    channel::Channel,
    roster::{Roster, Standing},
    round::{Clock, Round},
    staying::Told,
    work::Patience,
};
use crate::{
    join::job_credentials::JobFingerprint,
    message::{
        CallReply, EndReply, EndRequest, JoinReply, JoinRequest, Probe, ToCoordinator, ToMember,
    },
};

/// What the coordinator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to these ranks.
    Send {
        /// The receivers.
        to: Vec<Rank>,
        /// What.
        message: ToMember,
    },
    /// Remove the payload that a rank, now gone, has left.
    ReclaimFor {
        /// The communicator.
        channel: ChannelId,
        /// The call.
        epoch: Epoch,
        /// Whose payload.
        owner: Rank,
    },
    /// Tell the user something that concerns the whole job.
    Warn(String),
    /// Note something in passing.
    Note(String),
}

/// What a coordinator has to know from the start.
#[derive(Clone, Debug)]
pub struct World {
    /// How many ranks.
    pub world_size: WorldSize,
    /// The identity of this world.
    pub communicator: Uuid,
    /// What messages call this job.
    pub job: String,
    /// How long nothing may move before a call has failed.
    pub timeout: Duration,
    /// How long joining may take in all.
    pub join_timeout: Duration,
    /// Time without a sign of work after which a missing rank ends joining, if a launcher watches the ranks.
    pub idle_limit: Option<Duration>,
    /// Which job rank 0 belongs to, and which secret it was given.
    pub fingerprint: JobFingerprint,
    /// How long before a warning or a verdict those who are waited for are asked what they are doing. Nothing where they are not
    /// to be asked.
    pub lead: Option<Duration>,
}

/// The state machine of rank 0: events in, [`Action`]s out; it owns no clock, socket or thread.
#[derive(Clone, Debug)]
pub struct Coordinator {
    world: World,
    started: Instant,
    roster: Roster,
    open: bool,
    /// When the world opens, once all ranks have joined and it waits for late claims.
    opens_at: Option<Instant>,
    channels: BTreeMap<ChannelId, Channel>,
    next_forming_warning: Duration,
    /// Ranks that somebody else asked to be once the world had formed.
    latecomers: BTreeSet<Rank>,
    /// What came from another start than rank 0 and asked to be these ranks.
    strangers: BTreeMap<Rank, String>,
    /// Processes that were given another world size, by the ranks that they asked to be: host and pid, and that size.
    misfits: BTreeMap<Rank, (String, WorldSize)>,
    /// What an earlier meeting of this job has come to.
    earlier_failure: Option<String>,
    /// Ranks whose process is reported to have ended, and until when their last words may arrive.
    suspects: BTreeMap<Rank, Instant>,
    /// Ranks whose connection has closed before they knew that they are in, until when they may come again,
    /// and how they are lost if they do not.
    missed: BTreeMap<Rank, (Instant, String)>,
    /// Since the first rank has come to close.
    closing: Option<Clock>,
    /// Whether a rank has moved something since calls were last looked at with that in mind, and when that was.
    has_moved: bool,
    looked: Instant,
    /// Ranks that have left and stay for others, and when they are told next that those get on.
    staying: BTreeMap<Rank, Told>,
    tell_staying: Option<Instant>,
    looked_after_staying: Instant,
    /// When this process has last gone on after it was stopped.
    woke: Option<Instant>,
    /// How often ranks were asked what they are doing.
    looks: u64,
    /// What messages call ranks.
    names: RankNames,
    /// What helps where two processes are one rank.
    way_out_of_doubles: &'static str,
    patience: Patience,
    gone: bool,
    actions: Vec<Action>,
}

impl Coordinator {
    /// A world that begins to form `now`.
    #[must_use]
    pub fn new(world: World, now: Instant) -> Self {
        let channel = Channel::world(world.world_size.ranks());
        Self {
            roster: Roster::new(world.world_size),
            world,
            started: now,
            open: false,
            opens_at: None,
            channels: BTreeMap::from([(ChannelId::WORLD, channel)]),
            next_forming_warning: FIRST_WARNING,
            latecomers: BTreeSet::new(),
            strangers: BTreeMap::new(),
            misfits: BTreeMap::new(),
            earlier_failure: None,
            suspects: BTreeMap::new(),
            missed: BTreeMap::new(),
            closing: None,
            has_moved: false,
            looked: now,
            staying: BTreeMap::new(),
            tell_staying: None,
            looked_after_staying: now,
            woke: None,
            looks: 0,
            names: RankNames::default(),
            way_out_of_doubles: late_claims::FOUND_BY_JOB,
            patience: Patience::UntilTheTimeOut,
            gone: false,
            actions: Vec::new(),
        }
    }

    /// The same for a world whose ranks are introduced to each other, rather than find each other by the name of their job.
    #[must_use]
    pub fn introduced(self) -> Self {
        Self {
            way_out_of_doubles: forming::INTRODUCED,
            ..self
        }
    }

    /// The same for a world whose user has given its job a name. Its ranks may come from several starts then, such as terminals.
    #[must_use]
    pub fn named(mut self) -> Self {
        self.roster.allow_several_starts();
        self
    }

    /// The same for a world without a time-out of its user: ranks that work have all the time that they need.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.patience = Patience::WhileRanksWork;
        self
    }

    /// Says what texts call ranks, from now on.
    pub fn name_ranks(&mut self, names: &RankNames) {
        self.names = names.clone();
    }

    /// What has to be done since the last time this was asked, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Whether something has to be done.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Whether all ranks have joined.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether everybody has been told goodbye.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether `rank` has joined and is still connected.
    #[must_use]
    pub fn is_connected(&self, rank: Rank) -> bool {
        self.roster.is_connected(rank)
    }

    /// How many communicators there are: the world, and each group that somebody still needs.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// All members that are connected, rank 0 left out, each with the nonce of its process.
    pub fn connected_processes(&self) -> impl Iterator<Item = (Rank, u128)> + '_ {
        let ranks = self.roster.connected().into_iter();
        ranks
            .filter(|rank| *rank != Rank::ZERO)
            .filter_map(|rank| Some((rank, self.roster.get(rank)?.nonce)))
    }

    /// Whether the process with this nonce is the one that joined as `rank`.
    #[must_use]
    pub fn knows(&self, rank: Rank, nonce: u128) -> bool {
        self.roster
            .get(rank)
            .is_some_and(|member| member.nonce == nonce)
    }

    /// Whether every connected member knows all failures so far, or will not be heard any more.
    #[must_use]
    pub fn all_told(&self) -> bool {
        let mut channels = self.channels.values();
        let is_told = |channel: &Channel| channel.untold.iter().all(|rank| *rank == Rank::ZERO);
        self.gone || (!self.is_about_to_fail() && channels.all(is_told))
    }

    /// Handles what a member says. Members that are gone are not heard any more, and after goodbye nobody
    /// is.
    pub fn on_message(&mut self, from: Rank, message: ToCoordinator, now: Instant) {
        // After goodbye nothing is said any more, so nothing is to be heard either.
        if self.gone {
            return;
        }
        if !self.roster.is_connected(from) {
            if let ToCoordinator::End(EndRequest::Stay { .. }) = message {
                // It was taken for lost, and no rank counts on it any more.
                self.send(vec![from], EndReply::Needed { by: Vec::new() });
            }
            return;
        }
        // That says nothing of how long the member itself has been silent.
        if let ToCoordinator::Probe(Probe::Seen {
            number,
            who,
            whereabouts,
        }) = message
        {
            self.seen(from, number, who, whereabouts, now);
            return self.tell_disagreements(now);
        }
        if let Some(member) = self.roster.get_mut(from) {
            member.heard = now;
            member.is_settled = true;
        }
        match message {
            ToCoordinator::Join(JoinRequest::Rival { other }) => self.rival(from, &other),
            ToCoordinator::Call(request) => self.on_call(from, request, now),
            ToCoordinator::Group(request) => self.on_group(from, request),
            ToCoordinator::Probe(Probe::Ask) => self.send(vec![from], Probe::Here),
            ToCoordinator::End(request) => self.on_end(from, request, now),
            ToCoordinator::Join(_) | ToCoordinator::Probe(_) => {}
        }
        self.look_after_staying(now);
        self.finish_if_all_left();
    }

    /// Handles the loss of a member's process or host, noticed as `how` says.
    ///
    /// Rank 0 is this process here, and lives, whatever others say of it: nobody else gives it a verdict.
    pub fn lost(&mut self, rank: Rank, how: &str) {
        self.suspects.remove(&rank);
        self.missed.remove(&rank);
        if self.gone || rank == Rank::ZERO || !self.roster.is_connected(rank) {
            return;
        }
        self.staying.remove(&rank);
        // Whoever stays for it alone is to go at once.
        self.schedule_report(self.started);
        let activity = self
            .roster
            .get(rank)
            .map_or(Activity::outside(Phase::Joining), |member| {
                member.activity.clone()
            });
        // A member that had come to the end and told us so needs nothing more; it is not a failure.
        let had_closed = !self.roster.is_present(rank);
        let failure = PeerFailure::Lost { how: how.into() };
        let cause = Error::peer_failed(self.roster.peer(rank), activity, failure.clone());
        if let Some(member) = self.roster.get_mut(rank) {
            member.lost = Some(failure.clone());
        }
        let concerned = self.depart(rank, Standing::Gone(failure));
        if !had_closed {
            for id in &concerned {
                self.fail_after_answers(*id, &cause);
            }
        }
        // Also where it has left before, and others could not read what it stayed for.
        let all: Vec<ChannelId> = self.channels.keys().copied().collect();
        for id in all {
            self.confirm_hearsay(rank, id);
            self.forget_if_over(id);
        }
        self.finish_if_all_left();
    }

    /// Ends a world that is still forming because it will form anew in another way; members are told to
    /// look again.
    pub fn move_on(&mut self) {
        if !self.gone {
            self.gone = true;
            let to = self.members_to_inform();
            self.send(to, JoinReply::Moved);
        }
    }

    /// Ends the world from rank 0's side without waiting for the others.
    pub fn abandon(&mut self) {
        if !self.gone {
            self.settle_disagreements();
            self.gone = true;
            let to = self.members_to_inform();
            self.send(to, EndReply::Bye { orderly: false });
        }
    }

    fn record_movement(&mut self, rank: Rank, now: Instant) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.moved = now;
            self.has_moved = true;
        }
        self.schedule_later_report(now);
    }

    /// Notes that `rank` reads no more of a call, and does what had to wait for that.
    fn finished_reading(&mut self, id: ChannelId, epoch: Epoch, rank: Rank) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let owners = channel.finished_reading(epoch, rank);
        let complete = |(_, round): &(&Step, &Round)| round.is_complete();
        let held = channel.undecided.iter().find(complete);
        let held = held.map(|(step, _)| *step);
        self.reclaim(id, epoch, owners);
        if let Some(step) = held {
            self.decide(step);
        }
    }

    /// Has the payloads of a call removed that these ranks have left.
    fn reclaim(&mut self, id: ChannelId, epoch: Epoch, owners: Vec<(Rank, Leaves)>) {
        for (owner, leaves) in owners {
            if self.roster.is_connected(owner) {
                self.send(vec![owner], CallReply::Reclaim { channel: id, epoch });
            } else if leaves != Leaves::WithOwner {
                self.actions.push(Action::ReclaimFor {
                    channel: id,
                    epoch,
                    owner,
                });
            }
        }
    }

    /// Notes that a rank is through with the call it was in, as far as is known.
    fn went_on(&mut self, rank: Rank) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.activity = member.activity.clone().gone_on();
        }
    }

    fn record_activity(&mut self, rank: Rank, activity: Activity) {
        if let Some(member) = self.roster.get_mut(rank) {
            member.activity = activity;
        }
    }

    fn channels_of(&self, rank: Rank) -> Vec<ChannelId> {
        self.channels
            .values()
            .filter(|channel| channel.includes(rank) && !channel.has_left(rank))
            .map(|channel| channel.id)
            .collect()
    }

    /// Everybody who is connected, rank 0 included.
    fn members_to_inform(&self) -> Vec<Rank> {
        self.roster.connected()
    }

    fn send(&mut self, to: Vec<Rank>, message: impl Into<ToMember>) {
        if !to.is_empty() {
            let message = message.into();
            self.actions.push(Action::Send { to, message });
        }
    }

    /// Host and process of every rank that has joined.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessId> {
        self.roster.processes()
    }
}

/// What a round of a call is called in messages.
fn round_text(call: &CallName, round: RoundNumber, channel: &Channel) -> String {
    let part = match round {
        RoundNumber::VERDICT => String::new(),
        round => format!(" (part {})", round.get()),
    };
    let text = format!("{}{part}{}", call.short(), channel.name());
    if call.site.is_known() {
        format!("{text} at {}", call.site)
    } else {
        text
    }
}
