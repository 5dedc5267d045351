//! Measures how near two samples are, and has the nearest ones vote.

use crate::sample::{CLASSES, PIXELS};

/// The number of neighbours that vote on a sample.
pub const NEIGHBOURS: u8 = 3;

/// The same number as a length.
pub(crate) const K: usize = NEIGHBOURS as usize;

/// A candidate for a vote; the order of the fields is the order of nearness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Neighbour {
    pub(crate) distance: u32,
    pub(crate) id: u32,
    pub(crate) label: u8,
}

/// The squared Euclidean distance, or any number above `limit` if it is above.
///
/// Giving up early leaves the result as it is, since what is beyond the limit
/// is no neighbour; it spares most of the work, which builds without
/// optimisation feel. The sum cannot overflow: 64 × 255² is below 2³².
pub(crate) fn distance(a: &[u8; PIXELS], b: &[u8; PIXELS], limit: u32) -> u32 {
    let mut sum = 0;
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (a, b) in a.iter().zip(b) {
            let difference = u32::from(a.abs_diff(*b));
            sum += difference * difference;
        }
        if sum > limit {
            break;
        }
    }
    sum
}

/// Counts the votes of `nearest`, which starts with the nearest neighbour.
///
/// Gives the winner and every label's share of the votes.
pub(crate) fn vote(nearest: &[Neighbour; K]) -> (u8, [f32; CLASSES]) {
    let mut winner = (0, 0);
    for neighbour in nearest {
        // More votes, not as many: in a tie the nearer neighbour stays.
        let votes = votes(nearest, neighbour.label);
        if votes > winner.1 {
            winner = (neighbour.label, votes);
        }
    }
    let mut scores = [0.0; CLASSES];
    for (label, score) in (0..).zip(&mut scores) {
        *score = f32::from(votes(nearest, label)) / f32::from(NEIGHBOURS);
    }
    (winner.0, scores)
}

fn votes(nearest: &[Neighbour; K], label: u8) -> u8 {
    nearest.iter().map(|n| u8::from(n.label == label)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(labels: [u8; K]) -> [Neighbour; K] {
        labels.map(|label| Neighbour {
            distance: 0,
            id: 0,
            label,
        })
    }

    #[test]
    fn the_majority_wins_and_a_tie_goes_to_the_nearest() {
        for (labels, winner) in [
            ([4, 4, 4], 4),
            ([4, 9, 9], 9),
            ([9, 4, 9], 9),
            ([9, 9, 4], 9),
            ([7, 2, 5], 7),
            ([0, 5, 2], 0),
        ] {
            assert_eq!(vote(&voters(labels)).0, winner, "{labels:?}");
        }
    }

    #[test]
    fn scores_are_the_shares_of_the_votes() {
        let (_, scores) = vote(&voters([1, 8, 8]));
        let bits = scores.map(f32::to_bits);
        let mut expected = [0_f32; CLASSES].map(f32::to_bits);
        // One third and two thirds, rounded to f32.
        (expected[1], expected[8]) = (0x3eaa_aaab, 0x3f2a_aaab);
        assert_eq!(bits, expected);
    }

    #[test]
    fn distance_is_exact_up_to_the_limit_and_above_it_beyond() {
        let (blank, full) = ([0; PIXELS], [u8::MAX; PIXELS]);
        assert_eq!(distance(&blank, &full, u32::MAX), 64 * 255 * 255);
        assert_eq!(distance(&full, &blank, 64 * 255 * 255), 64 * 255 * 255);
        assert!(distance(&blank, &full, 1000) > 1000);

        let mut corners = blank;
        (corners[0], corners[63]) = (3, 4);
        assert_eq!(distance(&corners, &blank, 25), 25);
        // Not to be mistaken for a tie when the first corner is at the limit.
        assert!(distance(&corners, &blank, 9) > 9);
    }

    #[test]
    fn nearness_is_distance_first_and_then_id() {
        let neighbour = |distance, id, label| Neighbour {
            distance,
            id,
            label,
        };
        assert!(neighbour(1, 9, 9) < neighbour(2, 0, 0));
        assert!(neighbour(1, 3, 9) < neighbour(1, 4, 0));
    }
}
