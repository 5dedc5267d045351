//! Failures as Python exceptions: [`raise`].

use std::{any::Any, borrow::Cow};

use fsgather::Error;
use fsgather_core::{Missing, Peer, PeerFailure, Phase, Rank, RollCall, Whereabouts, panic_text};
use pyo3::{
    exceptions::PyException,
    prelude::*,
    types::{PyDict, PyTuple},
};

/// A text from others, with characters that control a terminal escaped.
#[pyfunction]
pub(crate) fn plain_text(text: &str) -> Cow<'_, str> {
    fsgather_core::plain_text(text)
}

/// A name from others, as part of a single line.
#[pyfunction]
pub(crate) fn plain_line(text: &str) -> Cow<'_, str> {
    fsgather_core::plain_line(text)
}

/// The exception for a mistake of the program.
pub(crate) fn config(text: &str) -> PyErr {
    Python::attach(|py| raise(py, &Error::config(text)))
}

/// The result of a call in which this rank has raised an exception instead of contributing: the exception is the cause of the call's error,
/// which all ranks get. Ctrl-C, or any other exception that ends a program, never becomes an error of the call.
pub(crate) fn own_reason<T>(
    py: Python<'_>,
    result: PyResult<T>,
    raised: Option<PyErr>,
) -> PyResult<T> {
    match raised {
        Some(raised) if !raised.is_instance_of::<PyException>(py) => Err(raised),
        Some(raised) => result.inspect_err(|error| error.set_cause(py, Some(raised))),
        None => result,
    }
}

/// The exception for an error, with its facts as attributes. A failure to create it is returned instead.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).map_or_else(|failure| failure, PyErr::from_value)
}

/// The exception of a call that has panicked: an ordinary error, not a `PanicException`, which programs do not catch.
pub(crate) fn of_panic(py: Python<'_>, panic: &(dyn Any + Send)) -> PyErr {
    let text = panic_text(panic);
    let text = format!("a fault inside fsgather has ended this call: {text}");
    let made = py
        .import("fsgather._errors")
        .and_then(|module| module.getattr("_make"))
        .and_then(|make| make.call1(("Error", text, PyDict::new(py))));
    made.map_or_else(|failure| failure, PyErr::from_value)
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("is_transient", error.is_transient())?;
    let kind = describe(py, error, &fields)?;
    let make = py.import("fsgather._errors")?.getattr("_make")?;
    make.call1((kind, error.to_string(), fields))
}

/// The report on a missing rank: rank, host, pid, its last activity, and the seconds since it reported that.
type MissingPeer = (
    u32,
    Option<String>,
    Option<u32>,
    Option<String>,
    Option<f64>,
);

/// The ranks that others waited for in vain, for Python.
fn missing_peers(missing: &[Missing]) -> Vec<MissingPeer> {
    let peers = missing.iter().map(|missing| {
        let (host, pid) = missing.process.clone().unzip();
        let last_seen = missing.last_seen.as_ref();
        let (doing, ago) = last_seen
            .map(|(activity, ago)| (activity.to_string(), ago.as_secs_f64()))
            .unzip();
        (missing.rank.get(), host, pid, doing, ago)
    });
    peers.collect()
}

