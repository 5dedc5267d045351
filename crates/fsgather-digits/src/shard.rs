//! Dividing the samples among workers.

use crate::sample::Sample;

/// Gives the part of `samples` that worker `index` of `count` takes.
///
/// The shards 0 to `count - 1` are contiguous, follow one another, and cover
/// all samples exactly once. Their lengths differ by one at most, the longer
/// ones first, so with more workers than samples the last shards are empty.
/// A worker that does not exist (`index >= count`) gets an empty shard.
///
/// # Example
///
/// ```
/// use fsgather_digits::{samples, shard};
///
/// let samples = samples()?;
/// assert_eq!(shard(&samples, 0, 4).len(), 450);
/// assert_eq!(shard(&samples, 3, 4).len(), 449);
/// # Ok::<(), fsgather_digits::ParseError>(())
/// ```
#[must_use]
pub fn shard(samples: &[Sample], index: usize, count: usize) -> &[Sample] {
    if index >= count {
        return &[];
    }
    let (base, longer) = (samples.len() / count, samples.len() % count);
    // Cannot overflow: `index < count`, so the start is within the samples.
    let start = index * base + index.min(longer);
    let end = start + base + usize::from(index < longer);
    samples.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(len: u32) -> Vec<Sample> {
        let sample = |id| Sample {
            id,
            pixels: [0; 64],
            label: 0,
        };
        (0..len).map(sample).collect()
    }

    #[test]
    fn shards_cover_everything_once_in_order_and_are_balanced() {
        for len in [0, 1, 2, 7, 64, 1797] {
            let samples = numbered(len);
            for count in [1, 2, 3, 4, 7, 8, 63, 64, 65, 1796, 1797, 1798, 5000] {
                let shards: Vec<&[Sample]> =
                    (0..count).map(|i| shard(&samples, i, count)).collect();
                assert_eq!(shards.concat(), samples, "{len} samples, {count} shards");

                let lengths: Vec<usize> = shards.iter().map(|s| s.len()).collect();
                assert!(lengths.is_sorted_by(|a, b| a >= b), "longer ones first");
                let spread = lengths.iter().max().zip(lengths.iter().min());
                assert!(spread.is_some_and(|(max, min)| max - min <= 1));
            }
        }
    }

    #[test]
    fn a_worker_that_does_not_exist_has_nothing_to_do() {
        let samples = numbered(10);
        assert!(shard(&samples, 3, 3).is_empty());
        assert!(shard(&samples, usize::MAX, 3).is_empty());
        assert!(shard(&samples, 0, 0).is_empty());
    }

    #[test]
    fn the_largest_count_does_not_overflow() {
        let samples = numbered(3);
        assert_eq!(shard(&samples, 2, usize::MAX).len(), 1);
        assert!(shard(&samples, usize::MAX - 1, usize::MAX).is_empty());
    }
}
