//! The members of the world and what is known of each: [`Roster`].

use std::time::Instant;

use fsgather_core::{
    Activity, Kinship, Missing, Peer, PeerFailure, Phase, ProcessId, Rank, Site, Start, WorkSigns,
    WorldSize,
};

use super::sightings::Sighting;
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
#[derive(Clone, Debug)]
pub(super) struct Roster {
    world_size: WorldSize,
    members: Vec<Option<RosterEntry>>,
    joined: usize,
    /// True once a member has closed or gone.
    is_broken_up: bool,
    /// True if the user has named the job; ranks of several starts may belong to it then.
    is_named: bool,
}

impl Roster {
    pub(super) fn new(world_size: WorldSize) -> Self {
        Self {
            world_size,
            members: vec![None; world_size.count()],
            joined: 0,
            is_broken_up: false,
            is_named: false,
        }
    }

    pub(super) fn allow_several_starts(&mut self) {
        self.is_named = true;
    }

    pub(super) const fn is_named(&self) -> bool {
        self.is_named
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

    /// Notes that a rank does not take part in calls any more. A rank that goes after it has stayed has left as it said then.
    pub(super) fn part_with(&mut self, rank: Rank, standing: Standing) {
        if let Some(member) = self.get_mut(rank) {
            member.standing = match (&member.standing, standing) {
                (Standing::Staying(failure), Standing::Gone(_)) => Standing::Gone(failure.clone()),
                (_, standing) => standing,
            };
            self.is_broken_up = true;
        }
    }

    /// Whether some rank does not take part in calls any more.
    pub(super) const fn is_broken_up(&self) -> bool {
        self.is_broken_up
    }

    /// Whether the rank still takes part in calls.
    pub(super) fn is_present(&self, rank: Rank) -> bool {
        self.get(rank)
            .is_some_and(|member| member.standing == Standing::Present)
    }

    /// Whether the rank's process is still connected, be it in a call or waiting for the end.
    pub(super) fn is_connected(&self, rank: Rank) -> bool {
        self.get(rank)
            .is_some_and(|member| !matches!(member.standing, Standing::Gone(_)))
    }

    /// Whether the rank has left, though it may stay for those who read.
    pub(super) fn has_left(&self, rank: Rank) -> bool {
        self.get(rank).is_none_or(|member| {
            matches!(member.standing, Standing::Staying(_) | Standing::Gone(_))
        })
    }

    /// All ranks that are connected, in order.
    pub(super) fn connected(&self) -> Vec<Rank> {
        self.world_size
            .ranks()
            .filter(|rank| self.is_connected(*rank))
            .collect()
    }

    /// The first member, rank 0 before all others, that comes from another start than a process that asks to join.
    pub(super) fn stranger_to(&self, join: &Join) -> Option<Rank> {
        // A job with an id is told apart by that: nobody is looked at, however many there are.
        join.start?;
        if self.kinship(join, Rank::ZERO) == Some(Kinship::Same) {
            return None;
        }
        let mut ranks = self.world_size.ranks();
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

    /// Where a process that asks to join and a member come from, where their job has no id.
    fn kinship(&self, join: &Join, rank: Rank) -> Option<Kinship> {
        let member = self.get(rank)?;
        let (start, its) = join.start.zip(member.start)?;
        Some(start.kinship(&join.process, &its, &member.process))
    }

    /// All ranks that have not joined yet.
    pub(super) fn absent(&self) -> impl Iterator<Item = Rank> + '_ {
        self.world_size
            .ranks()
            .filter(|rank| self.get(*rank).is_none())
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

    /// The nonces of all members, 0 for those who have not joined.
    pub(super) fn nonces(&self) -> Vec<u128> {
        let nonce = |member: &Option<RosterEntry>| member.as_ref().map_or(0, |member| member.nonce);
        self.members.iter().map(nonce).collect()
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
