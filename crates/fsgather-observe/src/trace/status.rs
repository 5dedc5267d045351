//! The state of each rank, and the ranks that it waits for: [`statuses`]. Pure.
//!
//! `fsgather ps` shows it of running jobs, `fsgather trace` of those that have ended, both as text and as JSON.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use fsgather_core::{ProcessId, Rank};
use serde_json::{Value, json};

use crate::trace::{
    record::{CallRecord, Outcome},
    timeline::{CallKey, Line, Timeline},
};

/// The activity of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankState {
    /// Its process has ended.
    Ended,
    /// It does the program's own work, after a call or before the first one.
    Computing,
    /// It does the program's own work while a call that it has started continues.
    Overlapping,
    /// It hands in its part.
    HandingIn,
    /// It waits for other ranks.
    Waiting,
    /// It reads the parts of the other ranks.
    Reading,
    /// It has closed the communicator.
    Closed,
}

impl RankState {
    /// Returns the state in a word or two.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Computing => "computing",
            Self::Overlapping => "overlapping",
            Self::HandingIn => "handing in",
            Self::Waiting => "waiting",
            Self::Reading => "reading",
            Self::Closed => "closed",
        }
    }

    /// Returns the state of a running rank whose current or last call is `call`.
    #[must_use]
    pub fn of_running(call: &CallRecord) -> Self {
        match (call.outcome, call.handed_in) {
            (Outcome::Done, _) if call.operation == "close" && call.channel == 0 => Self::Closed,
            (Outcome::Open, None) => Self::HandingIn,
            (Outcome::Open, _) if call.is_waiting() => Self::Waiting,
            (Outcome::Open, _) if call.is_beside() => Self::Overlapping,
            (Outcome::Open, _) => Self::Reading,
            _ => Self::Computing,
        }
    }
}

/// The state of one rank in one world.
#[derive(Clone, Debug)]
pub struct RankStatus {
    /// The number of the world, from 0 for the oldest.
    pub world: usize,
    /// The rank.
    pub rank: Rank,
    /// Its process.
    pub process: ProcessId,
    /// Its activity.
    pub state: RankState,
    /// The call that a thread of it is in, or else the last one.
    pub call: Option<CallRecord>,
    /// The time since the last change, in nanoseconds.
    pub since: u64,
    /// The number of bytes that it has handed in and read.
    pub moved: u64,
    /// The ranks that it waits for, or waited for when the call failed or all processes had ended.
    pub waits_for: Vec<Rank>,
    /// The ranks that it may wait for: they have left no calls.
    pub may_wait_for: Vec<Rank>,
    /// True if the members of its group are not all known.
    pub is_unclear: bool,
}

impl RankStatus {
    /// Returns the entry of `ranks` in the JSON of `ps` and `trace`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let call = self.call.as_ref().map(|call| {
            json!({
                "name": call.name(),
                "at": call.site,
                "count": call.count,
                "outcome": call.outcome.word(),
                "last_rank": call.last,
            })
        });
        json!({
            "rank": self.rank,
            "host": self.process.host,
            "pid": self.process.pid,
            "doing": self.state.word(),
            "call": call,
            "since_seconds": Duration::from_nanos(self.since).as_secs_f64(),
            "moved_bytes": self.moved,
            "waits_for": self.waits_for,
            "may_wait_for": self.may_wait_for,
        })
    }
}

/// Returns the state of each rank in each world; `now` is the time on the axis.
#[must_use]
pub fn statuses(timeline: &Timeline, now: i64) -> Vec<RankStatus> {
    let mut lines = timeline.lines.iter();
    let is_over = lines.all(|line| line.of.is_running == Some(false));
    let mut absentees: HashMap<CallKey, Absentees> = HashMap::new();
    let mut status = |(at, line): (usize, &Line)| {
        let call = current(&line.of.records);
        let state = match call {
            _ if line.of.is_running == Some(false) => RankState::Ended,
            Some(call) => RankState::of_running(call),
            None => RankState::Computing,
        };
        let is_unmet = |call: &&CallRecord| {
            state == RankState::Waiting || call.failed_waiting() || is_over && call.is_waiting()
        };
        let absent = call.filter(is_unmet).map(|call| {
            let key = line.key(call);
            let found = absentees.entry(key);
            let found = found.or_insert_with(|| Absentees::new(timeline, key, call));
            found.clone().caused_by(call.culprit)
        });
        let absent = absent.unwrap_or_default();
        let changed = call.map_or(0, last_change);
        RankStatus {
            world: line.world,
            rank: line.of.rank(),
            process: line.of.header.process.clone(),
            state,
            call: call.cloned(),
            since: u64::try_from(now - timeline.at(at, changed)).unwrap_or_default(),
            moved: line.of.moved(),
            waits_for: absent.late,
            may_wait_for: absent.unknown,
            is_unclear: absent.is_unclear,
        }
    };
    timeline.lines.iter().enumerate().map(&mut status).collect()
}

