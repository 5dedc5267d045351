use super::*;

/// A sample whose distance to another is the squared difference of their inks.
fn dot(id: u32, ink: u8, label: u8) -> Sample {
    let mut pixels = [0; 64];
    pixels[63] = ink;
    Sample { id, pixels, label }
}

fn predicted(samples: &[Sample], sample: &Sample) -> Result<u8, ClassifierError> {
    Ok(Classifier::new(samples)?.classify(sample).predicted)
}

#[test]
fn a_sample_has_no_vote_on_itself() -> Result<(), ClassifierError> {
    // With its own vote, sample 0 and its twin would outvote the third.
    let samples = [dot(0, 5, 1), dot(1, 5, 1), dot(2, 6, 2), dot(3, 7, 2)];
    assert_eq!(predicted(&samples, &samples[0])?, 2);
    // Someone else's sample at the same place is outvoted by the twins.
    assert_eq!(predicted(&samples, &dot(9, 5, 1))?, 1);
    Ok(())
}

#[test]
fn of_equally_near_samples_the_lower_id_is_the_neighbour() -> Result<(), ClassifierError> {
    let nearest = [dot(0, 8, 3), dot(1, 8, 4)];
    let (low, high) = (dot(2, 10, 4), dot(3, 6, 3));
    for rest in [[low.clone(), high.clone()], [high, low]] {
        let samples = [nearest.to_vec(), rest.to_vec()].concat();
        assert_eq!(predicted(&samples, &dot(9, 8, 0))?, 4);
    }
    Ok(())
}

#[test]
fn of_equal_votes_the_nearest_wins() -> Result<(), ClassifierError> {
    let samples = [dot(0, 4, 1), dot(1, 3, 2), dot(2, 2, 3), dot(3, 9, 1)];
    let prediction = Classifier::new(&samples)?.classify(&dot(9, 1, 8));
    assert_eq!((prediction.id, prediction.label), (9, 8));
    assert_eq!(prediction.predicted, 3);
    Ok(())
}

#[test]
fn the_order_of_the_samples_does_not_matter() -> Result<(), Box<dyn std::error::Error>> {
    let samples = crate::samples()?;
    let reversed: Vec<Sample> = samples.iter().rev().cloned().collect();
    let (one, other) = (Classifier::new(&samples)?, Classifier::new(&reversed)?);
    for sample in samples.iter().step_by(20) {
        assert_eq!(one.classify(sample), other.classify(sample));
    }
    Ok(())
}

#[test]
fn samples_without_one_right_answer_are_refused() {
    let message = |samples: &[Sample]| {
        let error = Classifier::new(samples).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let mut samples = vec![dot(0, 1, 1), dot(1, 2, 2), dot(2, 3, 3)];
    assert_eq!(
        message(&samples),
        "found 3 samples, but a vote takes 3 besides the one classified"
    );
    samples.push(dot(3, 4, 4));
    assert_eq!(message(&samples), "");
    samples[3].label = 10;
    assert_eq!(message(&samples), "sample 3: label 10 is not a digit");
    samples[3].id = 1;
    assert_eq!(message(&samples), "more than one sample has the id 1");
}
