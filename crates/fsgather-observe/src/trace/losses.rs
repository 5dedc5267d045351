//! The time that ranks have cost the others by coming last: [`losses`]. Pure.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use fsgather_core::Rank;
use serde_json::{Value, json};

use crate::trace::{record::CallRecord, timeline::Timeline};

/// The time that one rank has cost the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLoss {
    /// The rank.
    pub rank: Rank,
    /// The number of calls in which it came last.
    pub last: usize,
    /// The time that all others together have waited in those calls for it alone, in nanoseconds.
    pub cost: u64,
    /// The two places of its program between which it lost most of that.
    pub between: Option<(String, String)>,
}

impl RankLoss {
    /// Returns the entry of `losses` in the JSON of `trace`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (from, to) = self.between.clone().unzip();
        json!({
            "rank": self.rank,
            "came_last": self.last,
            "cost_seconds": Duration::from_nanos(self.cost).as_secs_f64(),
            "from": from,
            "to": to,
        })
    }
}

/// The time that ranks have lost by waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The number of calls that were compared.
    pub calls: usize,
    /// The ranks that came last, the most expensive first.
    pub ranks: Vec<RankLoss>,
}

/// The cost of one rank between each two places of its program.
type CostByPlace<'a> = BTreeMap<(&'a str, &'a str), u64>;

/// Compares all calls that were decided.
///
/// The last rank costs each of the others the time between the second-to-last arrival and its own: the time that the
/// second-to-last rank waits. No clocks of different hosts are compared for that.
#[must_use]
pub fn losses(timeline: &Timeline) -> Losses {
    let mut compared = 0;
    let mut ranks: BTreeMap<Rank, (usize, CostByPlace<'_>)> = BTreeMap::new();
    for records in timeline.calls().values() {
        let waits: Vec<_> = records
            .iter()
            .filter_map(|(line, record)| Some((*line, *record, record.waited()?)))
            .collect();
        let Some((line, latest)) = last_of(timeline, &waits) else {
            continue;
        };
        compared += 1;
        let others = waits.iter().filter(|(other, ..)| *other != line);
        let least = others.map(|(.., waited)| *waited).min().unwrap_or_default();
        let others = u64::from(latest.ranks.saturating_sub(1));
        let (count, places) = ranks.entry(timeline.lines[line].of.rank()).or_default();
        *count += 1;
        let place = (place_before(timeline, line, latest), latest.site.as_str());
        *places.entry(place).or_default() += least.saturating_mul(others);
    }
    let loss = |(rank, (last, places)): (Rank, (usize, CostByPlace<'_>))| RankLoss {
        rank,
        last,
        cost: places.values().sum(),
        between: places
            .into_iter()
            .max_by_key(|(_, cost)| *cost)
            .filter(|((from, _), cost)| *cost > 0 && !from.is_empty())
            .map(|((from, to), _)| (from.to_owned(), to.to_owned())),
    };
    let mut ranks: Vec<RankLoss> = ranks.into_iter().map(loss).collect();
    ranks.sort_by_key(|loss| (Reverse(loss.cost), loss.rank));
    Losses {
        calls: compared,
        ranks,
    }
}

/// Returns the line of the rank that came last, if it is known, and its record.
fn last_of<'a>(
    timeline: &Timeline,
    waits: &[(usize, &'a CallRecord, u64)],
) -> Option<(usize, &'a CallRecord)> {
    if waits.len() < 2 {
        return None;
    }
    let (line, record, _) = match waits.iter().find_map(|(_, record, _)| record.last) {
        Some(last) => waits
            .iter()
            .find(|(line, ..)| timeline.lines[*line].of.rank().get() == last),
        // If no rank knows which came last, it is the one that has waited least.
        None => waits.iter().min_by_key(|(.., waited)| *waited),
    }?;
    Some((*line, record))
}

/// Returns the place of the call before, if there is one.
fn place_before<'a>(timeline: &'a Timeline, line: usize, call: &CallRecord) -> &'a str {
    let records = &timeline.lines[line].of.records;
    let at = records.partition_point(|record| record.count < call.count);
    let before = at.checked_sub(1).and_then(|before| records.get(before));
    before.map_or("", |before| before.site.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::{call, left};

    #[test]
    fn last_rank_costs_the_others_the_second_to_last_wait() {
        // Rank 2 is 300 microseconds behind rank 1, and that 100 behind rank 0, in each of two calls.
        let one = |rank: u64| {
            let ready = 1000 + [0, 100, 400][usize::try_from(rank).unwrap()];
            vec![
                call(0, "eval.py:80", [900, ready, 1400]),
                call(1, "eval.py:95", [1900, 1000 + ready, 2400]),
            ]
        };
        let boxes = (0..3).map(|rank| left(rank, 1, one(rank.into()))).collect();
        let found = losses(&Timeline::new(boxes));
        assert_eq!(found.calls, 2);
        assert_eq!(found.ranks.len(), 1);
        let loss = &found.ranks[0];
        assert_eq!(
            (loss.rank, loss.last, loss.cost),
            (Rank::new(2), 2, 1_200_000)
        );
        let between = loss.between.clone().unwrap();
        assert_eq!(between, ("eval.py:80".into(), "eval.py:95".into()));
    }

    #[test]
    fn an_unseen_last_rank_leaves_the_others_without_blame() {
        let of = |rank| {
            let mut record = call(0, "a", [1, 2, 9]);
            record.last = Some(2);
            left(rank, 1, vec![record])
        };
        let found = losses(&Timeline::new(vec![of(0), of(1)]));
        assert_eq!(found, Losses::default());
    }
}
