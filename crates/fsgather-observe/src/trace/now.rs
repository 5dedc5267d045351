//! The doings of each rank, and whom it waits for: [`standings`]. Pure.

use std::collections::{BTreeSet, HashMap};

use fsgather_core::{ProcessId, Rank, rank_ranges};

use crate::trace::{
    record::{CallRecord, Outcome},
    timeline::{CallKey, Line, Timeline},
};

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// Its process has ended.
    Ended,
    /// The program's own work, after a call or before the first one.
    Computing,
    /// The same, while a call that it has started goes on.
    Overlapping,
    /// Handing in its part.
    HandingIn,
    /// Waiting for others.
    Waiting,
    /// Reading what the others have handed in.
    Reading,
    /// It has closed the communicator.
    Closed,
}

impl Doing {
    /// A word for it, or two.
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
}

/// What one rank is at, in one world.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Which of the worlds, the oldest first.
    pub world: usize,
    /// The rank.
    pub rank: Rank,
    /// Its process.
    pub process: ProcessId,
    /// What it does.
    pub doing: Doing,
    /// The call that a thread of it is in, or else the last one.
    pub call: Option<CallRecord>,
    /// For how long, in nanoseconds.
    pub since: u64,
    /// How many bytes it has handed in and read.
    pub moved: u64,
    /// The ranks that it waits for, or has waited for when all processes had ended or the call failed.
    pub waits_for: Vec<Rank>,
    /// The ranks that it may wait for: nothing is known of them.
    pub may_wait_for: Vec<Rank>,
    /// Whether it cannot be told who belongs to its group: not all of them have been seen in it.
    pub is_unclear: bool,
}

impl Timeline {
    /// What time it is on the axis, given that and the process that has looked at its calendar, in nanoseconds since 1970.
    #[must_use]
    pub fn now(&self, me: &ProcessId, calendar: i128) -> i64 {
        let here = self.lines.iter().position(|line| {
            let process = &line.of.header.process;
            process.shares_kernel_with(me)
        });
        match here {
            None => i64::try_from(calendar - self.origin).unwrap_or(i64::MAX),
            Some(line) => {
                let began = i128::from(self.lines[line].of.header.began);
                self.at(line, u64::try_from(calendar - began).unwrap_or_default())
            }
        }
    }
}

/// What each rank is at; `now` is the time on the axis.
#[must_use]
pub fn standings(timeline: &Timeline, now: i64) -> Vec<Standing> {
    let current: Vec<Option<&CallRecord>> = timeline
        .lines
        .iter()
        .map(|line| current(&line.of.records))
        .collect();
    let waits = |call: &CallRecord| call.is_waiting() || call.failed_waiting();
    let awaited: HashMap<CallKey, &CallRecord> = timeline
        .lines
        .iter()
        .zip(&current)
        .filter_map(|(line, call)| Some((line, (*call)?)))
        .filter(|(_, call)| waits(call))
        .map(|(line, call)| (line.key(call), call))
        .collect();
    let missing = missing(timeline, &awaited);
    let mut all = timeline.lines.iter();
    let is_over = all.all(|line| line.of.is_running == Some(false));
    let lines = timeline.lines.iter().zip(current).enumerate();
    lines
        .map(|(at, (line, call))| {
            let doing = match call {
                _ if line.of.is_running == Some(false) => Doing::Ended,
                Some(call) => doing(call),
                None => Doing::Computing,
            };
            let since = call.map_or(0, |call| {
                let moments = [
                    call.ended,
                    call.decided,
                    call.awaited,
                    call.handed_in,
                    Some(call.begun),
                ];
                moments.into_iter().flatten().next().unwrap_or_default()
            });
            let has_waited = |call: &CallRecord| is_over && call.is_waiting();
            let waits = call.filter(|call| {
                doing == Doing::Waiting || call.failed_waiting() || has_waited(call)
            });
            let missing = waits.and_then(|call| missing.get(&line.key(call)));
            let mut missing = missing.cloned().unwrap_or_default();
            if let Some(culprit) = waits.and_then(|call| call.culprit).map(Rank::new) {
                // That others have not come may be because of it.
                missing.late = vec![culprit];
                missing.unknown.retain(|rank| *rank == culprit);
            }
            Standing {
                world: line.world,
                rank: line.of.rank(),
                process: line.of.header.process.clone(),
                doing,
                call: call.cloned(),
                since: u64::try_from(now - timeline.at(at, since)).unwrap_or_default(),
                moved: line.of.moved(),
                waits_for: missing.late,
                may_wait_for: missing.unknown,
                is_unclear: missing.is_unclear,
            }
        })
        .collect()
}

/// The call that keeps a thread of the program, the last one where there are several; else the last one of all.
fn current(records: &[CallRecord]) -> Option<&CallRecord> {
    let hands_in = |call: &CallRecord| call.outcome == Outcome::Open && call.handed_in.is_none();
    let mut all = records.iter().rev();
    let blocking = all.find(|call| hands_in(call) || call.is_waiting());
    blocking.or_else(|| records.last())
}

fn doing(call: &CallRecord) -> Doing {
    match (call.outcome, call.handed_in) {
        (Outcome::Done, _) if call.operation == "close" && call.channel == 0 => Doing::Closed,
        (Outcome::Open, None) => Doing::HandingIn,
        (Outcome::Open, _) if call.is_waiting() => Doing::Waiting,
        (Outcome::Open, _) if call.is_beside() => Doing::Overlapping,
        (Outcome::Open, _) => Doing::Reading,
        _ => Doing::Computing,
    }
}

/// Who has not come to a call.
#[derive(Clone, Debug, Default)]
struct Missing {
    /// Ranks whose calls tell that.
    late: Vec<Rank>,
    /// Ranks that have left no calls here: they may be on another host, or keep none.
    unknown: Vec<Rank>,
    is_unclear: bool,
}

