//! Encodes objects as bytes: [`encode`].
//!
//! # Objects that occur twice
//!
//! An object that only one container holds occurs once and needs no table entry: most objects. The others get numbers, by their addresses,
//! and are held until the end, so that their addresses are not reused.
//!
//! # Containers that change
//!
//! Encoding most built-in types runs no Python code. Copying an array does, and lets other threads run. So does any creation of containers
//! (an error, a dictionary of arguments, an iterator), as the collector may then run finalizers. Therefore each element is held before it
//! is passed to any function of Python that can run code, and each container while it is being read; a container is asked for one element
//! at a time, and compared with itself afterwards. If elements are recorded before they are used, because that is faster,
//! [`Encoder::disturbed`] counts the occasions on which they may have gone.
#![expect(
    unsafe_code,
    reason = "elements are borrowed from their containers; the argument is above and at each use"
)]

use pyo3::{
    Bound, PyAny, ffi,
    prelude::*,
    types::{PyComplex, PyDict},
};

use super::{
    addresses::AddressTable,
    item_types::WrittenTypes,
    known::Known,
    modes::ModesOff,
    object::{Bytes, Int, Item, List, Object, Str, Tuple, is_shared, next_of_set},
    refusal::{Refusal, Refused},
    shapes::Shapes,
    stream::{DEEPEST, LARGEST_SMALL, OUT_OF_BAND, PlainWriter, SMALLEST_SMALL, VERSION, tag},
    tensors::WrittenTensors,
};
use crate::{
    buffer::{BorrowedBuffer, View, Wanted},
    like::Like,
};

/// An object as bytes.
pub struct Encoded {
    /// The object, except for the contents beside it.
    pub stream: Vec<u8>,
    /// Large contents, which are read in place.
    pub buffers: Vec<BorrowedBuffer>,
}

/// Turns plain data into bytes.
///
/// # Errors
///
/// Returns [`Refusal::NotPlain`] for anything that only pickle can encode.
pub fn encode(value: &Bound<'_, PyAny>, like: Like) -> Result<Encoded, Refusal> {
    let mut encoder = Encoder::new(like);
    let written = match Object::of(value.as_borrowed()) {
        Object::List(list) if like == Like::Pickles => encoder.entries(list),
        _ => encoder.value(value.as_borrowed(), 0),
    };
    match written {
        Ok(()) => encoder.finish(),
        Err(refusal) => Err(*refusal),
    }
}

/// An encoding in progress.
pub(crate) struct Encoder<'py> {
    pub(crate) like: Like,
    pub(crate) out: PlainWriter,
    pub(crate) buffers: Vec<BorrowedBuffer>,
    numbers: AddressTable,
    numbered: Vec<Bound<'py, PyAny>>,
    /// Tuples and frozen sets that are not finished: they cannot be referenced yet.
    unfinished: Vec<usize>,
    pub(crate) shapes: Shapes<'py>,
    /// Addresses of the keys of the dictionaries that are not finished.
    pub(crate) keys: Vec<usize>,
    /// The values that belong to `keys`; they must not be used after a disturbance.
    pub(crate) values: Vec<*mut ffi::PyObject>,
    /// Number of times that Python code may have run.
    pub(crate) disturbances: u64,
    /// The list of integers that is being read.
    integers: Vec<i64>,
    pub(crate) item_types: WrittenTypes<'py>,
    pub(crate) tensors: WrittenTensors<'py>,
    /// Set from the first tensor on.
    pub(crate) modes: Option<ModesOff<'py>>,
    /// The types beyond the built-in ones, once one of them occurs.
    known: Option<Known>,
}

impl<'py> Encoder<'py> {
    fn new(like: Like) -> Self {
        let mut out = PlainWriter::default();
        out.byte(VERSION);
        out.byte(0);
        Self {
            like,
            out,
            buffers: Vec::new(),
            numbers: AddressTable::default(),
            numbered: Vec::new(),
            unfinished: Vec::new(),
            shapes: Shapes::new(),
            keys: Vec::new(),
            values: Vec::new(),
            disturbances: 0,
            integers: Vec::new(),
            item_types: WrittenTypes::default(),
            tensors: WrittenTensors::default(),
            modes: None,
            known: None,
        }
    }

    fn finish(mut self) -> Result<Encoded, Refusal> {
        self.tensor_tables().map_err(|refusal| *refusal)?;
        Ok(Encoded {
            stream: self.out.bytes,
            buffers: self.buffers,
        })
    }

