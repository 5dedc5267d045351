//! What came of measuring, for people and for programs: [`Report`].

use fsgather::{
    WorldSize, bytes_text,
    settings::{Control, Transport},
};
use serde::Serialize;

use super::{
    arguments::Work,
    course::Series,
    operation::{Operation, Recipients},
    statistics::{Summary, slowest},
};
use crate::table::{Side, Table};

/// What all ranks have measured of one operation.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) operation: Operation,
    pub(super) transport: Transport,
    /// For each rank the library's times, and those of the floor if it was measured.
    pub(super) ranks: Vec<Vec<Series>>,
}

/// The document that `--json` asks for.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    operation: Operation,
    transport: String,
    control: String,
    ranks: u32,
    bytes: usize,
    recipients: Recipients,
    iterations: usize,
    median_seconds: f64,
    min_seconds: f64,
    p90_seconds: f64,
    peak_rss_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_floor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_of: Option<String>,
}

impl Report {
    /// Puts together what was measured, a row for each subject.
    pub(super) fn new(work: &Work, ranks: WorldSize, measured: &[Measured]) -> Self {
        let rows = measured.iter().flat_map(|one| rows(work, ranks, one));
        Self {
            rows: rows.collect(),
        }
    }

    /// The report as a table.
    pub(super) fn text(&self) -> String {
        let mut columns = vec![
            ("OPERATION", Side::Left),
            ("TRANSPORT", Side::Left),
            ("CONTROL", Side::Left),
            ("RANKS", Side::Right),
            ("BYTES", Side::Right),
            ("TO", Side::Left),
            ("COUNT", Side::Right),
            ("MEDIAN", Side::Right),
            ("FASTEST", Side::Right),
            ("90 %", Side::Right),
            ("MEMORY", Side::Right),
        ];
        let has_floor = self.rows.iter().any(|row| row.floor_of.is_some());
        if has_floor {
            columns.push(("TO FLOOR", Side::Right));
        }
        let mut table = Table::new(&columns);
        for row in &self.rows {
            let mut cells = vec![
                row.operation.word().to_owned(),
                row.transport.clone(),
                row.control.clone(),
                row.ranks.to_string(),
                if row.operation.has_payload() {
                    bytes_text(row.bytes as u64)
                } else {
                    "-".to_owned()
                },
                row.recipients.word().to_owned(),
                row.iterations.to_string(),
                time_text(row.median_seconds),
                time_text(row.min_seconds),
                time_text(row.p90_seconds),
                bytes_text(row.peak_rss_bytes),
            ];
            if has_floor {
                cells.push(match row.ratio_to_floor {
                    Some(ratio) => format!("{ratio:.2}"),
                    None => "-".to_owned(),
                });
            }
            table.row(cells, None);
        }
        table.text()
    }
}

/// The row of the library, and that of the floor.
fn rows(work: &Work, world: WorldSize, measured: &Measured) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let subjects = measured.ranks.iter().map(Vec::len).min().unwrap_or(0);
    for subject in 0..subjects {
        let of_ranks = measured.ranks.iter().map(|series| &series[subject]);
        let times: Vec<Vec<u64>> = of_ranks
            .clone()
            .map(|one| one.nanoseconds.clone())
            .collect();
        let iterations = slowest(&times);
        // Whatever was measured has iterations.
        let Some(summary) = Summary::of(&iterations) else {
            continue;
        };
        let is_floor = subject > 0;
        let transport = measured.transport.to_string();
        rows.push(Row {
            operation: measured.operation,
            transport: if is_floor {
                "floor".to_owned()
            } else {
                transport.clone()
            },
            // The floor knows sockets only.
            control: if is_floor {
                Control::Tcp.to_string()
            } else {
                work.control.unwrap_or_default().to_string()
            },
            ranks: world.get(),
            bytes: if measured.operation.has_payload() {
                work.bytes
            } else {
                0
            },
            recipients: measured.operation.recipients(),
            iterations: iterations.len(),
            median_seconds: summary.median,
            min_seconds: summary.min,
            p90_seconds: summary.p90,
            peak_rss_bytes: of_ranks.map(|one| one.peak).max().unwrap_or(0),
            ratio_to_floor: None,
            floor_of: is_floor.then_some(transport),
        });
    }
    if let [ours, floor] = rows.as_mut_slice()
        && floor.median_seconds > 0.0
    {
        ours.ratio_to_floor = Some(ours.median_seconds / floor.median_seconds);
    }
    rows
}

/// A time in the unit that suits it.
fn time_text(seconds: f64) -> String {
    if seconds < 0.001 {
        format!("{:.1} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(floor: bool) -> Work {
        Work {
            bytes: 64 << 20,
            operations: vec![Operation::Gather],
            transports: vec![Transport::Filesys],
            control: Some(Control::Markers),
            iterations: None,
            floor,
        }
    }

    fn measured(series: &[(&[u64], u64)], ranks: usize) -> Measured {
        let of_a_rank = |rank: usize| {
            let series = series.iter().map(|(times, peak)| Series {
                nanoseconds: times.iter().map(|time| time / (1 + rank as u64)).collect(),
                peak: peak + rank as u64,
            });
            series.collect()
        };
        Measured {
            operation: Operation::Gather,
            transport: Transport::Filesys,
            ranks: (0..ranks).map(of_a_rank).collect(),
        }
    }

    #[test]
    fn a_row_tells_the_slowest_rank_and_the_largest() {
        let measured = measured(&[(&[2_000_000, 4_000_000, 3_000_000], 1 << 20)], 2);
        let report = Report::new(&work(false), WorldSize::new(2).unwrap(), &[measured]);
        let json = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({"rows": [{
            "operation": "gather",
            "transport": "filesys",
            "control": "markers",
            "ranks": 2,
            "bytes": 64 << 20,
            "recipients": "root",
            "iterations": 3,
            "median_seconds": 0.003,
            "min_seconds": 0.002,
            "p90_seconds": 0.004,
            "peak_rss_bytes": (1 << 20) + 1,
        }]});
        assert_eq!(json, expected);
    }

    #[test]
    fn the_floor_has_a_row_below_and_a_ratio() {
        let measured = measured(&[(&[3_000_000], 1 << 30), (&[2_000_000], 1 << 20)], 1);
        let report = Report::new(&work(true), WorldSize::ONE, &[measured]);
        let json = serde_json::to_value(&report).unwrap();
        let (ours, floor) = (&json["rows"][0], &json["rows"][1]);
        assert_eq!(ours["ratio_to_floor"], 1.5);
        assert_eq!(floor["transport"], "floor");
        assert_eq!(floor["floor_of"], "filesys");
        assert_eq!(floor["control"], "tcp");
        assert!(floor.get("ratio_to_floor").is_none());
        let text = report.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("TO FLOOR"), "{text}");
        assert!(lines[1].ends_with("3.00 ms  1.0 GiB      1.50"), "{text}");
        assert!(lines[2].ends_with('-'), "{text}");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time_text(0.000_085_12), "85.1 µs");
        assert_eq!(time_text(0.012_345), "12.35 ms");
        assert_eq!(time_text(1.5), "1.50 s");
    }
}
