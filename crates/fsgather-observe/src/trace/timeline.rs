//! The calls of all ranks on one time axis: [`Timeline`]. Pure.
//!
//! Clocks of hosts differ. A call is decided for all its ranks at nearly the same moment, so that moments of calls which two
//! ranks were both in tell by how much their clocks differ, and how that changes.
//!
//! A job may have met several times: in a process after the other, or when it was started again. Those worlds have no calls
//! in common, but hosts, and with them clocks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use fsgather_core::Rank;
use uuid::Uuid;

use crate::trace::{black_box::BlackBox, record::CallRecord};

/// A call, whoever is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// Which of the worlds, the oldest first.
    pub world: usize,
    /// The communicator.
    pub channel: u64,
    /// The number.
    pub epoch: u64,
}

/// The calls of some ranks.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The ranks.
    pub lines: Vec<Line>,
    /// When the first of all calls has begun, in nanoseconds since 1970 by the calendar of the first rank.
    pub origin: i128,
}

/// The calls of one rank in one world.
#[derive(Clone, Debug)]
pub struct Line {
    /// Whose they are, and what they were.
    pub of: BlackBox,
    /// Which of the worlds that is, the oldest first.
    pub world: usize,
    /// When it began by its own calendar, after the first of all, in nanoseconds.
    since: f64,
    clock: Clock,
}

/// What one rank has called in all worlds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The rank.
    pub rank: Rank,
    /// The numbers of its lines, the oldest first.
    pub lines: Vec<usize>,
}

/// What is to be added to the time by a calendar: so much, and so much for each nanosecond.
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
        let shift = self.clock.at(self.since + at as f64) as i128;
        i64::try_from(local + shift - origin).unwrap_or(i64::MAX)
    }

    /// Which call a record of it is of.
    #[must_use]
    pub const fn key(&self, record: &CallRecord) -> CallKey {
        CallKey {
            world: self.world,
            channel: record.channel,
            epoch: record.epoch,
        }
    }
}

impl Timeline {
    /// Puts the calls of some ranks on one axis.
    #[must_use]
    pub fn new(boxes: Vec<BlackBox>) -> Self {
        let base = boxes.iter().map(|one| one.header.began).min();
        let worlds = worlds(&boxes);
        let mut lines: Vec<Line> = boxes
            .into_iter()
            .map(|of| Line {
                world: worlds
                    .get(&of.header.communicator)
                    .copied()
                    .unwrap_or_default(),
                #[expect(clippy::cast_precision_loss, reason = "differences of calendars")]
                since: (of.header.began - base.unwrap_or_default()) as f64,
                clock: Clock::default(),
                of,
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

    /// The lines of each rank, by rank.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: BTreeMap<Rank, Vec<usize>> = BTreeMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            rows.entry(line.of.rank()).or_default().push(at);
        }
        let rows = rows.into_iter().map(|(rank, mut lines)| {
            lines.sort_by_key(|line| self.lines.get(*line).map(|line| line.world));
            Row { rank, lines }
        });
        rows.collect()
    }

    /// A rank, and the hosts that it was on: `rank 3 on n1`.
    #[must_use]
    pub fn name(&self, row: &Row) -> String {
        let mut hosts: Vec<&str> = Vec::new();
        for line in row.lines.iter().filter_map(|line| self.lines.get(*line)) {
            let host = line.of.header.process.host.as_str();
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        format!("rank {} on {}", row.rank, hosts.join(", "))
    }

    /// How many worlds there are.
    #[must_use]
    pub fn worlds(&self) -> usize {
        let last = self.lines.iter().map(|line| line.world).max();
        last.map_or(0, |last| last + 1)
    }

    /// All calls, and which records of which ranks they are: number of the line, and the record.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<CallKey, Vec<(usize, &CallRecord)>> {
        let mut calls: BTreeMap<CallKey, Vec<(usize, &CallRecord)>> = BTreeMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            for record in &line.of.records {
                calls
                    .entry(line.key(record))
                    .or_default()
                    .push((at, record));
            }
        }
        calls
    }
}

/// The worlds of what ranks have left, the oldest first.
fn worlds(boxes: &[BlackBox]) -> HashMap<Uuid, usize> {
    let mut began: HashMap<Uuid, u64> = HashMap::new();
    for header in boxes.iter().map(|one| &one.header) {
        let first = began.entry(header.communicator).or_insert(header.began);
        *first = header.began.min(*first);
    }
    let mut worlds: Vec<(u64, Uuid)> = began.into_iter().map(|(id, at)| (at, id)).collect();
    worlds.sort_unstable();
    let numbered = worlds.into_iter().enumerate();
    numbered.map(|(number, (_, id))| (id, number)).collect()
}

/// Which calls were decided, by numbers that begin at 0.
struct Decisions {
    /// For each rank its calls, and when they were decided by its own calendar.
    of: Vec<Vec<(usize, f64)>>,
    /// For each call the lines of its ranks.
    lines: Vec<Vec<usize>>,
}

