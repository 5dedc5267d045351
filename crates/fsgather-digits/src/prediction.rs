//! The result for one sample.

use serde::{Deserialize, Serialize};

use crate::sample::CLASSES;

/// What the classifier says about one sample.
///
/// Predictions of the same sample from the same data are equal to the last
/// bit, wherever they were computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The id of the sample.
    pub id: u32,
    /// The digit that was written.
    pub label: u8,
    /// The digit the classifier takes it for.
    pub predicted: u8,
    /// For each digit, the share of the neighbours that vote for it.
    ///
    /// Each is the `f32` nearest to votes / [`NEIGHBOURS`](crate::NEIGHBOURS).
    pub scores: [f32; CLASSES],
}

impl Prediction {
    /// Whether the classifier is right.
    #[must_use]
    pub fn is_correct(&self) -> bool {
        self.label == self.predicted
    }
}
