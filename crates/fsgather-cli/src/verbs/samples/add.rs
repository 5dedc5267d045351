//! Adds lines of a file as results: a shell job's way to samples.

use std::{
    collections::HashSet,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use fsgather::{
    Communicator,
    samples::{JSON_LINES, SampleId, SampleOptions, Samples},
};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::ids::id_of_json;
use crate::{failure::Failure, table::plain};

/// Numbers of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddedResults {
    pub(super) added: usize,
    /// Those among them whose samples are not expected.
    pub(super) unexpected: usize,
}

/// Adds a result for each line of `file`. Nothing is added if a line is wrong.
pub(super) fn add(
    directory: &Path,
    file: &Path,
    key: &str,
    options: SampleOptions,
) -> Result<AddedResults, Failure> {
    let opened = File::open(file).map_err(Failure::file("read", file))?;
    let mut lines = Vec::new();
    for (line, number) in BufReader::new(opened).lines().zip(1_u64..) {
        let line =
            line.map_err(|error| Failure::file("read", file)(error_of_line(&error, number)))?;
        if !line.trim().is_empty() {
            let id = id_in(&line, key).map_err(|reason| {
                Failure::usage(format!("{}, line {number}: {reason}", file.display()))
            })?;
            lines.push((id, line));
        }
    }
    let unexpected = options.count_unexpected(lines.iter().map(|(id, _)| id));
    // Each process of a shell job adds by itself.
    let alone = Communicator::solo();
    let samples = Samples::open(&alone, directory, options.encoded_in(JSON_LINES))?;
    for (id, line) in &lines {
        samples.add_encoded(id, &[line.as_bytes()])?;
    }
    samples.close()?;
    Ok(AddedResults {
        added: lines.len(),
        unexpected,
    })
}

/// Returns the error with the number of the line at which it happened.
fn error_of_line(error: &io::Error, number: u64) -> io::Error {
    let reason = match error.kind() {
        io::ErrorKind::InvalidData => "it is not text in UTF-8".to_owned(),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("line {number}: {reason}"))
}

/// Adds settings from a JSON object to options; nested ones are named by their path, whose steps are in quotes if they could be taken
/// for another path.
pub(super) fn with_config(
    mut options: SampleOptions,
    text: &str,
) -> Result<SampleOptions, Failure> {
    let parse = || -> serde_json::Result<Map<String, Value>> {
        let DistinctKeys = serde_json::from_str(text)?;
        serde_json::from_str(text)
    };
    let settings = parse().map_err(|error| {
        Failure::usage(format!("--config {text} is not a JSON object: {error}"))
    })?;
    let step = |(name, value): (String, Value)| (step_of(name), value);
    let mut left: Vec<(String, Value)> = settings.into_iter().map(step).collect();
    while let Some((path, value)) = left.pop() {
        match value {
            Value::Object(parts) if !parts.is_empty() => {
                let named = |part| {
                    let (name, value) = step(part);
                    (format!("{path}.{name}"), value)
                };
                left.extend(parts.into_iter().map(named));
            }
            value if is_rounded(&value) => {
                return Err(Failure::usage(format!(
                    "--config has a number at {path} of more than 64 bits; write it as a text"
                )));
            }
            value => options = options.config(path, value),
        }
    }
    Ok(options)
}

/// Returns a key as a step of a path.
fn step_of(key: String) -> String {
    let is_plain = !key.is_empty() && !key.contains(['.', '"', '\\']) && plain(&key) == key;
    if is_plain {
        key
    } else {
        Value::from(key).to_string()
    }
}

/// Whether a value has a whole number that was rounded when it was read.
fn is_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let size = number.as_f64().unwrap_or_default().abs();
            number.is_f64() && size >= 2_f64.powi(63)
        }
        Value::Array(parts) => parts.iter().any(is_rounded),
        Value::Object(parts) => parts.values().any(is_rounded),
        _ => false,
    }
}

fn id_in(line: &str, key: &str) -> Result<SampleId, String> {
    let not_json = |error| not_json(&error, line);
    let DistinctKeys = serde_json::from_str(line).map_err(not_json)?;
    let value: Value = serde_json::from_str(line).map_err(not_json)?;
    let field = value
        .get(key)
        .ok_or_else(|| format!("this object has no field {key:?}"))?;
    id_of_json(field).map_err(|reason| format!("{key:?} is not an id: {reason}"))
}

/// The reason why a line is not JSON, with the column; the caller knows the number of the line.
fn not_json(error: &serde_json::Error, line: &str) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    // The column is that of one of the first two characters of an unknown word, or of its sign.
    let is_no_number = (0..3).any(|back| {
        let begin = error.column().saturating_sub(back);
        let rest = line.as_bytes().get(begin..).unwrap_or_default();
        rest.starts_with(b"NaN") || rest.starts_with(b"Infinity")
    });
    let reason = if is_no_number {
        "NaN and infinities are not JSON; write null, or a text"
    } else {
        reason
    };
    format!("not JSON at column {}: {reason}", error.column())
}