impl Decisions {
    fn new(lines: &[Line]) -> Self {
        let mut numbers: HashMap<CallKey, usize> = HashMap::new();
        let mut all = Self {
            of: vec![Vec::new(); lines.len()],
            lines: Vec::new(),
        };
        for ((at, line), own) in lines.iter().enumerate().zip(&mut all.of) {
            for record in &line.of.records {
                let Some(decided) = record.decided else {
                    continue;
                };
                let next = numbers.len();
                let call = *numbers.entry(line.key(record)).or_insert(next);
                if call == next {
                    all.lines.push(Vec::new());
                }
                if let Some(lines) = all.lines.get_mut(call) {
                    lines.push(at);
                }
                #[expect(clippy::cast_precision_loss, reason = "to a fraction of a microsecond")]
                own.push((call, line.since + decided as f64));
            }
        }
        all
    }
}

/// Gives each rank its clock: the one that has most calls in common with those that have theirs is next.
///
/// Each record is looked at three times, however many ranks there are. Ranks of one kernel have one clock, in all worlds.
fn align(lines: &mut [Line]) {
    let decisions = Decisions::new(lines);
    // When each call was decided on the axis, as far as that is known, and how many of those each rank is in.
    let mut known: Vec<Option<f64>> = vec![None; decisions.lines.len()];
    let mut common = vec![0_usize; lines.len()];
    // The first of each kernel that has its clock.
    let mut of_kernel: Vec<Option<usize>> = vec![None; lines.len()];
    let mut left: Vec<usize> = (0..lines.len()).collect();
    while let Some(place) = (0..left.len()).max_by_key(|place| {
        let line = left[*place];
        (common[line], of_kernel[line].is_some(), Reverse(line))
    }) {
        let next = left.swap_remove(place);
        let own = &decisions.of[next];
        let pairs: Vec<(f64, f64)> = own
            .iter()
            .filter_map(|(call, at)| Some((*at, known[*call]? - at)))
            .collect();
        let fitted = Clock::through(&pairs);
        let clock = of_kernel[next].map(|line| lines[line].clock);
        let is_same = |clock: &Clock| {
            let last = pairs.last();
            last.is_none_or(|(at, _)| (clock.at(*at) - fitted.at(*at)).abs() < SAME_CALENDAR)
        };
        let clock = clock.filter(is_same).unwrap_or(fitted);
        lines[next].clock = clock;
        if of_kernel[next].is_none() {
            let process = &lines[next].of.header.process;
            for (line, of_kernel) in lines.iter().zip(&mut of_kernel) {
                if line.of.header.process.shares_kernel_with(process) {
                    *of_kernel = Some(next);
                }
            }
        }
        for (call, at) in own {
            if known[*call].is_none() {
                known[*call] = Some(at + clock.at(*at));
                for line in &decisions.lines[*call] {
                    common[*line] += 1;
                }
            }
        }
    }
}

impl Clock {
    /// What is to be added at a moment.
    fn at(self, time: f64) -> f64 {
        self.rate.mul_add(time, self.offset)
    }

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
                called: Rank::new(rank),
                world_size: 3,
                began,
                job: None,
            },
            records,
            torn: 0,
            begun: 0,
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
            outcome: crate::trace::record::Outcome::Done,
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
    fn thousand_ranks_share_one_time_axis() {
        let calls = |rank: u64| {
            // Calendars are up to a second apart.
            let one = move |epoch: u64| {
                let at = (epoch + 2) * SECOND - rank * 1000;
                call(epoch, "eval.py:1", [at - 9, at - 8, at])
            };
            (0..100).map(one).collect::<Vec<_>>()
        };
        let boxes = (0..1000).map(|rank| left(rank, 5 + u64::from(rank), calls(rank.into())));
        let boxes: Vec<BlackBox> = boxes.collect();
        let timeline = Timeline::new(boxes);
        let of = |line: usize| {
            let record = &timeline.lines[line].of.records[70];
            timeline.at(line, record.decided.unwrap())
        };
        assert!((1..1000).all(|line| (of(line) - of(0)).abs() < 1000));
        assert_eq!(timeline.calls().len(), 100);
        let all = crate::trace::now::standings(&timeline, timeline.end());
        assert_eq!(all.len(), 1000);
        assert_eq!(crate::trace::losses::losses(&timeline).calls, 100);
    }

    #[test]
    fn worlds_of_a_job_follow_each_other_and_have_their_own_calls() {
        let began = 1_800_000_000_000_000_000;
        // Rank 1's calendar is two hours ahead; in the second world its calls tell nothing of that.
        let ahead = 7200 * SECOND * 1000;
        let first = |rank, began| left(rank, began, vec![call(0, "a", [1, 2, 30])]);
        let second = |rank, began| {
            let mut left = left(rank, began, vec![call(0, "b", [1, 2, 60])]);
            left.header.communicator = Uuid::from_u128(3);
            if rank == 1 {
                left.records[0].decided = None;
            }
            left
        };
        let later = 40 * SECOND * 1000;
        let timeline = Timeline::new(vec![
            second(0, began + later),
            second(1, began + later + ahead),
            first(0, began),
            first(1, began + ahead),
        ]);
        assert_eq!((timeline.worlds(), timeline.calls().len()), (2, 2));
        let rows = timeline.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (rows[0].rank, &rows[0].lines),
            (Rank::ZERO, &vec![2, 0]),
            "the oldest first"
        );
        for line in [0, 1] {
            assert_eq!(timeline.at(line, 1000), i64::try_from(later).unwrap());
            assert_eq!(timeline.at(line + 2, 1000), 0);
        }
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
