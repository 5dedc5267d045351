//! The arrivals of one exchange: [`Round`].

use std::time::{Duration, Instant};

use bytes::Bytes;
use fsgather_core::{Call, Leaves, Rank};

/// What one rank has handed in.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) call: Call,
    pub(super) body: Bytes,
    pub(super) leaves: Leaves,
    pub(super) further_rounds: u32,
}

/// An exchange that is not decided yet.
#[derive(Debug)]
pub(super) struct Round {
    /// One place for each rank of the world.
    arrivals: Vec<Option<Arrival>>,
    expected: usize,
    arrived: usize,
    pub(super) clock: Clock,
}

/// Since when nothing has moved, and what has been said about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) last_progress: Instant,
    pub(super) last_notice: Instant,
    pub(super) next_warning: Duration,
}

/// What has become due on a [`Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing has moved for as long as patience lasts.
    Late,
    /// Nothing has moved for this long: the user should know for whom we wait.
    Warning(Duration),
    /// Something has moved: those who wait should know that rank 0 is alive.
    Notice,
}

impl Clock {
    pub(super) fn started(now: Instant) -> Self {
        Self {
            last_progress: now,
            last_notice: now,
            next_warning: FIRST_WARNING,
        }
    }

    /// Something has moved: patience starts anew.
    pub(super) fn moved(&mut self, now: Instant) {
        self.last_progress = now;
        self.next_warning = FIRST_WARNING;
    }

    /// What is due now; a warning or notice is due once.
    pub(super) fn take_due(&mut self, patience: Duration, now: Instant) -> Option<Due> {
        let idle = now.saturating_duration_since(self.last_progress);
        if idle >= patience {
            return Some(Due::Late);
        }
        if idle >= self.next_warning {
            self.next_warning =
                (self.next_warning * 2).min(self.next_warning + LONGEST_WARNING_GAP);
            return Some(Due::Warning(idle));
        }
        let silence = now.saturating_duration_since(self.last_notice);
        if self.last_progress > self.last_notice && silence >= NOTICE_EVERY {
            self.last_notice = now;
            return Some(Due::Notice);
        }
        None
    }

    /// When something will be due.
    pub(super) fn next_due(&self, patience: Duration) -> Instant {
        let due = self.last_progress + patience.min(self.next_warning);
        if self.last_progress > self.last_notice {
            due.min(self.last_notice + NOTICE_EVERY)
        } else {
            due
        }
    }
}

/// How often waiting members are told that somebody else made progress, at most.
const NOTICE_EVERY: Duration = Duration::from_secs(2);

/// Warnings come at 30 s, 1 min, 2 min, ... up to this far apart.
const LONGEST_WARNING_GAP: Duration = Duration::from_mins(30);

/// How long nothing moves before the first warning names whom we wait for.
pub(super) const FIRST_WARNING: Duration = Duration::from_secs(30);

impl Round {
    pub(super) fn new(ranks: usize, expected: usize, now: Instant) -> Self {
        Self {
            arrivals: vec![None; ranks],
            expected,
            arrived: 0,
            clock: Clock::started(now),
        }
    }

    /// The first call that arrived, by which the others are measured.
    pub(super) fn first(&self) -> Option<(Rank, &Call)> {
        self.arrivals
            .iter()
            .zip(0..)
            .find_map(|(arrival, rank)| Some((Rank::new(rank), &arrival.as_ref()?.call)))
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.arrivals.get(rank.index()).is_some_and(Option::is_some)
    }

    /// Keeps a contribution; a second one of the same rank is dropped.
    pub(super) fn arrive(&mut self, rank: Rank, arrival: Arrival, now: Instant) {
        if let Some(place @ None) = self.arrivals.get_mut(rank.index()) {
            *place = Some(arrival);
            self.arrived += 1;
            self.clock.moved(now);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrived == self.expected
    }

    /// Which of `members` have not handed in anything.
    pub(super) fn missing<'a>(&'a self, members: &'a [Rank]) -> impl Iterator<Item = Rank> + 'a {
        members.iter().copied().filter(|rank| !self.has(*rank))
    }

    /// Which of `members` have, and now wait.
    pub(super) fn waiting<'a>(&'a self, members: &'a [Rank]) -> impl Iterator<Item = Rank> + 'a {
        members.iter().copied().filter(|rank| self.has(*rank))
    }

    /// All contributions in the order of `members`.
    pub(super) fn into_arrivals(mut self, members: &[Rank]) -> Vec<Arrival> {
        members
            .iter()
            .filter_map(|rank| self.arrivals.get_mut(rank.index())?.take())
            .collect()
    }
}
