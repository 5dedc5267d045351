//! A switch that ends a call from another thread, or from the thread that waits in it: [`Interrupt`].

use crate::sys::lock;
use std::{
    cell::RefCell,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

type Hook = Box<dyn Fn(&str) + Send>;

type Question = Box<dyn Fn() -> Option<String> + Send + Sync>;

#[derive(Default)]
struct InterruptState {
    reason: Option<String>,
    hooks: Vec<Hook>,
}

/// A switch that makes meeting and all current and later calls of a communicator fail. Every rank gets its reason as
/// the failure of this rank.
///
/// Clones are the same switch. It cannot be reset.
///
/// ```
/// # use fsgather_core as fsgather;
/// use fsgather::Interrupt;
///
/// let interrupt = Interrupt::default();
/// assert_eq!(interrupt.reason(), None);
/// interrupt.clone().raise("ended by SIGTERM");
/// assert_eq!(interrupt.reason().as_deref(), Some("ended by SIGTERM"));
/// ```
///
/// # Polling instead of raising
///
/// In some languages only the waiting thread itself can know that it must stop, for example if the main thread handles
/// signals between two steps of the program. [`polled_by`](Self::polled_by) makes a switch that this thread polls.
#[derive(Clone, Default)]
pub struct Interrupt {
    shared: Arc<SharedInterrupt>,
}

#[derive(Default)]
struct SharedInterrupt {
    state: Mutex<InterruptState>,
    question: Option<Question>,
}

thread_local! {
    /// The switches that this thread has polled recently, and when.
    static ASKED: RefCell<Vec<(usize, Instant)>> = const { RefCell::new(Vec::new()) };
}

impl Interrupt {
    /// Interval at which a thread that waits or works for long polls the switch.
    pub const POLL_EVERY: Duration = Duration::from_millis(100);

    /// Returns a switch that throws itself when `question` returns a reason.
    ///
    /// Every thread that waits in a call of a communicator, or reads and writes payloads for it, polls the switch about
    /// every [`POLL_EVERY`](Self::POLL_EVERY). The first poll is after this interval, so shorter calls do not poll. No
    /// lock is held meanwhile, and the world continues; but a `question` that blocks delays the call. System calls that
    /// take longer delay the poll.
    ///
    /// ```
    /// # use fsgather_core as fsgather;
    /// use fsgather::Interrupt;
    ///
    /// let interrupt = Interrupt::polled_by(|| Some("Ctrl-C".into()));
    /// assert_eq!(interrupt.reason(), None);
    /// interrupt.poll();
    /// assert_eq!(interrupt.reason().as_deref(), Some("Ctrl-C"));
    /// ```
    pub fn polled_by(question: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(SharedInterrupt {
                state: Mutex::default(),
                question: Some(Box::new(question)),
            }),
        }
    }

    /// Returns a switch that is thrown with this one and polls the same question. Throwing the returned switch does not
    /// throw this one.
    ///
    /// ```
    /// # use fsgather_core as fsgather;
    /// use fsgather::Interrupt;
    ///
    /// let parent = Interrupt::default();
    /// let (child, other) = (parent.child(), parent.child());
    /// child.raise("a thread has panicked");
    /// assert_eq!(parent.reason(), None);
    /// parent.raise("ended by SIGTERM");
    /// assert_eq!(other.reason().as_deref(), Some("ended by SIGTERM"));
    /// ```
    #[must_use]
    pub fn child(&self) -> Self {
        let parent = self.clone();
        let question: Question = Box::new(move || {
            parent.poll();
            parent.reason()
        });
        let child = Self {
            shared: Arc::new(SharedInterrupt {
                state: Mutex::default(),
                question: self.is_polled().then_some(question),
            }),
        };
        // The parent may outlive many children.
        let thrown = Arc::downgrade(&child.shared);
        self.on_raise(move |reason| {
            if let Some(shared) = thrown.upgrade() {
                Self { shared }.raise(reason);
            }
        });
        child
    }

    /// Returns true if the switch has a question.
    #[doc(hidden)]
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.shared.question.is_some()
    }

    /// Polls the question now, and throws the switch if there is a reason.
    pub fn poll(&self) {
        if let Some(question) = &self.shared.question
            && self.reason().is_none()
            && let Some(reason) = question()
        {
            self.raise(reason);
        }
    }

    /// Polls the question if this thread has not done so for [`POLL_EVERY`](Self::POLL_EVERY) at `now`.
    ///
    /// It is cheap: call it whenever something moves.
    #[doc(hidden)]
    pub fn poll_if_due(&self, now: Instant) {
        if self.shared.question.is_none() {
            return;
        }
        let switch = Arc::as_ptr(&self.shared).addr();
        let is_due = ASKED.with_borrow_mut(|asked| {
            let is_recent =
                |since: Instant| now.saturating_duration_since(since) < Self::POLL_EVERY;
            if let Some((_, since)) = asked.iter_mut().find(|(asked, _)| *asked == switch) {
                if is_recent(*since) {
                    return false;
                }
                *since = now;
            } else {
                // Switches that are due anyway need not be remembered.
                asked.retain(|(_, since)| is_recent(*since));
                asked.push((switch, now));
            }
            true
        });
        if is_due {
            self.poll();
        }
    }

    /// Throws the switch; only the first reason counts.
    pub fn raise(&self, reason: impl Into<String>) {
        let mut state = self.lock();
        if state.reason.is_none() {
            let reason = reason.into();
            for hook in &state.hooks {
                hook(&reason);
            }
            state.reason = Some(reason);
        }
    }

    /// Returns the reason why the switch was thrown, if it was.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.lock().reason.clone()
    }

    /// Calls `hook` when the switch is thrown, or at once if it already was. Hooks must not block and must not use this
    /// switch.
    #[doc(hidden)]
    pub fn on_raise(&self, hook: impl Fn(&str) + Send + 'static) {
        let mut state = self.lock();
        if let Some(reason) = &state.reason {
            hook(reason);
        } else {
            state.hooks.push(Box::new(hook));
        }
    }

    fn lock(&self) -> MutexGuard<'_, InterruptState> {
        lock(&self.shared.state)
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt")
            .field("reason", &self.reason())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn hooks_run_once_with_the_first_reason_early_or_late() {
        let interrupt = Interrupt::default();
        let (told, hear) = mpsc::channel();
        let early = told.clone();
        interrupt.on_raise(move |reason| early.send(reason.to_owned()).unwrap());
        interrupt.raise("first");
        interrupt.raise("second");
        interrupt.on_raise(move |reason| told.send(reason.to_owned()).unwrap());
        let heard: Vec<String> = hear.try_iter().collect();
        assert_eq!(heard, ["first", "first"]);
    }

    #[test]
    fn a_switch_that_is_asked_throws_itself_once() {
        let answers = Mutex::new(vec![
            Some("second".to_owned()),
            Some("first".to_owned()),
            None,
        ]);
        let interrupt = Interrupt::polled_by(move || answers.lock().unwrap().pop().flatten());
        let (told, hear) = mpsc::channel();
        interrupt.on_raise(move |reason| told.send(reason.to_owned()).unwrap());
        assert!(interrupt.is_polled());
        for _ in 0..3 {
            interrupt.clone().poll();
        }
        assert_eq!(hear.try_iter().collect::<Vec<_>>(), ["first"]);
    }

    #[test]
    fn each_thread_polls_each_switch_at_a_limited_rate() {
        let asked = Arc::new(Mutex::new(0));
        let count = || {
            let asked = Arc::clone(&asked);
            Interrupt::polled_by(move || {
                *asked.lock().unwrap() += 1;
                None
            })
        };
        let (one, other) = (count(), count());
        let start = Instant::now();
        let run = || {
            for ms in 0..1000 {
                one.poll_if_due(start + Duration::from_millis(ms));
                other.poll_if_due(start + Duration::from_millis(ms));
            }
        };
        run();
        assert_eq!(*asked.lock().unwrap(), 20);
        std::thread::scope(|scope| scope.spawn(run).join().unwrap());
        assert_eq!(*asked.lock().unwrap(), 40);
    }

    #[test]
    fn nobody_is_asked_by_an_ordinary_switch() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.is_polled());
        interrupt.poll();
        interrupt.poll_if_due(Instant::now());
        assert_eq!(interrupt.reason(), None);
    }
}
