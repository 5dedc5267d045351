//! The calls of all ranks on one time axis: [`Timeline`]. Pure.
//!
//! Clocks of hosts differ. A call is decided for all its ranks at nearly the same moment, so that moments of calls which two
//! ranks were both in tell by how much their clocks differ, and how that changes.

use std::collections::{BTreeMap, HashMap};

use crate::{black_box::BlackBox, record::CallRecord};

/// A call, whoever is in it: communicator and number.
pub type CallKey = (u64, u64);

/// The calls of some ranks.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The ranks.
    pub lines: Vec<Line>,
    /// When the first of all calls has begun, in nanoseconds since 1970 by the calendar of the first rank.
    pub origin: i128,
}

/// The calls of one rank.
#[derive(Clone, Debug)]
pub struct Line {
    /// Whose they are, and what they were.
    pub of: BlackBox,
    clock: Clock,
}

/// What is to be added to a rank's time: so much, and so much for each nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Clock {
    offset: f64,
    rate: f64,
}

/// Ranks of one kernel have one calendar. They differ by more only if it was set in between.
const SAME_CALENDAR: f64 = 50e6;

/// How many calls it takes, over how long, to tell how clocks drift.
const MANY: usize = 30;
const LONG: f64 = 60e9;

impl Line {
    /// A moment of this rank on the common axis, in nanoseconds since [`Timeline::origin`].
    fn on_axis(&self, origin: i128, at: u64) -> i64 {
        let local = i128::from(self.of.header.began) + i128::from(at);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "clocks of hosts agree to microseconds at best"
        )]
        let shift = (self.clock.offset + self.clock.rate * at as f64) as i128;
        i64::try_from(local + shift - origin).unwrap_or(i64::MAX)
    }
}

impl Timeline {
    /// Puts the calls of some ranks on one axis.
    #[must_use]
    pub fn new(boxes: Vec<BlackBox>) -> Self {
        let mut lines: Vec<Line> = boxes
            .into_iter()
            .map(|of| Line {
                of,
                clock: Clock::default(),
            })
            .collect();
        align(&mut lines);
        let begun = lines.iter().filter_map(|line| {
            let first = line.of.records.first()?;
            Some(i128::from(line.on_axis(0, first.begun)))
        });
        let origin = begun.min().unwrap_or_default();
        Self { lines, origin }
    }

    /// A moment of a rank, in nanoseconds since the first call of all began.
    #[must_use]
    pub fn at(&self, line: usize, time: u64) -> i64 {
        self.lines
            .get(line)
            .map_or(0, |line| line.on_axis(self.origin, time))
    }

    /// The last moment that any rank has noted.
    #[must_use]
    pub fn end(&self) -> i64 {
        let lines = self.lines.iter().enumerate();
        let last = lines.filter_map(|(at, line)| {
            let times = line.of.records.iter().flat_map(|record| {
                [
                    Some(record.begun),
                    record.handed_in,
                    record.decided,
                    record.ended,
                ]
            });
            Some(self.at(at, times.flatten().max()?))
        });
        last.max().unwrap_or_default()
    }

    /// All calls, and which records of which ranks they are: number of the line, and the record.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<CallKey, Vec<(usize, &CallRecord)>> {
        let mut calls: BTreeMap<CallKey, Vec<(usize, &CallRecord)>> = BTreeMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            for record in &line.of.records {
                calls.entry(key(record)).or_default().push((at, record));
            }
        }
        calls
    }
}

/// Which call a record is of.
#[must_use]
pub const fn key(record: &CallRecord) -> CallKey {
    (record.channel, record.epoch)
}

/// When calls were decided for a rank, by its own calendar.
#[expect(clippy::cast_precision_loss, reason = "to a fraction of a microsecond")]
fn decisions(line: &Line) -> impl Iterator<Item = (CallKey, f64)> {
    let records = line.of.records.iter();
    records.filter_map(|record| Some((key(record), record.decided? as f64)))
}

/// Gives each rank its clock: the one that has most calls in common with those that have theirs is next.
#[expect(clippy::cast_precision_loss, reason = "differences of calendars")]
fn align(lines: &mut [Line]) {
    let Some(base) = lines.iter().map(|line| line.of.header.began).min() else {
        return;
    };
    let since = |line: &Line| (line.of.header.began - base) as f64;
    let mut known: HashMap<CallKey, f64> = HashMap::new();
    let mut left: Vec<usize> = (0..lines.len()).collect();
    let mut aligned: Vec<usize> = Vec::new();
    while !left.is_empty() {
        let common = |at: &usize| {
            let line = &lines[*at];
            let calls = decisions(line).filter(|(call, _)| known.contains_key(call));
            (calls.count(), usize::MAX - *at)
        };
        let Some(next) = left.iter().copied().max_by_key(common) else {
            break;
        };
        left.retain(|at| *at != next);
        let line = &lines[next];
        let pairs: Vec<(f64, f64)> = decisions(line)
            .filter_map(|(call, at)| Some((at, known.get(&call)? - (since(line) + at))))
            .collect();
        let clock = Clock::through(&pairs);
        let shares_kernel = aligned.first().is_some_and(|first| {
            let first = &lines[*first].of.header.process;
            first.shares_kernel_with(&line.of.header.process)
        });
        let is_one_calendar = shares_kernel && clock.offset.abs() < SAME_CALENDAR;
        let clock = if is_one_calendar {
            Clock::default()
        } else {
            clock
        };
        lines[next].clock = clock;
        let line = &lines[next];
        for (call, at) in decisions(line) {
            let time = since(line) + at + clock.offset + clock.rate * at;
            known.entry(call).or_insert(time);
        }
        aligned.push(next);
    }
}

