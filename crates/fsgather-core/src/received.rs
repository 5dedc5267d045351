//! Reads data that other processes have written: [`read_message`] for messages of ours, [`read_value`] for values of
//! the program's types.
//!
//! # Protection from harmful data
//!
//! Postcard checks that announced data is there. Three dangers remain, and each has its bound here, in one place, for
//! every type:
//!
//! - **Depth.** A type that contains itself is read by a function that calls itself: a byte for each level is enough
//!   to overflow the stack, which ends the process. So there is a deepest level.
//! - **Memory.** An element may take one byte in a message and hundreds in memory, or no byte but some time. So the
//!   memory of elements is counted.
//! - **Text.** Host names, causes, calls and paths end up on terminals and in logs. So a message's texts are made
//!   [plain](plain_text) as they are read: code that prints them need not do so.

use std::{borrow::Cow, cell::Cell, fmt};

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use crate::text::plain_text;

/// Maximum number of levels of a message: structures, variants, sequences and optional values in each other.
const DEEPEST_MESSAGE: usize = 128;

/// Maximum number of levels of a value that [`read_value`] reads: structures, variants, sequences, maps and optional
/// values in each other, each of which counts. Large ones count as several, as they take more of the stack: once more
/// for every 256 bytes that they have by themselves, up to 64 times.
pub const DEEPEST_VALUE: usize = 512;

/// Number of bytes of a type's own that count as another level.
const BYTES_OF_LEVEL: usize = 256;

/// Maximum number of levels for which one value counts.
const MOST_AT_ONCE: usize = 64;

/// Maximum memory of the elements of a message's sequences, in bytes for each byte of the message.
const MEMORY_PER_BYTE: usize = 128;

/// Memory that they may take in any case, in bytes.
const MEMORY_ANYWAY: usize = 1 << 20;

/// Maximum number of elements of a value that take no memory.
const MOST_WITHOUT_MEMORY: usize = 1 << 24;

/// The reason why bytes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They are not a value of the expected type.
    Malformed(postcard::Error),
    /// Values are nested in more levels than this.
    TooDeep(usize),
    /// The elements are more than the number of bytes allows.
    TooLarge,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::TooDeep(levels) => {
                write!(
                    f,
                    "it is nested deeper than the {levels} levels that are read"
                )
            }
            Self::TooLarge => f.write_str("it has more elements than so few bytes may have"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// Reads a message of ours; ignores bytes after it.
///
/// Its texts are made plain, it has at most 128 levels, and its sequences take at most 128 times the memory of the
/// bytes, and a mebibyte.
///
/// # Errors
///
/// If the bytes are not such a message, or exceed these bounds.
pub fn read_message<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let bounds = Bounds {
        memory: Cell::new(bytes.len().saturating_mul(MEMORY_PER_BYTE) + MEMORY_ANYWAY),
        is_message: true,
        overrun: Cell::new(None),
    };
    read(bytes, &bounds, DEEPEST_MESSAGE).map(|(message, _)| message)
}

/// Reads a value of the program's, of at most [`DEEPEST_VALUE`] levels, and returns the bytes that follow it. Its texts
/// stay as they are.
///
/// # Errors
///
/// If the bytes are not such a value, or if the value exceeds the bounds.
pub fn read_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), Unreadable> {
    let bounds = Bounds {
        memory: Cell::new(MOST_WITHOUT_MEMORY),
        is_message: false,
        overrun: Cell::new(None),
    };
    read(bytes, &bounds, DEEPEST_VALUE)
}

fn read<'b, T: DeserializeOwned>(
    bytes: &'b [u8],
    bounds: &Bounds,
    levels: usize,
) -> Result<(T, &'b [u8]), Unreadable> {
    let mut source = postcard::Deserializer::from_bytes(bytes);
    let read = T::deserialize(Bounded {
        inner: &mut source,
        bounds,
        levels,
    });
    match (read, bounds.overrun.get()) {
        (_, Some(Overrun::Depth)) => Err(Unreadable::TooDeep(levels)),
        (_, Some(Overrun::Memory)) => Err(Unreadable::TooLarge),
        (Ok(value), None) => Ok((value, source.finalize().map_err(Unreadable::Malformed)?)),
        (Err(error), None) => Err(Unreadable::Malformed(error)),
    }
}

/// The remaining bounds for all data of one message or value.
struct Bounds {
    memory: Cell<usize>,
    is_message: bool,
    /// Records the reason, because Postcard's errors have no room for it.
    overrun: Cell<Option<Overrun>>,
}

#[derive(Clone, Copy)]
enum Overrun {
    Depth,
    Memory,
}

