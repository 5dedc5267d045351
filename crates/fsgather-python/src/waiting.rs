//! Waiting for other ranks without keeping other Python threads from running: [`Waiter`].
//!
//! Calls of the library run on the calling thread, without the interpreter's lock. While such a call waits, it checks ten times a second
//! for signals, for which it takes the lock, and forwards log records. So Ctrl-C ends a wait, on all ranks, and the caller gets the
//! exception that the signal handler has raised. SIGTERM, which would end the process, ends the call first: see `_terminating.py`.

use fsgather_core::{Rank, RankNames, lock};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, mpsc},
    thread::{self, ThreadId},
    time::Duration,
};

use fsgather::{Error, Interrupt, bindings::inside_a_call};
use pyo3::{exceptions::PyKeyboardInterrupt, intern, prelude::*, sync::PyOnceLock};

use crate::{
    ending::{self, InCall},
    errors, logging,
};

/// Maximum time that an interrupted call may take to return before it is abandoned.
const GRACE: Duration = Duration::from_millis(100);

/// Interval at which a thread that waits for another thread checks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// Ends the waits of one communicator.
#[derive(Clone)]
pub(crate) struct Waiter {
    interrupt: Interrupt,
    raised: Raised,
    /// The names of ranks in errors.
    names: RankNames,
    /// The same, by their places in the group of the calls.
    members: RankNames,
}

thread_local! {
    /// True if this thread may check for signals. A thread that meets on behalf of another leaves that to the other: it would have to take
    /// the interpreter's lock, and may outlive the interpreter.
    static LISTENS: Cell<bool> = const { Cell::new(true) };
}

/// The exception that a signal handler has raised, and its thread.
type Raised = Arc<Mutex<Option<(ThreadId, PyErr)>>>;

/// Ends the waits of another thread: for the meeting, and in the world that results from it.
#[pyclass(frozen, module = "fsgather._fsgather")]
#[derive(Default)]
pub(crate) struct Stop {
    waiting: Waiter,
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends the waits, with a reason that other ranks receive.
    fn end(&self, reason: &str) {
        self.waiting.interrupt.raise(reason);
    }
}

impl Stop {
    /// The waiter whose waits it ends.
    pub(crate) fn waiting(&self) -> Waiter {
        self.waiting.clone()
    }
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Waiter {
    pub(crate) fn new() -> Self {
        let raised = Raised::default();
        let seen = Arc::clone(&raised);
        let interrupt = Interrupt::polled_by(move || inside_a_call(|| look_for_signals(&seen)));
        Self {
            interrupt,
            raised,
            names: RankNames::default(),
            members: RankNames::default(),
        }
    }

    /// The same waiter, with these names of ranks in errors.
    pub(crate) fn naming_ranks(self, names: RankNames) -> Self {
        let members = names.clone();
        Self {
            names,
            members,
            ..self
        }
    }

    /// The same waiter, for calls on a group of these ranks of the world.
    pub(crate) fn in_group(&self, members: &[Rank]) -> Self {
        let members = RankNames::new(members.iter().map(|rank| self.names.of(*rank)));
        Self {
            members,
            ..self.clone()
        }
    }

    /// The name of the member at this place of the group, as messages show it.
    pub(crate) fn name_of(&self, place: Rank) -> Rank {
        self.members.of(place)
    }

    pub(crate) const fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Runs a call that may wait, without the interpreter's lock.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce() -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let _in_call = InCall::begin()?;
        let module = terminating(py)?;
        let begin = || module.call_method0(intern!(py, "begin"))?.is_truthy();
        let (is_minded, mut settled) = match begin() {
            Ok(is_minded) => {
                let ran = py.detach(|| catch_unwind(AssertUnwindSafe(call)));
                (is_minded, self.settle_ran(py, ran))
            }
            // The signal arrived before the call began: only `begin` must be undone.
            Err(raised) => (true, Err(raised)),
        };
        if is_minded {
            // An exception from another signal's handler may interrupt `end`, so that it is called a second time.
            for _ in 0..2 {
                match module.call_method0(intern!(py, "end")) {
                    Ok(_) => break,
                    Err(raised) => settled = Err(raised),
                }
            }
        }
        let is_over = |raised: &PyErr| -> PyResult<bool> {
            let terminated = module.getattr("Terminated")?;
            Ok(is_minded && raised.matches(py, terminated)?)
        };
        match &settled {
            Err(raised) if is_over(raised)? => module.call_method0("die").and(settled),
            _ => settled,
        }
    }

