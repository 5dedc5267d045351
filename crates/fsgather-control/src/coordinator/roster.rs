//! The members of the world and what is known of each: [`Roster`].

use std::{sync::Arc, time::Instant};

use fsgather_core::{
    Activity, Error, Kinship, Missing, Peer, PeerFailure, Phase, ProcessId, Rank, RollCall, Site,
    Start, Whereabouts, WorkSigns, WorldSize,
};

use super::sighting::Sighting;
use crate::message::Join;

/// The standing of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Takes part.
    Present,
    /// Has called close, here.
    Closed(Site),
    /// Will not contribute any more, and stays as long as others have to read what it keeps.
    Staying(PeerFailure),
    /// Will not contribute any more.
    Gone(PeerFailure),
}

/// A process that has joined.
#[derive(Clone, Debug)]
pub(super) struct RosterEntry {
    pub(super) nonce: u128,
    pub(super) process: ProcessId,
    pub(super) start: Option<Start>,
    pub(super) attempt: Option<u32>,
    pub(super) standing: Standing,
    /// Its end, as it was noticed, if the process did not announce it.
    pub(super) lost: Option<PeerFailure>,
    pub(super) activity: Activity,
    pub(super) heard: Instant,
    /// The time at which it last contributed or moved bytes.
    pub(super) moved: Instant,
    /// True once it has sent a message after it joined, and so knows that it is a member.
    pub(super) is_settled: bool,
    /// The answer to the last question about its activity.
    pub(super) sighting: Option<Sighting>,
    /// The signs that it works.
    pub(super) work: WorkSigns,
}

/// One place for each rank, filled as they join.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    members: Vec<Option<RosterEntry>>,
    joined: usize,
    /// True once a member has closed or gone.
    is_broken_up: bool,
    /// True if the user has named the job; ranks of several starts may belong to it then.
    is_named: bool,
}

impl Roster {
    pub(super) fn new(world_size: WorldSize, is_named: bool) -> Self {
        Self {
            members: vec![None; world_size.count()],
            joined: 0,
            is_broken_up: false,
            is_named,
        }
    }

