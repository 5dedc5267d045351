//! numpy's arrays and scalars.

use pyo3::{
    Bound, Py, PyAny,
    exceptions::{PyBufferError, PyValueError},
    ffi::Py_ssize_t,
    intern,
    prelude::*,
    types::{PyByteArray, PyBytes, PyTuple},
};

use super::{
    decode::Decoder,
    encode::Encoder,
    item_types::ReadType,
    known::ArrayTypes,
    refusal::{Refusal, Refused},
    stream::{Bad, OUT_OF_BAND, tag},
};
use crate::buffer::{BorrowedBuffer, View, Wanted};

/// The order of the items.
const C_ORDER: u8 = 0;
const FORTRAN_ORDER: u8 = 1;

/// Arrays up to this many bytes own their memory, like those that numpy unpickles; `resize` requires that.
const LARGEST_OWNED: usize = 1000;

/// The maximum number of dimensions in any release of numpy.
const MOST_DIMENSIONS: usize = 64;

impl<'py> Encoder<'py> {
    /// Writes an array or scalar; returns false if the object is neither.
    pub(crate) fn array(&mut self, held: &Bound<'py, PyAny>, types: &ArrayTypes) -> Refused<bool> {
        let py = held.py();
        let kind = held.get_type();
        if kind.is(&types.ndarray) {
            self.whole_array(held, types)?;
        } else if kind.is_subclass(types.generic.bind(py))? {
            let dtype = held.getattr(intern!(py, "dtype"))?;
            // A subclass has the dtype of its base.
            if !dtype.getattr(intern!(py, "type"))?.is(&kind) {
                return Ok(false);
            }
            self.scalar(held, &dtype, types)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn scalar(
        &mut self,
        held: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
        types: &ArrayTypes,
    ) -> Refused<()> {
        self.out.byte(tag::SCALAR);
        let item = self.item_type(dtype, types)?;
        // numpy takes zeros at the end of a text for padding.
        if matches!(item.kind, 'S' | 'U') {
            return Err(Refusal::of_type(held));
        }
        let bytes = held.call_method0(intern!(held.py(), "tobytes"))?;
        let bytes: &[u8] = bytes.extract().map_err(PyErr::from)?;
        if bytes.len() != item.size {
            return Err(Refusal::of_type(held));
        }
        self.out.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn whole_array(&mut self, held: &Bound<'py, PyAny>, types: &ArrayTypes) -> Refused<()> {
        let py = held.py();
        let start = self.out.bytes.len();
        self.out.byte(tag::ARRAY);
        let dtype = held.getattr(intern!(py, "dtype"))?;
        let item = self.item_type(&dtype, types)?;
        if self.like.is_pickle() && !item.is_native {
            // Pickle may or may not swap their bytes, depending on its protocol.
            return Err(Refusal::because(format!("numpy.ndarray of {dtype}")));
        }
        // Times have no letter in the buffer protocol.
        let shown = match item.kind {
            'm' | 'M' => held.call_method1(intern!(py, "view"), (intern!(py, "i8"),))?,
            _ => held.clone(),
        };
        let (shown, view) = match View::of(&shown, Wanted::Raw) {
            Ok(view) => (shown, view),
            // There are gaps between the items: the copy has none, and is in C order, like that of pickle.
            Err(error)
                if error.is_instance_of::<PyValueError>(py)
                    || error.is_instance_of::<PyBufferError>(py) =>
            {
                let copy = shown.call_method1(intern!(py, "copy"), (intern!(py, "C"),))?;
                let view = View::of(&copy, Wanted::Raw)?;
                (copy, view)
            }
            Err(error) => return Err(error.into()),
        };
        let in_c_order = is_in_c_order(view.shape(), view.strides(), view.item_size());
        self.out
            .byte(if in_c_order { C_ORDER } else { FORTRAN_ORDER });
        self.out.length(view.shape().len());
        for length in view.shape() {
            self.out.length(length.cast_unsigned());
        }
        if view.bytes().len() >= OUT_OF_BAND {
            let buffer = BorrowedBuffer::raw(&shown)?;
            self.out.bytes[start] = tag::ARRAY_BESIDE;
            self.out.length(self.buffers.len());
            self.buffers.push(buffer);
        } else {
            self.out.bytes.extend_from_slice(view.bytes());
        }
        Ok(())
    }
}

/// Returns true if items are stored row by row, which holds for arrays in both orders, and for empty ones.
fn is_in_c_order(shape: &[Py_ssize_t], strides: &[Py_ssize_t], item: Py_ssize_t) -> bool {
    let mut expected = item;
    for (length, stride) in shape.iter().zip(strides).rev() {
        if *length > 1 && *stride != expected {
            return shape.contains(&0);
        }
        expected = expected.saturating_mul(*length);
    }
    true
}

impl<'py> Decoder<'_, 'py> {
    /// Reads an array or scalar after its tag.
    pub(crate) fn array(&mut self, tag: u8) -> Result<Bound<'py, PyAny>, Bad> {
        let py = self.py;
        let numpy = py.import(intern!(py, "numpy"))?;
        let item = self.item_type(&numpy)?;
        let ReadType {
            dtype,
            size,
            is_native,
        } = item;
        let ndarray = numpy.getattr(intern!(py, "ndarray"))?;
        if tag == tag::SCALAR {
            let bytes = PyBytes::new(py, self.reader.bytes(size)?);
            let array = ndarray.call1((PyTuple::empty(py), dtype, bytes))?;
            return Ok(array.get_item(PyTuple::empty(py))?);
        }
        let (order, is_fortran) = match self.reader.byte()? {
            C_ORDER => (intern!(py, "C"), false),
            FORTRAN_ORDER => (intern!(py, "F"), true),
            order => return Err(self.reader.bad(&format!("order {order} of items"))),
        };
        let (shape, size) = self.shape(size)?;
        if tag == tag::ARRAY && size <= LARGEST_OWNED && is_native {
            // The same way as numpy, so that even the strides of empty arrays are equal. It would swap bytes in other orders.
            let array = ndarray.call1(((0,), intern!(py, "b")))?;
            let content = PyBytes::new(py, self.reader.bytes(size)?);
            let state = (1, PyTuple::new(py, shape)?, dtype, is_fortran, content);
            array.call_method1(intern!(py, "__setstate__"), (state,))?;
            return Ok(array);
        }
        let buffer = if tag == tag::ARRAY {
            PyByteArray::new(py, self.reader.bytes(size)?).into_any()
        } else {
            self.buffer_of(size)?.bind(py).clone()
        };
        let shape = PyTuple::new(py, shape)?;
        Ok(ndarray.call1((shape, dtype, buffer, 0, py.None(), order))?)
    }

    /// Returns a buffer beside the stream of this length.
    pub(crate) fn buffer_of(&mut self, size: usize) -> Result<&Py<PyAny>, Bad> {
        let buffer = self.buffer()?;
        let (_, length) = View::of(buffer.bind(self.py), Wanted::Bytes)?.address();
        if length == size {
            Ok(buffer)
        } else {
            let what = format!("{size} bytes wanted, a buffer of {length} given");
            Err(self.reader.bad(&what))
        }
    }

    /// Reads the lengths of the dimensions, and returns them with the size of the items in bytes.
    fn shape(&mut self, mut size: usize) -> Result<(Vec<usize>, usize), Bad> {
        let count = self.reader.count(1)?;
        if count > MOST_DIMENSIONS {
            return Err(self.reader.bad(&format!("an array of {count} dimensions")));
        }
        let mut shape = Vec::with_capacity(count);
        for _ in 0..count {
            let length = self.reader.index()?;
            let Some(larger) = size.checked_mul(length) else {
                return Err(self.reader.bad("an array larger than any memory"));
            };
            size = larger;
            shape.push(length);
        }
        Ok((shape, size))
    }
}
