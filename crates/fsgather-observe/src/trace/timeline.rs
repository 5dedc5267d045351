//! The calls of all ranks on one time axis: [`Timeline`]. Pure.
//!
//! The clocks of hosts differ. A call is decided for all its ranks at nearly the same moment, so the calls that two ranks have in
//! common show how much their clocks differ.
//!
//! A job may have met several times: in one process after the other, or because it was started again. These worlds have no calls
//! in common, but hosts, and with them clocks.

use std::collections::{BTreeMap, HashMap};

use fsgather_core::{ProcessId, Rank};
use uuid::Uuid;

use crate::trace::{black_box::BlackBox, record::CallRecord};

/// The identity of a call on all its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// The number of the world, from 0 for the oldest.
    pub world: usize,
    /// The communicator; 0 has all ranks of the world.
    pub channel: u64,
    /// The number of the call in the communicator.
    pub epoch: u64,
}

/// The calls of some ranks on one axis.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The calls of each rank in each world.
    pub lines: Vec<Line>,
    /// The begin of the first call, in nanoseconds since 1970 by the calendar of the first rank.
    pub origin: i128,
}

/// The calls of one rank in one world.
#[derive(Clone, Debug)]
pub struct Line {
    /// The rank and its calls.
    pub of: BlackBox,
    /// The number of the world, from 0 for the oldest.
    pub world: usize,
    /// The difference to be added to times by the calendar of the rank, in nanoseconds.
    offset: i128,
}

/// All lines of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The rank.
    pub rank: Rank,
    /// The indices of its lines, the oldest first.
    pub lines: Vec<usize>,
    /// Its calls in the order in which they began, each with the index of its line.
    pub calls: Vec<(usize, &'a CallRecord)>,
}

impl Line {
    /// Returns a time of this rank on the axis that begins at 0.
    fn on_axis(&self, time: u64) -> i128 {
        i128::from(self.of.header.began) + i128::from(time) + self.offset
    }

    /// Returns the key of one of its calls.
    #[must_use]
    pub const fn key(&self, record: &CallRecord) -> CallKey {
        CallKey {
            world: self.world,
            channel: record.channel,
            epoch: record.epoch,
        }
    }

    /// Returns the keys of its calls that were decided, and when, by its own clock.
    fn decisions(&self) -> impl Iterator<Item = (CallKey, u64)> {
        let records = self.of.records.iter();
        records.filter_map(|record| Some((self.key(record), record.decided?)))
    }
}

impl Timeline {
    /// Puts the calls of some ranks on one axis.
    #[must_use]
    pub fn new(boxes: Vec<BlackBox>) -> Self {
        let worlds = worlds(&boxes);
        let line = |of: BlackBox| Line {
            world: worlds
                .get(&of.header.communicator)
                .copied()
                .unwrap_or_default(),
            offset: 0,
            of,
        };
        let mut lines: Vec<Line> = boxes.into_iter().map(line).collect();
        align(&mut lines);
        let begun = lines.iter().filter_map(|line| {
            let first = line.of.records.first()?;
            Some(line.on_axis(first.begun))
        });
        let origin = begun.min().unwrap_or_default();
        Self { lines, origin }
    }

    /// Returns a time of a rank in nanoseconds since the first of all calls began.
    #[must_use]
    pub fn at(&self, line: usize, time: u64) -> i64 {
        let on_axis = self.lines.get(line).map(|line| line.on_axis(time));
        on_axis.map_or(0, |time| {
            i64::try_from(time - self.origin).unwrap_or(i64::MAX)
        })
    }

    /// Returns the time on the axis, given the process that has read the calendar, in nanoseconds since 1970.
    #[must_use]
    pub fn now(&self, me: &ProcessId, calendar: i128) -> i64 {
        let is_here = |line: &&Line| line.of.header.process.shares_kernel_with(me);
        let offset = self
            .lines
            .iter()
            .find(is_here)
            .map_or(0, |line| line.offset);
        i64::try_from(calendar + offset - self.origin).unwrap_or(i64::MAX)
    }

    /// Returns the last time in any record.
    #[must_use]
    pub fn end(&self) -> i64 {
        let last = |(at, line): (usize, &Line)| {
            let records = line.of.records.iter();
            let times =
                records.flat_map(|one| [Some(one.begun), one.handed_in, one.decided, one.ended]);
            Some(self.at(at, times.flatten().max()?))
        };
        let lines = self.lines.iter().enumerate();
        lines.filter_map(last).max().unwrap_or_default()
    }

