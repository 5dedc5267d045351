//! Values as bytes: [`Codec`], and [`Postcard`], the default.

mod postcard;
mod probe;
mod words;

use std::{any::type_name, fmt, io::Write, path::PathBuf};

use fsgather_core::{Error, Peer};
use fsgather_store::Encoding;
use serde::{Serialize, de::DeserializeOwned};

pub use postcard::Postcard;

use crate::{
    call::{guard::CallGuard, nesting::inside_a_call},
    payload::writer::InputWriter,
};

/// The encoding of payloads that are bytes already.
pub(crate) const BYTES: Encoding = Encoding(0);

/// Returns the encoding of payloads that are one value of a codec.
pub(crate) fn one(codec: &impl Codec) -> Encoding {
    Encoding(codec.number())
}

/// The conversion of values to bytes, and back.
///
/// All ranks of a communicator use the same codec: its name is compared before any data moves. A value that the codec
/// cannot carry is refused on the rank that hands it in, and all ranks get the error, with the name of the type.
///
/// # Which one
///
/// | codec | when |
/// |---|---|
/// | [`Postcard`], the default | types of the program itself: fast, and nothing but the data travels |
/// | your own | types that need a codec that describes them: `serde_json::Value`, untagged, internally tagged or flattened enums; a format that another program reads |
/// | none: hand in [`Bytes`](bytes::Bytes), [`Pieces`](crate::Pieces) or a [`Stream`](crate::Stream) | data that is bytes already |
///
/// # Examples
///
/// A custom codec, here JSON:
///
/// ```
/// use std::io::Write;
///
/// use fsgather::{
///     Communicator,
///     codec::{Codec, CodecError},
/// };
/// use serde::{Serialize, de::DeserializeOwned};
///
/// #[derive(Clone, Debug)]
/// struct Json;
///
/// impl Codec for Json {
///     fn name(&self) -> &'static str {
///         "json"
///     }
///
///     fn encode<T: Serialize + ?Sized>(&self, value: &T, into: &mut dyn Write) -> Result<(), CodecError> {
///         serde_json::to_writer(into, value).map_err(CodecError::new)
///     }
///
///     fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, CodecError> {
///         serde_json::from_slice(bytes).map_err(CodecError::new)
///     }
/// }
///
/// let communicator = Communicator::solo().with_codec(Json);
/// let value = serde_json::json!({"boxes": [1, 2, 3]}); // a type that needs a self-describing codec
/// assert_eq!(communicator.all_gather(&value)?, [value]);
/// # Ok::<(), fsgather::Error>(())
/// ```
pub trait Codec: Clone + fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the codec in messages. If the names differ between ranks, they get an error.
    fn name(&self) -> &'static str;

    /// Number recorded with each payload: 1 is [`Postcard`]. Other codecs may return 128 to 255, so that files
    /// show which codec wrote them.
    fn number(&self) -> u8 {
        128
    }

    /// Returns an error if values of this type cannot be carried, as far as that can be known without a value. It is
    /// called before a value is encoded, so that ranks get the error before anything moves rather than when it is read.
    ///
    /// # Errors
    ///
    /// If values of this type cannot be carried.
    fn carries<T: DeserializeOwned>(&self) -> Result<(), CodecError> {
        Ok(())
    }

    /// Writes a value. Many small writes are as good as few large ones.
    ///
    /// # Errors
    ///
    /// If the value cannot be carried, or if `into` accepts no more bytes.
    fn encode<T: Serialize + ?Sized>(
        &self,
        value: &T,
        into: &mut dyn Write,
    ) -> Result<(), CodecError>;

    /// Reads a value that takes up all of `bytes`.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a value, or if bytes remain after it.
    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, CodecError>;
}

/// The reason why a codec failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(String);

impl CodecError {
    /// Makes an error of a reason in words.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// Encodes a value, which the other ranks decode as a `T`, into `writer`; the error names the type.
pub(crate) fn hand_over<T: Serialize + DeserializeOwned, V: Serialize + ?Sized>(
    codec: &impl Codec,
    guard: &CallGuard,
    value: &V,
    writer: &mut InputWriter<'_>,
) -> Result<(), Error> {
    let refused = |reason: CodecError| {
        guard.raised(format!(
            "a value of type {} cannot be encoded in {}: {reason}",
            type_name::<T>(),
            codec.name()
        ))
    };
    codec.carries::<T>().map_err(refused)?;
    // A failure of the destination comes before the codec's own error, which only follows from it.
    codec
        .encode(value, &mut *writer)
        .map_err(|reason| writer.failure().unwrap_or_else(|| refused(reason)))
}

/// Decodes a value; the error names `writer` if the bytes are not one.
pub(crate) fn decode<T: DeserializeOwned>(
    codec: &impl Codec,
    bytes: &[u8],
    writer: Option<&Peer>,
    reader: &Peer,
) -> Result<T, Error> {
    inside_a_call(|| codec.decode(bytes)).map_err(|reason| {
        Error::corrupt(
            PathBuf::from("a payload"),
            format!(
                "it does not decode as {} in {}: {reason}",
                type_name::<T>(),
                codec.name()
            ),
            writer.cloned(),
            Some(reader.clone()),
        )
    })
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

    fn encoded<T: Serialize>(codec: &impl Codec, value: &T) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::new();
        codec.encode(value, &mut bytes)?;
        Ok(bytes)
    }

    fn refuses_other_values(codec: &impl Codec) {
        let bytes = encoded(codec, &(7_u32, "seven")).unwrap();
        let back = decode::<(u32, String)>(codec, &bytes, None, &me());
        assert_eq!(back, Ok((7, "seven".into())));
        let short = decode::<(u32, String, u64)>(codec, &bytes, Some(&me()), &me()).unwrap_err();
        assert!(
            short
                .to_string()
                .contains("(u32, alloc::string::String, u64)"),
            "{short}"
        );
        let longer = [bytes.as_slice(), b"!"].concat();
        let long = decode::<(u32, String)>(codec, &longer, None, &me()).unwrap_err();
        assert!(long.to_string().contains("1 bytes more"), "{long}");
    }

    #[test]
    fn postcard_refuses_what_is_no_value_of_the_type() {
        refuses_other_values(&Postcard);
    }

    #[test]
    fn postcard_refuses_types_that_have_to_describe_themselves() {
        #[derive(Serialize, serde::Deserialize)]
        struct Outer {
            #[serde(flatten)]
            inner: std::collections::BTreeMap<String, u32>,
        }
        let value = Outer {
            inner: [("a".into(), 1)].into(),
        };
        let refused = encoded(&Postcard, &value).unwrap_err();
        assert!(refused.to_string().contains("with_codec"), "{refused}");
        // A type that can be written but not read is refused before it is written.
        let refused = Postcard.carries::<serde_json::Value>().unwrap_err();
        assert!(refused.to_string().contains("with_codec"), "{refused}");
        assert_eq!(Postcard.carries::<Vec<(u32, String)>>(), Ok(()));
        assert_eq!(Postcard.carries::<Vec<(u32, String)>>(), Ok(()));
    }
}