    /// Must be called where Python code may run: elements that were borrowed from containers may then be gone.
    pub(crate) fn disturbed(&mut self) {
        self.disturbances += 1;
    }

    /// Writes any value inside `depth` containers.
    #[inline]
    pub(crate) fn value(&mut self, item: Item<'_, 'py>, depth: usize) -> Refused<()> {
        match Object::of(item) {
            Object::Str(text) => self.text(text),
            Object::Float(float) => {
                self.out.tagged(tag::FLOAT, float.get().to_le_bytes());
                Ok(())
            }
            Object::Int(int) => self.int(int),
            Object::None => {
                self.out.byte(tag::NONE);
                Ok(())
            }
            Object::Bool(truth) => {
                self.out.byte(if truth { tag::TRUE } else { tag::FALSE });
                Ok(())
            }
            other => self.compound(item, other, depth),
        }
    }

    fn compound(
        &mut self,
        item: Item<'_, 'py>,
        object: Object<'_, 'py>,
        depth: usize,
    ) -> Refused<()> {
        if self.again(item)? {
            return Ok(());
        }
        if depth >= DEEPEST {
            return Err(Refusal::too_deep(&item.to_owned()));
        }
        // Python code may remove it from its container.
        let held = item.to_owned();
        match object {
            Object::List(list) => return self.list(list, depth),
            Object::Dict(dict) => return self.dict(dict, depth),
            Object::Tuple(tuple) => return self.tuple(tuple, depth),
            _ => self.disturbed(),
        }
        match object {
            Object::Bytes(bytes) => self.bytes(bytes),
            Object::ByteArray => self.byte_array(&held),
            Object::Set => self.set(&held, tag::SET, depth),
            Object::FrozenSet => {
                self.unfinished.push(item.as_ptr().addr());
                self.set(&held, tag::FROZENSET, depth)?;
                self.unfinished.pop();
                Ok(())
            }
            Object::Complex => self.complex(&held),
            _ => self.other(&held, depth),
        }
    }

    /// Writes an object of a type that is not built in.
    fn other(&mut self, held: &Bound<'py, PyAny>, depth: usize) -> Refused<()> {
        let known = self.known(held.py())?;
        if self.other_of(held, known, depth)? {
            Ok(())
        } else {
            Err(Refusal::of_type(held))
        }
    }

    fn known(&mut self, py: Python<'py>) -> PyResult<Known> {
        Ok(match self.known {
            Some(known) => known,
            None => *self.known.insert(Known::by_now(py)?),
        })
    }

