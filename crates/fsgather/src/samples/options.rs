//! The samples that a program expects: [`SampleOptions`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt::Display,
};

use fsgather_core::{Error, hash::Hash128, read_value, spelled_text};
use fsgather_store::SampleId;
use serde::{Deserialize, Serialize};

/// The samples of an evaluation, and the configuration under which their results hold.
///
/// ```
/// use fsgather::samples::SampleOptions;
///
/// let options = SampleOptions::default()
///     .expect_ids(["a", "b"])
///     .config("temperature", 0.7);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SampleOptions {
    pub(crate) expected: Option<Vec<SampleId>>,
    pub(crate) config: Option<BTreeMap<String, String>>,
    /// Name of the encoding of results that are encoded before they are added.
    pub(crate) encoding: Option<&'static str>,
    problem: Option<String>,
}

impl SampleOptions {
    /// Expects exactly these samples, whose results are returned in this order.
    ///
    /// Without it all samples count that were added, in the order in which they were first added, and only failed ones are missing.
    pub fn expect_ids<I: Into<SampleId>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.expected = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// Expects the samples 0 to `count` - 1.
    pub fn expect_count(self, count: u64) -> Self {
        self.expect_ids(0..count)
    }

    /// States a setting under which the results hold. A directory takes no results of another configuration.
    pub fn config(mut self, name: impl Into<String>, value: impl Display) -> Self {
        let plain = |text: &str| spelled_text(text).into_owned();
        let config = self.config.get_or_insert_default();
        config.insert(plain(&name.into()), plain(&value.to_string()));
        self
    }

    /// Names the encoding of results that are encoded before they are added. For bindings.
    #[doc(hidden)]
    pub const fn encoded_in(mut self, encoding: &'static str) -> Self {
        self.encoding = Some(encoding);
        self
    }

    /// Has opening fail on all ranks, because this rank's arguments are wrong. For bindings.
    #[doc(hidden)]
    pub fn wrong(mut self, problem: impl Into<String>) -> Self {
        self.problem = Some(problem.into());
        self
    }

    /// Checks that no sample is expected twice.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Error> {
        if let Some(problem) = &self.problem {
            return Err(Error::config(problem.clone()));
        }
        let mut positions = HashMap::new();
        for (position, id) in self.expected.iter().flatten().enumerate() {
            if let Some(first) = positions.insert(id, position) {
                return Err(Error::config(format!(
                    "the sample {id} is expected twice, at positions {first} and {position}; give each id once"
                )));
            }
        }
        Ok(())
    }

    /// Counts samples that are not expected. For bindings.
    #[doc(hidden)]
    pub fn count_unexpected<'a>(&self, ids: impl Iterator<Item = &'a SampleId>) -> usize {
        let Some(expected) = &self.expected else {
            return 0;
        };
        let expected: HashSet<&SampleId> = expected.iter().collect();
        ids.filter(|id| !expected.contains(id)).count()
    }

    /// The expected samples as they are recorded in the directory.
    pub(crate) fn expectation(&self) -> Option<Vec<u8>> {
        let expected = self.expected.as_ref()?;
        let is_counted = expected
            .iter()
            .zip(0..)
            .all(|(id, at)| *id == SampleId::Int(at));
        let recorded = if is_counted {
            Expectation::Count(expected.len() as u64)
        } else {
            Expectation::Ids(Cow::Borrowed(expected))
        };
        // Into memory everything can be written.
        postcard::to_allocvec(&recorded).ok()
    }

    /// Number and hash of the expected samples, by which ranks compare them.
    pub(crate) fn digest(&self) -> Option<(u64, u128)> {
        let expected = self.expected.as_ref()?;
        let mut hash = Hash128::new();
        for id in expected {
            hash.write(&id.to_bytes());
        }
        Some((expected.len() as u64, hash.finish()))
    }
}

/// Expected samples, as they are recorded.
#[derive(Serialize, Deserialize)]
enum Expectation<'a> {
    /// All from 0 to this number - 1.
    Count(u64),
    Ids(Cow<'a, [SampleId]>),
}

/// Reads recorded [expected samples](SampleOptions::expectation).
pub(crate) fn read_expectation(bytes: &[u8]) -> Result<Vec<SampleId>, Error> {
    match read_value(bytes) {
        Ok((Expectation::Count(count), _)) => Ok((0..count).map(SampleId::from).collect()),
        Ok((Expectation::Ids(ids), _)) => Ok(ids.into_owned()),
        Err(error) => Err(Error::config(format!(
            "the list of expected samples cannot be read: {error}"
        ))),
    }
}

/// Shows how a configuration differs from an earlier one: `temperature: 0.0 -> 0.7`.
pub(crate) fn config_difference(
    earlier: Option<&BTreeMap<String, String>>,
    now: Option<&BTreeMap<String, String>>,
) -> String {
    const MAX_SHOWN_SETTINGS: usize = 8;
    let (earlier, now) = match (earlier, now) {
        (Some(earlier), Some(now)) => (earlier, now),
        (Some(_), None) => return "none is stated now".into(),
        (None, _) => return "none was stated then".into(),
    };
    let names: BTreeSet<_> = earlier.keys().chain(now.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        let (before, after) = (earlier.get(name), now.get(name));
        if before != after {
            let text = |value: Option<&String>| {
                value.map_or("not set".to_owned(), |value| shortened(value))
            };
            let (before, after) = (text(before), text(after));
            differences.push(format!("{}: {before} -> {after}", shortened(name)));
        }
    }
    let more = differences.len().saturating_sub(MAX_SHOWN_SETTINGS);
    differences.truncate(MAX_SHOWN_SETTINGS);
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    differences.join(", ")
}

fn shortened(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 80;
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_expected_twice_are_named_with_both_positions() {
        let options = SampleOptions::default().expect_ids([5, 6, 5]);
        let text = options.check().unwrap_err().to_string();
        assert!(
            text.contains("5 is expected twice, at positions 0 and 2"),
            "{text}"
        );
        assert!(SampleOptions::default().expect_count(9).check().is_ok());
    }

    #[test]
    fn recorded_expectations_are_read_back() {
        for ids in [vec![], vec![0, 1, 2], vec![0, 2, 1]] {
            let options = SampleOptions::default().expect_ids(ids);
            let read = read_expectation(&options.expectation().unwrap()).unwrap();
            assert_eq!(Some(read), options.expected);
        }
        let count = SampleOptions::default().expect_count(1000).expectation();
        assert!(count.unwrap().len() < 5);
        assert!(read_expectation(b"").is_err());
    }

    #[test]
    fn differences_of_configurations_show_both_values() {
        let config = |pairs: &[(&str, &str)]| -> Option<BTreeMap<String, String>> {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            Some(pairs.iter().map(own).collect())
        };
        let earlier = config(&[("model", "a"), ("temperature", "0.0"), ("old", "1")]);
        let now = config(&[("model", "a"), ("temperature", "0.7")]);
        assert_eq!(
            config_difference(earlier.as_ref(), now.as_ref()),
            "old: 1 -> not set, temperature: 0.0 -> 0.7"
        );
        assert_eq!(
            config_difference(None, now.as_ref()),
            "none was stated then"
        );
        let many: BTreeMap<_, _> = (0..20).map(|at| (at.to_string(), "1".to_owned())).collect();
        assert!(config_difference(Some(&many), config(&[]).as_ref()).ends_with("and 12 more"));
    }
}
