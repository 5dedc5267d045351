//! The outcome of a gather of samples: [`SampleReport`]. Pure.

use std::fmt;

use fsgather_core::plain_line;
use fsgather_store::SampleId;

/// Maximum number of ids in a message.
const MAX_SHOWN_IDS: usize = 10;
/// Maximum number of reasons in a message, and their maximum length in characters.
const MAX_SHOWN_REASONS: usize = 3;
const MAX_REASON_CHARS: usize = 120;
/// Maximum number of ranks whose counts a message shows one by one.
const MAX_SHOWN_RANKS: usize = 16;

/// Counts of the samples that were gathered, and the samples that were not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleReport {
    /// Samples that were expected; `None` if any were.
    pub expected: Option<u64>,
    /// Samples with a result.
    pub gathered: u64,
    /// Expected samples without a result that have not failed, in the order in which they are expected.
    pub missing: Vec<SampleId>,
    /// Expected samples without a result that have failed, with the reasons.
    pub failed: Vec<(SampleId, String)>,
    /// Results that came again, equal to those that count.
    pub repeated: u64,
    /// Samples of which another result came that was not equal; the first counts.
    pub conflicts: Vec<SampleId>,
    /// Files of which more than the end cannot be read; results in them count as missing.
    pub damaged_files: u64,
    /// Files that end in the middle of a result, as after an interrupted write; it counts as missing.
    pub cut_files: u64,
    /// Results and failures that cannot be read although their process added others later.
    pub lost: u64,
    /// Results of samples that are not expected. They stay on disk.
    pub unexpected: u64,
    /// Results that each rank has added in this attempt.
    pub added: Vec<u64>,
    /// An id that was added and one that is missing that are spelled alike.
    pub other_spelling: Option<(SampleId, SampleId)>,
}

impl SampleReport {
    /// Whether every expected sample has a result.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.failed.is_empty()
    }

    /// Names the samples that are missing or have failed.
    pub(crate) fn incomplete_text(&self) -> String {
        let all = || self.gathered + self.failed.len() as u64;
        let total = self.expected.unwrap_or_else(all);
        let mut parts = Vec::new();
        if !self.missing.is_empty() {
            let (count, ids) = (self.missing.len(), ids_text(self.missing.iter()));
            let verb = if count == 1 { "is" } else { "are" };
            parts.push(format!("{count} of {total} samples {verb} missing: {ids}"));
        }
        if !self.failed.is_empty() {
            let (count, ids) = (
                self.failed.len(),
                ids_text(self.failed.iter().map(|(id, _)| id)),
            );
            let verb = if count == 1 { "has" } else { "have" };
            parts.push(format!(
                "{count} of {total} samples {verb} failed: {ids} ({})",
                self.reasons_text()
            ));
        }
        parts.push(added_text(&self.added));
        if self.damaged_files > 0 {
            parts.push(format!("damaged files: {}", self.damaged_files));
        }
        if self.cut_files > 0 {
            parts.push(format!("cut files: {}", self.cut_files));
        }
        if let Some((added, missing)) = &self.other_spelling {
            parts.push(format!(
                "{added} was added where {missing} is expected: give ids of one kind"
            ));
        }
        parts.join("; ")
    }

    fn reasons_text(&self) -> String {
        let mut reasons: Vec<String> = Vec::new();
        for (_, reason) in &self.failed {
            let shown: String = plain_line(reason).chars().take(MAX_REASON_CHARS).collect();
            if !reasons.contains(&shown) {
                reasons.push(shown);
            }
            if reasons.len() > MAX_SHOWN_REASONS {
                break;
            }
        }
        let has_more = reasons.len() > MAX_SHOWN_REASONS;
        reasons.truncate(MAX_SHOWN_REASONS);
        reasons.join("; ") + if has_more { "; and others" } else { "" }
    }

    /// Samples whose results differ, in words.
    pub(crate) fn conflicts_text(&self) -> String {
        let count = self.conflicts.len();
        let verb = if count == 1 {
            "sample has"
        } else {
            "samples have"
        };
        let ids = ids_text(self.conflicts.iter());
        format!("{count} {verb} results that differ: {ids}")
    }
}

impl fmt::Display for SampleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gathered = self.gathered;
        match self.expected {
            Some(expected) => write!(f, "{gathered} of {expected} samples")?,
            None => write!(f, "{gathered} samples")?,
        }
        let counts = [
            (self.missing.len() as u64, "missing"),
            (self.failed.len() as u64, "failed"),
            (self.repeated, "repeated"),
            (
                self.conflicts.len() as u64,
                "with results that differ, of which the first counts",
            ),
            (self.unexpected, "not expected"),
        ];
        for (count, what) in counts {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        match self.damaged_files {
            0 => {}
            1 => write!(f, "; 1 file is damaged")?,
            files => write!(f, "; {files} files are damaged")?,
        }
        match self.cut_files {
            0 => {}
            1 => write!(f, "; 1 file is cut short")?,
            files => write!(f, "; {files} files are cut short")?,
        }
        // With expected samples those that are missing say more.
        if self.lost > 0 && self.expected.is_none() {
            write!(f, "; at least {} cannot be read", results_text(self.lost))?;
        }
        Ok(())
    }
}

/// A number of results.
pub(crate) fn results_text(count: u64) -> String {
    if count == 1 {
        return "1 result".into();
    }
    format!("{count} results")
}

fn ids_text<'a>(ids: impl ExactSizeIterator<Item = &'a SampleId>) -> String {
    let more = ids.len().saturating_sub(MAX_SHOWN_IDS);
    let mut shown: Vec<String> = ids.take(MAX_SHOWN_IDS).map(SampleId::to_string).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

fn added_text(added: &[u64]) -> String {
    if let [one] = added {
        return format!("this process has added {one}");
    }
    if added.len() > MAX_SHOWN_RANKS {
        let total: u64 = added.iter().sum();
        let (least, most) = (added.iter().min(), added.iter().max());
        return format!(
            "{} ranks have added {total}, between {} and {} each",
            added.len(),
            least.copied().unwrap_or_default(),
            most.copied().unwrap_or_default()
        );
    }
    let counts: Vec<String> = added.iter().map(u64::to_string).collect();
    format!(
        "ranks 0 to {} have added {}",
        added.len() - 1,
        counts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_samples_are_counted_and_named() {
        let report = SampleReport {
            expected: Some(20),
            gathered: 7,
            missing: (0..12).map(SampleId::from).collect(),
            failed: vec![("x".into(), "out of\nmemory".into())],
            added: vec![4, 3],
            other_spelling: Some(("7".into(), 7.into())),
            ..SampleReport::default()
        };
        assert_eq!(
            report.incomplete_text(),
            "12 of 20 samples are missing: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 2 more; 1 of 20 samples has failed: \"x\" \
             (out of?memory); ranks 0 to 1 have added 4, 3; \"7\" was added where 7 is expected: give ids of one kind"
        );
        assert_eq!(report.to_string(), "7 of 20 samples, 12 missing, 1 failed");
    }

    #[test]
    fn many_ranks_are_summed_up() {
        let added: Vec<u64> = (0..40).collect();
        assert_eq!(
            added_text(&added),
            "40 ranks have added 780, between 0 and 39 each"
        );
        assert_eq!(added_text(&[5]), "this process has added 5");
    }
}
