//! The work of the demo: 1,797 handwritten digits, and a classifier for them.
//!
//! Nothing here knows how the work is spread over processes. [`samples`] reads the data set, [`shard`] selects the part of
//! one rank, [`classify`] turns a sample into a [`Prediction`], and [`DigitsReport`] counts predictions in any order.
//! All is computed in integers, so that shards computed in different processes are equal to what one process computes.
//!
//! The data set is *Optical Recognition of Handwritten Digits*, E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning
//! Repository, CC BY 4.0; see `data/README.md`.

mod classifier;
mod data_set;
mod report;

pub(crate) use classifier::{Prediction, classify};
pub(crate) use data_set::{samples, shard};
pub(crate) use report::DigitsReport;

/// The number of classes: the digits 0 to 9.
const CLASSES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The confusion matrix of an independent brute-force program (`NumPy`, all distances, stable sort by distance and id)
    /// for the same file; rows are the true digits.
    const CONFUSION: [[u32; 10]; 10] = [
        [178, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 182, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 176, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 181, 0, 0, 0, 2, 0, 0],
        [0, 0, 0, 0, 181, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 178, 1, 0, 0, 3],
        [0, 0, 0, 0, 0, 0, 181, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 178, 0, 1],
        [0, 4, 0, 0, 0, 0, 0, 0, 170, 0],
        [0, 1, 0, 3, 1, 1, 0, 0, 2, 172],
    ];

    #[test]
    fn predictions_equal_those_of_an_independent_program() {
        let samples = samples().unwrap();
        let mut report = DigitsReport::default();
        for sample in (0..3).flat_map(|index| shard(&samples, index, 3)) {
            report.add(&classify(&samples, sample)).unwrap();
        }
        assert_eq!(report.confusion(), &CONFUSION);
        assert_eq!((report.correct(), report.total()), (1777, 1797));
    }
}
