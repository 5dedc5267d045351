//! The bytes of the format: [`PlainWriter`], [`PlainReader`], and the numbers that both use.
//!
//! `docs/design/plain-data.md` describes the format.

use pyo3::{PyErr, exceptions::PyValueError};

/// The first byte of a stream: the version of the format.
///
/// 1: the first version.
pub(crate) const VERSION: u8 = 1;

/// Maximum nesting depth of containers.
pub(crate) const DEEPEST: usize = 200;

/// Bytes of at least this length are stored beside the stream, not in it.
pub(crate) const OUT_OF_BAND: usize = 64 << 10;

/// Maximum number of keys of a shape.
pub(crate) const LARGEST_SHAPE: usize = 64;

/// Maximum number of shapes in a stream.
pub(crate) const MOST_SHAPES: usize = 1 << 16;

/// Number of bytes before the first object: version and flags.
pub(crate) const HEADER: usize = 2;

/// A flag: the stream ends with a table of tensors.
pub(crate) const HAS_TENSORS: u8 = 1;

/// First bytes of objects.
pub(crate) mod tag {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const FALSE: u8 = 1;
    pub(crate) const TRUE: u8 = 2;
    pub(crate) const INT_8: u8 = 3;
    pub(crate) const INT_16: u8 = 4;
    pub(crate) const INT_32: u8 = 5;
    pub(crate) const INT_64: u8 = 6;
    pub(crate) const INT_BIG: u8 = 7;
    pub(crate) const FLOAT: u8 = 8;
    pub(crate) const COMPLEX: u8 = 9;
    pub(crate) const STR: u8 = 10;
    /// Has surrogates, so that it is not UTF-8.
    pub(crate) const STR_SURROGATES: u8 = 11;
    pub(crate) const BYTES: u8 = 12;
    pub(crate) const BYTES_BESIDE: u8 = 13;
    pub(crate) const BYTEARRAY: u8 = 14;
    pub(crate) const BYTEARRAY_BESIDE: u8 = 15;
    pub(crate) const LIST: u8 = 16;
    pub(crate) const FLOATS: u8 = 17;
    pub(crate) const INTS: u8 = 18;
    pub(crate) const TUPLE: u8 = 19;
    pub(crate) const DICT: u8 = 20;
    pub(crate) const DICT_NEW_SHAPE: u8 = 21;
    pub(crate) const DICT_OF_SHAPE: u8 = 22;
    pub(crate) const SET: u8 = 23;
    pub(crate) const FROZENSET: u8 = 24;
    pub(crate) const DATE: u8 = 25;
    pub(crate) const TIME: u8 = 26;
    pub(crate) const DATETIME: u8 = 27;
    pub(crate) const TIMEDELTA: u8 = 28;
    pub(crate) const TIMEZONE: u8 = 29;
    pub(crate) const SCALAR: u8 = 30;
    pub(crate) const ARRAY: u8 = 31;
    pub(crate) const ARRAY_BESIDE: u8 = 32;
    pub(crate) const TENSOR: u8 = 33;
    /// The object that follows gets the next number.
    pub(crate) const NUMBERED: u8 = 34;
    /// The object with that number.
    pub(crate) const REFERENCE: u8 = 35;
    /// A string of 0 to 63 bytes of UTF-8: the length is in the lower bits.
    pub(crate) const SHORT_STR: u8 = 0x40;
    /// The integers from -16 to 111, one tag for each.
    pub(crate) const SMALL_INT: u8 = 0x80;
}

/// The smallest integer with a tag of its own.
pub(crate) const SMALLEST_SMALL: i64 = -16;
/// The largest integer with a tag of its own.
pub(crate) const LARGEST_SMALL: i64 = 111;

/// A stream that is being written.
#[derive(Default)]
pub(crate) struct PlainWriter {
    pub(crate) bytes: Vec<u8>,
}

