//! Leave-one-out classification by the nearest neighbours.

use std::collections::HashSet;

use crate::classifier_error::ClassifierError;
use crate::neighbour::{K, Neighbour, distance, vote};
use crate::prediction::Prediction;
use crate::sample::{CLASSES, Sample};

/// Classifies each sample by the samples most like it.
///
/// The [`NEIGHBOURS`](crate::NEIGHBOURS) samples nearest to it vote with their labels. A sample is
/// never its own neighbour, so its own label has no say in its prediction, and
/// there is nothing to train and no weights to ship.
///
/// Nearness is the squared Euclidean distance between the pixels, in integers.
/// Of samples equally near, the one with the lower id is the neighbour; of
/// labels with equal votes, the one with the nearest neighbour wins. So there
/// is exactly one right answer, whatever the order of the samples.
#[derive(Debug, Clone)]
pub struct Classifier<'a> {
    samples: &'a [Sample],
}

impl<'a> Classifier<'a> {
    /// Makes a classifier whose neighbours are `samples`.
    ///
    /// # Errors
    ///
    /// If there are too few samples for a vote, two have the same id, or one
    /// has a label above 9.
    pub fn new(samples: &'a [Sample]) -> Result<Self, ClassifierError> {
        if samples.len() <= K {
            let found = samples.len();
            return Err(ClassifierError::TooFewSamples { found });
        }
        let mut ids = HashSet::with_capacity(samples.len());
        for &Sample { id, label, .. } in samples {
            if !ids.insert(id) {
                return Err(ClassifierError::DuplicateId { id });
            }
            if usize::from(label) >= CLASSES {
                return Err(ClassifierError::NotADigit { id, label });
            }
        }
        Ok(Self { samples })
    }

    /// Classifies `sample` by its nearest neighbours with another id.
    ///
    /// The sample itself need not be one of the classifier's.
    ///
    /// # Example
    ///
    /// ```
    /// use fsgather_digits::{Classifier, samples};
    ///
    /// let samples = samples()?;
    /// let prediction = Classifier::new(&samples)?.classify(&samples[7]);
    /// assert_eq!(prediction.predicted, 7);
    /// assert_eq!(prediction.scores[7], 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn classify(&self, sample: &Sample) -> Prediction {
        let (predicted, scores) = vote(&self.nearest(sample));
        Prediction {
            id: sample.id,
            label: sample.label,
            predicted,
            scores,
        }
    }

    /// Finds the nearest neighbours, the nearest first.
    fn nearest(&self, sample: &Sample) -> [Neighbour; K] {
        // Farther than any sample can be. None of these is left in the end, as
        // `new` has seen to it that there are enough other samples.
        let none = Neighbour {
            distance: u32::MAX,
            id: u32::MAX,
            label: 0,
        };
        let mut nearest = [none; K];
        for other in self.samples {
            if other.id == sample.id {
                continue;
            }
            let [.., farthest] = &mut nearest;
            let distance = distance(&sample.pixels, &other.pixels, farthest.distance);
            let candidate = Neighbour {
                distance,
                id: other.id,
                label: other.label,
            };
            if candidate < *farthest {
                *farthest = candidate;
                nearest.sort_unstable();
            }
        }
        nearest
    }
}

#[cfg(test)]
#[path = "classifier_tests.rs"]
mod tests;
