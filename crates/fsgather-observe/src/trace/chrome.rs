//! Calls in the JSON format that Chrome and Perfetto show: [`trace`]. Pure.
//!
//! A rank is a process of that format, and calls that overlap are in different threads of it. Times are in microseconds.

use serde_json::{Value, json};

use crate::trace::{
    record::{CallRecord, Outcome},
    timeline::{Row, Timeline},
};

/// The document of a trace. What is open lasts until `end`, on the axis.
#[must_use]
pub fn trace(timeline: &Timeline, end: i64) -> Value {
    let mut events = Vec::new();
    for (at, row) in timeline.rows().iter().enumerate() {
        events.push(json!({"name": "process_name", "ph": "M", "pid": at, "args": {"name": name(timeline, row)}}));
        events.push(
            json!({"name": "process_sort_index", "ph": "M", "pid": at, "args": {"sort_index": at}}),
        );
        let mut calls: Vec<Slot<'_>> = Vec::new();
        for line in &row.lines {
            for record in &timeline.lines[*line].of.records {
                let on_axis = |time: Option<u64>| time.map_or(end, |time| timeline.at(*line, time));
                calls.push(Slot {
                    line: *line,
                    record,
                    begun: on_axis(Some(record.begun)),
                    over: on_axis(record.ended),
                });
            }
        }
        calls.sort_by_key(|call| call.begun);
        let lanes = lanes(calls.iter().map(|call| (call.begun, call.over)));
        for (call, lane) in calls.iter().zip(lanes) {
            add(&mut events, timeline, (at, lane), call, end);
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

/// A call, and its place on the axis.
struct Slot<'a> {
    line: usize,
    record: &'a CallRecord,
    begun: i64,
    over: i64,
}

/// A rank, with the hosts and processes that it was in all worlds: `rank 3 on n1 (pid 4711)`.
fn name(timeline: &Timeline, row: &Row) -> String {
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

/// Puts calls that overlap side by side: where each is, given when it begins and ends, those that begin first first.
fn lanes(calls: impl Iterator<Item = (i64, i64)>) -> Vec<usize> {
    let mut ends: Vec<i64> = Vec::new();
    calls
        .map(|(begun, over)| {
            let free = ends.iter().position(|end| *end <= begun);
            let lane = free.unwrap_or(ends.len());
            match ends.get_mut(lane) {
                Some(of_lane) => *of_lane = over,
                None => ends.push(over),
            }
            lane
        })
        .collect()
}

fn add(
    events: &mut Vec<Value>,
    timeline: &Timeline,
    (process, thread): (usize, usize),
    call: &Slot<'_>,
    end: i64,
) {
    let (line, record) = (call.line, call.record);
    let on_axis = |time: Option<u64>| time.map_or(end, |time| timeline.at(line, time));
    let mut slice = |name: &str, from: i64, to: i64, details: Value| {
        events.push(json!({
            "name": name,
            "cat": "fsgather",
            "ph": "X",
            "pid": process,
            "tid": thread,
            "ts": microseconds(from),
            "dur": microseconds((to - from).max(0)),
            "args": details,
        }));
    };
    let start = call.begun;
    let over = call.over.max(start);
    let details = json!({
        "at": record.site,
        "ranks": record.ranks,
        "communicator": format!("{:016x}", record.channel),
        "handed_in_bytes": record.bytes,
        "moved_bytes": record.moved,
        "way": record.way.word(),
        "last_rank": record.last,
        "outcome": record.outcome.word(),
        "cause": record.cause.words(),
    });
    slice(&record.name(), start, over, details);
    let handed_in = record.handed_in.map(|time| on_axis(Some(time)));
    let handed_in = handed_in.unwrap_or(over).clamp(start, over);
    let decided = record.decided.map(|time| on_axis(Some(time)));
    let decided = decided.unwrap_or(over).clamp(handed_in, over);
    slice("hand in", start, handed_in, json!({}));
    if decided > handed_in {
        let whom = match record.last {
            Some(last) if last == timeline.lines[line].of.rank().get() => "wait (came last)".into(),
            Some(last) => format!("wait for rank {last}"),
            None => "wait".to_owned(),
        };
        slice(&whom, handed_in, decided, json!({}));
    }
    if over > decided && record.outcome != Outcome::Failed {
        slice("read", decided, over, json!({}));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "three digits behind the point are kept"
)]
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
    fn calls_that_overlap_lie_side_by_side() {
        let calls = [(1, 51), (10, 13), (60, 63)];
        assert_eq!(lanes(calls.into_iter()), [0, 1, 0]);
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
