//! The data set of the demo: [`samples`].

use super::CLASSES;

const DATA: &str = include_str!("../../data/digits.csv");

/// The number of pixels of a sample: 8 rows of 8.
pub(super) const PIXELS: usize = 64;

/// One handwritten digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Its index in the data set.
    pub(crate) id: u32,
    /// The image, row by row from the top left, each pixel from 0 to 16.
    pub(crate) pixels: [u8; PIXELS],
    /// The digit that was written.
    pub(crate) label: u8,
}

/// Reads the data set that is compiled in.
///
/// # Errors
///
/// If the file was damaged before the command was built; the message names the line.
pub(crate) fn samples() -> Result<Vec<Sample>, String> {
    (0..)
        .zip(DATA.lines())
        .map(|(id, row)| {
            parse(id, row).ok_or_else(|| format!("digits.csv, line {}: {row}", id + 1))
        })
        .collect()
}

fn parse(id: u32, row: &str) -> Option<Sample> {
    let fields = row.split(',').map(str::parse);
    let fields: Vec<u8> = fields.collect::<Result<_, _>>().ok()?;
    let (label, pixels) = fields.split_last()?;
    Some(Sample {
        id,
        pixels: pixels.try_into().ok()?,
        label: *label,
    })
    .filter(|sample| usize::from(sample.label) < CLASSES)
}

/// Returns the part of `samples` for rank `index` of `count`.
///
/// The shards are contiguous and cover all samples exactly once. Their lengths differ by at most one.
pub(crate) fn shard(samples: &[Sample], index: usize, count: usize) -> &[Sample] {
    let (base, longer) = (samples.len() / count, samples.len() % count);
    let start = index * base + index.min(longer);
    let end = start + base + usize::from(index < longer);
    samples.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiled_data_is_complete() {
        let samples = samples().unwrap();
        let count = |digit| samples.iter().filter(|s| s.label == digit).count();
        let counts: Vec<usize> = (0..10).map(count).collect();
        assert_eq!(
            counts,
            [178, 182, 177, 183, 181, 182, 181, 179, 174, 180],
            "samples per digit, as data/README.md states"
        );
        // The sum of all pixels, computed from the file by another program.
        let ink: u64 = samples.iter().flat_map(|s| s.pixels).map(u64::from).sum();
        assert_eq!(ink, 561_718);
    }

    #[test]
    fn damaged_rows_are_refused() {
        let pixels = "7,".repeat(PIXELS);
        assert!(parse(0, &format!("{pixels}9")).is_some());
        for row in [
            "",
            &format!("{pixels}10"),
            &format!("{pixels}x"),
            &pixels[2..],
        ] {
            assert_eq!(parse(0, row), None, "{row}");
        }
    }

    #[test]
    fn shards_cover_everything_once_and_are_balanced() {
        let samples = samples().unwrap();
        for count in [1, 2, 7, 64, 1797, 2000] {
            let shards: Vec<&[Sample]> = (0..count).map(|i| shard(&samples, i, count)).collect();
            assert!(shards.concat() == samples, "{count} shards");
            let lengths = || shards.iter().map(|shard| shard.len());
            assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1);
        }
    }
}
