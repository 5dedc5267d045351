//! Each rank has a part of an array; rank 0 joins them along an axis, without an array for each rank
//! in between.
//!
//! ```text
//! cargo build -p fsgather --example arrays --features ndarray
//! cargo run -- run -n 3 -- target/debug/examples/arrays
//! ```

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use fsgather::{Communicator, Error};
use ndarray::Array2;

fn main() -> Result<(), Error> {
    let world = Communicator::from_env()?;

    // Rank r has found r + 1 boxes of four coordinates. Sizes may differ along the axis only.
    let rank = world.rank().get();
    let boxes = Array2::from_elem((world.rank().index() + 1, 4), f64::from(rank));

    // Along axis 0, on rank 0 alone; `None` as the last argument would give it to every rank.
    if let Some(all) = world.gather_array(&boxes.view(), 0, 0)? {
        println!("{} boxes, {:?}", all.nrows(), all.column(0).to_vec());
    }

    // What does not fit together is told to all, with what each rank has, and nothing has been moved.
    let odd = Array2::<f32>::zeros((1, 4 + world.rank().index()));
    match world.all_gather_array(&odd.view(), 0) {
        Err(mismatch @ Error::Mismatch { .. }) if rank == 0 => println!("{mismatch}"),
        Err(Error::Mismatch { .. }) | Ok(_) => {}
        Err(other) => return Err(other),
    }

    world.close()
}
