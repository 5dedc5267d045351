//! Metrics: a few numbers of every rank, to all ranks, at every step.
//!
//! ```text
//! cargo build --release -p fsgather --example metrics
//! cargo run --release -- run -n 4 -- target/release/examples/metrics
//! ```

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use fsgather::{Communicator, Error};
use serde::{Deserialize, Serialize};

/// The metrics of one rank after a step. Any type with these two derives will do.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Metrics {
    loss: f64,
    samples: u32,
}

fn main() -> Result<(), Error> {
    let world = Communicator::from_env()?;
    for step in 1..=1000_u32 {
        let own = train(step, world.rank().get());

        // Small values make no file: they travel with the messages by which ranks agree, a round trip.
        let all = world.all_gather(&own)?;

        // All ranks have the same list in rank order, so all ranks make the same decision.
        let samples: u32 = all.iter().map(|metrics| metrics.samples).sum();
        let sum: f64 = all.iter().map(|m| m.loss * f64::from(m.samples)).sum();
        let loss = sum / f64::from(samples);
        if world.rank().get() == 0 && step % 100 == 0 {
            println!("step {step}: loss {loss:.4} over {samples} samples");
        }
        if loss < 0.25 {
            println!("rank {} stops after step {step}", world.rank());
            break;
        }
    }
    world.close()
}

/// Stands for the work of one step. Ranks have different numbers of samples.
fn train(step: u32, rank: u32) -> Metrics {
    Metrics {
        loss: 100.0 / f64::from(step + rank),
        samples: 8 + rank,
    }
}
