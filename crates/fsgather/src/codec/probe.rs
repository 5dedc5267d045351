//! Finds out, without a value of it, whether a type has to be described: [`has_to_be_described`].
//!
//! The type is asked to read itself from a source that makes values up: whatever it asks for, it gets. A
//! type that asks the source what comes next, instead of saying what it expects, has to be described. Where
//! there is a choice, each variant is offered in turn, as far as a fixed effort goes; a type that does not
//! like what it gets is given the benefit of the doubt.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
        VariantAccess, Visitor,
    },
};

/// Beyond this depth lists are empty and options absent.
const DEEP: u32 = 12;

/// Beyond this depth nothing is made up any more.
const DEEPEST: u32 = 48;

/// How many values are made up in all.
const EFFORT: u32 = 4000;

/// How often a type is asked at most.
const PASSES: u32 = 64;

/// Whether values of this type can only be read from a source that says what comes next.
pub(super) fn has_to_be_described<T: DeserializeOwned>() -> bool {
    let course = Course::default();
    let mut pass = 0;
    loop {
        course.pass.set(pass);
        // A failure without a question says nothing.
        let _ = T::deserialize(Probe {
            course: &course,
            depth: 0,
        });
        if course.asked.get() {
            return true;
        }
        pass += 1;
        if pass >= PASSES.min(4 * course.variants.get()) || course.effort.get() > EFFORT {
            return false;
        }
    }
}

/// What is known so far.
#[derive(Default)]
struct Course {
    pass: Cell<u32>,
    effort: Cell<u32>,
    /// The most variants that there were to choose from.
    variants: Cell<u32>,
    /// Whether the type has asked what comes next.
    asked: Cell<bool>,
}

/// The end of a pass.
#[derive(Debug)]
struct Stop;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("that is all")
    }
}

impl std::error::Error for Stop {}

impl serde::de::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// Makes values up.
#[derive(Clone, Copy)]
struct Probe<'a> {
    course: &'a Course,
    depth: u32,
}

impl<'a> Probe<'a> {
    fn deeper(self) -> Result<Self, Stop> {
        let effort = self.course.effort.get() + 1;
        self.course.effort.set(effort);
        if self.depth >= DEEPEST || effort > EFFORT {
            return Err(Stop);
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }

    fn several(self, left: usize) -> Several<'a> {
        Several { probe: self, left }
    }

    fn few(self) -> Several<'a> {
        self.several(usize::from(self.depth < DEEP))
    }

    fn asked<R>(self) -> Result<R, Stop> {
        self.course.asked.set(true);
        Err(Stop)
    }

    /// Another variant on each pass, and after a round of them in other combinations.
    fn choose(self, variants: u32) -> u32 {
        let course = self.course;
        course.variants.set(course.variants.get().max(variants));
        let pass = course.pass.get();
        if pass < course.variants.get() {
            pass % variants.max(1)
        } else {
            (pass * 7 + self.depth * 3 + pass / variants.max(1)) % variants.max(1)
        }
    }
}

macro_rules! numbers {
    ($($deserialize:ident $visit:ident $value:expr;)*) => {
        $(
            fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
                visitor.$visit($value)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Stop;

    // 1 rather than 0, since some numbers must not be 0.
    numbers! {
        deserialize_bool visit_bool false;
        deserialize_i8 visit_i8 1;
        deserialize_i16 visit_i16 1;
        deserialize_i32 visit_i32 1;
        deserialize_i64 visit_i64 1;
        deserialize_i128 visit_i128 1;
        deserialize_u8 visit_u8 1;
        deserialize_u16 visit_u16 1;
        deserialize_u32 visit_u32 1;
        deserialize_u64 visit_u64 1;
        deserialize_u128 visit_u128 1;
        deserialize_f32 visit_f32 1.0;
        deserialize_f64 visit_f64 1.0;
        deserialize_char visit_char 'a';
        deserialize_str visit_borrowed_str "";
        deserialize_string visit_borrowed_str "";
        deserialize_bytes visit_borrowed_bytes b"";
        deserialize_byte_buf visit_borrowed_bytes b"";
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        self.asked()
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        self.asked()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        self.asked()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        if self.depth < DEEP {
            visitor.visit_some(self.deeper()?)
        } else {
            visitor.visit_none()
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_newtype_struct(self.deeper()?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_seq(self.few())
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_seq(self.several(len))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_seq(self.several(len))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_map(self.few())
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_seq(self.several(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let variants = u32::try_from(variants.len()).unwrap_or(u32::MAX);
        visitor.visit_enum(Variant {
            probe: self.deeper()?,
            variant: self.choose(variants),
        })
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Several values, or pairs of values.
struct Several<'a> {
    probe: Probe<'a>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Several<'_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.probe.deeper()?).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Several<'_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stop> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        seed.deserialize(self.probe.deeper()?)
    }
}

/// One variant.
struct Variant<'a> {
    probe: Probe<'a>,
    variant: u32,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Stop;
    type Variant = Probe<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Stop> {
        let chosen = seed.deserialize(IntoDeserializer::<Stop>::into_deserializer(self.variant))?;
        Ok((chosen, self.probe))
    }
}

impl<'de> VariantAccess<'de> for Probe<'_> {
    type Error = Stop;

    fn unit_variant(self) -> Result<(), Stop> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Stop> {
        seed.deserialize(self.deeper()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_seq(self.several(len))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_seq(self.several(fields.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, HashSet},
        net::IpAddr,
        num::NonZeroU8,
        path::PathBuf,
        time::{Duration, SystemTime},
    };

    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Tree {
        Leaf(f64),
        Node { left: Box<Tree>, others: Vec<Tree> },
        Nothing,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Plain {
        name: String,
        parts: Vec<Option<(u8, char, [f32; 4])>>,
        by_name: BTreeMap<String, HashSet<i64>>,
        tree: Option<Tree>,
        at: SystemTime,
        took: Duration,
        from: IpAddr,
        into: PathBuf,
        some: NonZeroU8,
        bytes: bytes::Bytes,
        nothing: (),
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Untagged {
        Number(u32),
        Text(String),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Flattened {
        id: u32,
        #[serde(flatten)]
        rest: BTreeMap<String, u32>,
    }

    #[derive(Deserialize)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only the type counts")]
    enum Tagged {
        One { a: u32 },
        Other { b: u32 },
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Outer {
        Empty,
        Inner(Inner),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Inner {
        A,
        B,
        C(Box<Deep>),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Deep {
        values: Vec<Option<BTreeMap<u32, Value>>>,
    }

    #[test]
    fn plain_types_need_no_description() {
        assert!(!has_to_be_described::<Plain>());
        assert!(!has_to_be_described::<Tree>());
        assert!(!has_to_be_described::<Vec<(u32, f32)>>());
        assert!(!has_to_be_described::<fsgather_core::Error>());
        assert!(!has_to_be_described::<uuid::Uuid>());
    }

    #[test]
    fn types_that_ask_what_comes_next_are_found_however_deep() {
        assert!(has_to_be_described::<Value>());
        assert!(has_to_be_described::<Untagged>());
        assert!(has_to_be_described::<Flattened>());
        assert!(has_to_be_described::<Tagged>());
        assert!(has_to_be_described::<Vec<Result<(), Untagged>>>());
        assert!(has_to_be_described::<Outer>());
    }
}
