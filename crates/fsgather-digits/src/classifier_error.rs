//! The errors in samples that a classifier is to work with.

use std::error::Error;
use std::fmt;

use crate::neighbour::NEIGHBOURS;

/// Samples that a [`Classifier`](crate::Classifier) cannot work with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassifierError {
    /// There are no more than [`NEIGHBOURS`] samples.
    TooFewSamples {
        /// The number of samples there are.
        found: usize,
    },
    /// Two samples have the same id, so it is not clear which one to leave out.
    DuplicateId {
        /// The id.
        id: u32,
    },
    /// A sample's label is not a digit.
    NotADigit {
        /// The id of the sample.
        id: u32,
        /// The label.
        label: u8,
    },
}

impl fmt::Display for ClassifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewSamples { found } => write!(
                f,
                "found {found} samples, but a vote takes {NEIGHBOURS} besides the one classified"
            ),
            Self::DuplicateId { id } => write!(f, "more than one sample has the id {id}"),
            Self::NotADigit { id, label } => {
                write!(f, "sample {id}: label {label} is not a digit")
            }
        }
    }
}

impl Error for ClassifierError {}
