//! Calls that may hang, made on threads of their own beside the tasks of a runtime: [`ThreadCall`].
//!
//! The runtime's own way to do so panics if the system gives no thread, which would end this rank without a message. Here
//! that is an error.

use std::{io, thread};

use fsgather_core::{Error, sys::thread::explain_failure};
use tokio::sync::oneshot;

/// A call under way on a thread of its own. Dropping this does not end it.
pub(crate) struct ThreadCall<R>(io::Result<oneshot::Receiver<R>>);

impl<R: Send + 'static> ThreadCall<R> {
    /// Starts a call.
    pub(crate) fn start(call: impl FnOnce() -> R + Send + 'static) -> Self {
        Self::start_on(thread::Builder::new().name("fsgather-aside".into()), call)
    }

    fn start_on(thread: thread::Builder, call: impl FnOnce() -> R + Send + 'static) -> Self {
        let (done, result) = oneshot::channel();
        let started = thread.spawn(move || {
            // The result may not be wanted any more.
            let _ = done.send(call());
        });
        Self(started.map(|_| result))
    }

    /// Waits for its result.
    ///
    /// # Errors
    ///
    /// If there was no thread for it, or the call has panicked.
    pub(crate) async fn finish(self) -> io::Result<R> {
        let panicked = |_| io::Error::other("a call on another thread has panicked");
        self.0?.await.map_err(panicked)
    }
}

/// The error of a rank that gets no thread.
pub(crate) fn without_a_thread(error: &io::Error) -> Error {
    let why = explain_failure(error);
    Error::config(format!("cannot start a thread: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_call_runs_on_another_thread_and_hands_its_result_over() {
        let me = thread::current().id();
        let it = block_on(ThreadCall::start(|| thread::current().id()).finish());
        assert_ne!(it.unwrap(), me);
    }

    #[test]
    fn a_call_for_which_there_is_no_thread_is_an_error() {
        let impossible = thread::Builder::new().stack_size(1 << 60);
        let end = block_on(ThreadCall::start_on(impossible, || ()).finish());
        let text = without_a_thread(&end.unwrap_err()).to_string();
        assert!(text.starts_with("cannot start a thread: "), "{text}");
    }

    #[test]
    fn a_call_that_panics_is_an_error() {
        let end = block_on(ThreadCall::<()>::start(|| panic!("on purpose")).finish());
        assert!(end.unwrap_err().to_string().contains("panicked"));
    }
}
