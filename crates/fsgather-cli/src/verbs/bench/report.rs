//! Reports measurements to people and programs: [`BenchReport`].

use std::path::{Path, PathBuf};

use fsgather::WorldSize;
use fsgather_config::settings::{Control, Transport};
use fsgather_core::{bytes_text, plain_line};
use fsgather_store::Mount;
use rustix::system::uname;
use serde::Serialize;

use super::{
    arguments::Work,
    course::Series,
    operation::{Operation, Recipients},
    statistics::{Summary, slowest},
};
use crate::table::{Side, TextTable};

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
pub(super) struct BenchReport {
    #[serde(flatten)]
    ground: Ground,
    rows: Vec<BenchRow>,
}

/// Where it was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Ground {
    host: String,
    directory: PathBuf,
    /// The type of its file system, where that can be told.
    file_system: Option<String>,
    /// What is mounted there: a device, or a server's directory.
    source: Option<String>,
}

impl Ground {
    /// This host, and the directory in which files are made.
    pub(super) fn of(directory: &Path) -> Self {
        let (file_system, source) = Mount::of(directory)
            .map(|mount| (mount.kind, mount.source))
            .unzip();
        Self {
            host: uname().nodename().to_string_lossy().into_owned(),
            directory: directory.to_owned(),
            file_system,
            source,
        }
    }

    /// What is measured, in one line: `4 ranks on vm, /scratch (ext4, /dev/vda), 64.0 MiB each`.
    pub(super) fn text(&self, ranks: WorldSize, work: &Work) -> String {
        let has_payload = work.operations.iter().any(|one| one.has_payload());
        let ranks = ranks.get();
        let place: Vec<&str> = self
            .file_system
            .iter()
            .chain(&self.source)
            .map(String::as_str)
            .collect();
        let place = if place.is_empty() {
            String::new()
        } else {
            format!(" ({})", place.join(", "))
        };
        let payload = if has_payload {
            format!(", {} each", bytes_text(work.bytes as u64))
        } else {
            String::new()
        };
        let text = format!(
            "{ranks} rank{} on {}, {}{place}{payload}",
            if ranks == 1 { "" } else { "s" },
            self.host,
            self.directory.display(),
        );
        plain_line(&text).into_owned()
    }
}

#[derive(Clone, Debug, Serialize)]
struct BenchRow {
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

impl BenchReport {
    /// Puts together what was measured, a row for each subject.
    pub(super) fn new(
        ground: Ground,
        work: &Work,
        ranks: WorldSize,
        measured: &[Measured],
    ) -> Self {
        let rows = measured.iter().flat_map(|one| rows(work, ranks, one));
        Self {
            ground,
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
            ("GiB/s", Side::Right),
            ("MEMORY", Side::Right),
        ];
        let has_floor = self.rows.iter().any(|row| row.floor_of.is_some());
        if has_floor {
            columns.push(("TO FLOOR", Side::Right));
        }
        let mut table = TextTable::new(&columns);
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
                row.rate_text(),
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

impl BenchRow {
    /// What each recipient gets in a second, its own part included.
    fn rate_text(&self) -> String {
        let parts = match self.operation {
            Operation::Barrier => return "-".to_owned(),
            Operation::Broadcast => 1,
            Operation::Gather | Operation::AllGather => u64::from(self.ranks),
        };
        if self.median_seconds <= 0.0 {
            return "-".to_owned();
        }
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let gibibytes = (self.bytes as u64 * parts) as f64 / f64::from(1 << 30);
        format!("{:.2}", gibibytes / self.median_seconds)
    }
}

/// The row of the library, and that of the floor.
fn rows(work: &Work, world: WorldSize, measured: &Measured) -> Vec<BenchRow> {
    let mut rows: Vec<BenchRow> = Vec::new();
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
        rows.push(BenchRow {
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
        let ground = Ground {
            host: "vm".into(),
            directory: "/scratch".into(),
            file_system: Some("ext4".into()),
            source: Some("/dev/vda".into()),
        };
        let work = work(false);
        let world = WorldSize::new(2).unwrap();
        assert_eq!(
            ground.text(world, &work),
            "2 ranks on vm, /scratch (ext4, /dev/vda), 64.0 MiB each"
        );
        let report = BenchReport::new(ground, &work, world, &[measured]);
        let text = report.text();
        // 128 MiB in 3 ms.
        assert!(text.contains("  41.67  "), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({
            "host": "vm", "directory": "/scratch", "file_system": "ext4", "source": "/dev/vda", "rows": [{
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
        let ground = Ground::default();
        let report = BenchReport::new(ground, &work(true), WorldSize::ONE, &[measured]);
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
        assert!(
            lines[1].ends_with("3.00 ms  20.83  1.0 GiB      1.50"),
            "{text}"
        );
        assert!(lines[2].ends_with('-'), "{text}");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time_text(0.000_085_12), "85.1 µs");
        assert_eq!(time_text(0.012_345), "12.35 ms");
        assert_eq!(time_text(1.5), "1.50 s");
    }
}
