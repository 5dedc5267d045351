use super::*;

fn predictions(pairs: &[(u8, u8)]) -> Vec<Prediction> {
    let prediction = |(id, &(label, predicted))| Prediction {
        id,
        label,
        predicted,
        scores: [0.0; CLASSES],
    };
    (0..).zip(pairs).map(prediction).collect()
}

#[test]
fn the_display_is_as_people_read_it() -> Result<(), NotADigit> {
    let mut pairs = vec![(0, 0); 12];
    pairs.extend([(4, 4), (4, 9), (8, 1), (9, 9)]);
    let report = DigitsReport::from_predictions(&predictions(&pairs))?;
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
    Ok(())
}

#[test]
fn an_empty_report_claims_no_accuracy() {
    let report = DigitsReport::default();
    assert_eq!((report.total(), report.correct()), (0, 0));
    assert_eq!(report.accuracy(), None);
    assert_eq!(report.to_string(), "accuracy: no predictions yet\n");
}

#[test]
fn predictions_may_come_in_any_order() -> Result<(), NotADigit> {
    let mut all = predictions(&[(1, 1), (2, 7), (7, 2), (7, 7)]);
    let report = DigitsReport::from_predictions(&all)?;
    assert_eq!(report.accuracy(), Some(0.5));
    assert_eq!(report.confusion()[2][7], 1, "row: label, column: predicted");
    assert_eq!(report.confusion()[7][2], 1);

    all.reverse();
    let mut reversed = DigitsReport::default();
    for prediction in &all {
        assert_ne!(reversed, report);
        reversed.add(prediction)?;
    }
    assert_eq!(reversed, report);
    Ok(())
}

#[test]
fn what_is_no_digit_is_refused_and_not_counted() {
    let mut report = DigitsReport::default();
    for prediction in &predictions(&[(10, 1), (1, 10), (255, 255)]) {
        let refused = NotADigit {
            id: prediction.id,
            label: prediction.label,
            predicted: prediction.predicted,
        };
        assert_eq!(report.add(prediction), Err(refused));
    }
    assert_eq!(report, DigitsReport::default());
    let error = DigitsReport::from_predictions(&predictions(&[(3, 3), (10, 1)]));
    assert_eq!(
        error.map_err(|e| e.to_string()),
        Err("sample 1: label 10 and prediction 1 should be digits".to_owned())
    );
}
