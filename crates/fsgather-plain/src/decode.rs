//! Decodes objects from bytes: [`decode`].
//!
//! # Why no stream does harm
//!
//! Each count is compared with the number of remaining bytes before anything is allocated for it, and each buffer beside the stream is used
//! once; so decoding uses at most 128 bytes of memory for each byte of the stream (a set takes 232, and two bytes stand for it), plus the
//! buffers. The work of key lookups is counted (`super::keys`). Containers cannot nest deeper than the encoder nests them. A tuple can be
//! referenced only when it is finished, and a list that can be referenced while it is being filled grows by one element at a time, so that
//! no code sees an empty slot.

use pyo3::{
    Bound, Py, PyAny, PyResult, Python,
    exceptions::{PyException, PyImportError, PyMemoryError, PyValueError},
    prelude::*,
    types::{
        PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList,
        PySet, PyString,
    },
};

use super::{
    collector::CollectorPause,
    item_types::ReadTypes,
    keys::{Effort, Keys},
    make::{self, NewSequence},
    read_tensors::start_of_tables,
    stream::{
        BAD, Bad, DEEPEST, HAS_TENSORS, HEADER, LARGEST_SHAPE, MOST_SHAPES, PlainReader,
        SMALLEST_SMALL, VERSION, bad_at, tag,
    },
};
use crate::buffer::{View, Wanted};

/// From this length on, pausing the collector takes less time than it saves.
const WORTH_A_PAUSE: usize = 1024;

/// Builds an object from a stream and the buffers beside it.
///
/// The buffers are objects with Python's buffer protocol, in the encoder's order; arrays and tensors become views of them.
///
/// # Errors
///
/// Returns `ValueError` if the input is not the output of [`super::encode`]; `MemoryError`.
pub fn decode(py: Python<'_>, stream: &[u8], buffers: &[Py<PyAny>]) -> PyResult<Py<PyAny>> {
    let _pause = if stream.len() >= WORTH_A_PAUSE {
        Some(CollectorPause::begin(py)?)
    } else {
        None
    };
    let mut decoder = Decoder::new(py, stream, buffers)?;
    let value = decoder.whole(stream);
    value
        .map_err(|error| decoder.judge(*error))
        .map(Bound::unbind)
}

/// A decoding in progress.
pub(crate) struct Decoder<'a, 'py> {
    pub(crate) py: Python<'py>,
    pub(crate) reader: PlainReader<'a>,
    buffers: &'a [Py<PyAny>],
    /// The buffers that have been used: each is copied at most once.
    used: Vec<bool>,
    pub(crate) effort: Effort,
    /// Objects that can be referenced; none for an object that is not finished.
    numbered: Vec<Option<Bound<'py, PyAny>>>,
    shapes: Vec<Shape<'py>>,
    pub(crate) item_types: ReadTypes<'py>,
    pub(crate) tensors: Vec<Bound<'py, PyAny>>,
}

/// The initial state of dictionaries of a shape.
struct Shape<'py> {
    keys: Vec<Bound<'py, PyAny>>,
    /// A dictionary with all keys, in order.
    template: Bound<'py, PyDict>,
}

impl<'a, 'py> Decoder<'a, 'py> {
    fn new(py: Python<'py>, stream: &'a [u8], buffers: &'a [Py<PyAny>]) -> PyResult<Self> {
        match stream {
            [VERSION, 0 | HAS_TENSORS, ..] => {}
            [VERSION, flags, ..] => {
                return Err(*bad_at(1, &format!("unknown flags {flags:#x}")));
            }
            [version, _, ..] => {
                let what = format!("version {version}; this build reads version {VERSION}");
                return Err(*bad_at(0, &what));
            }
            _ => return Err(*bad_at(stream.len(), "the stream ends early")),
        }
        Ok(Self {
            py,
            reader: PlainReader::new(stream, HEADER),
            buffers,
            used: vec![false; buffers.len()],
            effort: Effort::for_stream(stream.len()),
            numbered: Vec::new(),
            shapes: Vec::new(),
            item_types: ReadTypes::default(),
            tensors: Vec::new(),
        })
    }

