//! The doings of each rank, and whom it waits for: [`standings`]. Pure.

use std::collections::{BTreeMap, BTreeSet};

use fsgather_core::{ProcessId, Rank, rank_ranges};

use crate::{
    record::{CallRecord, Outcome},
    timeline::{CallKey, Timeline, key},
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

/// What one rank is at.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The rank.
    pub rank: Rank,
    /// Its process.
    pub process: ProcessId,
    /// What it does.
    pub doing: Doing,
    /// The call that it is in, or was in last.
    pub call: Option<CallRecord>,
    /// For how long, in nanoseconds.
    pub since: u64,
    /// How many bytes it has handed in and read.
    pub moved: u64,
    /// The ranks that it waits for.
    pub waits_for: Vec<Rank>,
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
    let in_it = handed_in(timeline);
    let members = members(timeline);
    let lines = timeline.lines.iter().enumerate();
    lines
        .map(|(at, line)| {
            let call = line.of.records.last();
            let doing = match call {
                _ if line.of.is_running == Some(false) => Doing::Ended,
                Some(call) => doing(call),
                None => Doing::Computing,
            };
            let since = call.map_or(0, |call| {
                let moments = [call.ended, call.decided, call.handed_in, Some(call.begun)];
                moments.into_iter().flatten().next().unwrap_or_default()
            });
            let waits_for = match call {
                Some(call) if doing == Doing::Waiting || call.failed_waiting() => {
                    missing(call, line.of.header.world_size, &in_it, &members)
                }
                _ => Vec::new(),
            };
            Standing {
                rank: line.of.rank(),
                process: line.of.header.process.clone(),
                doing,
                call: call.cloned(),
                since: u64::try_from(now - timeline.at(at, since)).unwrap_or_default(),
                moved: line.of.moved(),
                waits_for,
            }
        })
        .collect()
}

fn doing(call: &CallRecord) -> Doing {
    match (call.outcome, call.handed_in, call.decided) {
        (Outcome::Done, ..) if call.operation == "close" && call.channel == 0 => Doing::Closed,
        (Outcome::Open, None, _) => Doing::HandingIn,
        (Outcome::Open, ..) if call.operation.starts_with("start_") => Doing::Overlapping,
        (Outcome::Open, Some(_), None) => Doing::Waiting,
        (Outcome::Open, ..) => Doing::Reading,
        _ => Doing::Computing,
    }
}

/// Which ranks have handed in their part of each call.
fn handed_in(timeline: &Timeline) -> BTreeMap<CallKey, BTreeSet<Rank>> {
    let mut calls: BTreeMap<CallKey, BTreeSet<Rank>> = BTreeMap::new();
    for line in &timeline.lines {
        for record in line.of.records.iter().rev() {
            if record.handed_in.is_some() {
                calls.entry(key(record)).or_default().insert(line.of.rank());
            }
        }
    }
    calls
}

/// Which ranks have been seen in each communicator.
fn members(timeline: &Timeline) -> BTreeMap<u64, BTreeSet<Rank>> {
    let mut members: BTreeMap<u64, BTreeSet<Rank>> = BTreeMap::new();
    for line in &timeline.lines {
        for record in &line.of.records {
            members
                .entry(record.channel)
                .or_default()
                .insert(line.of.rank());
        }
    }
    members
}

fn missing(
    call: &CallRecord,
    world_size: u32,
    in_it: &BTreeMap<CallKey, BTreeSet<Rank>>,
    members: &BTreeMap<u64, BTreeSet<Rank>>,
) -> Vec<Rank> {
    let all: BTreeSet<Rank> = if call.channel == 0 {
        (0..world_size).map(Rank::new).collect()
    } else {
        members.get(&call.channel).cloned().unwrap_or_default()
    };
    if all.len() != usize::try_from(call.ranks).unwrap_or(usize::MAX) {
        return Vec::new();
    }
    let present = in_it.get(&key(call));
    all.into_iter()
        .filter(|rank| present.is_none_or(|present| !present.contains(rank)))
        .collect()
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
    use crate::timeline::tests::{call, left};

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
        assert!(all[1].waits_for.is_empty());
    }
}
