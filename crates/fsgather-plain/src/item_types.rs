//! Types of the items of arrays, by number: [`WrittenTypes`], [`ReadTypes`].

use std::collections::HashMap;

use pyo3::{Bound, PyAny, intern, prelude::*, types::PyString};

use super::{
    addresses::AddressTable,
    decode::Decoder,
    encode::Encoder,
    known::ArrayTypes,
    refusal::{Refusal, Refused},
    stream::Bad,
};

/// Kinds of items that consist of their bytes alone: `dtype.kind`.
const PLAIN_KINDS: &str = "biufcSUmM";

/// The properties of a type that encoding needs.
#[derive(Clone, Copy)]
pub(crate) struct WrittenType {
    number: usize,
    /// `dtype.kind`.
    pub(crate) kind: char,
    /// Size of an item in bytes.
    pub(crate) size: usize,
    /// True if its bytes are in the order of this machine.
    pub(crate) is_native: bool,
}

/// The types that were written so far.
#[derive(Default)]
pub(crate) struct WrittenTypes<'py> {
    types: Vec<WrittenType>,
    by_name: HashMap<String, usize>,
    /// Most types are a single object; those of strings are created for each array.
    by_address: AddressTable,
    held: Vec<Bound<'py, PyAny>>,
}

impl<'py> Encoder<'py> {
    /// Writes the number of a type, and its description the first time.
    pub(crate) fn item_type(
        &mut self,
        dtype: &Bound<'py, PyAny>,
        types: &ArrayTypes,
    ) -> Refused<WrittenType> {
        let known = &mut self.item_types;
        if let Some(number) = known.by_address.get(dtype.as_ptr().addr()) {
            let known = known.types[number as usize];
            self.out.length(known.number);
            return Ok(known);
        }
        let (name, mut item) = described(dtype, types)?;
        if let Some(number) = known.by_name.get(&name) {
            item.number = *number;
            self.out.length(item.number);
        } else {
            item.number = known.types.len();
            self.out.length(item.number);
            self.out.counted(name.as_bytes());
            known.types.push(item);
            known.by_name.insert(name, item.number);
        }
        if let Ok(number) = u32::try_from(item.number) {
            known.by_address.insert(dtype.as_ptr().addr(), number);
            known.held.push(dtype.clone());
        }
        Ok(item)
    }
}

/// The name that recreates the type, and its properties.
fn described(dtype: &Bound<'_, PyAny>, types: &ArrayTypes) -> Refused<(String, WrittenType)> {
    let py = dtype.py();
    let kind: char = dtype.getattr(intern!(py, "kind"))?.extract()?;
    let size: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
    let name = dtype.getattr(intern!(py, "str"))?;
    // Properties that its name does not include would be lost.
    let is_plain = PLAIN_KINDS.contains(kind)
        && size > 0
        && dtype.getattr(intern!(py, "metadata"))?.is_none()
        && types.dtype.bind(py).call1((&name,))?.eq(dtype)?;
    if !is_plain {
        return Err(Refusal::because(format!("numpy.ndarray of {dtype}")));
    }
    let item = WrittenType {
        number: 0,
        kind,
        size,
        is_native: dtype.getattr(intern!(py, "isnative"))?.extract()?,
    };
    Ok((name.extract()?, item))
}

/// The properties of a type that decoding needs.
#[derive(Clone)]
pub(crate) struct ReadType<'py> {
    pub(crate) dtype: Bound<'py, PyAny>,
    /// Size of an item in bytes.
    pub(crate) size: usize,
    /// True if its bytes are in the order of this machine.
    pub(crate) is_native: bool,
}

/// The types that were read so far.
pub(crate) type ReadTypes<'py> = Vec<ReadType<'py>>;

impl<'py> Decoder<'_, 'py> {
    /// Reads the number of a type, and its description the first time.
    pub(crate) fn item_type(&mut self, numpy: &Bound<'py, PyModule>) -> Result<ReadType<'py>, Bad> {
        let number = self.reader.index()?;
        if let Some(known) = self.item_types.get(number) {
            return Ok(known.clone());
        }
        if number > self.item_types.len() {
            return Err(self
                .reader
                .bad(&format!("item type {number} is not known here")));
        }
        let name = self.reader.counted()?;
        let Some((text, kind)) = plain_name(name) else {
            return Err(self.reader.bad("no plain item type"));
        };
        let py = self.py;
        let dtype = numpy
            .getattr(intern!(py, "dtype"))?
            .call1((PyString::new(py, text),))?;
        let size: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
        let found: char = dtype.getattr(intern!(py, "kind"))?.extract()?;
        if found != kind || size == 0 {
            return Err(self.reader.bad("no plain item type"));
        }
        let is_native = dtype.getattr(intern!(py, "isnative"))?.extract()?;
        let known = ReadType {
            dtype,
            size,
            is_native,
        };
        self.item_types.push(known.clone());
        Ok(known)
    }
}

/// The name of a type and its kind, if the encoder could have written it: numpy accepts many more strings, including those of types that
/// hold objects.
fn plain_name(name: &[u8]) -> Option<(&str, char)> {
    let text = str::from_utf8(name).ok()?;
    let mut letters = text.chars();
    let (order, kind) = (letters.next()?, letters.next()?);
    let ends_well = match letters.as_str().split_once('[') {
        Some((size, unit)) => is_size(size) && is_unit(unit) && matches!(kind, 'm' | 'M'),
        None => is_size(letters.as_str()),
    };
    let is_plain = ends_well && "<>|".contains(order) && PLAIN_KINDS.contains(kind);
    is_plain.then_some((text, kind))
}

fn is_size(text: &str) -> bool {
    (1..10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for the unit of a time, such as `ns]` or `25s]`.
fn is_unit(text: &str) -> bool {
    let inner = text.strip_suffix(']').unwrap_or_default();
    (1..16).contains(&inner.len()) && inner.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
