//! The errors in a data file, each with its place.

use std::error::Error;
use std::fmt;

use crate::sample::{CLASSES, MAX_PIXEL, PIXELS};

/// A data file that is not what it should be.
///
/// Its message names the line and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: ParseProblem,
}

/// What is wrong with a line of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseProblem {
    /// The line does not have one field per pixel and one for the label.
    FieldCount {
        /// The number of fields it has.
        found: usize,
    },
    /// A field is not an integer from 0 to 255.
    NotANumber {
        /// The field, counted from 1.
        field: usize,
        /// What the field holds.
        text: String,
    },
    /// A pixel is above [`MAX_PIXEL`].
    PixelTooLarge {
        /// The field, counted from 1.
        field: usize,
        /// What the field holds.
        value: u8,
    },
    /// The label is not a digit.
    LabelTooLarge {
        /// What the field holds.
        value: u8,
    },
    /// The file ends before this line, or goes on at it when it should have ended.
    LineCount {
        /// The number of lines the file should have.
        expected: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "digits data, line {}: {}", self.line, self.problem)
    }
}

impl fmt::Display for ParseProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FieldCount { found } => {
                write!(f, "expected {} fields, found {found}", PIXELS + 1)
            }
            Self::NotANumber { field, text } => {
                write!(f, "field {field} is not an integer from 0 to 255: {text:?}")
            }
            Self::PixelTooLarge { field, value } => {
                write!(f, "field {field}: pixel {value} is above {MAX_PIXEL}")
            }
            Self::LabelTooLarge { value } => {
                write!(f, "label {value} is above {}", CLASSES - 1)
            }
            Self::LineCount { expected } => {
                write!(f, "the file should have exactly {expected} lines")
            }
        }
    }
}

impl Error for ParseError {}
