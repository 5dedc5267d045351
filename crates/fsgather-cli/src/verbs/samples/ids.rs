//! Ids of samples as JSON.

use std::{fs, path::Path};

use fsgather::samples::{SampleId, SampleOptions};
use serde_json::Value;

use crate::failure::Failure;

/// Returns an id as JSON; a tuple becomes a list, and an integer of more than 64 bits a text.
pub(super) fn id_as_json(id: &SampleId) -> Value {
    match id {
        SampleId::Int(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            _ => number.to_string().into(),
        },
        SampleId::Text(text) => text.to_string().into(),
        SampleId::Tuple(ids) => ids.iter().map(id_as_json).collect(),
    }
}

/// Reads an id, or returns why JSON is none.
pub(super) fn id_of_json(value: &Value) -> Result<SampleId, String> {
    match value {
        Value::String(text) => Ok(text.as_str().into()),
        Value::Number(number) => {
            let signed = number.as_i64().map(SampleId::from);
            let whole = signed.or_else(|| number.as_u64().map(SampleId::from));
            let is_large = number
                .as_f64()
                .is_some_and(|size| size.abs() >= 2_f64.powi(63));
            whole.ok_or_else(|| {
                if is_large {
                    format!("{number} has more than 64 bits; write it as a text")
                } else {
                    format!("{number} is not a whole number")
                }
            })
        }
        Value::Array(values) => values.iter().map(id_of_json).collect(),
        _ => Err(format!(
            "{value} is not a whole number, a text, or a list of these"
        )),
    }
}

/// Reads expected samples: a number, or a file with one id for each line.
pub(super) fn parse_expected(text: &str) -> Result<SampleOptions, Failure> {
    if let Ok(count) = text.parse() {
        return Ok(SampleOptions::default().expect_count(count));
    }
    let path = Path::new(text);
    let contents = fs::read_to_string(path).map_err(Failure::file("read", path))?;
    let lines = contents
        .lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty());
    let ids = lines.map(|(line, number)| {
        let value = serde_json::from_str(line).map_err(|error| error.to_string());
        value.and_then(|value| id_of_json(&value)).map_err(|reason| {
            Failure::usage(format!(
                "{text}, line {number} is not an id in JSON, such as 7, \"name\" or [\"name\", 7]: {reason}"
            ))
        })
    });
    let ids = ids.collect::<Result<Vec<SampleId>, _>>()?;
    let options = SampleOptions::default().expect_ids(ids);
    options.check()?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_json() {
        let ids: [SampleId; 5] = [
            7.into(),
            u64::MAX.into(),
            "a".into(),
            SampleId::from_iter(["a".into(), 1.into()]),
            SampleId::from(-3),
        ];
        for id in ids {
            assert_eq!(id_of_json(&id_as_json(&id)), Ok(id));
        }
        assert_eq!(id_as_json(&i128::MAX.into()), i128::MAX.to_string());
        let refusal = |json| id_of_json(&serde_json::from_str(json).unwrap()).unwrap_err();
        for json in ["1.5", "true", "null", "{}", "[[1.5]]"] {
            assert!(refusal(json).contains("is not a whole number"), "{json}");
        }
        for json in ["18446744073709551616", "-9223372036854775809", "[1e40]"] {
            assert!(refusal(json).contains("more than 64 bits"), "{json}");
        }
    }
}
