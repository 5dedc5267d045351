//! The whole data set, against figures computed by another program.

use std::error::Error;

use fsgather_digits::{Classifier, DigitsReport, Prediction, samples, shard};

/// What an independent brute-force program (`NumPy`, all distances, stable sort
/// by distance and id) found on the same file; rows are the true digits.
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

/// The samples that program gets wrong, and what it takes them for.
const MISTAKES: [(u32, u8); 20] = [
    (5, 9),
    (69, 4),
    (129, 1),
    (421, 9),
    (480, 9),
    (547, 8),
    (683, 1),
    (794, 1),
    (813, 3),
    (891, 3),
    (1038, 3),
    (1100, 8),
    (1118, 7),
    (1361, 6),
    (1553, 1),
    (1575, 9),
    (1605, 7),
    (1658, 3),
    (1662, 5),
    (1790, 1),
];

#[test]
fn every_prediction_is_the_one_found_independently() -> Result<(), Box<dyn Error>> {
    let samples = samples()?;
    let classifier = Classifier::new(&samples)?;
    let single: Vec<Prediction> = samples.iter().map(|s| classifier.classify(s)).collect();

    let mistakes: Vec<(u32, u8)> = single
        .iter()
        .filter(|p| !p.is_correct())
        .map(|p| (p.id, p.predicted))
        .collect();
    assert_eq!(mistakes, MISTAKES);

    let report = DigitsReport::from_predictions(&single)?;
    assert_eq!(report.confusion(), &CONFUSION);
    assert_eq!((report.correct(), report.total()), (1777, 1797));
    assert_eq!(report.accuracy(), Some(1777.0 / 1797.0));
    Ok(())
}

#[test]
fn shards_computed_apart_are_what_one_process_computes() -> Result<(), Box<dyn Error>> {
    // A part is enough to compare, and keeps unoptimised builds quick.
    const COMPARED: usize = 200;
    let whole = samples()?;
    let classifier = Classifier::new(&whole)?;
    let part = &whole[..COMPARED];
    let single: Vec<Prediction> = part.iter().map(|s| classifier.classify(s)).collect();

    for count in [2, 3, 7] {
        let mut union = Vec::new();
        for index in 0..count {
            // Read anew, as another process would.
            let samples = samples()?;
            let classifier = Classifier::new(&samples)?;
            let mine = shard(&samples[..COMPARED], index, count);
            union.extend(mine.iter().map(|s| classifier.classify(s)));
        }
        assert_eq!(union, single, "{count} shards");
    }
    Ok(())
}
