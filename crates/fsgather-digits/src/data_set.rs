//! Reads the data set that is compiled in: [`samples`].

use crate::{
    parse_error::{ParseError, ParseProblem},
    sample::{CLASSES, MAX_PIXEL, PIXELS, SAMPLES, Sample},
};

const DATA: &str = include_str!("../data/digits.csv");

/// Reads the data set that is compiled into the crate.
///
/// Gives [`SAMPLES`] samples in the order of their ids, the same in every
/// process built from the same source.
///
/// # Errors
///
/// If the data file was damaged before the crate was built; the error names
/// the first bad line and what is wrong with it.
///
/// # Example
///
/// ```
/// let samples = fsgather_digits::samples()?;
/// assert_eq!(samples.len(), 1797);
/// assert_eq!(samples[3].label, 3);
/// # Ok::<(), fsgather_digits::ParseError>(())
/// ```
pub fn samples() -> Result<Vec<Sample>, ParseError> {
    parse(DATA, SAMPLES)
}

/// Parses `text`, which must have exactly `expected` lines.
///
/// The count is checked because a file cut off between two lines looks whole
/// otherwise, and would quietly change every result.
fn parse(text: &str, expected: usize) -> Result<Vec<Sample>, ParseError> {
    let mut samples = Vec::with_capacity(expected);
    for ((line, id), row) in (1..).zip(0..).zip(text.lines()) {
        if line > expected {
            let problem = ParseProblem::LineCount { expected };
            return Err(ParseError { line, problem });
        }
        let sample = parse_row(id, row).map_err(|problem| ParseError { line, problem })?;
        samples.push(sample);
    }
    if samples.len() < expected {
        let problem = ParseProblem::LineCount { expected };
        let line = samples.len() + 1;
        return Err(ParseError { line, problem });
    }
    Ok(samples)
}

fn parse_row(id: u32, row: &str) -> Result<Sample, ParseProblem> {
    // Counted first: in a row cut short, the missing end is what to report,
    // not the half field before it.
    let found = row.split(',').count();
    if found != PIXELS + 1 {
        return Err(ParseProblem::FieldCount { found });
    }
    let mut fields = (1..).zip(row.split(','));
    let mut pixels = [0; PIXELS];
    for (pixel, (field, text)) in pixels.iter_mut().zip(fields.by_ref()) {
        let value = parse_field(field, text)?;
        if value > MAX_PIXEL {
            return Err(ParseProblem::PixelTooLarge { field, value });
        }
        *pixel = value;
    }
    let Some((field, text)) = fields.next() else {
        return Err(ParseProblem::FieldCount { found });
    };
    let label = parse_field(field, text)?;
    if usize::from(label) >= CLASSES {
        return Err(ParseProblem::LabelTooLarge { value: label });
    }
    Ok(Sample { id, pixels, label })
}

fn parse_field(field: usize, text: &str) -> Result<u8, ParseProblem> {
    text.parse().map_err(|_| ParseProblem::NotANumber {
        field,
        text: text.to_owned(),
    })
}

#[cfg(test)]
#[path = "data_set_tests.rs"]
mod tests;