/// Returns the name of the exception class, and sets its attributes in `fields`.
fn describe(py: Python<'_>, error: &Error, fields: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    Ok(match error {
        Error::Config { .. } => "ConfigError",
        Error::Rendezvous { .. } => "RendezvousError",
        Error::Timeout {
            during,
            timeout,
            missing,
            stacks,
            ..
        } => {
            fields.set_item("during", during)?;
            fields.set_item("timeout", timeout.as_secs_f64())?;
            fields.set_item("missing", PyTuple::new(py, missing_peers(missing))?)?;
            set_stacks(py, fields, stacks)?;
            "TimeoutError"
        }
        Error::PeerFailed {
            peer,
            activity,
            failure,
            ..
        } => {
            set_peer(fields, peer)?;
            fields.set_item("phase", activity.phase.to_string())?;
            let is_raised = matches!(failure, PeerFailure::Raised { .. });
            fields.set_item(
                "_has_no_object",
                is_raised && activity.phase == Phase::Publishing,
            )?;
            let reason = match failure {
                PeerFailure::Raised { message } => message.clone(),
                other => other.to_string(),
            };
            fields.set_item("reason", reason)?;
            "PeerFailedError"
        }
        Error::Desync {
            one,
            one_call,
            other,
            other_call,
            stacks,
            ..
        } => {
            set_stacks(py, fields, stacks)?;
            fields.set_item("ranks", (one.rank.get(), other.rank.get()))?;
            fields.set_item("calls", (one_call, other_call))?;
            "DesyncError"
        }
        Error::TooLarge {
            peer, size, bound, ..
        } => {
            set_peer(fields, peer)?;
            fields.set_item("size", size)?;
            fields.set_item("bound", bound)?;
            "TooLargeError"
        }
        Error::Incompatible { .. } => "IncompatibleError",
        Error::Poisoned { cause, .. } => {
            fields.set_item("cause", exception(py, cause)?)?;
            "PoisonedError"
        }
        Error::Storage { .. } | Error::NotShared { .. } | Error::Corrupt { .. } => {
            describe_place(py, error, fields)?
        }
        _ => "Error",
    })
}

fn set_stacks(py: Python<'_>, fields: &Bound<'_, PyDict>, stacks: &RollCall) -> PyResult<()> {
    let stacks = stacks.groups.iter();
    let stacks = stacks.map(|(ranks, whereabouts)| stack(py, ranks, whereabouts));
    let stacks = stacks.collect::<PyResult<Vec<_>>>()?;
    fields.set_item("stacks", PyTuple::new(py, stacks)?)
}

/// The activities of ranks, as arguments of `Stack` in `_errors.py`.
fn stack<'py>(
    py: Python<'py>,
    ranks: &[Rank],
    whereabouts: &Whereabouts,
) -> PyResult<Bound<'py, PyTuple>> {
    let frames = whereabouts.frames.iter();
    let frames = frames.map(|frame| (&frame.file, frame.line, &frame.function));
    let state = whereabouts.state.as_ref().map(ToString::to_string);
    (
        PyTuple::new(py, ranks.iter().map(|rank| rank.get()))?,
        whereabouts.to_string(),
        PyTuple::new(py, frames)?,
        state,
        whereabouts.is_own_word,
    )
        .into_pyobject(py)
}

/// The same for errors about a file or directory.
fn describe_place(
    py: Python<'_>,
    error: &Error,
    fields: &Bound<'_, PyDict>,
) -> PyResult<&'static str> {
    Ok(match error {
        Error::Storage {
            path,
            operation,
            cause,
            peer,
            activity,
            ..
        } => {
            fields.set_item("path", path.to_string_lossy())?;
            fields.set_item("operation", operation)?;
            fields.set_item("errno", cause.os_code)?;
            if let Some(peer) = peer {
                set_peer(fields, peer)?;
            }
            if let Some(activity) = activity {
                fields.set_item("phase", activity.phase.to_string())?;
            }
            "StorageError"
        }
        Error::NotShared {
            directory, hosts, ..
        } => {
            fields.set_item("path", directory.to_string_lossy())?;
            fields.set_item("hosts", PyTuple::new(py, hosts)?)?;
            "NotSharedError"
        }
        Error::Corrupt { path, writer, .. } => {
            fields.set_item("path", path.to_string_lossy())?;
            if let Some(writer) = writer {
                set_peer(fields, writer)?;
            }
            "CorruptError"
        }
        _ => "Error",
    })
}

/// Sets the rank that an error is about.
fn set_peer(fields: &Bound<'_, PyDict>, peer: &Peer) -> PyResult<()> {
    fields.set_item("rank", peer.rank.get())?;
    fields.set_item("host", &peer.host)?;
    fields.set_item("pid", peer.pid)
}