    fn whole(&mut self, stream: &'a [u8]) -> Result<Bound<'py, PyAny>, Bad> {
        if stream[1] & HAS_TENSORS != 0 {
            let Some(start) = start_of_tables(stream) else {
                return Err(bad_at(stream.len(), "the tables of tensors are missing"));
            };
            self.reader = PlainReader::new(stream, start);
            self.tensor_tables()?;
            self.reader = PlainReader::new(&stream[..start], HEADER);
        }
        let value = self.value(0)?;
        match self.reader.left() {
            0 => Ok(value),
            left => Err(self.reader.bad(&format!("{left} bytes after the end"))),
        }
    }

    /// The error to raise: errors from Python, except grave ones, become errors about the stream.
    fn judge(&self, error: PyErr) -> PyErr {
        let py = self.py;
        let is_ours = error.is_instance_of::<PyValueError>(py)
            && error.value(py).to_string().starts_with(BAD);
        let is_grave = error.is_instance_of::<PyMemoryError>(py)
            || error.is_instance_of::<PyImportError>(py)
            || !error.is_instance_of::<PyException>(py);
        if is_ours || is_grave {
            return error;
        }
        let judged = *self.reader.bad(&error.value(py).to_string());
        judged.set_cause(py, Some(error));
        judged
    }

    /// Reads any value inside `depth` containers.
    #[inline]
    pub(crate) fn value(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        let tag = self.reader.byte()?;
        match tag {
            tag::SMALL_INT.. => {
                let value = i64::from(tag - tag::SMALL_INT) + SMALLEST_SMALL;
                Ok(PyInt::new(self.py, value).into_any())
            }
            tag::SHORT_STR.. => {
                let utf8 = self.reader.bytes(usize::from(tag - tag::SHORT_STR))?;
                Ok(make::text(self.py, utf8)?)
            }
            tag::REFERENCE => {
                let number = self.reader.index()?;
                match self.numbered.get(number) {
                    Some(Some(object)) => Ok(object.clone()),
                    _ => Err(self
                        .reader
                        .bad(&format!("object {number} is not known here"))),
                }
            }
            tag::NUMBERED => {
                let number = self.numbered.len();
                self.numbered.push(None);
                let tag = self.reader.byte()?;
                if matches!(tag, tag::REFERENCE | tag::NUMBERED) {
                    return Err(self.reader.bad("a number for what is no object"));
                }
                let object = self.object(tag, Some(number), depth)?;
                self.numbered[number] = Some(object.clone());
                Ok(object)
            }
            tag => self.object(tag, None, depth),
        }
    }

    /// Reads the object after its tag. A container that may contain itself is entered under its number at once.
    #[inline]
    fn object(
        &mut self,
        tag: u8,
        number: Option<usize>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, Bad> {
        let py = self.py;
        Ok(match tag {
            tag::FLOAT => PyFloat::new(py, self.float()?).into_any(),
            tag::NONE => py.None().into_bound(py),
            tag::FALSE => PyBool::new(py, false).to_owned().into_any(),
            tag::TRUE => PyBool::new(py, true).to_owned().into_any(),
            tag::INT_8 => PyInt::new(py, i8::from_le_bytes(self.reader.array()?)).into_any(),
            tag::INT_16 => PyInt::new(py, i16::from_le_bytes(self.reader.array()?)).into_any(),
            tag::INT_32 => PyInt::new(py, i32::from_le_bytes(self.reader.array()?)).into_any(),
            tag::INT_64 => PyInt::new(py, i64::from_le_bytes(self.reader.array()?)).into_any(),
            tag::STR => make::text(py, self.reader.counted()?)?,
            tag::SHORT_STR..tag::SMALL_INT => {
                let utf8 = self.reader.bytes(usize::from(tag - tag::SHORT_STR))?;
                make::text(py, utf8)?
            }
            tag::FLOATS => self.floats()?,
            _ => return self.compound(tag, number, depth),
        })
    }

    fn compound(
        &mut self,
        tag: u8,
        number: Option<usize>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, Bad> {
        let py = self.py;
        if depth >= DEEPEST {
            return Err(self.reader.bad("containers nested too deep"));
        }
        Ok(match tag {
            tag::LIST => self.list(number, depth + 1)?,
            tag::DICT_OF_SHAPE => self.dict_of_shape(number, depth + 1)?,
            tag::DICT_NEW_SHAPE => self.dict_of_new_shape(number, depth + 1)?,
            tag::DICT => self.dict(number, depth + 1)?,
            tag::TUPLE => self.tuple(depth + 1)?,
            tag::INTS => self.ints()?,
            tag::SET => self.set(number, depth + 1)?,
            tag::FROZENSET => self.frozen_set(depth + 1)?,
            tag::BYTES => PyBytes::new(py, self.reader.counted()?).into_any(),
            tag::BYTES_BESIDE => PyBytes::new(py, self.beside()?.bytes()).into_any(),
            tag::BYTEARRAY => PyByteArray::new(py, self.reader.counted()?).into_any(),
            tag::BYTEARRAY_BESIDE => PyByteArray::new(py, self.beside()?.bytes()).into_any(),
            tag::STR_SURROGATES => make::text_with_surrogates(py, self.reader.counted()?)?,
            tag::INT_BIG => self.big_int()?,
            tag::COMPLEX => {
                let (real, imaginary) = (self.float()?, self.float()?);
                PyComplex::from_doubles(py, real, imaginary).into_any()
            }
            tag::SCALAR | tag::ARRAY | tag::ARRAY_BESIDE => self.array(tag)?,
            tag::TENSOR => {
                let number = self.reader.index()?;
                let Some(tensor) = self.tensors.get(number) else {
                    return Err(self.reader.bad(&format!("tensor {number} is not there")));
                };
                tensor.clone()
            }
            tag::DATE..=tag::TIMEZONE => self.date(tag, depth)?,
            tag => return Err(self.reader.bad(&format!("unknown tag {tag}"))),
        })
    }

    #[inline]
    fn float(&mut self) -> Result<f64, Bad> {
        self.reader.array().map(f64::from_le_bytes)
    }

    fn big_int(&mut self) -> Result<Bound<'py, PyAny>, Bad> {
        let bytes = PyBytes::new(self.py, self.reader.counted()?);
        let arguments = PyDict::new(self.py);
        arguments.set_item("signed", true)?;
        let kind = self.py.get_type::<PyInt>();
        Ok(kind.call_method("from_bytes", (bytes, "little"), Some(&arguments))?)
    }

    /// The memory of a buffer beside the stream.
    fn beside(&mut self) -> Result<View<'py>, Bad> {
        Ok(View::of(self.buffer()?.bind(self.py), Wanted::Bytes)?)
    }

    /// A buffer beside the stream, which no other object uses.
    pub(crate) fn buffer(&mut self) -> Result<&'a Py<PyAny>, Bad> {
        let index = self.reader.index()?;
        let count = self.buffers.len();
        let (Some(buffer), Some(used)) = (self.buffers.get(index), self.used.get_mut(index)) else {
            return Err(self.reader.bad(&format!("buffer {index} of {count}")));
        };
        if std::mem::replace(used, true) {
            return Err(self.reader.bad(&format!("buffer {index} a second time")));
        }
        Ok(buffer)
    }

