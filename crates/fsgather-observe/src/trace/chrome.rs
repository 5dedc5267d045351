//! Calls in the JSON format that Chrome and Perfetto show: [`trace`]. Pure.
//!
//! A rank is a process of that format, and calls that overlap are in different threads of it. Times are in microseconds.

use serde_json::{Value, json};

use crate::trace::{
    record::{CallRecord, Outcome},
    timeline::{Row, Timeline},
};

/// Returns the document of a trace. Calls that are open last until `end`, on the axis.
#[must_use]
pub fn trace(timeline: &Timeline, end: i64) -> Value {
    let mut events = Vec::new();
    for (process, row) in timeline.rows().iter().enumerate() {
        let name = name(timeline, row);
        events.extend([
            json!({"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}),
            json!({"name": "process_sort_index", "ph": "M", "pid": process, "args": {"sort_index": process}}),
        ]);
        let mut lanes = Lanes::default();
        for (line, record) in &row.calls {
            let on_axis = |time: Option<u64>| time.map_or(end, |time| timeline.at(*line, time));
            let begun = on_axis(Some(record.begun));
            let over = on_axis(record.ended).max(begun);
            let handed_in = record.handed_in.map_or(over, |time| on_axis(Some(time)));
            let handed_in = handed_in.clamp(begun, over);
            let decided = record.decided.map_or(over, |time| on_axis(Some(time)));
            let times = [begun, handed_in, decided.clamp(handed_in, over), over];
            let thread = lanes.add(begun, over);
            let slices = slices(row, record, times);
            events.extend(slices.into_iter().map(|(name, [from, to], details)| {
                json!({
                    "name": name,
                    "cat": "fsgather",
                    "ph": "X",
                    "pid": process,
                    "tid": thread,
                    "ts": microseconds(from),
                    "dur": microseconds(to - from),
                    "args": details,
                })
            }));
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

/// Returns the name of a rank with the hosts and processes that it was in: `rank 3 on n1 (pid 4711)`.
fn name(timeline: &Timeline, row: &Row<'_>) -> String {
    let mut pids = Vec::new();
    for line in &row.lines {
        let pid = timeline.lines[*line].of.header.process.pid.to_string();
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    let word = if pids.len() == 1 { "pid" } else { "pids" };
    format!("{} ({word} {})", timeline.name(row), pids.join(", "))
}

/// The threads of a process, for calls that overlap: the end of the last call of each.
#[derive(Default)]
struct Lanes(Vec<i64>);

impl Lanes {
    /// Returns the thread for a call; calls come in the order in which they begin.
    fn add(&mut self, begun: i64, over: i64) -> usize {
        let free = self.0.iter().position(|end| *end <= begun);
        let lane = free.unwrap_or(self.0.len());
        match self.0.get_mut(lane) {
            Some(end) => *end = over,
            None => self.0.push(over),
        }
        lane
    }
}

/// Returns a call and its phases, each with its name, times and details. The times of the call are its begin, the
/// hand-in of this rank's part, that of the last part, and its end.
fn slices(
    row: &Row<'_>,
    record: &CallRecord,
    [begun, handed_in, decided, over]: [i64; 4],
) -> Vec<(String, [i64; 2], Value)> {
    let details = json!({
        "at": record.site,
        "ranks": record.ranks,
        "communicator": format!("{:016x}", record.channel),
        "handed_in_bytes": record.bytes,
        "moved_bytes": record.moved,
        "way": record.route.word(),
        "last_rank": record.last,
        "outcome": record.outcome.word(),
        "cause": record.cause.words(),
    });
    let mut slices = vec![
        (record.name(), [begun, over], details),
        ("hand in".to_owned(), [begun, handed_in], json!({})),
    ];
    if decided > handed_in {
        let wait = match record.last {
            Some(last) if last == row.rank.get() => "wait (came last)".to_owned(),
            Some(last) => format!("wait for rank {last}"),
            None => "wait".to_owned(),
        };
        slices.push((wait, [handed_in, decided], json!({})));
    }
    if over > decided && record.outcome != Outcome::Failed {
        slices.push(("read".to_owned(), [decided, over], json!({})));
    }
    slices
}

#[expect(clippy::cast_precision_loss, reason = "three decimals are kept")]
fn microseconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::{call, left};

    #[test]
    fn a_call_is_a_slice_with_its_parts_inside() {
        let records = vec![call(0, "eval.py:80", [1, 2, 400])];
        let timeline = Timeline::new(vec![left(0, 1, records)]);
        let document = trace(&timeline, timeline.end());
        let events = document["traceEvents"].as_array().unwrap();
        let slices: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        let names: Vec<_> = slices.iter().map(|slice| &slice["name"]).collect();
        assert_eq!(names, ["barrier #1", "hand in", "wait", "read"]);
        let whole = (
            slices[0]["ts"].as_f64().unwrap(),
            slices[0]["dur"].as_f64().unwrap(),
        );
        assert_eq!(whole, (0.0, 400.0));
        assert_eq!(slices[0]["args"]["at"], "eval.py:80");
    }

    #[test]
    fn calls_that_overlap_are_in_different_threads() {
        let mut lanes = Lanes::default();
        let calls = [(1, 51), (10, 13), (60, 63)];
        assert_eq!(calls.map(|(begun, over)| lanes.add(begun, over)), [0, 1, 0]);
    }

    #[test]
    fn a_rank_that_has_met_twice_has_one_row() {
        let once = |communicator: u128, began: u64| {
            let mut once = left(0, began, vec![call(0, "a", [1, 2, 400])]);
            once.header.communicator = uuid::Uuid::from_u128(communicator);
            once.header.process.pid += u32::from(communicator > 1);
            once
        };
        let timeline = Timeline::new(vec![once(1, 5_000_000), once(2, 9_000_000)]);
        let document = trace(&timeline, timeline.end());
        let events = document["traceEvents"].as_array().unwrap();
        assert!(events.iter().all(|event| event["pid"] == 0), "{document}");
        assert_eq!(events[0]["args"]["name"], "rank 0 on n0 (pids 4000, 4001)");
        let calls = events.iter().filter(|event| event["name"] == "barrier #1");
        let times: Vec<_> = calls.map(|call| call["ts"].as_f64().unwrap()).collect();
        assert_eq!(times, [0.0, 4000.0]);
    }
}
