//! Several threads for one piece of work: [`share`].
//!
//! The threads live no longer than the call, and take jobs from one queue, so that a thread that is slowed
//! down by others on its core holds nobody up. They are there for work on chunks, which takes much longer
//! than starting a thread does.

use fsgather_core::lock;
use std::{
    sync::{Mutex, mpsc},
    thread,
};

/// The most threads that work on one payload: each needs memory of its own, and hosts have many ranks.
const MOST: usize = 4;

/// How many threads are of use to this process for one payload.
pub(crate) fn size() -> usize {
    fsgather_system::thread::cores().min(MOST)
}

/// Does all jobs, with a member of the workers each, and hands over here what came of them, in the order of
/// getting done. The first error is returned soon; jobs that nobody has begun by then stay undone.
///
/// The caller's thread works as well, so that a workers of one, or a single job, needs no other, and so that
/// it does no harm if no thread can be started.
pub(crate) fn share<Member, Job, Done, Failure>(
    workers: &mut [Member],
    jobs: impl ExactSizeIterator<Item = Job> + Send,
    work: impl Fn(&mut Member, Job) -> Result<Done, Failure> + Sync,
    mut done: impl FnMut(Done) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    Member: Send,
    Done: Send,
    Failure: Send,
{
    let useful = workers.len().min(jobs.len());
    let Some((first, others)) = workers[..useful].split_first_mut() else {
        return Ok(());
    };
    let queue = Mutex::new(jobs);
    let next = || {
        let mut queue = lock(&queue);
        queue.next()
    };
    let (next, work) = (&next, &work);
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for member in others {
            let sender = sender.clone();
            let toil = move || {
                while let Some(job) = next() {
                    let result = work(member, job);
                    let has_failed = result.is_err();
                    // Nobody listens any more when somebody else has failed.
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
            done(work(first, job)?)?;
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
    fn every_job_is_done_once_whatever_the_crew() {
        for members in 1..5 {
            for jobs in 0..20_u32 {
                let mut done = Vec::new();
                let mut workers = vec![0; members];
                share(
                    &mut workers,
                    0..jobs,
                    |count, job| {
                        *count += 1;
                        Ok::<_, ()>(job)
                    },
                    |job| {
                        done.push(job);
                        Ok(())
                    },
                )
                .unwrap();
                done.sort_unstable();
                assert!(done.into_iter().eq(0..jobs));
                assert_eq!(workers.iter().sum::<u32>(), jobs);
            }
        }
    }

    #[test]
    fn members_work_at_the_same_time() {
        let meeting = Barrier::new(3);
        let work = |(): &mut (), _| {
            meeting.wait();
            Ok::<_, ()>(())
        };
        share(&mut [(), (), ()], 0..3, work, Ok).unwrap();
    }

    #[test]
    fn the_first_error_ends_the_work_wherever_it_comes_from() {
        for members in 1..4 {
            let mut workers = vec![(); members];
            let begun = AtomicUsize::new(0);
            let work = |(): &mut (), job| {
                begun.fetch_add(1, Ordering::Relaxed);
                if job == 3 { Err(job) } else { Ok(job) }
            };
            assert_eq!(share(&mut workers, 0..1_000_000, work, |_| Ok(())), Err(3));
            assert!(begun.into_inner() < 1_000_000);
            let refuse = |job| if job == 5 { Err(job) } else { Ok(()) };
            assert_eq!(
                share(&mut workers, 0..1_000_000, |(), job| Ok(job), refuse),
                Err(5)
            );
        }
    }
}