impl Bounds {
    fn overrun<E: Error>(&self, what: Overrun) -> E {
        self.overrun.set(Some(what));
        E::custom("beyond the bounds")
    }

    /// Counts an element of this type.
    #[inline]
    fn element<T, E: Error>(&self) -> Result<(), E> {
        let takes = match size_of::<T>() {
            0 => 1,
            memory if self.is_message => memory,
            // The elements of a value are as large as its type has them.
            _ => return Ok(()),
        };
        match self.memory.get().checked_sub(takes) {
            Some(left) => {
                self.memory.set(left);
                Ok(())
            }
            None => Err(self.overrun(Overrun::Memory)),
        }
    }
}

/// Anything that serde reads with, or hands to a reader, and the bounds for it.
struct Bounded<'a, T> {
    inner: T,
    bounds: &'a Bounds,
    /// Number of levels that may still be nested in it.
    levels: usize,
}

impl<'a, T> Bounded<'a, T> {
    #[inline]
    fn same<U>(&self, inner: U) -> Bounded<'a, U> {
        Bounded {
            inner,
            bounds: self.bounds,
            levels: self.levels,
        }
    }

    /// Returns `inner` one level deeper, as a value of this type.
    #[inline]
    fn deeper<V, U, E: Error>(&self, inner: U) -> Result<Bounded<'a, U>, E> {
        let counts = (1 + size_of::<V>() / BYTES_OF_LEVEL).min(MOST_AT_ONCE);
        match self.levels.checked_sub(counts) {
            Some(levels) => Ok(Bounded {
                levels,
                ..self.same(inner)
            }),
            None => Err(self.bounds.overrun(Overrun::Depth)),
        }
    }
}

macro_rules! pass_on {
    ($($name:ident)*) => {
        $(
            #[inline]
            fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
                self.inner.$name(visitor)
            }
        )*
    };
}

macro_rules! enter {
    ($($name:ident($($argument:ident: $kind:ty),*))*) => {
        $(
            #[inline]
            fn $name<V: Visitor<'de>>(self, $($argument: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
                let visitor = self.deeper::<V::Value, _, _>(visitor)?;
                self.inner.$name($($argument,)* visitor)
            }
        )*
    };
}

macro_rules! read_text {
    ($($name:ident)*) => {
        $(
            #[inline]
            fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
                if self.bounds.is_message {
                    self.inner.$name(Plain(visitor))
                } else {
                    self.inner.$name(visitor)
                }
            }
        )*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    pass_on! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_bytes deserialize_byte_buf deserialize_unit
        deserialize_identifier deserialize_ignored_any
    }

    read_text! {
        deserialize_str deserialize_string
    }

    enter! {
        deserialize_option()
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Bounded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<V::Value, D::Error> {
        let source = self.same(source);
        self.inner.visit_some(source)
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, source: D) -> Result<V::Value, D::Error> {
        let source = self.same(source);
        self.inner.visit_newtype_struct(source)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let elements = self.same(elements);
        self.inner.visit_seq(elements)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let entries = self.same(entries);
        self.inner.visit_map(entries)
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.same(variant);
        self.inner.visit_enum(variant)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<S::Value, D::Error> {
        let source = self.same(source);
        self.inner.deserialize(source)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.bounds.element::<S::Value, _>()?;
        let seed = self.same(seed);
        self.inner.next_element_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.bounds.element::<S::Value, _>()?;
        let seed = self.same(seed);
        self.inner.next_key_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.bounds.element::<S::Value, _>()?;
        let seed = self.same(seed);
        self.inner.next_value_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'a, A: EnumAccess<'de>> EnumAccess<'de> for Bounded<'a, A> {
    type Error = A::Error;
    type Variant = Bounded<'a, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let Self {
            inner,
            bounds,
            levels,
        } = self;
        let (name, inner) = inner.variant_seed(seed)?;
        let content = Bounded {
            inner,
            bounds,
            levels,
        };
        Ok((name, content))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.same(seed);
        self.inner.newtype_variant_seed(seed)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.same(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.same(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}

/// Hands a text on as a plain one.
struct Plain<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Plain<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        match plain_text(text) {
            Cow::Borrowed(text) => self.0.visit_str(text),
            Cow::Owned(text) => self.0.visit_string(text),
        }
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        match plain_text(text) {
            Cow::Borrowed(text) => self.0.visit_borrowed_str(text),
            Cow::Owned(text) => self.0.visit_string(text),
        }
    }
}

#[cfg(test)]
#[path = "received_tests.rs"]
mod tests;
