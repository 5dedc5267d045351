//! Evaluation: several processes classify handwritten digits, each its share; rank 0 gathers what they
//! found, one rank at a time.
//!
//! Start it under any launcher that starts ranks, for example
//!
//! ```text
//! cargo build --release -p fsgather --example evaluation
//! cargo run --release -- run -n 4 -- target/release/examples/evaluation
//! ```
//!
//! or alone: then the world has one rank, and the result is the same.

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use std::error::Error;

use fsgather::Communicator;
use fsgather_digits::{Classifier, DigitsReport, Prediction, samples, shard};

fn main() -> Result<(), Box<dyn Error>> {
    // Who am I, and who else is there? The launcher's variables say it.
    let world = Communicator::from_env()?;

    // Each rank classifies its share of the samples.
    let samples = samples()?;
    let classifier = Classifier::new(&samples)?;
    let share = shard(&samples, world.rank().index(), world.world_size().count());
    let mine: Vec<Prediction> = share
        .iter()
        .map(|sample| classifier.classify(sample))
        .collect();

    // Rank 0 gets everybody's predictions, one rank at a time; the others go on at once.
    if let Some(parts) = world.gather(&mine, 0)? {
        let mut report = DigitsReport::default();
        for part in parts {
            let (_rank, predictions) = part?;
            for prediction in &predictions {
                report.add(prediction)?;
            }
        }
        print!("{report}");
    }

    // Everything was read, and nothing is left behind.
    world.close()?;
    Ok(())
}
