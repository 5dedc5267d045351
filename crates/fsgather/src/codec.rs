//! Values as bytes: postcard, with errors that help.

use fsgather_core::{Error, Peer};
use fsgather_store::Encoding;
use postcard::ser_flavors::Flavor;
use serde::{Serialize, de::DeserializeOwned};
use std::path::PathBuf;

use crate::transfer::{outgoing::Outgoing, session::Session};

/// Payloads that are bytes already.
pub(crate) const BYTES: Encoding = Encoding(0);

/// Payloads that are values in postcard.
pub(crate) const POSTCARD: Encoding = Encoding(1);

/// Lets postcard write straight to where the payload goes.
struct Destination<'a, 'b>(&'a mut Outgoing<'b>);

impl Flavor for Destination<'_, '_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        // The error itself stays with the destination.
        self.0
            .take(bytes)
            .map_err(|_| postcard::Error::SerializeBufferFull)
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Encodes a value into its way to the others.
pub(crate) fn encode<T: Serialize + ?Sized>(
    session: &Session<'_>,
    value: &T,
    outgoing: &mut Outgoing<'_>,
) -> Result<(), Error> {
    match postcard::serialize_with_flavor(value, Destination(outgoing)) {
        // What the destination refuses, `finish` tells with its type.
        Ok(()) | Err(postcard::Error::SerializeBufferFull) => Ok(()),
        Err(error) => Err(session.raised(format!(
            "a value of type {} cannot be encoded: {}",
            std::any::type_name::<T>(),
            explain(error)
        ))),
    }
}

/// Decodes a value; `writer` is named when the bytes are not one.
pub(crate) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
    writer: Option<&Peer>,
    reader: &Peer,
) -> Result<T, Error> {
    let corrupt = |reason: String| Error::Corrupt {
        path: PathBuf::from("a payload"),
        reason,
        writer: writer.cloned(),
        reader: Some(reader.clone()),
    };
    let type_name = std::any::type_name::<T>();
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(corrupt(format!(
            "it holds a value of type {type_name} and {} bytes more; do all ranks run the same program",
            rest.len()
        ))),
        Err(error) => Err(corrupt(format!(
            "it does not decode as {type_name}: {}",
            explain(error)
        ))),
    }
}

fn explain(error: postcard::Error) -> String {
    match error {
        postcard::Error::WontImplement | postcard::Error::SerializeSeqLengthUnknown => {
            "the default encoding does not describe itself, so types that need this (untagged or flattened \
             enums, serde_json::Value, sequences of unknown length) cannot be used; turn the value into \
             bytes yourself and use the functions for bytes"
                .into()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::Rank;

    use super::*;

    fn me() -> Peer {
        Peer {
            rank: Rank::ZERO,
            host: "n1".into(),
            pid: 1,
        }
    }

    #[test]
    fn what_is_no_value_of_the_type_is_refused_with_its_name() {
        let bytes = postcard::to_stdvec(&(7_u32, "seven")).unwrap();
        assert_eq!(
            decode::<(u32, String)>(&bytes, None, &me()),
            Ok((7, "seven".into()))
        );
        let short = decode::<(u32, String, u64)>(&bytes, Some(&me()), &me()).unwrap_err();
        assert!(
            short
                .to_string()
                .contains("(u32, alloc::string::String, u64)"),
            "{short}"
        );
        let long = decode::<u32>(&bytes, None, &me()).unwrap_err();
        assert!(long.to_string().contains("6 bytes more"), "{long}");
    }
}