impl PlainWriter {
    /// Writes a single byte.
    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Writes a tag and its content together.
    #[inline]
    pub(crate) fn tagged<const N: usize>(&mut self, tag: u8, content: [u8; N]) {
        self.bytes.reserve(N + 1);
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&content);
    }

    /// Writes a number in groups of seven bits, the lowest first.
    #[inline]
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    /// Writes a length, like [`PlainWriter::number`].
    #[inline]
    pub(crate) fn length(&mut self, length: usize) {
        self.number(length as u64);
    }

    /// Writes a length and the bytes.
    #[inline]
    pub(crate) fn counted(&mut self, content: &[u8]) {
        self.length(content.len());
        self.bytes.extend_from_slice(content);
    }
}

/// A stream that is being read, and is not trusted.
pub(crate) struct PlainReader<'a> {
    stream: &'a [u8],
    at: usize,
    /// Minimum number of bytes that the announced elements take that have not begun.
    owed: usize,
}

/// An error about a stream.
///
/// Boxed, so that results stay small where every nanosecond matters.
pub(crate) type Bad = Box<PyErr>;

impl<'a> PlainReader<'a> {
    /// Reads `stream` from byte `at` on.
    pub(crate) fn new(stream: &'a [u8], at: usize) -> Self {
        Self {
            stream,
            at,
            owed: 0,
        }
    }

    /// Number of bytes that are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.stream.len() - self.at
    }

    /// An error at the current position.
    #[cold]
    #[expect(clippy::unnecessary_box_returns, reason = "see `Bad`")]
    pub(crate) fn bad(&self, what: &str) -> Bad {
        bad_at(self.at, what)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Bad> {
        let Some(byte) = self.stream.get(self.at) else {
            return Err(self.bad("the stream ends early"));
        };
        self.at += 1;
        Ok(*byte)
    }

    #[inline]
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Bad> {
        let Some(bytes) = self.stream[self.at..].get(..length) else {
            let left = self.left();
            return Err(self.bad(&format!("{length} bytes announced, {left} left")));
        };
        self.at += length;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let Some(bytes) = self.stream[self.at..].first_chunk() else {
            return Err(self.bad("the stream ends early"));
        };
        self.at += N;
        Ok(*bytes)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Bad> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first.into());
        }
        self.long_number(first)
    }

    fn long_number(&mut self, first: u8) -> Result<u64, Bad> {
        let mut number = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if bits << shift >> shift != bits {
                break;
            }
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.bad("a number of more than 64 bits"))
    }

    #[inline]
    pub(crate) fn index(&mut self) -> Result<usize, Bad> {
        let number = self.number()?;
        usize::try_from(number).map_err(|_| self.bad("a number too large for this machine"))
    }

    /// The number of items that follow, each of which takes at least `least` bytes. Bytes that surrounding containers need do not count.
    #[inline]
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Bad> {
        let count = self.index()?;
        let left = self.left().saturating_sub(self.owed);
        if count.checked_mul(least).is_none_or(|bytes| bytes > left) {
            return Err(self.bad(&format!("{count} items announced, {left} bytes left")));
        }
        Ok(count)
    }

    /// The number of elements, or of groups of `size` elements, that follow. The caller calls [`begin_element`](Self::begin_element) before
    /// each, so that nested containers cannot claim the same bytes again and again.
    #[inline]
    pub(crate) fn elements(&mut self, size: usize) -> Result<usize, Bad> {
        let count = self.count(size)?;
        self.owed += count * size;
        Ok(count)
    }

    /// The same for a known number of elements.
    #[inline]
    pub(crate) fn expect_elements(&mut self, count: usize) -> Result<(), Bad> {
        if count > self.left().saturating_sub(self.owed) {
            return Err(self.bad("the stream ends early"));
        }
        self.owed += count;
        Ok(())
    }

    /// Must be called before an announced element is read.
    #[inline]
    pub(crate) fn begin_element(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    /// A length and the bytes.
    #[inline]
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], Bad> {
        let length = self.index()?;
        self.bytes(length)
    }
}

/// The beginning of messages about streams.
pub(crate) const BAD: &str = "bad plain data at byte";

/// A `ValueError` about byte `at` of a stream.
#[cold]
#[expect(clippy::unnecessary_box_returns, reason = "see `Bad`")]
pub(crate) fn bad_at(at: usize, what: &str) -> Bad {
    let message = format!("{BAD} {at}: {what}");
    Box::new(PyValueError::new_err(message))
}
