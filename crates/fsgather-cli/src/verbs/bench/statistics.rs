//! Summarizes many iterations: [`slowest`] and [`Summary`]. Pure.

/// The duration of each iteration, given its duration on each rank: that of the slowest rank.
pub(super) fn slowest(ranks: &[Vec<u64>]) -> Vec<u64> {
    let iterations = ranks.iter().map(Vec::len).min().unwrap_or(0);
    (0..iterations)
        .map(|iteration| {
            ranks
                .iter()
                .map(|times| times[iteration])
                .max()
                .unwrap_or(0)
        })
        .collect()
}

/// A summary of the durations of many iterations, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) min: f64,
    /// The 90th percentile: nine of ten iterations took no longer.
    pub(super) p90: f64,
}

impl Summary {
    /// Summarizes durations in nanoseconds; `None` if there are none.
    pub(super) fn of(nanoseconds: &[u64]) -> Option<Self> {
        let mut sorted = nanoseconds.to_vec();
        sorted.sort_unstable();
        let (count, min) = (sorted.len(), *sorted.first()?);
        Some(Self {
            median: f64::midpoint(seconds(sorted[(count - 1) / 2]), seconds(sorted[count / 2])),
            min: seconds(min),
            p90: seconds(sorted[(count * 9).div_ceil(10) - 1]),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "53 bits hold 104 days")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn an_iteration_takes_as_long_as_its_slowest_rank() {
        let ranks = [vec![1, 9, 3], vec![4, 2, 3], vec![2, 3, 3]];
        assert_eq!(slowest(&ranks), [4, 9, 3]);
        assert_eq!(slowest(&[]), [0_u64; 0]);
    }

    #[test]
    fn figures_are_those_of_the_textbook() {
        let times: Vec<u64> = [7, 1, 4, 10, 3, 2, 6, 9, 5, 8].map(|n| n * SECOND).into();
        let summary = Summary::of(&times).unwrap();
        assert_eq!(
            summary,
            Summary {
                median: 5.5,
                min: 1.0,
                p90: 9.0
            }
        );
        let odd = Summary::of(&times[..3]).unwrap();
        assert_eq!((odd.median, odd.p90), (4.0, 7.0));
        let one = Summary::of(&[2 * SECOND]).unwrap();
        assert_eq!((one.median, one.min, one.p90), (2.0, 2.0, 2.0));
        assert_eq!(Summary::of(&[]), None);
    }
}
