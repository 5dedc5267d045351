//! The ranks that came too late for deadlines: [`Lateness`], [`late`]. Pure.
//!
//! A call with a deadline is no measure of who came last: whoever was in time has waited for those who were not, and no longer
//! than the program wanted.

use std::collections::BTreeMap;

use fsgather_core::Rank;

use crate::{
    cause::Cause,
    now::has_passed,
    record::CallRecord,
    timeline::{CallKey, Timeline},
};

/// How often a rank was too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// The rank.
    pub rank: Rank,
    /// For how many calls.
    pub calls: usize,
    /// How long those who were in time have waited for it until the deadlines, and for others that were late with it, all of
    /// them together, in nanoseconds.
    pub waited: u64,
}

/// What is known of the calls that went on without ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// How many calls were decided at their deadline.
    pub calls: usize,
    /// Who was late, the most often late first.
    pub ranks: Vec<Late>,
}

/// Whether a call was decided at its deadline, by what its ranks have noted.
pub(crate) fn is_incomplete(records: &[(usize, &CallRecord)]) -> bool {
    records
        .iter()
        .any(|(_, record)| matches!(record.cause, Cause::Deadline | Cause::TooLate))
}

/// Who was late for which of all calls.
#[must_use]
pub fn late(timeline: &Timeline) -> Lateness {
    let mut calls = 0;
    let mut ranks: BTreeMap<Rank, (usize, u64)> = BTreeMap::new();
    for (key, records) in timeline.calls() {
        if !is_incomplete(&records) {
            continue;
        }
        calls += 1;
        let in_time = records
            .iter()
            .filter(|(_, record)| record.cause == Cause::Deadline);
        let waits: Vec<u64> = in_time.filter_map(|(_, record)| record.waited()).collect();
        // The last of them came when there was so much time left.
        let least = waits.iter().min().copied().unwrap_or_default();
        let waited = least.saturating_mul(u64::try_from(waits.len()).unwrap_or(u64::MAX));
        for rank in absent(timeline, &key, &records) {
            let (count, cost) = ranks.entry(rank).or_default();
            *count += 1;
            *cost = cost.saturating_add(waited);
        }
    }
    let mut ranks: Vec<Late> = ranks
        .into_iter()
        .map(|(rank, (calls, waited))| Late {
            rank,
            calls,
            waited,
        })
        .collect();
    ranks.sort_by_key(|late| (std::cmp::Reverse(late.calls), late.rank));
    Lateness { calls, ranks }
}

/// Who was not in time for a call: those who have come later, and those of whom it is known that they have not come so far.
fn absent(timeline: &Timeline, key: &CallKey, records: &[(usize, &CallRecord)]) -> Vec<Rank> {
    let is_late = |at: usize| {
        let line = &timeline.lines[at];
        if let Some((_, record)) = records.iter().find(|(of, _)| *of == at) {
            return record.cause == Cause::TooLate || record.handed_in.is_none();
        }
        let own = &line.of.records;
        let is_member = key.channel == 0 || own.iter().any(|one| one.channel == key.channel);
        line.world == key.world && is_member && !has_passed(line, key)
    };
    let late = (0..timeline.lines.len()).filter(|at| is_late(*at));
    late.map(|at| timeline.lines[at].of.rank()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        losses::{Losses, losses},
        timeline::tests::{call, left},
    };

    fn of(cause: Cause, times: [u64; 3]) -> CallRecord {
        CallRecord {
            cause,
            last: (cause == Cause::Deadline).then_some(2),
            ..call(0, "eval.py:80", times)
        }
    }

    #[test]
    fn who_is_late_for_a_deadline_is_told_as_late_and_nobody_as_the_last() {
        let boxes = vec![
            left(0, 1, vec![of(Cause::Deadline, [1, 100, 500])]),
            left(1, 1, vec![of(Cause::TooLate, [1, 900, 901])]),
            left(2, 1, vec![of(Cause::Deadline, [1, 200, 500])]),
        ];
        let timeline = Timeline::new(boxes);
        assert_eq!(losses(&timeline), Losses::default());
        let late = late(&timeline);
        let expected = Late {
            rank: Rank::new(1),
            calls: 1,
            waited: 600_000,
        };
        assert_eq!((late.calls, late.ranks), (1, vec![expected]));
    }

    #[test]
    fn who_has_not_come_at_all_is_late_and_who_has_forgotten_the_call_is_not() {
        let mut later = call(0, "eval.py:99", [30, 31, 32]);
        (later.count, later.epoch) = (1300, 7);
        let boxes = vec![
            left(0, 1, vec![of(Cause::Deadline, [1, 100, 500])]),
            left(1, 1, Vec::new()),
            left(2, 1, vec![later]),
        ];
        let late = late(&Timeline::new(boxes));
        let ranks: Vec<Rank> = late.ranks.iter().map(|late| late.rank).collect();
        assert_eq!(ranks, [Rank::new(1)]);
    }

    #[test]
    fn when_a_rank_heard_that_it_was_late_says_nothing_of_its_clock() {
        // It heard a second after the others, by a clock that is the same.
        let with = |cause: Cause, at: u64| {
            let second = CallRecord {
                cause,
                ..call(1, "eval.py:95", [2000, 2010, at])
            };
            vec![call(0, "eval.py:80", [900, 901, 1000]), second]
        };
        let boxes = vec![
            left(0, 1, with(Cause::Deadline, 3000)),
            left(1, 1, with(Cause::TooLate, 1_003_000)),
        ];
        let timeline = Timeline::new(boxes);
        for record in [0, 1] {
            let at = |line: usize| timeline.at(line, timeline.lines[line].of.records[record].begun);
            assert_eq!(at(0), at(1));
        }
    }
}