impl Clock {
    /// The clock that such pairs show: a moment, and by how much the other clock is ahead there.
    fn through(pairs: &[(f64, f64)]) -> Self {
        let offset = median(pairs.iter().map(|pair| pair.1));
        let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else {
            return Self::default();
        };
        if pairs.len() < MANY || last.0 - first.0 < LONG {
            return Self { offset, rate: 0.0 };
        }
        let third = pairs.len() / 3;
        let of = |pairs: &[(f64, f64)]| {
            let at = median(pairs.iter().map(|pair| pair.0));
            (at, median(pairs.iter().map(|pair| pair.1)))
        };
        let (begin, end) = (of(&pairs[..third]), of(&pairs[pairs.len() - third..]));
        let rate = (end.1 - begin.1) / (end.0 - begin.0).max(1.0);
        Self {
            offset: begin.1 - rate * begin.0,
            rate,
        }
    }
}

/// The middle one; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use fsgather_core::{ProcessId, Rank};
    use fsgather_store::calls::CallsHeader;
    use uuid::Uuid;

    use super::*;

    /// A rank of a host of its own that has noted these calls.
    pub(crate) fn left(rank: u32, began: u64, records: Vec<CallRecord>) -> BlackBox {
        BlackBox {
            path: format!("calls-{rank}").into(),
            header: CallsHeader {
                process: ProcessId {
                    host: format!("n{rank}"),
                    boot_id: format!("boot {rank}"),
                    pid: 4000 + rank,
                    ..ProcessId::default()
                },
                communicator: Uuid::from_u128(7),
                rank: Rank::new(rank),
                world_size: 3,
                began,
                job: None,
            },
            records,
            torn: 0,
            is_running: Some(true),
        }
    }

    /// A call that began, was handed in and decided then, in microseconds.
    pub(crate) fn call(epoch: u64, site: &str, times: [u64; 3]) -> CallRecord {
        CallRecord {
            count: epoch + 1,
            epoch,
            number: epoch + 1,
            ranks: 3,
            begun: times[0] * 1000,
            handed_in: Some(times[1] * 1000),
            decided: Some(times[2] * 1000),
            ended: Some(times[2] * 1000 + 1000),
            outcome: crate::record::Outcome::Done,
            operation: "barrier".into(),
            site: site.into(),
            ..CallRecord::default()
        }
    }

    const SECOND: u64 = 1_000_000;

    #[test]
    fn clocks_of_hosts_are_brought_together_by_their_common_calls() {
        // Rank 1's calendar is two hours ahead, and its clock gains a millisecond in a second.
        let began = 1_800_000_000_000_000_000;
        let calls = |stretch: f64, offset: u64| {
            let one = |epoch: u64| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a test"
                )]
                let at = ((epoch + 1) as f64 * 1e6 * stretch) as u64 + offset;
                call(epoch, "eval.py:1", [at - 9, at - 8, at])
            };
            (0..100).map(one).collect::<Vec<_>>()
        };
        let first = left(0, began, calls(1.0, 0));
        let second = left(1, began + 7200 * SECOND * 1000, calls(1.001, 0));
        let timeline = Timeline::new(vec![first, second]);
        for call in [0, 50, 99] {
            let of = |line: usize| {
                let record = &timeline.lines[line].of.records[call];
                timeline.at(line, record.decided.unwrap())
            };
            assert!(
                (of(0) - of(1)).abs() < 50_000,
                "{call}: {} {}",
                of(0),
                of(1)
            );
        }
        assert_eq!(timeline.at(0, timeline.lines[0].of.records[0].begun), 0);
    }

    #[test]
    fn ranks_without_a_common_call_keep_their_calendars() {
        let first = left(0, 5_000_000, vec![call(0, "a", [1, 2, 3])]);
        let second = left(1, 9_000_000, vec![call(1, "a", [1, 2, 3])]);
        let timeline = Timeline::new(vec![first, second]);
        assert_eq!((timeline.at(0, 1000), timeline.at(1, 1000)), (0, 4_000_000));
        assert!(Timeline::new(Vec::new()).lines.is_empty());
    }
}
