//! A codec for types that have to be described: [`MessagePack`].

use std::io::{Cursor, Write};

use serde::{Serialize, de::DeserializeOwned};

use crate::codec::{Codec, CodecError};

/// `MessagePack` with the names of fields: larger and slower than [`Postcard`](crate::codec::Postcard), but it
/// carries every type that serde knows, and builds whose types differ a little still understand each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagePack;

impl Codec for MessagePack {
    fn name(&self) -> &'static str {
        "messagepack"
    }

    fn number(&self) -> u8 {
        2
    }

    fn encode<T: Serialize + ?Sized>(
        &self,
        value: &T,
        into: &mut dyn Write,
    ) -> Result<(), CodecError> {
        let mut into = std::io::BufWriter::new(into);
        rmp_serde::encode::write_named(&mut into, value).map_err(CodecError::new)?;
        into.flush().map_err(CodecError::new)
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, CodecError> {
        let mut decoder = rmp_serde::Deserializer::new(Cursor::new(bytes));
        let value = T::deserialize(&mut decoder).map_err(CodecError::new)?;
        let read = usize::try_from(decoder.position()).unwrap_or(usize::MAX);
        match bytes.len().saturating_sub(read) {
            0 => Ok(value),
            rest => Err(CodecError::new(format_args!(
                "it holds one such value and {rest} bytes more; do all ranks run the same program"
            ))),
        }
    }
}
