//! Adds lines of a file as results: a shell job's way to samples.

use std::{
    collections::HashSet,
    fmt,
    fs::File,
    io::{BufRead, BufReader},
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
use crate::failure::Failure;

/// Adds a result for each line of `file`, and returns how many. Nothing is added if a line is wrong.
pub(super) fn add(
    directory: &Path,
    file: &Path,
    key: &str,
    options: SampleOptions,
) -> Result<u64, Failure> {
    let opened = File::open(file).map_err(Failure::file("read", file))?;
    let mut lines = Vec::new();
    for (line, number) in BufReader::new(opened).lines().zip(1_u64..) {
        let line = line.map_err(Failure::file("read", file))?;
        if !line.trim().is_empty() {
            let id = id_in(&line, key).map_err(|reason| {
                Failure::usage(format!("{}, line {number}: {reason}", file.display()))
            })?;
            lines.push((id, line));
        }
    }
    // Each process of a shell job adds by itself.
    let alone = Communicator::solo();
    let samples = Samples::open(&alone, directory, options.encoded_in(JSON_LINES))?;
    for (id, line) in &lines {
        samples.add_encoded(id, &[line.as_bytes()])?;
    }
    samples.close()?;
    Ok(lines.len() as u64)
}

/// Adds settings from a JSON object to options; nested ones are named by their path.
pub(super) fn with_config(
    mut options: SampleOptions,
    text: &str,
) -> Result<SampleOptions, Failure> {
    let settings: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("--config {text} is not a JSON object: {error}"))
    })?;
    let mut left: Vec<(String, Value)> = settings.into_iter().collect();
    while let Some((path, value)) = left.pop() {
        match value {
            Value::Object(parts) if !parts.is_empty() => {
                let named = |(name, value)| (format!("{path}.{name}"), value);
                left.extend(parts.into_iter().map(named));
            }
            value => options = options.config(path, value),
        }
    }
    Ok(options)
}

fn id_in(line: &str, key: &str) -> Result<SampleId, String> {
    let not_json = |error| format!("not JSON: {error}");
    let DistinctKeys = serde_json::from_str(line).map_err(not_json)?;
    let value: Value = serde_json::from_str(line).map_err(not_json)?;
    let field = value
        .get(key)
        .ok_or_else(|| format!("this object has no field {key:?}"))?;
    id_of_json(field).map_err(|reason| format!("{key:?} is not an id: {reason}"))
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
        assert_eq!(with(r#"{"t": 0.7, "model": {"name": "a"}}"#).unwrap(), 2);
        let refused = with(r#"{"t": 0.7, "model": {"name": "b"}}"#).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(r#"(model.name: "a" -> "b")"#), "{text}");
        assert!(options("[1]").is_err());
    }

    #[test]
    fn wrong_lines_are_refused_with_the_reason() {
        for (line, reason) in [
            ("{\"id\": 1", "not JSON: EOF"),
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
