//! An MPI program whose ranks MPI introduces to each other, and which gathers through fsgather.
//!
//! ```text
//! cargo build --release --manifest-path crates/fsgather/examples/mpi/Cargo.toml --target-dir target/mpi
//! mpirun -np 4 target/mpi/release/fsgather-mpi-example
//! ```
//!
//! The build needs MPI (`mpicc`) and libclang: on Debian `apt-get install libopenmpi-dev libclang-dev`.

use std::{
    error::Error,
    thread,
    time::{Duration, Instant},
};

use fsgather::{Bootstrap, Communicator, Rendezvous};
use mpi::{
    Threading,
    collective::SystemOperation,
    request::StaticScope,
    topology::{Communicator as _, SimpleCommunicator},
    traits::{BufferMut, CommunicatorCollectives as _, Root as _},
};

/// Introduces the ranks of `MPI_COMM_WORLD` by two broadcasts from rank 0.
///
/// `build` calls it on its own thread, which must be the one that has initialised MPI.
struct MpiBootstrap;

impl Bootstrap for MpiBootstrap {
    fn publish(&self, record: &[u8]) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(300);
        broadcast(vec![record.len() as u64], deadline)?;
        broadcast(record.to_vec(), deadline).map(drop)
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        /// More bytes than any record has.
        const MAX_RECORD_BYTES: u64 = 1 << 20;
        match broadcast(vec![0_u64], deadline)?[..] {
            [len @ 1..=MAX_RECORD_BYTES] => broadcast(vec![0_u8; len as usize], deadline),
            _ => Err("rank 0 of MPI broadcasts something else".into()),
        }
    }
}

/// Makes one broadcast from rank 0, until the deadline at most.
fn broadcast<T: Copy + 'static>(items: Vec<T>, deadline: Instant) -> Result<Vec<T>, String>
where
    [T]: BufferMut,
{
    // MPI may write into the buffer until the broadcast ends, even after the deadline. It is never freed.
    let buffer: &'static mut [T] = items.leak();
    let root = SimpleCommunicator::world().process_at_rank(0);
    let mut request = root.immediate_broadcast_into(StaticScope, buffer);
    loop {
        match request.test_with_data() {
            Ok((_, items)) => return Ok(items.to_vec()),
            Err(unfinished) if Instant::now() >= deadline => {
                // It cannot be cancelled, and dropping it would panic.
                std::mem::forget(unfinished);
                return Err("not all ranks of MPI have come to the broadcast".into());
            }
            Err(unfinished) => request = unfinished,
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Only this thread calls MPI; fsgather has threads of its own.
    let (universe, _) = mpi::initialize_with_threading(Threading::Funneled).ok_or("MPI")?;
    let ranks = universe.world();

    // MPI passes on the address of rank 0, so no launcher's variable, shared directory or port is needed.
    let world = Communicator::builder()
        .rank(ranks.rank().unsigned_abs())
        .world_size(ranks.size().unsigned_abs())
        .rendezvous(Rendezvous::custom(MpiBootstrap))
        .build()?;

    // Small numbers continue to travel through MPI,
    let mut total = 0_u64;
    let own = u64::from(world.rank().get()) + 1;
    ranks.all_reduce_into(&own, &mut total, SystemOperation::sum());

    // large or structured values through fsgather.
    let found: Vec<String> = (0..own).map(|n| format!("{}.{n}", world.rank())).collect();
    if let Some(parts) = world.gather(&found, 0)? {
        let all: Vec<String> = parts.flatten().flat_map(|(_, found)| found).collect();
        println!("{} of {total} found: {}", all.len(), all.join(" "));
    }
    world.close()?;
    Ok(())
}
