//! Ranks that MPI introduces to each other: [`MpiBootstrap`].

use std::{
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use fsgather_core::Error;
use mpi::{
    Threading, environment,
    request::StaticScope,
    topology::{Communicator as _, SimpleCommunicator},
    traits::{BufferMut, Root as _},
};

use fsgather_rendezvous::rendezvous::Bootstrap;

/// How long rank 0 waits until MPI has taken its record. It does not wait for the others.
const TAKEN_WITHIN: Duration = Duration::from_mins(5);

/// How often a broadcast under way is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Introduces the ranks of `MPI_COMM_WORLD` by a broadcast from its rank 0; with the feature `mpi`.
///
/// This is for MPI programs that are not to depend on a launcher's variables, a shared directory or a known
/// port for meeting. It is all that fsgather uses of MPI: two nonblocking broadcasts of some hundred bytes
/// for each communicator that is built. From then on ranks talk to each other over connections of their own.
///
/// # What to see to
///
/// - All ranks of `MPI_COMM_WORLD` build the communicator, in the same order as their own collective calls
///   of MPI on it, and their ranks are those of MPI.
/// - MPI is called on the thread that calls [`build`](crate::Builder::build) and on no other. This has to be
///   the one that made the `MpiBootstrap`, unless MPI was initialised for calls from several threads
///   (`MPI_THREAD_SERIALIZED` or more). As fsgather has threads of its own, ask for `MPI_THREAD_FUNNELED`
///   at least.
/// - A rank that does not come is found out after the join time-out, which is also where a broadcast is
///   given up. It stays unfinished then, so end such a program with `MPI_Abort` rather than `MPI_Finalize`.
///
/// # Examples
///
/// ```no_run
/// use fsgather::{Communicator, MpiBootstrap, Rendezvous};
/// use mpi::{Threading, traits::Communicator as _};
///
/// let (universe, _) = mpi::initialize_with_threading(Threading::Funneled).expect("MPI");
/// let ranks = universe.world();
/// let communicator = Communicator::builder()
///     .rank(ranks.rank().unsigned_abs())
///     .world_size(ranks.size().unsigned_abs())
///     .rendezvous(Rendezvous::custom(MpiBootstrap::new()?))
///     .build()?;
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MpiBootstrap {
    /// The only thread that may call MPI, if there is only one.
    thread: Option<ThreadId>,
}

impl MpiBootstrap {
    /// To be made on the thread that has initialised MPI.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when MPI has not been initialised, or is finalised already.
    pub fn new() -> Result<Self, Error> {
        if !environment::is_initialized() || environment::is_finalized() {
            return Err(Error::config(
                "MPI is not initialised, so it cannot introduce ranks; call \
                 mpi::initialize_with_threading(Threading::Funneled) before, and keep what it returns",
            ));
        }
        let is_bound = environment::threading_support() < Threading::Serialized;
        Ok(Self {
            thread: is_bound.then(|| thread::current().id()),
        })
    }

    /// The ranks to broadcast among, if this thread may.
    fn world(&self, is_root: bool) -> Result<SimpleCommunicator, String> {
        if self.thread.is_some_and(|own| own != thread::current().id()) {
            return Err(
                "MPI was initialised for calls from one thread, and this is another; build the \
                 communicator on the thread that initialised MPI"
                    .into(),
            );
        }
        if environment::is_finalized() {
            return Err("MPI is finalised already".into());
        }
        let world = SimpleCommunicator::world();
        let rank = world.rank();
        if is_root != (rank == 0) {
            return Err(format!(
                "rank {rank} of MPI {} rank 0 of this communicator; give both the same ranks",
                if is_root { "is" } else { "is not" }
            ));
        }
        Ok(world)
    }
}

impl Bootstrap for MpiBootstrap {
    fn publish(&self, record: &[u8]) -> Result<(), String> {
        let world = self.world(true)?;
        let deadline = Instant::now() + TAKEN_WITHIN;
        broadcast(&world, vec![record.len() as u64], deadline)?;
        broadcast(&world, record.to_vec(), deadline).map(drop)
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        /// Much more than any record has.
        const LONGEST: u64 = 1 << 20;
        let world = self.world(false)?;
        let len = broadcast(&world, vec![0_u64], deadline)?;
        match len.first() {
            Some(&len @ 1..=LONGEST) => broadcast(
                &world,
                vec![0_u8; usize::try_from(len).unwrap_or(0)],
                deadline,
            ),
            other => Err(format!(
                "rank 0 of MPI broadcasts something else ({other:?}); all ranks have to build the \
                 communicator at the same point of their program"
            )),
        }
    }
}

/// One broadcast from rank 0, until the deadline at most.
fn broadcast<T: Copy + 'static>(
    world: &SimpleCommunicator,
    items: Vec<T>,
    deadline: Instant,
) -> Result<Vec<T>, String>
where
    [T]: BufferMut,
{
    // MPI may write into it for as long as the broadcast is not finished, even after it was given up. These
    // few hundred bytes for each communicator are never freed.
    let buffer: &'static mut [T] = items.leak();
    let root = world.process_at_rank(0);
    let mut request = root.immediate_broadcast_into(StaticScope, buffer);
    loop {
        match request.test_with_data() {
            Ok((_, items)) => return Ok(items.to_vec()),
            Err(unfinished) if Instant::now() >= deadline => {
                // There is no way to take it back, and dropping it would panic.
                std::mem::forget(unfinished);
                return Err("not all ranks of MPI have come to the broadcast".into());
            }
            Err(unfinished) => request = unfinished,
        }
        thread::park_timeout(LOOK);
    }
}