    /// Returns the lines of each rank, by rank.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: BTreeMap<Rank, Vec<usize>> = BTreeMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            rows.entry(line.of.rank()).or_default().push(at);
        }
        let rows = rows.into_iter().map(|(rank, mut lines)| {
            lines.sort_by_key(|line| self.lines.get(*line).map(|line| line.world));
            let lines_of_calls = lines
                .iter()
                .filter_map(|at| Some((*at, self.lines.get(*at)?)));
            let mut calls: Vec<(usize, &CallRecord)> = lines_of_calls
                .flat_map(|(at, line)| line.of.records.iter().map(move |record| (at, record)))
                .collect();
            calls.sort_by_key(|(at, record)| self.at(*at, record.begun));
            Row { rank, lines, calls }
        });
        rows.collect()
    }

    /// Returns a rank with the hosts that it was on: `rank 3 on n1`.
    #[must_use]
    pub fn name(&self, row: &Row<'_>) -> String {
        let mut hosts: Vec<&str> = Vec::new();
        for line in row.lines.iter().filter_map(|line| self.lines.get(*line)) {
            let host = line.of.header.process.host.as_str();
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        format!("rank {} on {}", row.rank, hosts.join(", "))
    }

    /// Returns the number of worlds.
    #[must_use]
    pub fn worlds(&self) -> usize {
        let last = self.lines.iter().map(|line| line.world).max();
        last.map_or(0, |last| last + 1)
    }

    /// Returns all calls, each with the records of its ranks and the indices of their lines.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<CallKey, Vec<(usize, &CallRecord)>> {
        let mut calls: BTreeMap<CallKey, Vec<(usize, &CallRecord)>> = BTreeMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            for record in &line.of.records {
                let call = calls.entry(line.key(record)).or_default();
                call.push((at, record));
            }
        }
        calls
    }
}

/// Numbers the worlds, the oldest first.
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

/// Sets the offset of each line, so that calls in common are decided at the same time.
///
/// Ranks of one kernel have one calendar in one world, and most likely in all worlds.
fn align(lines: &mut [Line]) {
    let mut clocks = Clocks::default();
    let mut pending: Vec<&mut Line> = lines.iter_mut().collect();
    while !pending.is_empty() {
        let count = pending.len();
        pending.retain_mut(|line| match clocks.offset(line) {
            Some(offset) => {
                clocks.set(line, offset);
                false
            }
            None => true,
        });
        if pending.len() == count {
            // No line has a call in common with those that are done.
            let known = |line: &&mut Line| {
                clocks
                    .of_kernel
                    .contains_key(&line.of.header.process.boot_id)
            };
            let next = pending.iter().position(known).unwrap_or_default();
            let line = pending.remove(next);
            let offset = clocks.of_kernel.get(&line.of.header.process.boot_id);
            clocks.set(line, offset.copied().unwrap_or_default());
        }
    }
}

/// The clocks that are known so far.
#[derive(Default)]
struct Clocks {
    /// The offset of each kernel, by boot id, in the last world that has it.
    of_kernel: HashMap<String, i128>,
    /// The offset of each kernel in each world.
    in_world: HashMap<(usize, String), i128>,
    /// The times on the axis at which calls were decided.
    decided: HashMap<CallKey, i128>,
}

impl Clocks {
    /// Returns the offset of a line, if its kernel is known in its world, or calls that it has in common with others show it.
    fn offset(&self, line: &Line) -> Option<i128> {
        let kernel = (line.world, line.of.header.process.boot_id.clone());
        if let Some(offset) = self.in_world.get(&kernel) {
            return Some(*offset);
        }
        let mut offsets: Vec<i128> = line
            .decisions()
            .filter_map(|(call, time)| Some(self.decided.get(&call)? - line.on_axis(time)))
            .collect();
        offsets.sort_unstable();
        offsets.get(offsets.len() / 2).copied()
    }

    fn set(&mut self, line: &mut Line, offset: i128) {
        line.offset = offset;
        for (call, time) in line.decisions() {
            let time = line.on_axis(time);
            self.decided.entry(call).or_insert(time);
        }
        let boot_id = &line.of.header.process.boot_id;
        if !boot_id.is_empty() {
            self.of_kernel.insert(boot_id.clone(), offset);
            self.in_world.insert((line.world, boot_id.clone()), offset);
        }
    }
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
            owner: 0,
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
                directory: None,
            },
            records,
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
        // Rank 1's calendar is two hours ahead.
        let began = 1_800_000_000_000_000_000;
        let calls = || {
            let one = |epoch: u64| {
                let at = (epoch + 1) * SECOND;
                call(epoch, "eval.py:1", [at - 9, at - 8, at])
            };
            (0..100).map(one).collect::<Vec<_>>()
        };
        let first = left(0, began, calls());
        let second = left(1, began + 7200 * SECOND * 1000, calls());
        let timeline = Timeline::new(vec![first, second]);
        for call in [0, 50, 99] {
            let of = |line: usize| {
                let record = &timeline.lines[line].of.records[call];
                timeline.at(line, record.decided.unwrap())
            };
            assert_eq!(of(0), of(1), "{call}");
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
        let all = crate::trace::status::statuses(&timeline, timeline.end());
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
