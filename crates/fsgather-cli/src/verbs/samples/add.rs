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
use serde_json::Value;

use super::{JSON_ENCODING, ids::id_of_json};
use crate::failure::Failure;

/// Adds a result for each line of `file`, and returns how many. Nothing is added if a line is wrong.
pub(super) fn add(
    directory: &Path,
    file: &Path,
    key: &str,
    expected: Option<Vec<SampleId>>,
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
    let mut options = SampleOptions::default();
    if let Some(expected) = expected {
        options = options.expect_ids(expected);
    }
    // Each process of a shell job adds by itself.
    let alone = Communicator::solo();
    let samples = Samples::open_encoded(&alone, directory, options, JSON_ENCODING.to_owned())?;
    for (id, line) in &lines {
        samples.add_encoded(id, &[line.as_bytes()])?;
    }
    samples.close()?;
    Ok(lines.len() as u64)
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
