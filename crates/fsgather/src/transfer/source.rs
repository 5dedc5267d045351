//! The payload that a rank hands over in one call: [`Source`] before, [`Own`] while the call is under way.

use bytes::Bytes;
use fsgather_core::Error;

use super::{outgoing::Outgoing, session::Session, spool::Spool};

/// Writes a payload piece by piece.
pub(crate) type Writing<'a> =
    Box<dyn FnOnce(&Session, &mut Outgoing<'_>) -> Result<(), Error> + 'a>;

/// What a rank hands over in one call.
pub(crate) enum Source<'a> {
    /// Nothing: it only receives.
    Nothing,
    /// Bytes that somebody else keeps.
    Slice(&'a [u8]),
    /// Bytes that can be kept without a copy.
    Shared(Bytes),
    /// The same in several pieces.
    Pieces(Vec<Bytes>),
    /// Whatever this writes.
    Written(Writing<'a>),
}

/// A payload that has not been handed over yet when it is announced.
pub(crate) enum Own<'a> {
    /// It has been: it travels with the announcement, or lies in a file.
    Gone,
    /// Bytes that the caller keeps until the call has ended.
    Slice(&'a [u8]),
    /// Bytes of our own.
    Held(Bytes),
    /// A stream that was too long to be held.
    Spooled(Spool),
}

impl Own<'_> {
    /// How long it is, in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Spooled(spool) => spool.len(),
            other => other.as_slice().len() as u64,
        }
    }

    /// As a slice, if it is one.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Held(bytes) => bytes,
            Self::Gone | Self::Spooled(_) => &[],
        }
    }

    /// The bytes, copied only if somebody else keeps them.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Slice(bytes) => Bytes::copy_from_slice(bytes),
            Self::Held(bytes) => bytes.clone(),
            Self::Gone | Self::Spooled(_) => Bytes::new(),
        }
    }

    /// The same, independent of the caller.
    pub(crate) fn into_kept<'b>(self) -> Own<'b> {
        match self {
            Self::Gone => Own::Gone,
            Self::Slice(bytes) => Own::Held(Bytes::copy_from_slice(bytes)),
            Self::Held(bytes) => Own::Held(bytes),
            Self::Spooled(spool) => Own::Spooled(spool),
        }
    }
}
