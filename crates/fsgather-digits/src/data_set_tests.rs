use super::*;

/// Three good rows whose labels are 0, 1 and 2.
fn good() -> Vec<String> {
    (0..3)
        .map(|label| format!("{}{label}", "7,".repeat(PIXELS)))
        .collect()
}

/// The message for three rows of which the second is `row`.
fn message(row: &str) -> String {
    let rows = [&*format!("{}0", "7,".repeat(PIXELS)), row, row];
    match parse(&rows.join("\n"), rows.len()) {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_shipped_data_is_whole() -> Result<(), ParseError> {
    let samples = samples()?;
    assert_eq!(samples.len(), SAMPLES);
    assert!((0..).zip(&samples).all(|(id, sample)| sample.id == id));

    let count = |digit| samples.iter().filter(|s| s.label == digit).count();
    let counts: Vec<usize> = (0..10).map(count).collect();
    assert_eq!(
        counts,
        [178, 182, 177, 183, 181, 182, 181, 179, 174, 180],
        "samples per digit, as data/README.md states"
    );
    let ink: u64 = samples.iter().flat_map(|s| s.pixels).map(u64::from).sum();
    assert_eq!(ink, INK);
    Ok(())
}

/// The sum of all pixels, computed from the CSV file by another program.
const INK: u64 = 561_718;

#[test]
fn the_last_field_is_the_label_and_the_others_are_pixels() -> Result<(), ParseError> {
    let pixels: Vec<String> = (0..64).map(|i| (i % 17).to_string()).collect();
    let samples = parse(&format!("{},9\n", pixels.join(",")), 1)?;
    let [sample] = samples.as_slice() else {
        assert_eq!(samples.len(), 1);
        return Ok(());
    };
    assert_eq!((sample.id, sample.label), (0, 9));
    assert!((0..64).zip(sample.pixels).all(|(i, p)| p == i % 17));
    Ok(())
}

#[test]
fn line_ends_of_either_kind_give_the_same_samples() {
    let unix = parse(&good().join("\n"), 3);
    assert!(unix.is_ok());
    assert_eq!(unix, parse(&good().join("\r\n"), 3));
}

#[test]
fn a_bad_field_is_named_by_line_and_place() {
    let pixels = "7,".repeat(PIXELS - 1);
    assert_eq!(
        message(&format!("x,{pixels}1")),
        "digits data, line 2: field 1 is not an integer from 0 to 255: \"x\""
    );
    assert_eq!(
        message(&format!("{pixels}-1,1")),
        "digits data, line 2: field 64 is not an integer from 0 to 255: \"-1\""
    );
    assert_eq!(
        message(&format!("{pixels}17,1")),
        "digits data, line 2: field 64: pixel 17 is above 16"
    );
    assert_eq!(
        message(&format!("{pixels}16,10")),
        "digits data, line 2: label 10 is above 9"
    );
}

#[test]
fn a_row_of_the_wrong_length_says_how_long_it_is() {
    let short = "7,".repeat(PIXELS - 1) + "1";
    let long = "7,".repeat(PIXELS + 1) + "1";
    let expected = |n| format!("digits data, line 2: expected 65 fields, found {n}");
    assert_eq!(message(&short), expected(64));
    assert_eq!(message(&long), expected(66));
    assert_eq!(message(""), expected(1));
}

#[test]
fn a_file_of_the_wrong_length_is_refused_at_the_line_where_it_shows() {
    let text = good().join("\n");
    let problem = |expected| ParseProblem::LineCount { expected };
    let error = |line, expected| {
        let problem = problem(expected);
        Err(ParseError { line, problem })
    };
    assert_eq!(parse(&text, 4), error(4, 4), "cut off between lines");
    assert_eq!(parse(&text, 2), error(3, 2), "a line too many");
    assert_eq!(parse("", 1), error(1, 1), "empty");
}
