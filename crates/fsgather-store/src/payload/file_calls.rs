//! Warnings about file-system calls that do not return: [`FileCalls`].
//!
//! A thread in such a call cannot report it. Rank 0 reports it to the ranks that wait for this one; but if all hang in the same
//! file system, no rank waits for another. So a thread that makes no such calls watches the threads that do.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use fsgather_core::{AwakeClock, FIRST_WARNING, duration_text, lock, warning_after};

/// Interval at which the thread checks the calls.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Number of checks without a call before the thread sleeps, so that consecutive calls need not wake it.
const LOOKS: u32 = 10;

/// A call, or several that belong to one piece of work.
struct WatchedCall {
    what: Arc<str>,
    moves: u64,
    /// Result of the last check: the count of moves, and the time since when it has been the same.
    seen: Option<(u64, Instant)>,
    next_warning: Duration,
}

/// The calls in progress.
#[derive(Default)]
struct WatchedCalls {
    going_on: BTreeMap<u64, WatchedCall>,
    begun: u64,
    looks: u32,
    is_asleep: bool,
}

impl WatchedCalls {
    fn begin(&mut self, what: Arc<str>) -> u64 {
        self.begun += 1;
        let call = WatchedCall {
            what,
            moves: 0,
            seen: None,
            next_warning: FIRST_WARNING,
        };
        self.going_on.insert(self.begun, call);
        self.begun
    }

    fn moved(&mut self, number: u64) {
        if let Some(call) = self.going_on.get_mut(&number) {
            call.moves += 1;
        }
    }

    /// Checks all calls, and returns warnings for the user.
    fn look(&mut self, now: Instant) -> Vec<String> {
        let mut told = Vec::new();
        for call in self.going_on.values_mut() {
            let moves = call.moves;
            let (_, since) = *call.seen.insert(
                call.seen
                    .filter(|seen| seen.0 == moves)
                    .unwrap_or((moves, now)),
            );
            let idle = now.saturating_duration_since(since);
            if idle.is_zero() {
                call.next_warning = FIRST_WARNING;
            }
            if idle >= call.next_warning {
                call.next_warning = warning_after(call.next_warning);
                told.push(format!(
                    "{} has not got on for {}; see whether that file system answers",
                    call.what,
                    duration_text(idle)
                ));
            }
        }
        told
    }

    /// Returns true to check again soon, false to sleep until a call begins.
    fn goes_on(&mut self) -> bool {
        self.looks = if self.going_on.is_empty() {
            self.looks + 1
        } else {
            0
        };
        self.is_asleep = self.looks >= LOOKS;
        !self.is_asleep
    }
}

#[derive(Default)]
struct SharedCalls {
    calls: Mutex<WatchedCalls>,
    is_over: AtomicBool,
}

/// File-system calls of this rank in progress, with a thread that warns of calls that do not return.
#[derive(Default)]
pub struct FileCalls {
    shared: Arc<SharedCalls>,
    /// Started with the first call; `None` if it could not be started.
    thread: OnceLock<Option<Thread>>,
}

impl FileCalls {
    /// Records the start of a call. Warnings for the user begin with `what`.
    pub fn begin(&self, what: &Arc<str>) -> FileCall {
        let thread = self.thread.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            let name = thread::Builder::new().name("fsgather-files".into());
            name.spawn(move || watch(&shared))
                .inspect_err(|error| tracing::debug!("nobody looks after file calls: {error}"))
                .ok()
                .map(|handle| handle.thread().clone())
        });
        let mut calls = lock(&self.shared.calls);
        let number = calls.begin(Arc::clone(what));
        if std::mem::take(&mut calls.is_asleep)
            && let Some(thread) = thread
        {
            thread.unpark();
        }
        FileCall {
            shared: Arc::clone(&self.shared),
            number,
        }
    }
}

impl Drop for FileCalls {
    fn drop(&mut self) {
        // Without a lock: in a forked child, a thread that does not exist there may hold it.
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A call in progress, until this is dropped.
pub struct FileCall {
    shared: Arc<SharedCalls>,
    number: u64,
}

impl FileCall {
    /// Records that the call makes progress.
    pub fn moved(&self) {
        lock(&self.shared.calls).moved(self.number);
    }
}

impl Drop for FileCall {
    fn drop(&mut self) {
        lock(&self.shared.calls).going_on.remove(&self.number);
    }
}

fn watch(shared: &SharedCalls) {
    let mut clock = AwakeClock::new(Instant::now());
    while !shared.is_over.load(Ordering::SeqCst) {
        let (told, goes_on) = {
            let mut calls = lock(&shared.calls);
            let now = clock.look(Instant::now());
            (calls.look(now), calls.goes_on())
        };
        for text in told {
            fsgather_core::warn!("{text}");
        }
        if goes_on {
            thread::park_timeout(LOOK_EVERY);
        } else {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use fsgather_testkit::pace::within_patience;

    use super::*;

    #[test]
    fn a_call_is_known_for_as_long_as_it_lasts() {
        let calls = FileCalls::default();
        let call = calls.begin(&"reading".into());
        let moves = || {
            let known = lock(&calls.shared.calls);
            known.going_on.get(&call.number).map(|call| call.moves)
        };
        assert_eq!(moves(), Some(0));
        call.moved();
        assert_eq!(moves(), Some(1));
        drop(call);
        assert!(lock(&calls.shared.calls).going_on.is_empty());
    }

    #[test]
    fn a_call_that_does_not_get_on_is_told_now_and_then() {
        let mut calls = WatchedCalls::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let number = calls.begin("reading".into());
        let mut told = Vec::new();
        for second in 0..200 {
            if second == 10 {
                calls.moved(number);
            }
            told.extend(
                calls
                    .look(at(second))
                    .into_iter()
                    .map(|text| (second, text)),
            );
        }
        let times: Vec<u64> = told.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [40, 70, 130]);
        assert_eq!(
            told[0].1,
            "reading has not got on for 30 s; see whether that file system answers"
        );
        calls.moved(number);
        assert_eq!(calls.look(at(200)), [""; 0]);
        assert_eq!(calls.look(at(229)), [""; 0]);
        assert_eq!(calls.look(at(230)).len(), 1);
    }

    #[test]
    fn the_thread_sleeps_while_nothing_goes_on_and_ends_with_all() {
        let calls = FileCalls::default();
        drop(calls.begin(&"reading".into()));
        let shared = Arc::downgrade(&calls.shared);
        drop(calls);
        within_patience(|| {
            while shared.strong_count() > 0 {
                thread::yield_now();
            }
        });
        let mut calls = WatchedCalls::default();
        let looks = (0..LOOKS).filter(|_| calls.goes_on()).count();
        assert_eq!(looks, LOOKS as usize - 1);
        assert!(calls.is_asleep);
        calls.begin("writing".into());
        assert!(calls.goes_on());
    }
}
