//! Evaluation: each process classifies its share of handwritten digits, and rank 0 gathers the predictions.
//!
//! ```text
//! cargo build --release -p fsgather --example evaluation
//! cargo run --release -- run -n 4 -- target/release/examples/evaluation
//! ```

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use std::error::Error;

use fsgather::Communicator;

/// 1,797 images of 8 by 8 pixels, each followed by its digit.
const DATA: &str = include_str!("../../fsgather-cli/data/digits.csv");

/// The pixels of an image, and its digit.
type Image = Vec<i32>;

fn main() -> Result<(), Box<dyn Error>> {
    // Who am I, and who else is there? The variables of the launcher say it.
    let world = Communicator::from_env()?;

    // Each rank classifies its share of every sixth image.
    let rows = DATA.lines();
    let images = rows.map(|row| row.split(',').map(str::parse).collect());
    let images = images.collect::<Result<Vec<Image>, _>>()?;
    let mine: Vec<bool> = (0..images.len())
        .step_by(6)
        .skip(world.rank().index())
        .step_by(world.world_size().count())
        .map(|image| nearest_digit(&images, image) == images[image].last())
        .collect();

    // Rank 0 gets the results of all ranks, one rank at a time; the others continue at once.
    if let Some(parts) = world.gather(&mine, 0)? {
        let (mut right, mut all) = (0, 0);
        for part in parts {
            let (_rank, results) = part?;
            right += results.iter().filter(|result| **result).count();
            all += results.len();
        }
        println!("{right} of {all} images were recognized");
    }

    world.close()?;
    Ok(())
}

/// The digit of the other image that is most like this one.
fn nearest_digit(images: &[Image], image: usize) -> Option<&i32> {
    let others = images.iter().enumerate().filter(|(at, _)| *at != image);
    let distance = |other: &Image| -> i32 {
        let pixels = other.iter().zip(&images[image]).take(64);
        pixels.map(|(one, other)| (one - other).pow(2)).sum()
    };
    let nearest = others.min_by_key(|(_, other)| distance(other));
    nearest.and_then(|(_, other)| other.last())
}