/// Returns the last call that blocks a thread of the program, or else the last call of all.
fn current(records: &[CallRecord]) -> Option<&CallRecord> {
    let hands_in = |call: &CallRecord| call.outcome == Outcome::Open && call.handed_in.is_none();
    let mut newest_first = records.iter().rev();
    let blocking = newest_first.find(|call| hands_in(call) || call.is_waiting());
    blocking.or_else(|| records.last())
}

/// Returns the time of the last change of a call.
fn last_change(call: &CallRecord) -> u64 {
    let times = [call.ended, call.decided, call.awaited, call.handed_in];
    times.into_iter().flatten().next().unwrap_or(call.begun)
}

/// The ranks that have not handed in their part of a call.
#[derive(Clone, Debug, Default)]
struct Absentees {
    /// Ranks that are late according to their own calls.
    late: Vec<Rank>,
    /// Ranks that have left no calls here: they may be on another host, or keep none.
    unknown: Vec<Rank>,
    is_unclear: bool,
}

impl Absentees {
    /// Finds the ranks that are absent from a call, of which one rank has this record.
    fn new(timeline: &Timeline, key: CallKey, call: &CallRecord) -> Self {
        let of_world = timeline.lines.iter().filter(|line| line.world == key.world);
        let known: BTreeMap<Rank, &Line> = of_world.map(|line| (line.of.rank(), line)).collect();
        let is_of_channel = |record: &CallRecord| record.channel == key.channel;
        let takes_part =
            |line: &Line| key.channel == 0 || line.of.records.iter().any(is_of_channel);
        let is_renamed = |line: &&Line| line.of.rank() != line.of.header.rank;
        let is_as_large = |line: &&Line| line.of.header.world_size == call.ranks;
        let is_of_all = key.channel == 0 || known.values().any(is_as_large);
        let members: BTreeSet<Rank> = if is_of_all && !known.values().any(is_renamed) {
            (0..call.ranks).map(Rank::new).collect()
        } else {
            let members = known.iter().filter(|(_, line)| takes_part(line));
            members.map(|(rank, _)| *rank).collect()
        };
        let mut absent = Self {
            is_unclear: u32::try_from(members.len()) != Ok(call.ranks),
            ..Self::default()
        };
        for rank in members {
            match known.get(&rank) {
                None => absent.unknown.push(rank),
                Some(line) if has_arrived(line, &key) || absent.is_unclear => {}
                Some(_) => absent.late.push(rank),
            }
        }
        absent
    }

    /// Returns the rank that made the call fail alone, if it is known: other ranks may be absent because of the failure.
    fn caused_by(mut self, culprit: Option<u32>) -> Self {
        if let Some(culprit) = culprit.map(Rank::new) {
            self.late = vec![culprit];
            self.unknown.retain(|rank| *rank == culprit);
        }
        self
    }
}

