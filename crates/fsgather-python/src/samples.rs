//! Results of an evaluation by name, as Python sees them: [`Samples`], [`SampleResults`].

use std::{collections::BTreeMap, fmt, path::PathBuf};

use fsgather::{
    Error, Options,
    codec::Postcard,
    samples::{
        GatherOptions, GatherSamplesError, JSON_LINES, PLAIN_DATA, SampleId, SampleOptions,
        gather_encoded,
    },
};
use fsgather_core::Site;
use pyo3::{
    exceptions::{PyIndexError, PyKeyError},
    prelude::*,
    types::{PyBool, PyDict, PyInt, PyList, PyString, PyTuple},
};

use crate::{
    communicator::Communicator,
    ending, errors,
    object::{decode_result, encode_result},
    told::Told,
    waiting::Waiter,
};

/// Results up to this size are added without releasing the interpreter's lock.
const SMALL_BYTES: usize = 64 << 10;

/// A sample's id, from an object of Python.
pub(crate) struct Id(SampleId);

impl<'py> FromPyObject<'_, 'py> for Id {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        id_of(&object, 0).map(Self)
    }
}

/// Maximum nesting of tuples.
const MAX_DEPTH: usize = 32;

fn id_of(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<SampleId> {
    if depth > MAX_DEPTH {
        return Err(errors::config(&format!(
            "this tuple is not a sample's id: it has tuples inside each other, more than {MAX_DEPTH}"
        )));
    }
    if object.cast::<PyBool>().is_ok() {
        return Err(refused(object));
    }
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_cow().map_err(|_| refused(object))?;
        return Ok(SampleId::from(&*text));
    }
    if let Ok(ids) = object.cast::<PyTuple>() {
        return ids.iter().map(|id| id_of(&id, depth + 1)).collect();
    }
    if object.cast::<PyInt>().is_ok() {
        let number = object.extract::<i128>().map_err(|_| refused(object))?;
        return Ok(SampleId::Int(number));
    }
    let py = object.py();
    // Integers of numpy, and integer tensors without a dimension.
    let has_no_dimension = || -> PyResult<bool> {
        let dimensions: usize = object.getattr(pyo3::intern!(py, "ndim"))?.extract()?;
        let kind = object.getattr(pyo3::intern!(py, "dtype"))?.str()?;
        Ok(dimensions == 0 && !kind.to_cow()?.contains("bool"))
    };
    if !has_no_dimension().unwrap_or(false) {
        return Err(refused(object));
    }
    let number = object.call_method0(pyo3::intern!(py, "__index__"));
    let number = number.and_then(|number| number.extract::<i128>());
    number.map(SampleId::Int).map_err(|_| refused(object))
}

fn refused(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().name().map(|name| name.to_string());
    let shown = object
        .repr()
        .map(|text| text.to_string())
        .unwrap_or_default();
    let shown: String = shown.chars().take(80).collect();
    errors::config(&format!(
        "{shown} ({}) is not a sample's id: give an int of at most 128 bits, a str, or a tuple of these",
        kind.unwrap_or_default()
    ))
}

fn object_of<'py>(py: Python<'py>, id: &SampleId) -> PyResult<Bound<'py, PyAny>> {
    Ok(match id {
        SampleId::Int(number) => number.into_pyobject(py)?.into_any(),
        SampleId::Text(text) => PyString::new(py, text).into_any(),
        SampleId::Tuple(ids) => {
            let ids = ids.iter().map(|id| object_of(py, id));
            PyTuple::new(py, ids.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
    })
}

fn list_of<'py>(py: Python<'py>, ids: &[SampleId]) -> PyResult<Bound<'py, PyList>> {
    let ids = ids.iter().map(|id| object_of(py, id));
    PyList::new(py, ids.collect::<PyResult<Vec<_>>>()?)
}

fn failures_of<'py>(
    py: Python<'py>,
    failed: &[(SampleId, String)],
) -> PyResult<Bound<'py, PyDict>> {
    let reasons = PyDict::new(py);
    for (id, reason) in failed {
        reasons.set_item(object_of(py, id)?, reason)?;
    }
    Ok(reasons)
}

/// Builds the options of a program.
///
/// Wrong ids make opening fail on all ranks.
fn options_of(
    py: Python<'_>,
    expected: Option<Vec<Bound<'_, PyAny>>>,
    config: Option<BTreeMap<String, String>>,
    problem: Option<Told>,
) -> SampleOptions {
    let mut options = SampleOptions::default().encoded_in(PLAIN_DATA);
    if let Some(expected) = expected {
        let ids: PyResult<Vec<SampleId>> = expected.iter().map(|id| id_of(id, 0)).collect();
        options = match ids {
            Ok(ids) => options.expect_ids(ids),
            Err(error) => options.wrong(format!("expected: {}", error.value(py))),
        };
    }
    for (name, value) in config.into_iter().flatten() {
        options = options.config(name, value);
    }
    problem.into_iter().fold(options, SampleOptions::wrong)
}