/// JSON none of whose objects has a key twice: of such keys readers take one or the other.
struct DistinctKeys;

impl<'de> Deserialize<'de> for DistinctKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for DistinctKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self, A::Error> {
        let mut keys = HashSet::new();
        while let Some((key, Self)) = object.next_entry::<String, Self>()? {
            if let Some(key) = keys.replace(key) {
                return Err(de::Error::custom(format!("the key {key:?} comes twice")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_configuration_is_refused_with_the_difference() {
        let place = tempfile::tempdir().unwrap();
        let lines = place.path().join("lines.jsonl");
        std::fs::write(&lines, "{\"id\": 1}\n\n{\"id\": \"a\"}\n").unwrap();
        let directory = place.path().join("run");
        let options = |config| with_config(SampleOptions::default(), config);
        let with = |config| add(&directory, &lines, "id", options(config).unwrap());
        let added = with(r#"{"t": 0.7, "model": {"name": "a"}}"#).unwrap();
        assert_eq!((added.added, added.unexpected), (2, 0));
        let refused = with(r#"{"t": 0.7, "model": {"name": "b"}}"#).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(r#"(model.name: "a" -> "b")"#), "{text}");
        for wrong in [
            "[1]",
            r#"{"a": 1, "a": 2}"#,
            r#"{"a": {"b": [18446744073709551616]}}"#,
        ] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn configurations_with_other_keys_are_different() {
        for (one, other) in [
            (r#"{"a.b": 1}"#, r#"{"a": {"b": 1}}"#),
            (
                r#"{"a": {"b": 1}, "a.c": 2}"#,
                r#"{"a.b": 1, "a": {"c": 2}}"#,
            ),
            (r#"{"a": {"": 1}}"#, r#"{"a.": 1}"#),
            (r#"{"\"a\"": 1}"#, r#"{"a": 1}"#),
            (r#"{"a\u202e": 1}"#, r#"{"a\\u{202e}": 1}"#),
        ] {
            let place = tempfile::tempdir().unwrap();
            let lines = place.path().join("lines.jsonl");
            std::fs::write(&lines, "{\"id\": 1}\n").unwrap();
            let directory = place.path().join("run");
            let with = |config| {
                let options = with_config(SampleOptions::default(), config).unwrap();
                add(&directory, &lines, "id", options)
            };
            with(one).unwrap();
            let refused = with(other).unwrap_err().to_string();
            assert!(
                refused.contains("another configuration"),
                "{one}: {refused}"
            );
        }
    }

    #[test]
    fn results_that_are_not_expected_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let lines = place.path().join("lines.jsonl");
        std::fs::write(&lines, "{\"id\": 1}\n{\"id\": \"a\"}\n").unwrap();
        let options = SampleOptions::default().expect_count(3);
        let added = add(&place.path().join("run"), &lines, "id", options).unwrap();
        assert_eq!((added.added, added.unexpected), (2, 1));
    }

    #[test]
    fn lines_that_are_not_text_are_refused_with_their_number() {
        let place = tempfile::tempdir().unwrap();
        let lines = place.path().join("lines.jsonl");
        std::fs::write(&lines, b"{\"id\": 1}\n{\"id\": \"\xff\"}\n").unwrap();
        let run = place.path().join("run");
        let refused = add(&run, &lines, "id", SampleOptions::default()).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("line 2: it is not text in UTF-8"),
            "{refused}"
        );
        assert!(!run.exists());
    }

    #[test]
    fn wrong_lines_are_refused_with_the_reason() {
        for (line, reason) in [
            ("{\"id\": 1", "not JSON at column 8: EOF"),
            ("{\"id\": 1, \"a\": NaN}", "NaN and infinities are not JSON"),
            (
                "{\"a\": [Infinity], \"id\": 1}",
                "NaN and infinities are not JSON",
            ),
            (
                "{\"a\": -Infinity, \"id\": 1}",
                "NaN and infinities are not JSON",
            ),
            ("{\"id\": 1, \"a\": nul}", "expected ident"),
            ("{\"id\": 1, \"id\": 2}", "the key \"id\" comes twice"),
            (
                "{\"id\": 1, \"a\": [{\"b\": null, \"b\": 1.5}]}",
                "the key \"b\" comes twice",
            ),
            ("{\"a\": true}", "no field \"id\""),
            (
                "{\"id\": 18446744073709551616}",
                "more than 64 bits; write it as a text",
            ),
        ] {
            let refusal = id_in(line, "id").unwrap_err();
            assert!(refusal.contains(reason), "{line}: {refusal}");
        }
        let line = r#"{"id": [1, "a"], "b": {"id": -1.5, "c": []}}"#;
        assert_eq!(id_in(line, "id").unwrap().to_string(), r#"(1, "a")"#);
    }
}
