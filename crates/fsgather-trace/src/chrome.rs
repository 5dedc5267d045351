//! Calls in the JSON format that Chrome and Perfetto show: [`trace`]. Pure.
//!
//! A rank is a process of that format, and calls that overlap are in different threads of it. Times are in microseconds.

use serde_json::{Value, json};

use crate::{
    record::{CallRecord, Outcome},
    timeline::Timeline,
};

/// The document of a trace. What is open lasts until `end`, on the axis.
#[must_use]
pub fn trace(timeline: &Timeline, end: i64) -> Value {
    let mut events = Vec::new();
    for (at, line) in timeline.lines.iter().enumerate() {
        let header = &line.of.header;
        let name = format!(
            "rank {} on {} (pid {})",
            header.rank, header.process.host, header.process.pid
        );
        events.push(json!({"name": "process_name", "ph": "M", "pid": at, "args": {"name": name}}));
        events.push(
            json!({"name": "process_sort_index", "ph": "M", "pid": at, "args": {"sort_index": at}}),
        );
        for (lane, record) in lanes(&line.of.records) {
            add(&mut events, timeline, at, lane, record, end);
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

/// Puts calls that overlap side by side.
#[must_use]
pub fn lanes(records: &[CallRecord]) -> Vec<(usize, &CallRecord)> {
    let mut ends: Vec<u64> = Vec::new();
    records
        .iter()
        .map(|record| {
            let end = record.ended.unwrap_or(u64::MAX);
            let free = ends.iter().position(|end| *end <= record.begun);
            let lane = free.unwrap_or(ends.len());
            match ends.get_mut(lane) {
                Some(of_lane) => *of_lane = end,
                None => ends.push(end),
            }
            (lane, record)
        })
        .collect()
}

fn add(
    events: &mut Vec<Value>,
    timeline: &Timeline,
    of: usize,
    lane: usize,
    record: &CallRecord,
    end: i64,
) {
    let on_axis = |time: Option<u64>| time.map_or(end, |time| timeline.at(of, time));
    let mut slice = |name: &str, from: i64, to: i64, details: Value| {
        events.push(json!({
            "name": name,
            "cat": "fsgather",
            "ph": "X",
            "pid": of,
            "tid": lane,
            "ts": microseconds(from),
            "dur": microseconds((to - from).max(0)),
            "args": details,
        }));
    };
    let start = on_axis(Some(record.begun));
    let over = on_axis(record.ended).max(start);
    let details = json!({
        "at": record.site,
        "ranks": record.ranks,
        "communicator": format!("{:016x}", record.channel),
        "handed_in_bytes": record.bytes,
        "moved_bytes": record.moved,
        "way": record.way.word(),
        "last_rank": record.last,
        "outcome": record.outcome.word(),
    });
    slice(&record.name(), start, over, details);
    let handed_in = record.handed_in.map(|time| on_axis(Some(time)));
    let handed_in = handed_in.unwrap_or(over).clamp(start, over);
    let decided = record.decided.map(|time| on_axis(Some(time)));
    let decided = decided.unwrap_or(over).clamp(handed_in, over);
    slice("hand in", start, handed_in, json!({}));
    if decided > handed_in {
        let whom = match record.last {
            Some(last) if last == timeline.lines[of].of.rank().get() => "wait (came last)".into(),
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
    use crate::timeline::tests::{call, left};

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
        let records = vec![
            call(0, "a", [1, 2, 50]),
            call(1, "b", [10, 11, 12]),
            call(2, "c", [60, 61, 62]),
        ];
        let lanes: Vec<usize> = lanes(&records).iter().map(|(lane, _)| *lane).collect();
        assert_eq!(lanes, [0, 1, 0]);
    }
}