/// Options of a gather in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct How {
    dst: Option<u32>,
    /// The file that is written afterwards.
    out: Option<Told>,
    partial: bool,
    refuse_conflicts: bool,
    /// Compares two results whose bytes differ.
    are_equal: Py<PyAny>,
    /// The reason why these options are wrong.
    problem: Option<Told>,
}

impl How {
    /// Gathers by `call`, which gets options and runs without the interpreter's lock.
    fn gather(
        self,
        py: Python<'_>,
        waiting: &Waiter,
        call: impl FnOnce(GatherOptions<'_>) -> Gathered + Send,
    ) -> PyResult<Option<SampleResults>> {
        let equal = comparison(self.are_equal);
        let mut incomplete = None;
        let results = waiting.run(py, || {
            let mut options = self
                .dst
                .map_or_else(GatherOptions::to_all, GatherOptions::to);
            if self.partial {
                options = options.partial();
            }
            if self.refuse_conflicts {
                options = options.refuse_conflicts();
            }
            options = options
                .output(self.out.as_ref().map(Told::as_ref))
                .wrong(self.problem.as_ref().map(Told::as_ref));
            match call(options.compare_with(&equal)) {
                Ok(results) => Ok(results),
                Err(GatherSamplesError::Failed(error)) => Err(error),
                Err(GatherSamplesError::Incomplete {
                    reason, results, ..
                }) => {
                    incomplete = Some((reason, results));
                    Ok(None)
                }
                Err(error) => Err(Error::config(error.to_string())),
            }
        })?;
        if let Some((reason, results)) = incomplete {
            let results = results.map(|results| SampleResults { results: *results });
            let module = py.import("fsgather._errors")?;
            let error = module.getattr("_incomplete")?.call1((reason, results))?;
            return Err(PyErr::from_value(error));
        }
        Ok(results.map(|results| SampleResults { results }))
    }
}

type Gathered = Result<Option<fsgather::samples::SampleResults>, GatherSamplesError<Postcard>>;

/// Reads a result that a shell job has added.
fn parse_json(py: Python<'_>, line: &[u8]) -> PyResult<Py<PyAny>> {
    let loads = py.import("json")?.getattr("loads")?;
    Ok(loads.call1((line,))?.unbind())
}

/// Compares encoded results by their values.
fn comparison(are_equal: Py<PyAny>) -> impl Fn(&[u8], &[u8]) -> bool + Sync {
    move |one, other| {
        let compared = Python::try_attach(|py| -> PyResult<bool> {
            let read =
                |bytes: &[u8]| decode_result(py, bytes.to_vec()).or_else(|_| parse_json(py, bytes));
            let (one, other) = (read(one)?, read(other)?);
            are_equal.bind(py).call1((one, other))?.is_truthy()
        });
        matches!(compared, Some(Ok(true)))
    }
}

/// The samples of one rank; `fsgather.Samples` wraps them.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Samples {
    samples: fsgather::samples::Samples<Postcard>,
    waiting: Waiter,
}

#[pymethods]
impl Samples {
    #[staticmethod]
    fn open(
        py: Python<'_>,
        communicator: &Communicator,
        directory: PathBuf,
        expected: Option<Vec<Bound<'_, PyAny>>>,
        config: Option<BTreeMap<String, String>>,
        problem: Option<Told>,
        site: Told,
    ) -> PyResult<Self> {
        let (member, waiting) = communicator.for_samples()?;
        let options = options_of(py, expected, config, problem);
        let samples = waiting.run(py, || {
            let calls = member.with(Options::new().site(String::from(site)));
            fsgather::samples::Samples::open(&calls, directory, options)
        })?;
        let samples = samples.interrupted_by(waiting.interrupt().clone());
        Ok(Self { samples, waiting })
    }

