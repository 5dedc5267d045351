//! The encoding of the messages that members exchange during set-up: [`encode`], [`decode`].

use bytes::Bytes;
use fsgather_core::{Error, read_message};
use serde::{Serialize, de::DeserializeOwned};

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Bytes, Error> {
    postcard::to_stdvec(value)
        .map(Bytes::from)
        .map_err(|error| Error::config(format!("a set-up message cannot be encoded: {error}")))
}

pub(crate) fn decode<T: DeserializeOwned>(body: Option<&Bytes>) -> Result<T, Error> {
    body.and_then(|body| read_message(body).ok())
        .ok_or_else(|| {
            Error::incompatible("a set-up message", env!("CARGO_PKG_VERSION"), "unknown")
        })
}
