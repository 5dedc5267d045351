//! The reason of a value for refusing to be serialized, in its own words: [`own_words`].
//!
//! Postcard's errors have no room for the text with which a type refuses. So a value that has refused is serialized
//! once more, by a serializer that writes nothing and keeps the text.

use std::fmt;

use serde::{
    Serialize, Serializer,
    ser::{
        self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

/// Returns the text with which a value refuses to be serialized; `None` if it does not refuse.
pub(super) fn own_words<T: Serialize + ?Sized>(value: &T) -> Option<String> {
    value.serialize(Listener).err().map(|words| words.0)
}

/// The text of a refusal.
#[derive(Debug)]
struct Words(String);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Words {}

impl ser::Error for Words {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

/// A serializer that accepts everything and does nothing.
#[derive(Clone, Copy)]
struct Listener;

type Heard = Result<(), Words>;

macro_rules! take {
    ($($name:ident($($kind:ty),*);)*) => {
        $(fn $name(self, $(_: $kind),*) -> Heard {
            Ok(())
        })*
    };
}

macro_rules! enter {
    ($($name:ident($($kind:ty),*);)*) => {
        $(fn $name(self, $(_: $kind),*) -> Result<Self, Words> {
            Ok(self)
        })*
    };
}

impl Serializer for Listener {
    type Ok = ();
    type Error = Words;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    take! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    enter! {
        serialize_seq(Option<usize>);
        serialize_tuple(usize);
        serialize_tuple_struct(&'static str, usize);
        serialize_tuple_variant(&'static str, u32, &'static str, usize);
        serialize_map(Option<usize>);
        serialize_struct(&'static str, usize);
        serialize_struct_variant(&'static str, u32, &'static str, usize);
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Heard {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Heard {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Heard {
        value.serialize(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! listen_to {
    ($($kind:ident::$name:ident($($key:ty)?);)*) => {
        $(impl $kind for Listener {
            type Ok = ();
            type Error = Words;

            fn $name<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Heard {
                value.serialize(*self)
            }

            fn end(self) -> Heard {
                Ok(())
            }
        })*
    };
}

listen_to! {
    SerializeSeq::serialize_element();
    SerializeTuple::serialize_element();
    SerializeTupleStruct::serialize_field();
    SerializeTupleVariant::serialize_field();
    SerializeStruct::serialize_field(&'static str);
    SerializeStructVariant::serialize_field(&'static str);
}

impl SerializeMap for Listener {
    type Ok = ();
    type Error = Words;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Heard {
        key.serialize(*self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Heard {
        value.serialize(*self)
    }

    fn end(self) -> Heard {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Mutex};

    use super::*;

    struct Refusing;

    impl Serialize for Refusing {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(ser::Error::custom("not today"))
        }
    }

    #[derive(Serialize)]
    enum Outer {
        Struct { inner: (u8, Option<Refusing>) },
        Tuple(i128, BTreeMap<String, Vec<Refusing>>),
        Unit,
    }

    #[test]
    fn refusals_are_heard_wherever_they_are() {
        let inner = (1, Some(Refusing));
        let told = Some("not today".to_owned());
        assert_eq!(own_words(&Outer::Struct { inner }), told);
        let map = BTreeMap::from([("a".into(), Vec::new()), ("b".into(), vec![Refusing])]);
        assert_eq!(own_words(&Outer::Tuple(1, map)), told);
        assert_eq!(own_words(&Outer::Tuple(1, BTreeMap::new())), None);
        assert_eq!(own_words(&Outer::Unit), None);
    }

    #[test]
    fn refusals_of_the_standard_library_are_heard() {
        let poisoned = Mutex::new(1);
        let _ = std::panic::catch_unwind(|| {
            let _guard = poisoned.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        let told = own_words(&poisoned).unwrap();
        assert!(told.contains("lock"), "{told}");
    }
}
