//! A page with the picture of a trace, which loads nothing from other places: [`page`]. Pure.

use serde_json::{Value, json};

use crate::trace::{record::CallRecord, timeline::Timeline};

const TEMPLATE: &str = include_str!("page.html");

/// Returns the page of a trace, with `summary` above the picture. Calls that are open last until `end`, on the axis.
#[must_use]
pub fn page(timeline: &Timeline, end: i64, summary: &str) -> String {
    let ranks = timeline.rows().into_iter().map(|row| {
        let calls = row.calls.iter();
        let calls = calls.map(|(line, record)| call(timeline, *line, record));
        let calls: Vec<Value> = calls.collect();
        json!({"rank": row.rank, "name": timeline.name(&row), "calls": calls})
    });
    let data = json!({"end": end / 1000, "ranks": ranks.collect::<Vec<_>>()});
    // In a script, `</` could end it, and `<!--` change its end.
    let data = data.to_string().replace('<', "\\u003c");
    let [before, between, after] = parts();
    [before, &escaped(summary), between, &data, after].concat()
}

/// Returns the template around its two gaps.
fn parts() -> [&'static str; 3] {
    let (before, rest) = TEMPLATE.split_once("@SUMMARY@").unwrap_or((TEMPLATE, ""));
    let (between, after) = rest.split_once("@DATA@").unwrap_or((rest, ""));
    [before, between, after]
}

/// Returns a call for the script of the page. Times are in microseconds, -1 for none.
fn call(timeline: &Timeline, line: usize, record: &CallRecord) -> Value {
    let at = |time: Option<u64>| time.map_or(-1, |time| timeline.at(line, time) / 1000);
    json!([
        at(Some(record.begun)),
        at(record.handed_in),
        at(record.decided),
        at(record.ended),
        record.name(),
        record.site,
        record.bytes,
        record.route.word(),
        record.last.map_or(-1, i64::from),
        record.ending(),
    ])
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::{call, left};

    #[test]
    fn names_of_others_are_escaped() {
        let records = vec![call(0, "</script><img src=x>", [1, 2, 400])];
        let timeline = Timeline::new(vec![left(0, 1, records)]);
        let page = page(&timeline, 400_000, "<b>job & all</b>");
        assert!(page.contains("&lt;b&gt;job &amp; all&lt;/b&gt;"));
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(page.contains("\\u003c/script>\\u003cimg src=x>"));
        assert!(page.contains("\"end\":400"));
        for address in ["http://", "https://", " src=\"", "@import", "url("] {
            assert!(!page.contains(address), "{address}");
        }
    }
}
