//! Adds lines of a file as results: a shell job's way to samples.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use fsgather::{
    Communicator,
    samples::{SampleId, SampleOptions, Samples},
};
use serde_json::{Map, Value};

use super::{JSON_ENCODING, ids::id_of_json};
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
    let samples = Samples::open(&alone, directory, options.encoded_in(JSON_ENCODING))?;
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
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let field = value
        .get(key)
        .ok_or_else(|| format!("this object has no field {key:?}"))?;
    id_of_json(field).ok_or_else(|| {
        format!(
            "{key:?} is {field}, which is not an id: a whole number, a text, or a list of these"
        )
    })
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
}
