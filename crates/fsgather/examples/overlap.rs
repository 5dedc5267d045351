//! Overlap: results of a batch travel while the next one is computed.
//!
//! ```text
//! cargo build --release -p fsgather --example overlap
//! cargo run --release -- run -n 4 -- target/release/examples/overlap
//! ```

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use fsgather::{Communicator, Error, Pending};

const BATCHES: u32 = 5;

fn main() -> Result<(), Error> {
    let world = Communicator::from_env()?;
    let mut under_way: Option<Pending<Vec<Vec<f64>>>> = None;
    let mut received = 0;
    for batch in 0..BATCHES {
        let scores = compute(batch, world.rank().get());

        // The batch before has had all this time to travel: waiting for it is short.
        if let Some(before) = under_way.take() {
            received += take(&before.wait()?);
        }

        // When this returns, the scores have been published and announced, so no rank has to wait for this one, and
        // `scores` may be used for something else.
        under_way = Some(world.start_all_gather(&scores)?);
    }
    if let Some(last) = under_way {
        received += take(&last.wait()?);
    }
    if world.rank().get() == 0 {
        println!(
            "{received} scores of {BATCHES} batches of {} ranks",
            world.world_size()
        );
    }
    world.close()
}

/// Stands for the work on a batch.
fn compute(batch: u32, rank: u32) -> Vec<f64> {
    (0..50_000)
        .map(|n| f64::from(n + batch + rank).sqrt())
        .collect()
}

/// Stands for what becomes of the scores of all ranks.
fn take(all: &[Vec<f64>]) -> usize {
    all.iter().map(Vec::len).sum()
}
