//! Several threads for one piece of work: [`share`].
//!
//! The threads live no longer than the call, and take jobs from one queue, so that a thread that is slowed down by others on
//! its core delays no other thread. They are meant for work on chunks, which takes much longer than starting a thread.

use fsgather_core::lock;
use std::{
    sync::{Mutex, mpsc},
    thread,
};

/// Maximum number of threads that work on one payload: each needs its own memory, and hosts have many ranks.
const MAX_THREADS: usize = 4;

/// Number of threads that are useful to this process for one payload.
pub(crate) fn size() -> usize {
    fsgather_core::sys::thread::cores().min(MAX_THREADS)
}

/// Runs all jobs on this number of threads, and passes each result to `done` on the calling thread, in the order in which the
/// jobs end. Returns the first error soon; jobs that have not begun by then are not run.
///
/// The calling thread is one of these threads, so that a single job needs no other, and that all jobs are done even if no
/// thread can be started.
pub(crate) fn share<Job, Done, Failure>(
    threads: usize,
    jobs: impl ExactSizeIterator<Item = Job> + Send,
    work: impl Fn(Job) -> Result<Done, Failure> + Sync,
    mut done: impl FnMut(Done) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    Done: Send,
    Failure: Send,
{
    let others = threads.min(jobs.len()).saturating_sub(1);
    let queue = Mutex::new(jobs);
    let next = || {
        let mut queue = lock(&queue);
        queue.next()
    };
    let (next, work) = (&next, &work);
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..others {
            let sender = sender.clone();
            let toil = move || {
                while let Some(job) = next() {
                    let result = work(job);
                    let has_failed = result.is_err();
                    // After an error in another thread, the receiver is gone.
                    if sender.send(result).is_err() || has_failed {
                        break;
                    }
                }
            };
            let thread = thread::Builder::new().name("fsgather-chunks".into());
            if let Err(error) = thread.spawn_scoped(scope, toil) {
                tracing::debug!(%error, "one thread less for chunks");
            }
        }
        drop(sender);
        while let Some(job) = next() {
            done(work(job)?)?;
            results.try_iter().try_for_each(|result| done(result?))?;
        }
        results.into_iter().try_for_each(|result| done(result?))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[test]
    fn every_job_is_done_once_on_any_number_of_threads() {
        for threads in 1..5 {
            for jobs in 0..20_u32 {
                let mut done = Vec::new();
                let note = |job| {
                    done.push(job);
                    Ok::<_, ()>(())
                };
                share(threads, 0..jobs, Ok, note).unwrap();
                done.sort_unstable();
                assert!(done.into_iter().eq(0..jobs));
            }
        }
    }

    #[test]
    fn threads_work_at_the_same_time() {
        let meeting = Barrier::new(3);
        let work = |_| {
            meeting.wait();
            Ok::<_, ()>(())
        };
        share(3, 0..3, work, Ok).unwrap();
    }

    #[test]
    fn the_first_error_ends_the_work_wherever_it_comes_from() {
        for threads in 1..4 {
            let begun = AtomicUsize::new(0);
            let work = |job| {
                begun.fetch_add(1, Ordering::Relaxed);
                if job == 3 { Err(job) } else { Ok(job) }
            };
            assert_eq!(share(threads, 0..1_000_000, work, |_| Ok(())), Err(3));
            assert!(begun.into_inner() < 1_000_000);
            let refuse = |job| if job == 5 { Err(job) } else { Ok(()) };
            assert_eq!(share(threads, 0..1_000_000, Ok, refuse), Err(5));
        }
    }
}
