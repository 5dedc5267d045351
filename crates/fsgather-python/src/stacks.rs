//! Tells the library where this interpreter's stacks are, for ranks that wait for this one: [`register`].

use std::collections::BTreeMap;

use fsgather_core::StackFrame;
use fsgather_stacks::python::{self, Registration};
use pyo3::{ffi, prelude::*};

/// Makes stacks of this interpreter readable, once; where they cannot be read that is noted, and this rank tells less of itself.
pub(crate) fn register(py: Python<'_>) {
    let registered = describe(py).map(|registration| python::register(&registration));
    match registered {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("stacks of this Python are not read: {error}"),
        Err(error) => tracing::debug!("stacks of this Python are not read: {error}"),
    }
}

fn describe(py: Python<'_>) -> PyResult<Registration> {
    let sys = py.import("sys")?;
    let threading = py.import("threading")?;
    let main_thread = threading.call_method0("main_thread")?;
    let mut frames = Vec::new();
    let mut frame = sys.call_method0("_getframe")?;
    while !frame.is_none() {
        let code = frame.getattr("f_code")?;
        let line: Option<u32> = frame.getattr("f_lineno")?.extract()?;
        let file = text(&code.getattr("co_filename")?)?;
        frames.push((file, line, text(&code.getattr("co_name")?)?));
        frame = frame.getattr("f_back")?;
    }
    frames.reverse();
    Ok(Registration {
        version: sys.getattr("hexversion")?.extract()?,
        thread_state: thread_state(py),
        main_thread: main_thread.getattr("ident")?.extract()?,
        main_native_id: main_thread.getattr("native_id")?.extract()?,
        libraries: ["fsgather", "os"]
            .iter()
            .filter_map(|module| directory_of(py, module).ok())
            .collect(),
        package: directory_of(py, "fsgather").ok(),
        frames,
    })
}

/// A text of Python, which need not be one: bytes of names of files that are none have characters of their own.
fn text(text: &Bound<'_, PyAny>) -> PyResult<String> {
    let bytes = text.call_method1("encode", ("utf-32-le", "surrogatepass"))?;
    let bytes: Vec<u8> = bytes.extract()?;
    let words = bytes.as_chunks().0.iter().copied().map(u32::from_le_bytes);
    let characters = words.map(|word| char::from_u32(word).unwrap_or(char::REPLACEMENT_CHARACTER));
    Ok(characters.collect())
}

/// Where a module lies: the language's own lie beside `os`.
fn directory_of(py: Python<'_>, module: &str) -> PyResult<String> {
    let path = py.import("os")?.getattr("path")?;
    let file = py.import(module)?.getattr("__file__")?;
    text(&path.call_method1("dirname", (file,))?)
}

/// A stack as Python has it: file, line and name of each function, the innermost last.
type Functions = Vec<(String, Option<u32>, String)>;

/// Looks at the main thread so often, while it goes on; which stacks were seen, and how often each. For tests.
#[pyfunction]
pub(crate) fn sample_stacks(py: Python<'_>, count: usize) -> Vec<(Functions, usize)> {
    register(py);
    let seen = py.detach(|| {
        let mut seen = BTreeMap::new();
        for _ in 0..count {
            let frames = fsgather_stacks::look(None).map_or_else(Vec::new, |seen| seen.frames);
            *seen.entry(frames).or_insert(0) += 1;
        }
        seen
    });
    let plain = |frame: StackFrame| (frame.file, frame.line, frame.function);
    let seen = seen.into_iter();
    seen.map(|(frames, times)| (frames.into_iter().map(plain).collect(), times))
        .collect()
}

/// Where the state of this thread lies.
fn thread_state(_: Python<'_>) -> u64 {
    // SAFETY: the function asks for a thread that is attached to the interpreter, as the token shows; its pointer is kept as a
    // number and never followed in this program, but read through the kernel.
    #[expect(unsafe_code, reason = "a function of C")]
    let state = unsafe { ffi::PyThreadState_Get() };
    state.addr() as u64
}
