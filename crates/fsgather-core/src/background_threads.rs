//! Background threads of one world: [`BackgroundThreads`] starts them and reports their panics, [`BackgroundThread`] waits for one.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, mpsc::RecvTimeoutError},
    time::Duration,
};

use crate::{
    Interrupt,
    sys::{
        channel::{Receiver, channel},
        lock,
        thread::{self, Started},
    },
};

/// Starts the background threads of one world. The first panic of one of them ends all calls of this rank, and the other ranks
/// receive its message as the failure of this rank.
#[derive(Clone, Debug, Default)]
pub struct BackgroundThreads {
    interrupt: Interrupt,
}

impl BackgroundThreads {
    /// Returns the owner of the threads of a world whose calls end with this switch.
    #[must_use]
    pub const fn new(interrupt: Interrupt) -> Self {
        Self { interrupt }
    }

    /// Starts a thread of this name.
    ///
    /// # Errors
    ///
    /// If the system cannot start one.
    pub fn start(
        &self,
        name: impl Into<String>,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<BackgroundThread> {
        let name = name.into();
        let (ending, end) = channel::<()>();
        let (threads, its) = (self.clone(), name.clone());
        let started = thread::start(name.clone(), move || {
            threads.guard(&its, work);
            drop(ending);
        })?;
        Ok(BackgroundThread {
            name,
            started,
            end: Mutex::new(end),
        })
    }

    /// Does the work of a thread of this name; returns `None` after a panic, which is reported.
    pub fn guard<R>(&self, name: &str, work: impl FnOnce() -> R) -> Option<R> {
        let done = catch_unwind(AssertUnwindSafe(work));
        done.map_err(|panic| self.report(name, &*panic)).ok()
    }

    /// Reports a panic of a thread of this name.
    pub fn report(&self, name: &str, panic: &(dyn Any + Send)) {
        self.interrupt.raise(Self::describe(name, panic));
    }

    /// Returns the reason that other ranks receive for a panic of a thread of this name.
    #[must_use]
    pub fn describe(name: &str, panic: &(dyn Any + Send)) -> String {
        format!("its thread {name} has panicked: {}", panic_text(panic))
    }
}

/// Returns the message of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it gives no reason")
}

/// A background thread. Dropping this does not end the thread.
pub struct BackgroundThread {
    name: String,
    started: Started,
    /// Closed by the thread at its end. The lock lets several threads share the handle.
    end: Mutex<Receiver<()>>,
}

impl BackgroundThread {
    /// Waits until the thread has ended, for `limit` at most. Returns true if it has ended. A thread that has not ended
    /// is left running, with a warning.
    pub fn wait(self, limit: Duration) -> bool {
        let name = self.name.clone();
        let has_ended = self.ends_within(limit);
        if !has_ended {
            crate::warn!("the thread {name} hangs; leaving it behind");
        }
        has_ended
    }

    /// Like [`wait`](Self::wait), without the warning.
    #[must_use]
    pub fn ends_within(self, limit: Duration) -> bool {
        let has_ended = lock(&self.end).recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        if has_ended {
            // The thread has done its work, and its panics are caught.
            let _ = self.started.join();
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_a_thread_raises_the_switch_once() {
        let interrupt = Interrupt::default();
        let threads = BackgroundThreads::new(interrupt.clone());
        for name in ["first", "second"] {
            let thread = threads.start(name, || panic!("on purpose")).unwrap();
            assert!(thread.wait(Duration::from_secs(60)));
        }
        let reason = "its thread first has panicked: on purpose";
        assert_eq!(interrupt.reason().as_deref(), Some(reason));
    }

    #[test]
    fn thread_that_ends_well_raises_nothing() {
        let interrupt = Interrupt::default();
        let thread = BackgroundThreads::new(interrupt.clone()).start("well", || ());
        assert!(thread.unwrap().wait(Duration::from_secs(60)));
        assert_eq!(interrupt.reason(), None);
    }

    #[test]
    fn thread_that_hangs_is_left_behind() {
        let (end, hangs) = channel::<()>();
        let thread = BackgroundThreads::default().start("hanging", move || {
            let _ = hangs.recv();
        });
        assert!(!thread.unwrap().wait(Duration::from_millis(1)));
        drop(end);
    }

    #[test]
    fn panic_text_is_that_of_the_panic() {
        assert_eq!(panic_text(&"text"), "text");
        assert_eq!(panic_text(&String::from("text")), "text");
        assert_eq!(panic_text(&7), "it gives no reason");
    }
}