    #[getter]
    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        list_of(py, self.samples.missing())
    }

    #[getter]
    fn failed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        failures_of(py, self.samples.failed())
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.samples.attempt()
    }

    /// Adds one result.
    fn add(&self, py: Python<'_>, id: Id, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let Id(id) = id;
        let pieces = encode_result(result, &id)?;
        let pieces: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).collect();
        let len = pieces.iter().map(|piece| piece.len()).sum();
        if len <= SMALL_BYTES && self.samples.writer().has_room_for(len) {
            let added = self.samples.add_encoded(&id, &pieces);
            return added.map_err(|error| errors::raise(py, &error));
        }
        self.waiting
            .run(py, || self.samples.add_encoded(&id, &pieces))
    }

    fn add_error(&self, py: Python<'_>, id: Id, reason: Told) -> PyResult<()> {
        let Id(id) = id;
        let reason = String::from(reason);
        self.waiting
            .run(py, move || self.samples.add_error(id, reason))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting.run(py, || self.samples.flush())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting.run(py, || self.samples.close())
    }

    /// Number of results and failures that were added, and of those that are not on disk yet.
    fn progress(&self) -> (u64, u64) {
        let progress = self.samples.writer().progress();
        (progress.added, progress.added - progress.synced)
    }

    fn gather(&self, py: Python<'_>, how: How, site: Told) -> PyResult<Option<SampleResults>> {
        let call = |options: GatherOptions<'_>| self.samples.gather_at(options, Site::named(site));
        how.gather(py, &self.waiting, call)
    }
}

/// Gathers results that are in memory.
#[pyfunction]
pub(crate) fn gather_samples(
    py: Python<'_>,
    communicator: &Communicator,
    results: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    expected: Option<Vec<Bound<'_, PyAny>>>,
    how: How,
    site: Told,
) -> PyResult<Option<SampleResults>> {
    let (member, waiting) = communicator.for_samples()?;
    let options = options_of(py, expected, None, None);
    let encode = |(id, result): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<_> {
        let id = id_of(&id, 0)?;
        let pieces = encode_result(&result, &id)?;
        Ok((id, pieces.concat()))
    };
    let encoded: PyResult<Vec<_>> = results.into_iter().map(encode).collect();
    let encoded = encoded.map_err(|error| Error::config(error.value(py).to_string()));
    how.gather(py, &waiting, move |gathering| {
        let calls = member.with(Options::new().site(String::from(site)));
        gather_encoded(&calls, encoded, &options, gathering)
    })
}

/// Reads a directory of samples without a job.
#[pyfunction]
pub(crate) fn read_samples(
    py: Python<'_>,
    directory: PathBuf,
    are_equal: Py<PyAny>,
) -> PyResult<SampleResults> {
    let equal = comparison(are_equal);
    let equal = &equal;
    let results = Waiter::new().run(py, move || {
        let read = fsgather::samples::SampleResults::read_with;
        let path = directory.as_path();
        let results = read(path, Postcard, SampleOptions::default(), Some(equal))?;
        match results.encoding() {
            PLAIN_DATA | JSON_LINES => Ok(results),
            encoding => Err(Error::config(format!(
                "results of {} are encoded in {encoding}, which only the program that added them can read",
                path.display()
            ))),
        }
    })?;
    Ok(SampleResults { results })
}

/// Gathered results; `fsgather.SampleResults` wraps them.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct SampleResults {
    results: fsgather::samples::SampleResults<Postcard>,
}

#[pymethods]
impl SampleResults {
    fn __len__(&self) -> usize {
        self.results.len()
    }

    fn __contains__(&self, id: &Bound<'_, PyAny>) -> bool {
        id_of(id, 0).is_ok_and(|id| self.results.position(&id).is_some())
    }

    fn __getitem__(&self, id: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let position = id_of(id, 0).ok().and_then(|id| self.results.position(&id));
        let Some(position) = position else {
            return Err(PyKeyError::new_err(id.clone().unbind()));
        };
        self.result_at(id.py(), position)
    }

    /// The sample at a position of the order.
    fn id_at<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        let id = self.results.id_at(position);
        object_of(py, id.ok_or_else(|| PyIndexError::new_err(position))?)
    }

    /// Its result.
    fn result_at(&self, py: Python<'_>, position: usize) -> PyResult<Py<PyAny>> {
        let encoded = ending::detach(py, || self.results.encoded_at(position));
        let encoded = encoded.map_err(|error| errors::raise(py, &error))?;
        let encoded = encoded.ok_or_else(|| PyIndexError::new_err(position))?;
        match self.results.encoding() {
            JSON_LINES => parse_json(py, &encoded),
            _ => decode_result(py, encoded),
        }
    }

    #[getter]
    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        list_of(py, &self.results.report().missing)
    }

    #[getter]
    fn failed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        failures_of(py, &self.results.report().failed)
    }

    #[getter]
    fn conflicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        list_of(py, &self.results.report().conflicts)
    }

    #[getter]
    fn repeated(&self) -> u64 {
        self.results.report().repeated
    }

    #[getter]
    fn unexpected(&self) -> u64 {
        self.results.report().unexpected
    }

    /// The counts in words.
    fn summary(&self) -> String {
        self.results.report().to_string()
    }
}

impl fmt::Debug for SampleResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.results.fmt(f)
    }
}
