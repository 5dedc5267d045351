//! Ending a call from another thread: [`Interrupt`].

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::Error;

type Hook = Box<dyn Fn(&Error) + Send>;

#[derive(Default)]
struct State {
    cause: Option<Error>,
    hooks: Vec<Hook>,
}

/// A switch that makes meeting and all current and later calls of a communicator fail, with a reason
/// that every rank is told.
///
/// Clones are the same switch. It cannot be taken back.
///
/// ```
/// use fsgather_core::{Error, Interrupt};
///
/// let interrupt = Interrupt::default();
/// assert!(interrupt.cause().is_none());
/// interrupt.clone().raise(Error::config("ended by SIGTERM"));
/// assert_eq!(interrupt.cause(), Some(Error::config("ended by SIGTERM")));
/// ```
#[derive(Clone, Default)]
pub struct Interrupt {
    state: Arc<Mutex<State>>,
}

impl Interrupt {
    /// Throws the switch; only the first cause counts.
    pub fn raise(&self, cause: Error) {
        let mut state = self.lock();
        if state.cause.is_none() {
            for hook in &state.hooks {
                hook(&cause);
            }
            state.cause = Some(cause);
        }
    }

    /// Why the switch was thrown, if it was.
    #[must_use]
    pub fn cause(&self) -> Option<Error> {
        self.lock().cause.clone()
    }

    /// Calls `hook` when the switch is thrown, or at once if it has been. Hooks must not block and
    /// must not use this switch.
    pub fn on_raise(&self, hook: impl Fn(&Error) + Send + 'static) {
        let mut state = self.lock();
        if let Some(cause) = &state.cause {
            hook(cause);
        } else {
            state.hooks.push(Box::new(hook));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt")
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn hooks_run_once_with_the_first_cause_early_or_late() {
        let interrupt = Interrupt::default();
        let (told, hear) = mpsc::channel();
        let early = told.clone();
        interrupt.on_raise(move |cause| early.send(cause.clone()).unwrap());
        interrupt.raise(Error::config("first"));
        interrupt.raise(Error::config("second"));
        interrupt.on_raise(move |cause| told.send(cause.clone()).unwrap());
        let heard: Vec<Error> = hear.try_iter().collect();
        assert_eq!(heard, [Error::config("first"), Error::config("first")]);
    }
}