/// Returns true if a rank has handed in its part of a call, or has made enough later calls that the record is gone:
/// each rank makes the calls of a communicator in order.
fn has_arrived(line: &Line, key: &CallKey) -> bool {
    let records = &line.of.records;
    let mut of_channel = records.iter().filter(|one| one.channel == key.channel);
    let is_complete = records.first().is_none_or(|first| first.count <= 1);
    // Closing has the number after all others.
    let is_later = |one: &CallRecord| one.epoch > key.epoch && one.epoch != u64::MAX;
    let is_forgotten = !is_complete && of_channel.clone().next().is_some_and(is_later);
    is_forgotten || of_channel.any(|one| one.epoch == key.epoch && one.handed_in.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::{call, left};

    #[test]
    fn waiting_ranks_name_the_ranks_that_are_late() {
        let waiting = |rank| {
            let mut second = call(1, "eval.py:95", [20, 21, 0]);
            (second.decided, second.ended, second.outcome) = (None, None, Outcome::Open);
            left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 3]), second])
        };
        let late = left(1, 1, vec![call(0, "eval.py:80", [1, 2, 3])]);
        let timeline = Timeline::new(vec![waiting(0), late, waiting(2)]);
        let now = timeline.at(0, 21_000) + 5_000;
        let all = statuses(&timeline, now);
        let doings: Vec<RankState> = all.iter().map(|one| one.state).collect();
        assert_eq!(
            doings,
            [RankState::Waiting, RankState::Computing, RankState::Waiting]
        );
        assert_eq!(all[0].waits_for, [Rank::new(1)]);
        assert_eq!(all[0].since, 5_000);
        assert!(all[1].waits_for.is_empty() && all[0].may_wait_for.is_empty());
    }

    /// The call after that in `call(0, ..)`, which is not over.
    fn open(operation: &str) -> CallRecord {
        let mut open = call(1, "eval.py:95", [20, 21, 0]);
        (open.decided, open.ended, open.outcome) = (None, None, Outcome::Open);
        open.operation = operation.into();
        open
    }

    fn of(boxes: Vec<crate::trace::black_box::BlackBox>) -> Vec<RankStatus> {
        let timeline = Timeline::new(boxes);
        statuses(&timeline, timeline.end())
    }

    #[test]
    fn ranks_without_calls_are_not_called_late() {
        let first = || call(0, "eval.py:80", [1, 2, 3]);
        let all = of(vec![left(0, 1, vec![first(), open("barrier")])]);
        assert!(all[0].waits_for.is_empty());
        assert_eq!(all[0].may_wait_for, [1, 2].map(Rank::new));
        let all = of(vec![
            left(0, 1, vec![first(), open("barrier")]),
            left(2, 1, vec![first()]),
        ]);
        assert_eq!(all[0].waits_for, [Rank::new(2)]);
        assert_eq!(all[0].may_wait_for, [Rank::new(1)]);
    }

    #[test]
    fn ranks_of_a_part_of_a_job_are_named_as_in_the_job() {
        let named = |rank: u32, records| {
            let mut left = left(rank, 1, records);
            left.header.called = Rank::new(rank + 4);
            left
        };
        let mut waits = open("barrier");
        waits.ranks = 2;
        let first = call(0, "eval.py:80", [1, 2, 3]);
        let all = of(vec![
            named(0, vec![first.clone(), waits]),
            named(1, vec![first]),
        ]);
        assert_eq!(all[0].rank, Rank::new(4));
        assert_eq!(all[0].waits_for, [Rank::new(5)]);
        assert!(all[0].may_wait_for.is_empty() && !all[0].is_unclear);
    }

    #[test]
    fn rank_that_has_forgotten_the_call_is_not_late() {
        let waits = || left(0, 1, vec![open("barrier")]);
        let later = |epoch: u64| {
            let mut later = call(0, "eval.py:99", [30, 31, 32]);
            (later.count, later.epoch) = (1300, epoch);
            later
        };
        let passed = of(vec![
            waits(),
            left(1, 1, vec![later(5)]),
            left(2, 1, vec![later(1)]),
        ]);
        assert!(passed[0].waits_for.is_empty() && passed[0].may_wait_for.is_empty());
        let closes = of(vec![
            waits(),
            left(1, 1, vec![later(u64::MAX)]),
            left(2, 1, vec![later(1)]),
        ]);
        assert_eq!(closes[0].waits_for, [Rank::new(1)]);
    }

    #[test]
    fn started_call_is_overlapping_until_a_thread_waits_for_it() {
        let mut started = open("start_all_gather");
        let late = || left(1, 1, vec![call(0, "eval.py:80", [1, 2, 3])]);
        let other = || left(2, 1, vec![open("start_all_gather")]);
        let all = of(vec![left(0, 1, vec![started.clone()]), late(), other()]);
        assert_eq!(all[0].state, RankState::Overlapping);
        assert!(all[0].waits_for.is_empty());
        started.awaited = Some(40_000);
        // A later call, of another thread or for another result, does not hide it.
        let mut later = call(2, "eval.py:97", [30, 31, 32]);
        later.ranks = 3;
        let all = of(vec![left(0, 1, vec![started, later]), late(), other()]);
        assert_eq!(all[0].state, RankState::Waiting);
        assert_eq!(all[0].waits_for, [Rank::new(1)]);
    }

    #[test]
    fn same_number_in_an_older_world_is_another_call() {
        let mut before = left(1, 1, vec![call(1, "eval.py:80", [1, 2, 3])]);
        before.header.communicator = uuid::Uuid::from_u128(3);
        let now = [0, 2].map(|rank| left(rank, 9_000, vec![open("barrier")]));
        let late = left(1, 9_000, Vec::new());
        let all = of([before, late].into_iter().chain(now).collect());
        assert_eq!(all[2].waits_for, [Rank::new(1)]);
    }
}
