//! An evaluation that survives: kill it at any moment and start it again with any number of ranks.
//!
//! ```sh
//! fsgather run -n 4 -- target/release/examples/samples runs/squares 1000
//! ```
//!
//! The second argument is the number of samples, a third one the milliseconds that each of them takes. Rank 0 compares all
//! results with those of one undisturbed process.

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use std::{env, error::Error, thread, time::Duration};

use fsgather::{
    Communicator,
    samples::{GatherOptions, SampleId, SampleOptions, Samples},
};

/// The result of a sample: it depends on nothing but its number.
fn compute(number: u32) -> (String, Vec<f64>) {
    let scores = (0..number % 50).map(|score| f64::from(score) / 7.0);
    (format!("answer {number}"), scores.collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let directory = arguments.next().ok_or("name a directory")?;
    let count: u32 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let pause: u64 = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let communicator = Communicator::from_env()?;
    let options = SampleOptions::default()
        .expect_count(count.into())
        .config("power", 2);
    let samples = Samples::open(&communicator, directory, options)?;
    println!(
        "rank {}: {} missing",
        communicator.rank(),
        samples.missing().len()
    );
    for id in samples.share() {
        if let SampleId::Int(number) = id {
            thread::park_timeout(Duration::from_millis(pause));
            samples.add(id.clone(), &compute(u32::try_from(*number)?))?;
        }
    }
    if let Some(results) = samples.gather(GatherOptions::to(0))? {
        for (number, result) in (0..count).zip(results.iter::<(String, Vec<f64>)>()) {
            let (id, result) = result?;
            assert_eq!((id, result), (&number.into(), compute(number)));
        }
        println!("right: {}", results.report());
    }
    communicator.close()?;
    Ok(())
}
