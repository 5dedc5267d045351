//! Reports measurements to users and programs: [`BenchReport`].

use std::path::{Path, PathBuf};

use fsgather::WorldSize;
use fsgather_config::settings::Transport;
use fsgather_core::sys::process::host_name;
use fsgather_core::{bytes_text, plain_line};
use fsgather_store::Mount;
use serde::Serialize;

use super::{
    arguments::Work,
    course::Series,
    operation::{Operation, Recipients},
    statistics::{Summary, slowest},
};
use crate::table::{Side, TextTable};

/// The measurements of all ranks for one operation.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) operation: Operation,
    pub(super) transport: Transport,
    /// The series of each rank, by rank.
    pub(super) ranks: Vec<Series>,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    #[serde(flatten)]
    ground: Ground,
    rows: Vec<BenchRow>,
}

/// The place of the measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Ground {
    host: String,
    directory: PathBuf,
    /// The type of its file system, if known.
    file_system: Option<String>,
    /// The mounted source: a device, or a directory of a server.
    source: Option<String>,
}

impl Ground {
    /// This host, and the directory of the files.
    pub(super) fn of(directory: &Path) -> Self {
        let (file_system, source) = Mount::of(directory)
            .map(|mount| (mount.kind, mount.source))
            .unzip();
        Self {
            host: host_name(),
            directory: directory.to_owned(),
            file_system,
            source,
        }
    }

    /// Describes the measurement in one line: `4 ranks on vm, /scratch (ext4, /dev/vda), 64.0 MiB each`.
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
}

impl BenchReport {
    /// Builds the report from the measurements.
    pub(super) fn new(
        ground: Ground,
        work: &Work,
        ranks: WorldSize,
        measured: &[Measured],
    ) -> Self {
        let rows = measured.iter().filter_map(|one| row(work, ranks, one));
        Self {
            ground,
            rows: rows.collect(),
        }
    }

    /// Renders the report as a table.
    pub(super) fn text(&self) -> String {
        let mut table = TextTable::new(&[
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
        ]);
        for row in &self.rows {
            let cells = vec![
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
            table.row(cells, None);
        }
        table.text()
    }
}

impl BenchRow {
    /// The rate at which each recipient receives, its own part included.
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

fn row(work: &Work, world: WorldSize, measured: &Measured) -> Option<BenchRow> {
    let times = measured.ranks.iter().map(|one| one.nanoseconds.clone());
    let iterations = slowest(&times.collect::<Vec<_>>());
    let summary = Summary::of(&iterations)?;
    let has_payload = measured.operation.has_payload();
    Some(BenchRow {
        operation: measured.operation,
        transport: measured.transport.to_string(),
        control: work.control.unwrap_or_default().to_string(),
        ranks: world.get(),
        bytes: if has_payload { work.bytes } else { 0 },
        recipients: measured.operation.recipients(),
        iterations: iterations.len(),
        median_seconds: summary.median,
        min_seconds: summary.min,
        p90_seconds: summary.p90,
        peak_rss_bytes: measured.ranks.iter().map(|one| one.peak).max()?,
    })
}

/// Formats a time in a suitable unit.
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
    use fsgather_config::settings::Control;

    use super::*;

    fn work() -> Work {
        Work {
            bytes: 64 << 20,
            operations: vec![Operation::Gather],
            transports: vec![Transport::Filesys],
            control: Some(Control::Markers),
            iterations: None,
        }
    }

    fn measured(times: &[u64], peak: u64, ranks: u64) -> Measured {
        let of_a_rank = |rank| Series {
            nanoseconds: times.iter().map(|time| time / (1 + rank)).collect(),
            peak: peak + rank,
        };
        Measured {
            operation: Operation::Gather,
            transport: Transport::Filesys,
            ranks: (0..ranks).map(of_a_rank).collect(),
        }
    }

    #[test]
    fn a_row_tells_the_slowest_rank_and_the_largest() {
        let measured = measured(&[2_000_000, 4_000_000, 3_000_000], 1 << 20, 2);
        let ground = Ground {
            host: "vm".into(),
            directory: "/scratch".into(),
            file_system: Some("ext4".into()),
            source: Some("/dev/vda".into()),
        };
        let work = work();
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
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time_text(0.000_085_12), "85.1 µs");
        assert_eq!(time_text(0.012_345), "12.35 ms");
        assert_eq!(time_text(1.5), "1.50 s");
    }
}