    /// All ranks of the world, in order.
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..).map(Rank::new).take(self.members.len())
    }

    pub(super) fn is_full(&self) -> bool {
        self.joined == self.members.len()
    }

    pub(super) fn get(&self, rank: Rank) -> Option<&RosterEntry> {
        self.members.get(rank.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut RosterEntry> {
        self.members.get_mut(rank.index())?.as_mut()
    }

    /// A member that is connected.
    pub(super) fn connected_mut(&mut self, rank: Rank) -> Option<&mut RosterEntry> {
        let member = self.get_mut(rank);
        member.filter(|member| !matches!(member.standing, Standing::Gone(_)))
    }

    pub(super) fn admit(&mut self, join: Join, now: Instant) {
        if let Some(place @ None) = self.members.get_mut(join.rank.index()) {
            *place = Some(RosterEntry {
                nonce: join.nonce,
                process: join.process,
                start: join.start,
                attempt: join.attempt,
                standing: Standing::Present,
                lost: None,
                activity: Activity::outside(Phase::Joining),
                heard: now,
                moved: now,
                is_settled: false,
                sighting: None,
                work: WorkSigns::default(),
            });
            self.joined += 1;
        }
    }

    /// Notes the activity of a rank.
    pub(super) fn record_activity(&mut self, rank: Rank, activity: Activity) {
        if let Some(member) = self.get_mut(rank) {
            member.activity = activity;
        }
    }

    /// Notes that a rank has left the call that it was in, as far as is known.
    pub(super) fn went_on(&mut self, rank: Rank) {
        if let Some(member) = self.get_mut(rank) {
            member.activity = member.activity.clone().gone_on();
        }
    }

    /// Returns the error of a failure of a rank, with its last reported activity.
    pub(super) fn failed(&self, rank: Rank, failure: PeerFailure) -> Error {
        let member = self.get(rank);
        let activity = member.map_or(Activity::outside(Phase::Joining), |member| {
            member.activity.clone()
        });
        Error::peer_failed(self.peer(rank), activity, failure)
    }

    /// Returns the error of a rank that does not take part in calls any more.
    pub(super) fn departure(&self, rank: Rank) -> Option<Error> {
        let member = self.get(rank)?;
        let failure = match &member.standing {
            Standing::Present => return None,
            Standing::Closed(_) => PeerFailure::DEPARTED,
            // It had left, and was to stay for the rank that reports this.
            Standing::Gone(failure) if failure.is_departure() && member.lost.is_some() => {
                member.lost.clone()?
            }
            Standing::Staying(failure) | Standing::Gone(failure) => failure.clone(),
        };
        Some(self.failed(rank, failure))
    }

    /// Notes that a rank makes no more calls, and returns the error of other ranks if something went wrong.
    pub(super) fn leave(
        &mut self,
        rank: Rank,
        cause: Option<&Error>,
        standing: fn(PeerFailure) -> Standing,
    ) -> Option<Error> {
        let failure = cause.map_or(PeerFailure::DEPARTED, |cause| PeerFailure::Raised {
            message: cause.to_string(),
        });
        let failed = self.failed(rank, failure.clone());
        self.part_with(rank, standing(failure));
        cause.map(|_| failed)
    }

    /// Notes that a rank is lost, and returns the error of other ranks, unless it had announced its end.
    pub(super) fn lose(&mut self, rank: Rank, how: &str) -> Option<Error> {
        let failure = PeerFailure::Lost { how: how.into() };
        let failed = self.failed(rank, failure.clone());
        let was_present = self.is_present(rank);
        if let Some(member) = self.get_mut(rank) {
            member.lost = Some(failure.clone());
        }
        self.part_with(rank, Standing::Gone(failure));
        was_present.then_some(failed)
    }

    /// Notes that a rank does not take part in calls any more. A rank that ends after it has stayed keeps the reason that
    /// it gave then.
    pub(super) fn part_with(&mut self, rank: Rank, standing: Standing) {
        if let Some(member) = self.get_mut(rank) {
            member.standing = match (&member.standing, standing) {
                (Standing::Staying(failure), Standing::Gone(_)) => Standing::Gone(failure.clone()),
                (_, standing) => standing,
            };
            self.is_broken_up = true;
        }
    }

    /// Returns true if some rank does not take part in calls any more.
    pub(super) const fn is_broken_up(&self) -> bool {
        self.is_broken_up
    }

    /// Returns true if the rank still takes part in calls.
    pub(super) fn is_present(&self, rank: Rank) -> bool {
        self.get(rank)
            .is_some_and(|member| member.standing == Standing::Present)
    }

    /// Returns true if the rank's process is still connected, be it in a call or waiting for the end.
    pub(super) fn is_connected(&self, rank: Rank) -> bool {
        self.get(rank)
            .is_some_and(|member| !matches!(member.standing, Standing::Gone(_)))
    }

    /// Returns true if the rank has left, though it may stay for its readers.
    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.get(rank).is_none_or(|member| {
            matches!(member.standing, Standing::Staying(_) | Standing::Gone(_))
        })
    }

    /// All ranks that are connected, in order.
    pub(super) fn connected(&self) -> Vec<Rank> {
        self.ranks()
            .filter(|rank| self.is_connected(*rank))
            .collect()
    }

    /// The first member, rank 0 before all others, that comes from another start than a process that asks to join.
    pub(super) fn stranger_to(&self, join: &Join) -> Option<Rank> {
        // A job with an id is identified by that: no member is compared, however many there are.
        join.start?;
        if self.kinship(join, Rank::ZERO) == Some(Kinship::Same) {
            return None;
        }
        let mut ranks = self.ranks();
        ranks.find(|rank| {
            let kinship = self.kinship(join, *rank);
            kinship.is_some_and(|kinship| kinship.is_of_another_job(self.is_named))
        })
    }

    /// True if a process that asks to join is known to be of this job: its job has an id or a name, or it comes from the same start as
    /// rank 0.
    pub(super) fn is_kin(&self, join: &Join) -> bool {
        join.start.is_none()
            || self.is_named && self.kinship(join, Rank::ZERO) != Some(Kinship::Apart)
            || self.kinship(join, Rank::ZERO) == Some(Kinship::Same)
    }

    /// True if all members are known to be of one job: it has an id, or they come from the same start as rank 0, which for a job
    /// with a name has all of them.
    pub(super) fn is_of_one_start(&self) -> bool {
        let Some((zero, start)) = self
            .get(Rank::ZERO)
            .and_then(|zero| Some((zero, zero.start?)))
        else {
            return true;
        };
        let is_sure = |member: &RosterEntry| {
            // Ranks may be threads of one program.
            member.process == zero.process
                || member.start.is_some_and(|its| {
                    let is_enough = its.is_whole && start.is_whole || !self.is_named;
                    is_enough && start.is_surely_that_of(&zero.process, &its, &member.process)
                })
        };
        self.members.iter().flatten().all(is_sure)
    }

    /// Kinship of a process that asks to join and a member, if their job has no id.
    fn kinship(&self, join: &Join, rank: Rank) -> Option<Kinship> {
        let member = self.get(rank)?;
        let (start, its) = join.start.zip(member.start)?;
        Some(start.kinship(&join.process, &its, &member.process))
    }

    /// All ranks that have not joined yet.
    pub(super) fn absent(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks().filter(|rank| self.get(*rank).is_none())
    }

    pub(super) fn processes(&self) -> Vec<ProcessId> {
        self.members
            .iter()
            .map(|member| {
                member
                    .as_ref()
                    .map(|member| member.process.clone())
                    .unwrap_or_default()
            })
            .collect()
    }

    /// The nonces of all members, 0 for ranks that have not joined.
    pub(super) fn nonces(&self) -> Vec<u128> {
        let nonce = |member: &Option<RosterEntry>| member.as_ref().map_or(0, |member| member.nonce);
        self.members.iter().map(nonce).collect()
    }

    /// Returns true if no report about the activity of a rank since then is outstanding.
    pub(super) fn has_answered(&self, rank: Rank, since: Instant) -> bool {
        let sighting = self.get(rank).and_then(|member| member.sighting.as_ref());
        let is_awaited = sighting.is_some_and(|its| its.is_awaited(since));
        !is_awaited || !self.is_connected(rank)
    }

    /// The functions that made the call that a rank is in, as it has reported them since then.
    pub(super) fn caller_of(&self, rank: Rank, since: Instant) -> Option<Arc<Whereabouts>> {
        self.get(rank)?.sighting.as_ref()?.caller(since)
    }

    /// The known activities of these ranks.
    pub(super) fn roll_call(&self, ranks: &[Rank], now: Instant) -> RollCall {
        let known = |rank: &Rank| {
            let sighting = self.get(*rank)?.sighting.as_ref()?;
            Some((*rank, sighting.activity(now)?))
        };
        RollCall::of(ranks.iter().filter_map(known))
    }

    /// Host and pid of a rank, for messages.
    pub(super) fn name_of(&self, rank: Rank) -> String {
        let peer = self.peer(rank);
        format!("{}, pid {}", peer.host, peer.pid)
    }

    pub(super) fn peer(&self, rank: Rank) -> Peer {
        let process = self.get(rank).map(|member| &member.process);
        Peer {
            rank,
            host: process.map_or_else(|| "an unknown host".into(), |process| process.host.clone()),
            pid: process.map_or(0, |process| process.pid),
        }
    }

    pub(super) fn missing(&self, rank: Rank, now: Instant) -> Missing {
        Missing {
            rank,
            process: self
                .get(rank)
                .map(|member| (member.process.host.clone(), member.process.pid)),
            last_seen: self.get(rank).map(|member| {
                (
                    member.activity.clone(),
                    now.saturating_duration_since(member.heard),
                )
            }),
        }
    }
}
