//! Calls that continue while the program computes: [`Pending`].

use fsgather_core::lock;
use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use fsgather::{Error, Payload};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    ending::InCall,
    object::Pickling,
    parts::{Parts, decode_all},
    waiting::Waiter,
};

/// A call that has been started.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Pending {
    /// `None` after the result has been returned.
    call: Mutex<Option<StartedCall>>,
    waiting: Waiter,
    pickling: Pickling,
}

enum StartedCall {
    AllGather(fsgather::Pending<Vec<Payload>>),
    Gather(fsgather::Pending<Option<fsgather::parts::Parts<Payload>>>),
}

enum CallResult {
    All(Vec<Payload>),
    Parts(Option<fsgather::parts::Parts<Payload>>),
}

impl Pending {
    pub(crate) const fn all_gather(
        call: fsgather::Pending<Vec<Payload>>,
        waiting: Waiter,
        pickling: Pickling,
    ) -> Self {
        Self::new(StartedCall::AllGather(call), waiting, pickling)
    }

    pub(crate) const fn gather(
        call: fsgather::Pending<Option<fsgather::parts::Parts<Payload>>>,
        waiting: Waiter,
        pickling: Pickling,
    ) -> Self {
        Self::new(StartedCall::Gather(call), waiting, pickling)
    }

    const fn new(call: StartedCall, waiting: Waiter, pickling: Pickling) -> Self {
        Self {
            call: Mutex::new(Some(call)),
            waiting,
            pickling,
        }
    }

    fn look(&self, limit: Option<Duration>) -> Result<Option<CallResult>, Error> {
        let mut call = lock(&self.call);
        let outcome = match call.as_mut() {
            None => {
                return Err(Error::config(
                    "the result of this call has been handed out already",
                ));
            }
            Some(StartedCall::AllGather(call)) => {
                look(limit, |limit| call.wait_timeout(limit))?.map(CallResult::All)
            }
            Some(StartedCall::Gather(call)) => {
                look(limit, |limit| call.wait_timeout(limit))?.map(CallResult::Parts)
            }
        };
        if outcome.is_some() {
            *call = None;
        }
        Ok(outcome)
    }
}

/// Waits for `limit`, or without a limit.
fn look<R>(
    limit: Option<Duration>,
    mut wait: impl FnMut(Duration) -> Result<Option<R>, Error>,
) -> Result<Option<R>, Error> {
    const MAX_WAIT: Duration = Duration::from_secs(3600);
    // A limit beyond the range of the clock counts as none.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if let Some(result) = wait(left.unwrap_or(MAX_WAIT))? {
            return Ok(Some(result));
        }
        if left.is_some() {
            return Ok(None);
        }
    }
}

#[pymethods]
impl Pending {
    /// Returns the result as a tuple of one, or `None` if a rank is still missing after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(Bound<'py, PyAny>,)>> {
        let _in_call = InCall::begin()?;
        let limit = timeout.map(|seconds| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                PyValueError::new_err(format!("a time of {seconds} s cannot be waited for"))
            })
        });
        let limit = limit.transpose()?;
        let Some(outcome) = self.waiting.run(py, || self.look(limit))? else {
            return Ok(None);
        };
        let result = match outcome {
            CallResult::All(payloads) => {
                decode_all(py, payloads, self.pickling, &self.waiting)?.into_any()
            }
            CallResult::Parts(parts) => {
                let parts =
                    parts.map(|parts| Parts::new(parts, self.waiting.clone(), self.pickling));
                parts.into_pyobject(py)?
            }
        };
        Ok(Some((result,)))
    }
}
