//! Waiting for other ranks without keeping other Python threads from running: [`Waiter`].
//!
//! Calls of the library run on the thread that calls, without the interpreter's lock. While such a call waits
//! it asks ten times a second whether a signal has come, takes the lock for that, and forwards what has
//! been logged. So Ctrl-C ends a wait, on all ranks, and the exception that a signal handler has raised is the
//! one that the caller gets. SIGTERM, which would end the process, ends the call before: see `_terminating.py`.

use fsgather_core::{Rank, RankNames, lock};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, mpsc},
    thread::{self, ThreadId},
    time::Duration,
};

use fsgather::{Error, Interrupt};
use pyo3::{exceptions::PyKeyboardInterrupt, intern, prelude::*, sync::PyOnceLock};

use crate::{
    ending::{self, InCall},
    errors, logging,
};

/// Maximum time that a call that has been interrupted may take to come back before it is left to itself.
const GRACE: Duration = Duration::from_millis(100);

/// Interval at which a thread that waits for another one looks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// Ends the waits of one communicator.
#[derive(Clone)]
pub(crate) struct Waiter {
    interrupt: Interrupt,
    raised: Raised,
    /// The names of ranks in errors.
    names: RankNames,
    /// The same by their places in the group that calls are made on.
    members: RankNames,
}

thread_local! {
    /// Whether this thread may look for signals. One that meets for another leaves it to that one: it would have to ask for the
    /// interpreter's lock, and may outlive the interpreter.
    static LISTENS: Cell<bool> = const { Cell::new(true) };
}

/// The exception that a signal handler has raised, and its thread.
type Raised = Arc<Mutex<Option<(ThreadId, PyErr)>>>;

/// Ends what another thread waits for: meeting, and whatever is done in the world that comes of it.
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

    /// Ends it, for a reason that other ranks are told.
    fn end(&self, reason: &str) {
        self.waiting.interrupt.raise(reason);
    }
}

impl Stop {
    /// What it ends.
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
        let interrupt = Interrupt::polled_by(move || look_for_signals(&seen));
        Self {
            interrupt,
            raised,
            names: RankNames::default(),
            members: RankNames::default(),
        }
    }

    /// The same where errors call the ranks so.
    pub(crate) fn naming_ranks(self, names: RankNames) -> Self {
        let members = names.clone();
        Self {
            names,
            members,
            ..self
        }
    }

    /// The same for calls on a group of these ranks of the world.
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
            // It has come before the call began: there is nothing to end but what was begun.
            Err(raised) => (true, Err(raised)),
        };
        if is_minded {
            // What another signal's handler raises there may keep it from its work, so that it is asked once more.
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

    /// Runs a wait that cannot ask for signals, such as meeting, on its own thread. If none can be started, it runs
    /// here, so that the library tells the other ranks what this one lacks.
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
                // Nobody listens any more after an interruption.
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

    /// What the caller gets. What a signal handler has raised goes before everything, also before a result that came
    /// at the same moment: the communicator is of no use any more.
    fn settle<T>(&self, py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
        let forwarded = logging::forward(py);
        match self.take_raised() {
            Some(raised) => Err(raised),
            None => forwarded
                .and(result.map_err(|error| errors::raise(py, &self.names.of_error(error)))),
        }
    }

    /// What was raised in this thread; others, whose calls fail for the same reason, get the call's own error.
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

/// Lets Python's signal handlers run, if this is the thread for it. What they raise is kept for the caller;
/// its text is what the other ranks are told.
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
