//! The default codec: [`Postcard`].

use std::{any::type_name, collections::HashSet, io::Write, sync::Mutex};

use fsgather_core::{Unreadable, lock, read_value};
use postcard::ser_flavors::Flavor;
use serde::{Serialize, de::DeserializeOwned};

use crate::codec::{Codec, CodecError, probe, words::own_words};

/// The default codec: small and fast. Its bytes do not describe the type, so both sides must know it.
///
/// Types that need a description in their bytes (`serde_json::Value`, untagged, internally tagged and flattened enums,
/// sequences of unknown length) are refused; a codec of your own can carry them, as the [example](Codec#examples) for
/// JSON does.
///
/// Values have at most 512 levels: structures, enums, sequences, maps and options in each other, each of which counts. So
/// no bytes of another rank can overflow the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Postcard;

/// Number of bytes that are collected before they go to the writer: postcard writes them one by one.
const BUFFER_BYTES: usize = 4096;

/// Lets postcard write to any writer.
struct Destination<'a> {
    into: &'a mut dyn Write,
    pending: Vec<u8>,
}

impl Destination<'_> {
    fn flush(&mut self) -> postcard::Result<()> {
        // The error itself stays with the writer.
        self.into
            .write_all(&self.pending)
            .map_err(|_| postcard::Error::SerializeBufferFull)?;
        self.pending.clear();
        Ok(())
    }
}

impl Flavor for Destination<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.pending.len() == BUFFER_BYTES {
            self.flush()?;
        }
        self.pending.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if self.pending.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            return self
                .into
                .write_all(bytes)
                .map_err(|_| postcard::Error::SerializeBufferFull);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(mut self) -> postcard::Result<()> {
        self.flush()
    }
}

impl Codec for Postcard {
    fn name(&self) -> &'static str {
        "postcard"
    }

    fn number(&self) -> u8 {
        1
    }

    fn carries<T: DeserializeOwned>(&self) -> Result<(), CodecError> {
        /// The types that have been checked.
        static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
        let known = || lock(&KNOWN);
        let name = type_name::<T>();
        if known().get_or_insert_default().contains(name) {
            return Ok(());
        }
        if probe::has_to_be_described::<T>() {
            return Err(explain(postcard::Error::WontImplement));
        }
        known().get_or_insert_default().insert(name);
        Ok(())
    }

    fn encode<T: Serialize + ?Sized>(
        &self,
        value: &T,
        into: &mut dyn Write,
    ) -> Result<(), CodecError> {
        let destination = Destination {
            into,
            pending: Vec::with_capacity(BUFFER_BYTES),
        };
        postcard::serialize_with_flavor(value, destination).map_err(|error| match error {
            postcard::Error::SerdeSerCustom => {
                own_words(value).map_or_else(|| explain(error), CodecError::new)
            }
            other => explain(other),
        })
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, CodecError> {
        match read_value(bytes) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(CodecError::new(format_args!(
                "it holds one such value and {} bytes more; do all ranks run the same program",
                rest.len()
            ))),
            Err(Unreadable::Malformed(error)) => Err(explain(error)),
            Err(reason) => Err(CodecError::new(reason)),
        }
    }
}

fn explain(error: postcard::Error) -> CodecError {
    match error {
        postcard::Error::WontImplement | postcard::Error::SerializeSeqLengthUnknown => {
            CodecError::new(
                "it describes nothing, which this type needs (as serde_json::Value, untagged, internally tagged \
                 and flattened enums and sequences of unknown length do); use with_codec with a codec that \
                 describes values, or turn the value into bytes yourself and hand that in as `Bytes` or `Pieces`",
            )
        }
        other => CodecError::new(other),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    type Value = (Option<bool>, Vec<u8>, String, u64);

    /// Returns bytes one by one and at once, more of each than are collected.
    fn value() -> Value {
        let ones = vec![7; 2 * BUFFER_BYTES + 1];
        (Some(true), ones, "x".repeat(BUFFER_BYTES + 1), u64::MAX)
    }

    #[test]
    fn a_value_is_encoded_as_postcard_does_it_and_decoded() {
        let mut encoded = Vec::new();
        Postcard.encode(&value(), &mut encoded).unwrap();
        assert_eq!(encoded, postcard::to_stdvec(&value()).unwrap());
        let decode = |bytes: &[u8]| Postcard.decode::<Value>(bytes);
        assert_eq!(decode(&encoded).unwrap(), value());
        let more = [&encoded[..], b"x"].concat();
        assert!(
            decode(&more)
                .unwrap_err()
                .to_string()
                .contains("1 bytes more")
        );
        assert_eq!(Postcard.name(), "postcard");
    }

    #[test]
    fn a_writer_that_fails_ends_it() {
        struct Full;

        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        assert!(Postcard.encode(&value(), &mut Full).is_err());
        assert!(Postcard.encode(&true, &mut Full).is_err());
    }
}
