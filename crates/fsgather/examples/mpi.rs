//! An MPI program whose ranks MPI introduces to each other, and which gathers through fsgather.
//!
//! ```text
//! cargo build --release -p fsgather --example mpi --features mpi
//! mpirun -np 4 target/release/examples/mpi
//! ```
//!
//! Building it takes MPI (`mpicc`) and libclang: on Debian `apt-get install libopenmpi-dev libclang-dev`.

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use std::error::Error;

use fsgather::{Communicator, MpiBootstrap, Rendezvous};
use mpi::{
    Threading,
    collective::SystemOperation,
    traits::{Communicator as _, CommunicatorCollectives as _},
};

fn main() -> Result<(), Box<dyn Error>> {
    // MPI is called on this thread only; fsgather has threads of its own.
    let (universe, _) = mpi::initialize_with_threading(Threading::Funneled).ok_or("MPI")?;
    let ranks = universe.world();

    // No launcher's variable, shared directory or port is needed: MPI hands rank 0's address over.
    let world = Communicator::builder()
        .rank(ranks.rank().unsigned_abs())
        .world_size(ranks.size().unsigned_abs())
        .rendezvous(Rendezvous::custom(MpiBootstrap::new()?))
        .build()?;

    // What is small and numeric goes on through MPI,
    let mut total = 0_u64;
    let own = u64::from(world.rank().get()) + 1;
    ranks.all_reduce_into(&own, &mut total, SystemOperation::sum());

    // what is large or has a shape of its own through fsgather.
    let found: Vec<String> = (0..own).map(|n| format!("{}.{n}", world.rank())).collect();
    if let Some(parts) = world.gather(&found, 0)? {
        let all: Vec<String> = parts.flatten().flat_map(|(_, found)| found).collect();
        println!("{} of {total} found: {}", all.len(), all.join(" "));
    }
    world.close()?;
    Ok(())
}
