//! torch's tensors, while decoding.

use pyo3::{
    Bound, PyAny, intern,
    prelude::*,
    types::{PyByteArray, PyDict, PyTuple},
};

use super::{
    decode::Decoder,
    modes::ModesOff,
    stream::{Bad, HEADER},
    tensor_bytes::torch,
    tensors::{BESIDE, INLINE},
};

use crate::buffer::{View, Wanted};

/// Minimum number of bytes of a tensor in the table.
const LEAST_OF_TENSOR: usize = 5;

/// Maximum number of dimensions of a tensor.
const MOST_DIMENSIONS: usize = 64;

/// Maximum length of the name of an item type.
const LONGEST_NAME: usize = 32;

/// A storage, and its size in bytes.
struct Storage<'py> {
    storage: Bound<'py, PyAny>,
    size: usize,
}

/// The start of the tables in a stream that ends with them.
pub(crate) fn start_of_tables(stream: &[u8]) -> Option<usize> {
    let (rest, last) = stream.split_last_chunk()?;
    let start = usize::try_from(u64::from_le_bytes(*last)).ok()?;
    (HEADER..=rest.len()).contains(&start).then_some(start)
}

impl<'py> Decoder<'_, 'py> {
    /// Reads the tables at the end of the stream.
    pub(crate) fn tensor_tables(&mut self) -> Result<(), Bad> {
        let module = torch(self.py)?;
        let _modes = ModesOff::begin(self.py)?;
        let count = self.reader.count(2)?;
        let mut storages = Vec::new();
        for _ in 0..count {
            storages.push(self.storage(&module)?);
        }
        let count = self.reader.count(LEAST_OF_TENSOR)?;
        for _ in 0..count {
            let tensor = self.tensor(&module, &storages)?;
            self.tensors.push(tensor);
        }
        match self.reader.left() {
            // The position of the tables.
            8 => Ok(()),
            left => Err(self
                .reader
                .bad(&format!("{left} bytes at the end of the tables, not 8"))),
        }
    }

    fn storage(&mut self, module: &Bound<'py, PyModule>) -> Result<Storage<'py>, Bad> {
        let py = self.py;
        let kind = self.reader.byte()?;
        let (size, memory) = match kind {
            INLINE => {
                let content = self.reader.counted()?;
                (content.len(), PyByteArray::new(py, content).into_any())
            }
            BESIDE => {
                let buffer = self.buffer()?.bind(py);
                let (_, size) = View::of(buffer, Wanted::Bytes)?.address();
                (size, buffer.clone())
            }
            kind => return Err(self.reader.bad(&format!("unknown kind {kind} of storage"))),
        };
        let options = PyDict::new(py);
        options.set_item(intern!(py, "dtype"), module.getattr(intern!(py, "uint8"))?)?;
        let mut bytes = if size == 0 {
            options.set_item(intern!(py, "device"), intern!(py, "cpu"))?;
            module.call_method(intern!(py, "empty"), (0,), Some(&options))?
        } else {
            module.call_method(intern!(py, "frombuffer"), (memory,), Some(&options))?
        };
        if kind == INLINE && size > 0 {
            // In memory of torch, which can be resized.
            bytes = bytes.call_method0(intern!(py, "clone"))?;
        }
        let storage = bytes.call_method0(intern!(py, "untyped_storage"))?;
        Ok(Storage { storage, size })
    }

    fn tensor(
        &mut self,
        module: &Bound<'py, PyModule>,
        storages: &[Storage<'py>],
    ) -> Result<Bound<'py, PyAny>, Bad> {
        let py = self.py;
        let number = self.reader.index()?;
        let Some(Storage { storage, size }) = storages.get(number) else {
            return Err(self
                .reader
                .bad(&format!("storage {number} of {}", storages.len())));
        };
        let dtype = self.tensor_type(module)?;
        let options = PyDict::new(py);
        options.set_item(intern!(py, "dtype"), dtype)?;
        options.set_item(intern!(py, "device"), intern!(py, "cpu"))?;
        let tensor = module.call_method(intern!(py, "empty"), (0,), Some(&options))?;
        let item: usize = tensor
            .call_method0(intern!(py, "element_size"))?
            .extract()?;
        let requires_grad = match self.reader.byte()? {
            0 => false,
            1 => true,
            flag => return Err(self.reader.bad(&format!("{flag} as a flag"))),
        };
        let offset = self.reader.index()?;
        let dimensions = self.reader.count(2)?;
        if dimensions > MOST_DIMENSIONS {
            return Err(self
                .reader
                .bad(&format!("a tensor of {dimensions} dimensions")));
        }
        let mut shape = Vec::with_capacity(dimensions);
        let mut strides = Vec::with_capacity(dimensions);
        for _ in 0..dimensions {
            shape.push(self.reader.index()?);
            strides.push(self.reader.index()?);
        }
        let end = end_of(offset, &shape, &strides).and_then(|end| end.checked_mul(item));
        if end.is_none_or(|end| end > *size) {
            return Err(self.reader.bad("a tensor beyond its storage"));
        }
        let (shape, strides) = (PyTuple::new(py, shape)?, PyTuple::new(py, strides)?);
        tensor.call_method1(intern!(py, "set_"), (storage, offset, shape, strides))?;
        if requires_grad {
            tensor.call_method1(intern!(py, "requires_grad_"), (true,))?;
        }
        Ok(tensor)
    }

    fn tensor_type(&mut self, module: &Bound<'py, PyModule>) -> Result<Bound<'py, PyAny>, Bad> {
        let name = self.reader.counted()?;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let name = match str::from_utf8(name) {
            Ok(text) if name.iter().all(is_name) && name.len() <= LONGEST_NAME => text,
            _ => return Err(self.reader.bad("no type of items")),
        };
        let kind = module.getattr(intern!(self.py, "dtype"))?;
        match module.getattr_opt(name)? {
            // Quantized items are more than their bytes.
            Some(dtype) if dtype.is_instance(&kind)? && !name.starts_with('q') => Ok(dtype),
            _ => Err(self.reader.bad(&format!("this torch has no type {name:?}"))),
        }
    }
}

/// The position after the last item that is viewed; none if it overflows.
fn end_of(offset: usize, shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        // torch multiplies the lengths anyway.
        shape
            .iter()
            .filter(|length| **length > 0)
            .try_fold(1_usize, |all, length| all.checked_mul(*length))?;
        return Some(offset);
    }
    let mut last = offset;
    for (length, step) in shape.iter().zip(strides) {
        last = last.checked_add((length - 1).checked_mul(*step)?)?;
    }
    last.checked_add(1)
}
