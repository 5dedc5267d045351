//! Counting predictions.

use std::error::Error;
use std::fmt;

use crate::prediction::Prediction;
use crate::sample::CLASSES;

/// How many predictions are right, and which digits are taken for which.
///
/// The order of the predictions does not matter: reports of the same
/// predictions are equal. Its `Display` shows the accuracy and the confusion
/// matrix, ended by a line feed.
///
/// # Example
///
/// ```
/// use fsgather_digits::{Prediction, DigitsReport};
///
/// let prediction = |label, predicted| Prediction { id: 0, label, predicted, scores: [0.0; 10] };
/// let report = DigitsReport::from_predictions(&[prediction(4, 4), prediction(4, 9)])?;
/// assert_eq!((report.correct(), report.total()), (1, 2));
/// assert_eq!(report.confusion()[4][9], 1);
/// # Ok::<(), fsgather_digits::NotADigit>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DigitsReport {
    /// The rows are the labels, the columns the predicted digits.
    confusion: [[u32; CLASSES]; CLASSES],
}

/// A prediction that cannot be counted, as its label or its result is above 9.
///
/// The classifier makes none; one that was read from elsewhere may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotADigit {
    /// The id of the sample.
    pub id: u32,
    /// The prediction's label.
    pub label: u8,
    /// The prediction's result.
    pub predicted: u8,
}

impl DigitsReport {
    /// Counts all `predictions`.
    ///
    /// # Errors
    ///
    /// If one of them has a label or a result above 9.
    pub fn from_predictions<'a>(
        predictions: impl IntoIterator<Item = &'a Prediction>,
    ) -> Result<Self, NotADigit> {
        let mut report = Self::default();
        for prediction in predictions {
            report.add(prediction)?;
        }
        Ok(report)
    }

    /// Counts one more prediction.
    ///
    /// It is not checked whether the same sample was counted before.
    ///
    /// # Errors
    ///
    /// If its label or its result is above 9; the report stays as it was.
    pub fn add(&mut self, prediction: &Prediction) -> Result<(), NotADigit> {
        let &Prediction {
            id,
            label,
            predicted,
            ..
        } = prediction;
        let row = self.confusion.get_mut(usize::from(label));
        match row.and_then(|row| row.get_mut(usize::from(predicted))) {
            Some(count) => {
                *count += 1;
                Ok(())
            }
            None => Err(NotADigit {
                id,
                label,
                predicted,
            }),
        }
    }

    /// The number of predictions counted.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.confusion.iter().flatten().sum()
    }

    /// The number of predictions that are right.
    #[must_use]
    pub fn correct(&self) -> u32 {
        let rows = self.confusion.iter().enumerate();
        rows.filter_map(|(digit, row)| row.get(digit)).sum()
    }

    /// The share of the predictions that are right, 0 to 1.
    ///
    /// `None` before the first prediction, as there is no share of nothing.
    #[must_use]
    pub fn accuracy(&self) -> Option<f64> {
        let total = self.total();
        (total > 0).then(|| f64::from(self.correct()) / f64::from(total))
    }

    /// How often each digit (row) was taken for each digit (column).
    #[must_use]
    pub fn confusion(&self) -> &[[u32; CLASSES]; CLASSES] {
        &self.confusion
    }
}

impl fmt::Display for DigitsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (correct, total) = (self.correct(), self.total());
        let Some(accuracy) = self.accuracy() else {
            return writeln!(f, "accuracy: no predictions yet");
        };
        let percent = accuracy * 100.0;
        writeln!(f, "accuracy: {percent:.2} % ({correct} of {total})")?;
        writeln!(f)?;

        let largest = self.confusion.iter().flatten().max().unwrap_or(&0);
        let width = largest.to_string().len() + 2;
        writeln!(f, "true │ predicted")?;
        write!(f, "     │")?;
        for digit in 0..CLASSES {
            write!(f, "{digit:>width$}")?;
        }
        writeln!(f)?;
        writeln!(f, "─────┼{}", "─".repeat(width * CLASSES))?;
        for (digit, row) in self.confusion.iter().enumerate() {
            write!(f, "{digit:>4} │")?;
            for count in row {
                // Dots, so that the few mistakes stand out.
                match count {
                    0 => write!(f, "{:>width$}", "·")?,
                    _ => write!(f, "{count:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for NotADigit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            label,
            predicted,
        } = self;
        write!(
            f,
            "sample {id}: label {label} and prediction {predicted} should be digits"
        )
    }
}

impl Error for NotADigit {}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
