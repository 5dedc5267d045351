//! The time that ranks have cost the others by coming last: [`losses`]. Pure.

use std::collections::BTreeMap;

use fsgather_core::Rank;

use crate::trace::{record::CallRecord, timeline::Timeline};

/// What a rank has cost the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The rank.
    pub rank: Rank,
    /// In how many calls it came last.
    pub last: usize,
    /// How long the others have waited in those for it alone, all of them together, in nanoseconds.
    pub cost: u64,
    /// Between which two places of its program most of that was, and how much.
    pub between: Option<(String, String, u64)>,
}

/// What is known of the time that ranks have lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// How many calls were compared.
    pub calls: usize,
    /// The ranks that have cost the others something, the dearest first.
    pub ranks: Vec<Loss>,
}

/// What was lost between two places.
type Places = BTreeMap<(String, String), u64>;

/// Compares all calls that were decided.
///
/// A rank that comes last costs each of the others the time between the last but one and itself: that is what the one of
/// them waits that has waited least. No clocks of different hosts are compared for that.
#[must_use]
pub fn losses(timeline: &Timeline) -> Losses {
    let mut compared = 0;
    let mut ranks: BTreeMap<Rank, (usize, Places)> = BTreeMap::new();
    for (_, records) in timeline.calls() {
        let decided: Vec<_> = records
            .iter()
            .filter_map(|(line, record)| Some((*line, *record, record.waited()?)))
            .collect();
        let Some((line, latest)) = last_of(timeline, &decided) else {
            continue;
        };
        compared += 1;
        let others = decided.iter().filter(|(other, ..)| *other != line);
        let least = others.map(|(.., waited)| *waited).min().unwrap_or_default();
        let others = u64::from(latest.ranks.saturating_sub(1));
        let place = (place_before(timeline, line, latest), latest.site.clone());
        let rank = timeline.lines[line].of.rank();
        let (count, places) = ranks.entry(rank).or_default();
        *count += 1;
        *places.entry(place).or_default() += least.saturating_mul(others);
    }
    let mut ranks: Vec<Loss> = ranks
        .into_iter()
        .map(|(rank, (last, places))| Loss {
            rank,
            last,
            cost: places.values().sum(),
            between: places
                .into_iter()
                .max_by_key(|(_, cost)| *cost)
                .filter(|((from, _), cost)| *cost > 0 && !from.is_empty())
                .map(|((from, to), cost)| (from, to, cost)),
        })
        .collect();
    ranks.sort_by_key(|loss| (std::cmp::Reverse(loss.cost), loss.rank));
    Losses {
        calls: compared,
        ranks,
    }
}

/// The line of the rank that came last, if that is known, and its record.
fn last_of<'a>(
    timeline: &Timeline,
    decided: &[(usize, &'a CallRecord, u64)],
) -> Option<(usize, &'a CallRecord)> {
    if decided.len() < 2 {
        return None;
    }
    let told = decided.iter().find_map(|(_, record, _)| record.last);
    let is_told = |line: usize| {
        let rank = timeline.lines[line].of.rank().get();
        told.is_some_and(|told| told == rank)
    };
    let named = decided.iter().find(|(line, ..)| is_told(*line));
    // Where nobody was told, it is the one that has waited least.
    let least = || decided.iter().min_by_key(|(.., waited)| *waited);
    let (line, record, _) = match (named, told) {
        (Some(named), _) => Some(named),
        (None, None) => least(),
        (None, Some(_)) => None,
    }?;
    Some((*line, record))
}

/// Where a rank was before a call: the place of the call before, if there is one.
fn place_before(timeline: &Timeline, line: usize, call: &CallRecord) -> String {
    let records = &timeline.lines[line].of.records;
    let at = records.partition_point(|record| record.count < call.count);
    let before = at.checked_sub(1).and_then(|before| records.get(before));
    before.map_or_else(String::new, |before| before.site.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::{call, left};

    #[test]
    fn who_comes_last_costs_the_others_what_the_last_but_one_waits() {
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
        assert_eq!(between, ("eval.py:80".into(), "eval.py:95".into(), 600_000));
    }

    #[test]
    fn a_last_rank_that_has_left_nothing_blames_nobody_else() {
        let of = |rank| {
            let mut record = call(0, "a", [1, 2, 9]);
            record.last = Some(2);
            left(rank, 1, vec![record])
        };
        let found = losses(&Timeline::new(vec![of(0), of(1)]));
        assert_eq!(found, Losses::default());
    }
}