    fn other_of(&mut self, held: &Bound<'py, PyAny>, known: Known, depth: usize) -> Refused<bool> {
        if let Some(types) = known.arrays
            && self.array(held, types)?
        {
            return Ok(true);
        }
        if let Some(types) = known.tensors
            && self.tensor(held, types)?
        {
            return Ok(true);
        }
        if let Some(types) = known.dates
            && self.date(held, types, depth)?
        {
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes a reference and returns true if the object occurred before; otherwise numbers the object if it can occur again.
    #[inline]
    fn again(&mut self, item: Item<'_, 'py>) -> Refused<bool> {
        if is_shared(item) {
            self.shared_again(item)
        } else {
            Ok(false)
        }
    }

    fn shared_again(&mut self, item: Item<'_, 'py>) -> Refused<bool> {
        let address = item.as_ptr().addr();
        if let Some(number) = self.numbers.get(address) {
            if !self.unfinished.is_empty() && self.unfinished.contains(&address) {
                return Err(Refusal::because("a tuple that contains itself"));
            }
            self.out.byte(tag::REFERENCE);
            self.out.number(number.into());
            return Ok(true);
        }
        let Ok(number) = u32::try_from(self.numbered.len()) else {
            return Err(Refusal::because("more than 4294967295 shared objects"));
        };
        self.numbers.insert(address, number);
        self.numbered.push(item.to_owned());
        self.out.byte(tag::NUMBERED);
        Ok(false)
    }

    #[inline]
    fn int(&mut self, int: Int<'_, 'py>) -> Refused<()> {
        let Some(value) = int.get() else {
            // Python code may remove it from its container.
            return self.big_int(&int.0.to_owned());
        };
        if (SMALLEST_SMALL..=LARGEST_SMALL).contains(&value) {
            let small = (value - SMALLEST_SMALL).to_le_bytes()[0];
            self.out.byte(tag::SMALL_INT + small);
        } else if let Ok(value) = i8::try_from(value) {
            self.out.tagged(tag::INT_8, value.to_le_bytes());
        } else if let Ok(value) = i16::try_from(value) {
            self.out.tagged(tag::INT_16, value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.out.tagged(tag::INT_32, value.to_le_bytes());
        } else {
            self.out.tagged(tag::INT_64, value.to_le_bytes());
        }
        Ok(())
    }

    #[cold]
    fn big_int(&mut self, int: &Bound<'py, PyAny>) -> Refused<()> {
        self.disturbed();
        let bits: usize = int.call_method0("bit_length")?.extract()?;
        let arguments = PyDict::new(int.py());
        arguments.set_item("signed", true)?;
        // One more bit for the sign.
        let bytes = int.call_method("to_bytes", (bits / 8 + 1, "little"), Some(&arguments))?;
        self.out.byte(tag::INT_BIG);
        self.out.counted(bytes.extract().map_err(PyErr::from)?);
        Ok(())
    }

    fn complex(&mut self, held: &Bound<'py, PyAny>) -> Refused<()> {
        if !self.known(held.py())?.complex {
            return Err(Refusal::of_type(held));
        }
        let complex = held.cast::<PyComplex>().map_err(PyErr::from)?;
        self.out.tagged(tag::COMPLEX, complex.real().to_le_bytes());
        self.out.bytes.extend(complex.imag().to_le_bytes());
        Ok(())
    }

    /// Writes a string, as a reference if it occurred before.
    #[inline]
    pub(crate) fn text(&mut self, text: Str<'_, 'py>) -> Refused<()> {
        if self.again(text.0)? {
            return Ok(());
        }
        // Finding surrogates creates an error, which may run Python code that frees the text.
        let held = text.held();
        let Some(utf8) = held.utf8() else {
            return self.text_with_surrogates(&held.0);
        };
        if let Ok(length @ 0..64) = u8::try_from(utf8.len()) {
            self.out.byte(tag::SHORT_STR | length);
            self.out.bytes.extend_from_slice(utf8);
        } else {
            self.out.byte(tag::STR);
            self.out.counted(utf8);
        }
        Ok(())
    }

    #[cold]
    fn text_with_surrogates(&mut self, text: &Bound<'py, PyAny>) -> Refused<()> {
        self.disturbed();
        let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
        self.out.byte(tag::STR_SURROGATES);
        self.out.counted(bytes.extract().map_err(PyErr::from)?);
        Ok(())
    }

    fn bytes(&mut self, bytes: Bytes<'_, 'py>) -> Refused<()> {
        let content = bytes.get();
        if content.len() >= OUT_OF_BAND {
            let buffer = BorrowedBuffer::of(&bytes.0)?;
            self.beside(tag::BYTES_BESIDE, buffer);
        } else {
            self.out.byte(tag::BYTES);
            self.out.counted(content);
        }
        Ok(())
    }

    fn byte_array(&mut self, held: &Bound<'py, PyAny>) -> Refused<()> {
        let view = View::of(held, Wanted::Bytes)?;
        if view.bytes().len() >= OUT_OF_BAND {
            let buffer = BorrowedBuffer::of(held)?;
            self.beside(tag::BYTEARRAY_BESIDE, buffer);
        } else {
            self.out.byte(tag::BYTEARRAY);
            self.out.counted(view.bytes());
        }
        Ok(())
    }

    /// Writes the index of a buffer whose content is not in the stream.
    pub(crate) fn beside(&mut self, tag: u8, buffer: BorrowedBuffer) {
        self.out.byte(tag);
        self.out.length(self.buffers.len());
        self.buffers.push(buffer);
    }

    fn list(&mut self, list: List<'_, 'py>, depth: usize) -> Refused<()> {
        let length = list.len();
        if self.floats(list, length) || self.integers(list, length) {
            return Ok(());
        }
        self.out.byte(tag::LIST);
        self.out.length(length);
        for index in 0..length {
            // SAFETY: used up before the next one is asked for; `value` holds what may run code.
            let item = unsafe { list.item(index) };
            let item = item.ok_or_else(|| Refusal::changed("list"))?;
            self.value(item, depth + 1)
                .map_err(|refusal| refusal.below(format_args!("[{index}]")))?;
        }
        if list.len() != length {
            return Err(Refusal::changed("list"));
        }
        Ok(())
    }

    /// Writes a list whose entries are independent, although the same object may be in several.
    fn entries(&mut self, list: List<'_, 'py>) -> Refused<()> {
        let length = list.len();
        self.out.byte(tag::LIST);
        self.out.length(length);
        for index in 0..length {
            // SAFETY: used up before the next one is asked for; `value` holds what may run code.
            let item = unsafe { list.item(index) };
            let item = item.ok_or_else(|| Refusal::changed("list"))?;
            self.value(item, 1)
                .map_err(|refusal| refusal.below(format_args!("[{index}]")))?;
            // Recorded objects keep their numbers, but are not found again.
            self.numbers = AddressTable::default();
        }
        if list.len() != length {
            return Err(Refusal::changed("list"));
        }
        Ok(())
    }

    /// Writes a list that contains only floats; writes nothing for any other.
    #[inline]
    fn floats(&mut self, list: List<'_, 'py>, length: usize) -> bool {
        let start = self.out.bytes.len();
        for index in 0..length {
            // SAFETY: no Python code runs in this loop.
            let item = unsafe { list.item(index) };
            let Some(Object::Float(float)) = item.map(Object::of) else {
                self.out.bytes.truncate(start);
                return false;
            };
            if index == 0 {
                self.out.byte(tag::FLOATS);
                self.out.length(length);
                self.out.bytes.reserve(length * 8);
            }
            self.out.bytes.extend_from_slice(&float.get().to_le_bytes());
        }
        length > 0
    }

    /// Writes a list that contains only integers of up to 64 bits; writes nothing for any other.
    #[inline]
    fn integers(&mut self, list: List<'_, 'py>, length: usize) -> bool {
        if length < 2 {
            return false;
        }
        self.integers.clear();
        let (mut least, mut most) = (0, 0);
        for index in 0..length {
            // SAFETY: no Python code runs in this loop.
            let item = unsafe { list.item(index) };
            let Some(Object::Int(int)) = item.map(Object::of) else {
                return false;
            };
            let Some(value) = int.get() else {
                return false;
            };
            least = value.min(least);
            most = value.max(most);
            self.integers.push(value);
        }
        let fits = |width: u32| {
            let unused = 64 - 8 * width;
            least << unused >> unused == least && most << unused >> unused == most
        };
        let width = [1, 2, 4]
            .into_iter()
            .find(|width| fits(*width))
            .unwrap_or(8);
        self.out.byte(tag::INTS);
        self.out.length(length);
        self.out.byte(width.to_le_bytes()[0]);
        let integers = self.integers.iter().map(|value| value.to_le_bytes());
        match width {
            1 => self.out.bytes.extend(integers.map(|bytes| bytes[0])),
            2 => self.out.bytes.extend(integers.flat_map(|b| [b[0], b[1]])),
            4 => {
                let bytes = integers.flat_map(|b| [b[0], b[1], b[2], b[3]]);
                self.out.bytes.extend(bytes);
            }
            _ => self.out.bytes.extend(integers.flatten()),
        }
        true
    }

    fn tuple(&mut self, tuple: Tuple<'_, 'py>, depth: usize) -> Refused<()> {
        self.unfinished.push(tuple.0.as_ptr().addr());
        self.out.byte(tag::TUPLE);
        self.out.length(tuple.len());
        for index in 0..tuple.len() {
            let item = tuple.item(index).ok_or_else(|| Refusal::changed("list"))?;
            self.value(item, depth + 1)
                .map_err(|refusal| refusal.below(format_args!("[{index}]")))?;
        }
        self.unfinished.pop();
        Ok(())
    }

    fn set(&mut self, set: &Bound<'py, PyAny>, tag: u8, depth: usize) -> Refused<()> {
        let length = set.len()?;
        self.out.byte(tag);
        self.out.length(length);
        let iterator = set.try_iter()?.into_any();
        let mut count = 0;
        // SAFETY: used up before the next one is asked for; `value` holds what may run code.
        while let Some(item) = unsafe { next_of_set(&iterator) }? {
            self.value(item, depth + 1)
                .map_err(|refusal| refusal.below(" in a set"))?;
            count += 1;
        }
        if count != length {
            return Err(Refusal::changed("set"));
        }
        Ok(())
    }
}
