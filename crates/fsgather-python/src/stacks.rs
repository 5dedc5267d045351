//! Lists the functions that threads of this interpreter are in, for ranks that wait for this one: [`register`].

use std::{collections::BTreeMap, iter};

use fsgather_core::stacks::{
    Thread,
    interpreter::{self, InterpreterThread, Libraries},
};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyDict};

/// Objects of the interpreter that list its threads. They are looked up beforehand: an import may wait for a thread that hangs.
struct Means {
    current_frames: Py<PyAny>,
    threading: Py<PyModule>,
    libraries: Libraries,
}

static MEANS: PyOnceLock<Means> = PyOnceLock::new();

/// Registers the threads of this interpreter with the library. If that fails, this rank reports less about itself.
pub(crate) fn register(py: Python<'_>) {
    match MEANS.get_or_try_init(py, || Means::find(py)) {
        Ok(_) => interpreter::register(threads),
        Err(error) => tracing::debug!("functions of this Python are not reported: {error}"),
    }
}

/// Returns the threads of the interpreter. Waits for its lock.
fn threads() -> Vec<InterpreterThread> {
    let listed = Python::try_attach(|py| {
        let listed = MEANS.get(py).map(|means| means.threads(py));
        listed.transpose().unwrap_or_else(|error| {
            tracing::debug!("functions of this Python cannot be listed: {error}");
            None
        })
    });
    listed.flatten().unwrap_or_default()
}

impl Means {
    fn find(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            current_frames: py.import("sys")?.getattr("_current_frames")?.unbind(),
            threading: py.import("threading")?.unbind(),
            libraries: Libraries {
                package: directory_of(py, "fsgather")?,
                language: directory_of(py, "os")?,
            },
        })
    }

    fn threads(&self, py: Python<'_>) -> PyResult<Vec<InterpreterThread>> {
        let threading = self.threading.bind(py);
        let main = threading
            .getattr("_main_thread")?
            .getattr("_ident")?
            .extract::<u64>()
            .ok();
        // `threading.enumerate` would wait for a lock of Python.
        let objects = threading
            .getattr("_active")?
            .call_method0("copy")?
            .cast_into::<PyDict>()?;
        let mut ids: BTreeMap<u64, u32> = BTreeMap::new();
        for (handle, thread) in objects {
            let id = thread
                .getattr("_native_id")
                .and_then(|id| id.extract::<u32>());
            if let (Ok(handle), Ok(id)) = (handle.extract::<u64>(), id) {
                ids.insert(handle, id);
            }
        }
        // From here on no Python code runs, so that no function returns meanwhile.
        let frames = self
            .current_frames
            .bind(py)
            .call0()?
            .cast_into::<PyDict>()?;
        let mut threads = Vec::new();
        for (handle, frame) in frames {
            let handle = handle.extract()?;
            threads.push(InterpreterThread {
                thread: Thread {
                    id: ids.get(&handle).copied(),
                    handle: Some(handle),
                },
                is_main: main == Some(handle),
                frames: self.libraries.frames(functions(frame)),
            });
        }
        Ok(threads)
    }
}

/// File, line and name of the functions of a thread, the innermost first.
fn functions<'py>(
    innermost: Bound<'py, PyAny>,
) -> impl Iterator<Item = (String, Option<u32>, String)> + 'py {
    let outer = |frame: &Bound<'py, PyAny>| {
        frame
            .getattr("f_back")
            .ok()
            .filter(|outer| !outer.is_none())
    };
    let describe = |frame: Bound<'py, PyAny>| -> PyResult<_> {
        let code = frame.getattr("f_code")?;
        let line = frame.getattr("f_lineno")?.extract()?;
        Ok((
            text(&code.getattr("co_filename")?)?,
            line,
            text(&code.getattr("co_name")?)?,
        ))
    };
    iter::successors(Some(innermost), outer).map_while(move |frame| describe(frame).ok())
}

/// A text of Python. Bytes of file names that are not UTF-8 are surrogates there, which are replaced.
fn text(text: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(text
        .cast::<pyo3::types::PyString>()?
        .to_string_lossy()
        .into_owned())
}

/// The directory of a module.
fn directory_of(py: Python<'_>, module: &str) -> PyResult<String> {
    let path = py.import("os")?.getattr("path")?;
    let file = py.import(module)?.getattr("__file__")?;
    text(&path.call_method1("dirname", (file,))?)
}