    /// Reads an element that was announced.
    #[inline]
    fn element(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        self.reader.begin_element();
        self.value(depth)
    }

    /// Enters an unfinished container under its number.
    fn enter(&mut self, number: Option<usize>, object: &Bound<'py, PyAny>) {
        if let Some(number) = number {
            self.numbered[number] = Some(object.clone());
        }
    }

    #[inline]
    fn list(&mut self, number: Option<usize>, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.elements(1)?;
        if number.is_some() {
            let list = PyList::empty(self.py);
            self.enter(number, list.as_any());
            for _ in 0..length {
                let element = self.element(depth)?;
                list.append(element)?;
            }
            return Ok(list.into_any());
        }
        let mut row = NewSequence::list(self.py, length)?;
        for _ in 0..length {
            row.push(self.element(depth)?);
        }
        Ok(row.finish()?)
    }

    #[inline]
    fn floats(&mut self) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.count(8)?;
        let (numbers, _) = self.reader.bytes(length * 8)?.as_chunks();
        let mut row = NewSequence::list(self.py, length)?;
        for number in numbers {
            row.push(PyFloat::new(self.py, f64::from_le_bytes(*number)).into_any());
        }
        Ok(row.finish()?)
    }

    fn ints(&mut self) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.count(1)?;
        let width = self.reader.byte()?;
        let Some(size) = length.checked_mul(usize::from(width)) else {
            return Err(self.reader.bad("a list of integers that is too long"));
        };
        let numbers = self.reader.bytes(size)?;
        match width {
            1 => self.packed(numbers, |bytes| i8::from_le_bytes(bytes).into()),
            2 => self.packed(numbers, |bytes| i16::from_le_bytes(bytes).into()),
            4 => self.packed(numbers, |bytes| i32::from_le_bytes(bytes).into()),
            8 => self.packed(numbers, i64::from_le_bytes),
            _ => Err(self.reader.bad(&format!("integers of {width} bytes"))),
        }
    }

    fn packed<const N: usize>(
        &self,
        numbers: &[u8],
        value: impl Fn([u8; N]) -> i64,
    ) -> Result<Bound<'py, PyAny>, Bad> {
        let (numbers, _) = numbers.as_chunks();
        let mut row = NewSequence::list(self.py, numbers.len())?;
        for number in numbers {
            row.push(PyInt::new(self.py, value(*number)).into_any());
        }
        Ok(row.finish()?)
    }

    fn tuple(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.elements(1)?;
        let mut row = NewSequence::tuple(self.py, length)?;
        for _ in 0..length {
            row.push(self.element(depth)?);
        }
        Ok(row.finish()?)
    }

    fn set(&mut self, number: Option<usize>, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.elements(1)?;
        let set = PySet::empty(self.py)?;
        self.enter(number, set.as_any());
        let mut keys = Keys::of(length);
        for _ in 0..length {
            let element = self.element(depth)?;
            self.key(&mut keys, &element)?;
            set.add(element)?;
        }
        Ok(set.into_any())
    }

    fn frozen_set(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.elements(1)?;
        let mut keys = Keys::of(length);
        let mut row = NewSequence::list(self.py, length)?;
        for _ in 0..length {
            let element = self.element(depth)?;
            self.key(&mut keys, &element)?;
            row.push(element);
        }
        let elements = row.finish()?;
        Ok(self.py.get_type::<PyFrozenSet>().call1((elements,))?)
    }

    fn dict(&mut self, number: Option<usize>, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.elements(2)?;
        let dict = PyDict::new(self.py);
        self.enter(number, dict.as_any());
        let mut keys = Keys::of(length);
        for _ in 0..length {
            let key = self.element(depth)?;
            self.key(&mut keys, &key)?;
            let value = self.element(depth)?;
            make::set(&dict, &key, &value)?;
        }
        Ok(dict.into_any())
    }

    #[inline]
    fn dict_of_shape(
        &mut self,
        number: Option<usize>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, Bad> {
        let shape = self.reader.index()?;
        if shape >= self.shapes.len() {
            return Err(self.reader.bad(&format!("shape {shape} is not known here")));
        }
        self.reader.expect_elements(self.shapes[shape].keys.len())?;
        self.filled(shape, number, depth)
    }

    fn dict_of_new_shape(
        &mut self,
        number: Option<usize>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, Bad> {
        let length = self.reader.elements(2)?;
        if !(1..=LARGEST_SHAPE).contains(&length) {
            let text = format!("a shape of {length} keys, where 1 to {LARGEST_SHAPE} are allowed");
            return Err(self.reader.bad(&text));
        }
        if self.shapes.len() >= MOST_SHAPES {
            let text = format!("more than {MOST_SHAPES} shapes");
            return Err(self.reader.bad(&text));
        }
        let template = PyDict::new(self.py);
        let mut keys = Vec::with_capacity(length);
        for _ in 0..length {
            let key = self.element(depth)?;
            if !key.is_exact_instance_of::<PyString>() {
                return Err(self.reader.bad("a shape with a key that is no string"));
            }
            make::set(&template, &key, self.py.None().bind(self.py))?;
            keys.push(key);
            if template.len() != keys.len() {
                return Err(self.reader.bad("a shape with a key twice"));
            }
        }
        self.shapes.push(Shape { keys, template });
        self.filled(self.shapes.len() - 1, number, depth)
    }

    /// Reads the announced values of a dictionary of a known shape.
    #[inline]
    fn filled(
        &mut self,
        shape: usize,
        number: Option<usize>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, Bad> {
        let Shape { keys, template } = &self.shapes[shape];
        let length = keys.len();
        let dict = template.copy()?;
        self.enter(number, dict.as_any());
        for index in 0..length {
            let value = self.element(depth)?;
            make::set(&dict, &self.shapes[shape].keys[index], &value)?;
        }
        Ok(dict.into_any())
    }
}