/// Who has not come to each of these calls.
fn missing(
    timeline: &Timeline,
    awaited: &HashMap<CallKey, &CallRecord>,
) -> HashMap<CallKey, Missing> {
    let groups: BTreeSet<(usize, u64)> = awaited
        .keys()
        .map(|key| (key.world, key.channel))
        .filter(|(_, channel)| *channel != 0)
        .collect();
    let mut members: HashMap<(usize, u64), BTreeSet<Rank>> = HashMap::new();
    let mut present: HashMap<CallKey, BTreeSet<Rank>> = HashMap::new();
    let mut known: HashMap<usize, HashMap<Rank, &Line>> = HashMap::new();
    for line in &timeline.lines {
        let rank = line.of.rank();
        known.entry(line.world).or_default().insert(rank, line);
        for record in &line.of.records {
            let key = line.key(record);
            if groups.contains(&(key.world, key.channel)) {
                let members = members.entry((key.world, key.channel)).or_default();
                members.insert(rank);
            }
            if record.handed_in.is_some() && awaited.contains_key(&key) {
                present.entry(key).or_default().insert(rank);
            }
        }
    }
    let mut all_missing = HashMap::new();
    for (key, call) in awaited {
        let Some(known) = known.get(&key.world) else {
            continue;
        };
        let all: BTreeSet<Rank> = if key.channel == 0 {
            (0..call.ranks).map(Rank::new).collect()
        } else {
            let members = members.get(&(key.world, key.channel));
            members.cloned().unwrap_or_default()
        };
        let mut missing = Missing {
            is_unclear: u32::try_from(all.len()) != Ok(call.ranks),
            ..Missing::default()
        };
        let present = present.get(key);
        let absent = |rank: &Rank| present.is_none_or(|present| !present.contains(rank));
        for rank in all.into_iter().filter(absent) {
            match known.get(&rank) {
                None => missing.unknown.push(rank),
                Some(line) if has_passed(line, key) || missing.is_unclear => {}
                Some(_) => missing.late.push(rank),
            }
        }
        all_missing.insert(*key, missing);
    }
    all_missing
}

/// Whether a call that is not among those of a rank is older than they are: each rank makes the calls of a communicator in
/// their order.
pub(crate) fn has_passed(line: &Line, call: &CallKey) -> bool {
    let records = &line.of.records;
    let are_all = records.first().is_none_or(|first| first.count <= 1);
    let mut of_channel = records
        .iter()
        .filter(|record| record.channel == call.channel);
    let oldest = of_channel.next();
    // Closing has the number that comes after all others.
    let is_later = |record: &CallRecord| record.epoch > call.epoch && record.epoch != u64::MAX;
    !are_all && oldest.is_some_and(is_later)
}

/// Ranks as messages name them: `rank 5`, `ranks 0-4 6 7`.
#[must_use]
pub fn named_ranks(ranks: &[Rank]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let ranks: Vec<u32> = ranks.iter().map(|rank| rank.get()).collect();
    format!("{word} {}", rank_ranges(&ranks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::{call, left};

    #[test]
    fn who_waits_waits_for_those_who_have_not_come() {
        let waiting = |rank| {
            let mut second = call(1, "eval.py:95", [20, 21, 0]);
            (second.decided, second.ended, second.outcome) = (None, None, Outcome::Open);
            left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 3]), second])
        };
        let late = left(1, 1, vec![call(0, "eval.py:80", [1, 2, 3])]);
        let timeline = Timeline::new(vec![waiting(0), late, waiting(2)]);
        let now = timeline.at(0, 21_000) + 5_000;
        let all = standings(&timeline, now);
        let doings: Vec<Doing> = all.iter().map(|one| one.doing).collect();
        assert_eq!(doings, [Doing::Waiting, Doing::Computing, Doing::Waiting]);
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

    fn of(boxes: Vec<crate::trace::black_box::BlackBox>) -> Vec<Standing> {
        let timeline = Timeline::new(boxes);
        standings(&timeline, timeline.end())
    }

    #[test]
    fn nobody_is_blamed_of_whom_nothing_is_known() {
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
    fn who_has_gone_on_for_so_long_that_the_call_is_forgotten_is_not_missing() {
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
    fn a_call_that_was_started_before_shows_for_whom_it_waits_once_a_thread_waits_for_it() {
        let mut started = open("start_all_gather");
        let late = || left(1, 1, vec![call(0, "eval.py:80", [1, 2, 3])]);
        let other = || left(2, 1, vec![open("start_all_gather")]);
        let all = of(vec![left(0, 1, vec![started.clone()]), late(), other()]);
        assert_eq!(all[0].doing, Doing::Overlapping);
        assert!(all[0].waits_for.is_empty());
        started.awaited = Some(40_000);
        // What is called later, by another thread or for another result, does not hide it.
        let mut later = call(2, "eval.py:97", [30, 31, 32]);
        later.ranks = 3;
        let all = of(vec![left(0, 1, vec![started, later]), late(), other()]);
        assert_eq!(all[0].doing, Doing::Waiting);
        assert_eq!(all[0].waits_for, [Rank::new(1)]);
    }

    #[test]
    fn a_call_of_the_world_before_is_another_one() {
        let mut before = left(1, 1, vec![call(1, "eval.py:80", [1, 2, 3])]);
        before.header.communicator = uuid::Uuid::from_u128(3);
        let now = [0, 2].map(|rank| left(rank, 9_000, vec![open("barrier")]));
        let late = left(1, 9_000, Vec::new());
        let all = of([before, late].into_iter().chain(now).collect());
        assert_eq!(all[2].waits_for, [Rank::new(1)]);
    }
}
