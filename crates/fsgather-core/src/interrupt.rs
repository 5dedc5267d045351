//! Ending a call from another thread: [`Interrupt`].

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Hook = Box<dyn Fn(&str) + Send>;

#[derive(Default)]
struct State {
    reason: Option<String>,
    hooks: Vec<Hook>,
}

/// A switch that makes meeting and all current and later calls of a communicator fail, with a reason
/// that every rank is told as this rank's failure.
///
/// Clones are the same switch. It cannot be taken back.
///
/// ```
/// use fsgather_core::Interrupt;
///
/// let interrupt = Interrupt::default();
/// assert_eq!(interrupt.reason(), None);
/// interrupt.clone().raise("ended by SIGTERM");
/// assert_eq!(interrupt.reason().as_deref(), Some("ended by SIGTERM"));
/// ```
#[derive(Clone, Default)]
pub struct Interrupt {
    state: Arc<Mutex<State>>,
}

impl Interrupt {
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

    /// Why the switch was thrown, if it was.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.lock().reason.clone()
    }

    /// Calls `hook` when the switch is thrown, or at once if it has been. Hooks must not block and
    /// must not use this switch.
    pub fn on_raise(&self, hook: impl Fn(&str) + Send + 'static) {
        let mut state = self.lock();
        if let Some(reason) = &state.reason {
            hook(reason);
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
}