    /// Runs a wait that cannot check for signals, such as the meeting, on its own thread. If no thread can be started, the wait runs here,
    /// so that the library reports to the other ranks that this rank lacks threads.
    pub(crate) fn run_elsewhere<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let _in_call = InCall::begin()?;
        let (sender, result) = mpsc::channel();
        let call = Arc::new(Mutex::new(Some(call)));
        let taken = {
            let call = Arc::clone(&call);
            move || lock(&call).take()
        };
        let thread = thread::Builder::new().name("fsgather-meeting".into());
        let started = thread.spawn(move || {
            LISTENS.set(false);
            if let Some(call) = taken() {
                // The receiver is gone after an interruption.
                let _ = sender.send(catch_unwind(AssertUnwindSafe(call)));
            }
        });
        if started.is_err()
            && let Some(call) = { lock(&call).take() }
        {
            let ran = py.detach(|| catch_unwind(AssertUnwindSafe(call)));
            return self.settle_ran(py, ran);
        }
        let seen = Arc::clone(&self.raised);
        let interrupt = self.interrupt.clone();
        let result = py.detach(move || {
            loop {
                match result.recv_timeout(SLICE) {
                    Ok(result) => return Some(result),
                    Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                }
                if let Some(reason) = look_for_signals(&seen) {
                    interrupt.raise(reason);
                    return result.recv_timeout(GRACE).ok();
                }
            }
        });
        let given_up = || Ok(Err(Error::rendezvous("the meeting was given up")));
        self.settle_ran(py, result.unwrap_or_else(given_up))
    }

    /// As [`settle`](Self::settle), for a call that may have panicked.
    fn settle_ran<T>(&self, py: Python<'_>, ran: thread::Result<Result<T, Error>>) -> PyResult<T> {
        match ran {
            Ok(result) => self.settle(py, result),
            Err(panic) => Err(errors::of_panic(py, &*panic)),
        }
    }

    /// The result for the caller. An exception from a signal handler takes precedence, even over a result that arrived at the same moment:
    /// the communicator is unusable from then on.
    fn settle<T>(&self, py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
        let forwarded = logging::forward(py);
        match self.take_raised() {
            Some(raised) => Err(raised),
            None => forwarded
                .and(result.map_err(|error| errors::raise(py, &self.names.of_error(error)))),
        }
    }

    /// The exception that was raised in this thread. Other threads, whose calls fail for the same reason, get the error of the call.
    fn take_raised(&self) -> Option<PyErr> {
        let mut raised = lock(&self.raised);
        let own = raised.take_if(|(thread, _)| *thread == thread::current().id());
        own.map(|(_, error)| error)
    }
}

/// The effect of SIGTERM.
fn terminating(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let import = || Ok::<_, PyErr>(py.import("fsgather._terminating")?.unbind());
    Ok(MODULE.get_or_try_init(py, import)?.bind(py))
}

/// The cause that other ranks get for an exception.
pub(crate) fn reason_of(py: Python<'_>, raised: &PyErr) -> String {
    let is_terminated = || -> PyResult<bool> {
        let terminated = terminating(py)?.getattr(intern!(py, "Terminated"))?;
        Ok(raised.matches(py, terminated)?)
    };
    if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        "KeyboardInterrupt".to_owned()
    } else if is_terminated().unwrap_or(false) {
        "SIGTERM".to_owned()
    } else {
        raised.to_string()
    }
}

/// Runs Python's signal handlers, if this is the thread for them. Their exception is kept for the caller; other ranks receive its text.
fn look_for_signals(raised: &Raised) -> Option<String> {
    if !LISTENS.get() || ending::is_over_here() {
        return None;
    }
    Python::try_attach(|py| {
        let heard = logging::forward(py).and_then(|()| py.check_signals());
        let error = heard.err()?;
        let reason = reason_of(py, &error);
        let raised_here = Some((thread::current().id(), error));
        *lock(raised) = raised_here;
        Some(reason)
    })
    .flatten()
}
