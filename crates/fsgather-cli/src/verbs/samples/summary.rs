//! Counts of a directory of samples, as text and as JSON. Pure, except for the time.

use std::{
    collections::BTreeSet,
    fmt::Write,
    path::Path,
    time::{Duration, SystemTime},
};

use fsgather::samples::{SampleReport, SampleResults};
use fsgather_core::{bytes_text, duration_text};
use fsgather_store::{SampleFileHeader, ScannedFile};
use serde_json::{Value, json};

use super::ids::id_as_json;
use crate::table::{Narrowing, Side, TableStyle, TextTable, plain};

/// Maximum number of failed samples whose reasons are listed.
const MAX_SHOWN_FAILURES: usize = 10;

/// Counts of a directory, and of each attempt in it.
pub(super) struct Summary<'a> {
    directory: &'a Path,
    report: &'a SampleReport,
    attempts: Vec<Attempt>,
}

/// The results of one attempt.
struct Attempt {
    number: u32,
    ranks: u32,
    hosts: BTreeSet<String>,
    job: Option<String>,
    results: u64,
    failures: u64,
    bytes: u64,
    damaged_bytes: u64,
    began: SystemTime,
    changed: SystemTime,
}

impl<'a> Summary<'a> {
    pub(super) fn of(directory: &'a Path, results: &'a SampleResults) -> Self {
        let mut attempts: Vec<Attempt> = Vec::new();
        for file in results.files() {
            if attempts.last().map(|last| last.number) != Some(file.name.attempt) {
                attempts.push(Attempt::new(file));
            }
            if let Some(last) = attempts.last_mut() {
                last.add(file);
            }
        }
        Self {
            directory,
            report: results.report(),
            attempts,
        }
    }

    pub(super) fn text(&self, style: &TableStyle) -> String {
        let directory = self.directory.display().to_string();
        let mut text = format!(
            "{}: {}\n",
            plain(&directory),
            plain(&self.report.to_string())
        );
        let mut table = TextTable::new(&[
            ("attempt", Side::Right),
            ("ranks", Side::Right),
            ("host", Side::Left),
            ("job", Side::Left),
            ("results", Side::Right),
            ("failed", Side::Right),
            ("per second", Side::Right),
            ("size", Side::Right),
            ("last", Side::Left),
        ]);
        for attempt in &self.attempts {
            let note = (attempt.damaged_bytes > 0)
                .then(|| format!("{} cannot be read", bytes_text(attempt.damaged_bytes)));
            let cells = vec![
                attempt.number.to_string(),
                attempt.ranks.to_string(),
                plain(&attempt.host_text()),
                plain(attempt.job.as_deref().unwrap_or("-")),
                attempt.results.to_string(),
                attempt.failures.to_string(),
                attempt
                    .rate()
                    .map_or("-".into(), |rate| format!("{rate:.1}")),
                bytes_text(attempt.bytes),
                format!("{} ago", duration_text(age(attempt.changed))),
            ];
            table.row(cells, note);
        }
        text += &table.fitted(style, &[Narrowing::Drop("job"), Narrowing::Drop("size")]);
        for (id, reason) in self.report.failed.iter().take(MAX_SHOWN_FAILURES) {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "  {id} failed: {}", plain(reason));
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        let report = self.report;
        let ids =
            |ids: &[fsgather::samples::SampleId]| -> Value { ids.iter().map(id_as_json).collect() };
        let failed = report.failed.iter();
        let attempts = self.attempts.iter().map(|attempt| {
            json!({
                "attempt": attempt.number,
                "ranks": attempt.ranks,
                "hosts": attempt.hosts,
                "job": attempt.job,
                "results": attempt.results,
                "failures": attempt.failures,
                "bytes": attempt.bytes,
                "damaged_bytes": attempt.damaged_bytes,
                "began_seconds_ago": age(attempt.began).as_secs(),
                "changed_seconds_ago": age(attempt.changed).as_secs(),
                "results_per_second": attempt.rate(),
            })
        });
        json!({
            "directory": self.directory,
            "expected": report.expected,
            "gathered": report.gathered,
            "missing": ids(&report.missing),
            "failed": failed.map(|(id, reason)| json!({"id": id_as_json(id), "reason": reason})).collect::<Value>(),
            "repeated": report.repeated,
            "conflicts": ids(&report.conflicts),
            "unexpected": report.unexpected,
            "attempts": attempts.collect::<Value>(),
        })
    }
}

impl Attempt {
    fn new(file: &ScannedFile) -> Self {
        let header = file.header.as_ref();
        Self {
            number: file.name.attempt,
            ranks: header.map_or(0, |header| header.world_size),
            hosts: BTreeSet::new(),
            job: header.and_then(|header| header.job.clone()),
            results: 0,
            failures: 0,
            bytes: 0,
            damaged_bytes: 0,
            began: header.map_or(file.changed, SampleFileHeader::began),
            changed: file.changed,
        }
    }

    fn add(&mut self, file: &ScannedFile) {
        let host = file
            .header
            .as_ref()
            .map(|header| header.process.host.clone());
        self.hosts.extend(host);
        self.results += file.results;
        self.failures += file.failures;
        self.bytes += file.len;
        self.damaged_bytes += file.damage.inner_bytes;
        if !file.is_continued {
            self.damaged_bytes += file.damage.tail_bytes;
        }
        self.changed = self.changed.max(file.changed);
    }

    fn host_text(&self) -> String {
        match (self.hosts.first(), self.hosts.len()) {
            (None, _) => "-".into(),
            (Some(host), 1) => host.clone(),
            (Some(host), count) => format!("{host} and {} more", count - 1),
        }
    }

    fn rate(&self) -> Option<f64> {
        let lasted = self.changed.duration_since(self.began).ok()?.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "it is shown with one digit")]
        (lasted >= 1.0).then(|| self.results as f64 / lasted)
    }
}

fn age(then: SystemTime) -> Duration {
    SystemTime::now().duration_since(then).unwrap_or_default()
}
