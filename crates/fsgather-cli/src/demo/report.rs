//! Counts predictions: [`DigitsReport`].

use std::fmt;

use super::{CLASSES, Prediction};

/// Counts of right predictions, and of confusions between digits.
///
/// The order of the predictions does not matter. Its `Display` shows the accuracy and the confusion matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DigitsReport {
    /// The rows are the labels, the columns the predicted digits.
    confusion: [[u32; CLASSES]; CLASSES],
}

impl DigitsReport {
    /// Counts one more prediction.
    ///
    /// # Errors
    ///
    /// Returns an error if its label or its result is not a digit; the report does not change.
    pub(crate) fn add(&mut self, prediction: &Prediction) -> Result<(), String> {
        let Prediction {
            label, predicted, ..
        } = prediction;
        let row = self.confusion.get_mut(usize::from(*label));
        let count = row.and_then(|row| row.get_mut(usize::from(*predicted)));
        *count.ok_or_else(|| format!("{label} or {predicted} is not a digit"))? += 1;
        Ok(())
    }

    /// The number of predictions counted.
    pub(crate) fn total(&self) -> u32 {
        self.confusion.iter().flatten().sum()
    }

    /// The number of predictions that are right.
    pub(crate) fn correct(&self) -> u32 {
        let rows = self.confusion.iter().enumerate();
        rows.filter_map(|(digit, row)| row.get(digit)).sum()
    }

    /// The share of the predictions that are right.
    pub(crate) fn accuracy(&self) -> f64 {
        f64::from(self.correct()) / f64::from(self.total())
    }

    /// Number of times that each digit (row) was taken for each digit (column).
    pub(crate) fn confusion(&self) -> &[[u32; CLASSES]; CLASSES] {
        &self.confusion
    }
}

impl fmt::Display for DigitsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (correct, total) = (self.correct(), self.total());
        let percent = self.accuracy() * 100.0;
        writeln!(f, "accuracy: {percent:.2} % ({correct} of {total})\n")?;
        let largest = self.confusion.iter().flatten().max().unwrap_or(&0);
        let width = largest.to_string().len() + 2;
        write!(f, "true │ predicted\n     │")?;
        for digit in 0..CLASSES {
            write!(f, "{digit:>width$}")?;
        }
        writeln!(f, "\n─────┼{}", "─".repeat(width * CLASSES))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_the_accuracy_and_all_digits() {
        let prediction = |label, predicted| Prediction {
            id: 0,
            label,
            predicted,
            scores: [0.0; CLASSES],
        };
        let mut report = DigitsReport::default();
        let mut pairs = vec![(0, 0); 12];
        pairs.extend([(4, 4), (4, 9), (8, 1), (9, 9)]);
        for (label, predicted) in pairs {
            report.add(&prediction(label, predicted)).unwrap();
        }
        let expected = "\
accuracy: 87.50 % (14 of 16)

true │ predicted
     │   0   1   2   3   4   5   6   7   8   9
─────┼────────────────────────────────────────
   0 │  12   ·   ·   ·   ·   ·   ·   ·   ·   ·
   1 │   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·
   2 │   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·
   3 │   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·
   4 │   ·   ·   ·   ·   1   ·   ·   ·   ·   1
   5 │   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·
   6 │   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·
   7 │   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·
   8 │   ·   1   ·   ·   ·   ·   ·   ·   ·   ·
   9 │   ·   ·   ·   ·   ·   ·   ·   ·   ·   1
";
        assert_eq!(report.to_string(), expected);
        let before = report.clone();
        for (label, predicted) in [(10, 1), (1, 10)] {
            assert!(report.add(&prediction(label, predicted)).is_err());
        }
        assert_eq!(report, before);
    }
}
