//! Leave-one-out classification by the nearest neighbours: [`classify`].

use serde::{Deserialize, Serialize};

use super::{
    CLASSES,
    data_set::{PIXELS, Sample},
};

/// The number of neighbours that vote on a sample.
const NEIGHBOURS: u8 = 3;

/// The result for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prediction {
    /// The sample.
    pub(crate) id: u32,
    /// The digit that was written.
    pub(crate) label: u8,
    /// The digit that the neighbours vote for.
    pub(crate) predicted: u8,
    /// The share of the votes for each digit.
    pub(crate) scores: [f32; CLASSES],
}

/// A neighbour; the order of the fields is the order of nearness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Neighbour {
    distance: u32,
    id: u32,
    label: u8,
}

/// Classifies a sample by the labels of the samples nearest to it, never by its own.
///
/// Nearness is the squared Euclidean distance between the pixels. Of samples equally near, the one with the lower id is the
/// neighbour; of labels with equal votes, the one of the nearest neighbour wins. So there is exactly one right answer.
pub(crate) fn classify(samples: &[Sample], sample: &Sample) -> Prediction {
    let farther_than_any = Neighbour {
        distance: u32::MAX,
        id: u32::MAX,
        label: 0,
    };
    let mut nearest = [farther_than_any; NEIGHBOURS as usize];
    for other in samples.iter().filter(|other| other.id != sample.id) {
        let [.., farthest] = &mut nearest;
        let candidate = Neighbour {
            distance: distance(&sample.pixels, &other.pixels, farthest.distance),
            id: other.id,
            label: other.label,
        };
        if candidate < *farthest {
            *farthest = candidate;
            nearest.sort_unstable();
        }
    }
    let votes = |label: u8| -> u8 {
        let votes = nearest.iter().map(|one| u8::from(one.label == label));
        votes.sum()
    };
    // `max_by_key` returns the last of several, which is the nearest in reverse order.
    let winner = nearest.iter().rev().max_by_key(|one| votes(one.label));
    let mut scores = [0.0; CLASSES];
    for (label, score) in (0..).zip(&mut scores) {
        *score = f32::from(votes(label)) / f32::from(NEIGHBOURS);
    }
    Prediction {
        id: sample.id,
        label: sample.label,
        predicted: winner.map_or(0, |winner| winner.label),
        scores,
    }
}

/// The squared Euclidean distance, or any number above `limit` if it is above: builds without optimization take much
/// longer otherwise.
fn distance(a: &[u8; PIXELS], b: &[u8; PIXELS], limit: u32) -> u32 {
    let mut sum = 0;
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (a, b) in a.iter().zip(b) {
            sum += u32::from(a.abs_diff(*b)).pow(2);
        }
        if sum > limit {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample whose distance to another is the squared difference of their inks.
    fn dot(id: u32, ink: u8, label: u8) -> Sample {
        let mut pixels = [0; 64];
        pixels[63] = ink;
        Sample { id, pixels, label }
    }

    fn predicted(samples: &[Sample], sample: &Sample) -> u8 {
        classify(samples, sample).predicted
    }

    #[test]
    fn a_sample_has_no_vote_on_itself() {
        // With its own vote, sample 0 and its twin would outvote the third.
        let samples = [dot(0, 5, 1), dot(1, 5, 1), dot(2, 6, 2), dot(3, 7, 2)];
        assert_eq!(predicted(&samples, &samples[0]), 2);
        // Another sample with the same pixels is outvoted by the twins.
        assert_eq!(predicted(&samples, &dot(9, 5, 1)), 1);
    }

    #[test]
    fn the_lower_id_and_the_nearer_label_win_ties() {
        let samples = [dot(0, 8, 3), dot(1, 8, 4), dot(2, 10, 4), dot(3, 6, 3)];
        assert_eq!(predicted(&samples, &dot(9, 8, 0)), 4);
        let samples = [dot(0, 4, 1), dot(1, 3, 2), dot(2, 2, 3), dot(3, 9, 1)];
        assert_eq!(predicted(&samples, &dot(9, 1, 8)), 3);
    }
}
