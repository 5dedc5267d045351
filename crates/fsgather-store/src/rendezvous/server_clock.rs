//! Queries of the time of file servers, until they are ended: [`ServerClock`].

use std::{
    io,
    path::Path,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use fsgather_core::lock;

use crate::directory::trial;

/// Time for which the end of a process waits for an answer: much longer than a healthy server needs.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Queries the time in directories, each time by a short-lived file, which has a name on many file systems.
///
/// Queries run on threads that are not joined, and a process that exits during a query would leave its file behind. So queries
/// are ended before the process exits.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    asking: Mutex<Asking>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Asking {
    threads: usize,
    is_over: bool,
}

impl ServerClock {
    /// Returns the time in a directory, by its server's clock; an error once queries are ended.
    pub(super) fn now(&self, directory: &Path) -> io::Result<SystemTime> {
        self.ask(|| trial::look_at_own(directory).map(|own| own.now))
    }

    fn ask<R>(&self, ask: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        {
            let mut asking = lock(&self.asking);
            if asking.is_over {
                return Err(io::Error::other("nobody asks for the time any more"));
            }
            asking.threads += 1;
        }
        let answer = ask();
        lock(&self.asking).threads -= 1;
        self.answered.notify_all();
        answer
    }

    /// Allows queries again.
    pub(super) fn begin(&self) {
        lock(&self.asking).is_over = false;
    }

    /// Ends queries. Waits for those in progress, unless their server hangs.
    pub(super) fn end(&self) {
        let mut asking = lock(&self.asking);
        asking.is_over = true;
        let waited = self
            .answered
            .wait_timeout_while(asking, ANSWER_LIMIT, |asking| asking.threads > 0);
        let (asking, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if asking.threads > 0 {
            tracing::debug!(
                "a server does not say what time it is; a small file may be left there"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread, time::Instant};

    use super::*;

    #[test]
    fn the_end_waits_for_who_asks_and_nobody_asks_after_it() {
        let clock = &ServerClock::default();
        let (begun, has_begun) = channel();
        let (answer, answered) = channel::<()>();
        let (ended, has_ended) = channel();
        thread::scope(|scope| {
            let asked = scope.spawn(move || {
                clock.ask(|| {
                    begun.send(()).unwrap();
                    answered.recv().map_err(io::Error::other)
                })
            });
            has_begun.recv().unwrap();
            scope.spawn(move || {
                clock.end();
                ended.send(()).unwrap();
            });
            while clock.ask(|| Ok(())).is_ok() {
                thread::yield_now();
            }
            assert!(has_ended.try_recv().is_err(), "somebody asks still");
            answer.send(()).unwrap();
            has_ended.recv().unwrap();
            asked.join().unwrap().unwrap();
        });
        clock.begin();
        clock.ask(|| Ok(())).unwrap();
    }

    #[test]
    fn the_end_does_not_wait_for_a_server_that_hangs() {
        let clock = &ServerClock::default();
        let (begun, has_begun) = channel();
        let (answer, answered) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                clock.ask(|| {
                    begun.send(()).unwrap();
                    answered.recv().map_err(io::Error::other)
                })
            });
            has_begun.recv().unwrap();
            let since = Instant::now();
            clock.end();
            assert!(since.elapsed() >= ANSWER_LIMIT);
            answer.send(()).unwrap();
        });
    }
}
