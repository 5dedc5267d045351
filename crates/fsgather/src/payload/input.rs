//! The payload that a rank hands over in one call: [`PayloadInput`] before, [`HeldInput`] while the call is under way.

use std::io::Read;

use bytes::Bytes;
use fsgather_arena::Leased;
use fsgather_core::{Error, bytes_text, room_for};
use fsgather_store::Encoding;

use crate::{
    call::guard::CallGuard,
    codec,
    payload::{spool::Spool, writer::InputWriter},
};

/// Writes a payload piece by piece.
pub(crate) type Writing<'a> =
    Box<dyn FnOnce(&CallGuard, &mut InputWriter<'_>) -> Result<(), Error> + 'a>;

/// The input of a rank in one call, and its encoding.
pub(crate) struct PayloadInput<'a> {
    pub(crate) encoding: Encoding,
    /// The number of leading bytes that do not count against a bound.
    pub(crate) uncounted: u64,
    pub(crate) source: InputSource<'a>,
}

/// The source of the bytes.
pub(crate) enum InputSource<'a> {
    /// There are none: the rank only receives.
    Nothing,
    /// Bytes that the caller keeps.
    Slice(&'a [u8]),
    /// Bytes that can be kept without a copy.
    Shared(Bytes),
    /// Several pieces of such bytes.
    Pieces(Vec<Bytes>),
    /// The bytes that a reader yields.
    PayloadStream(&'a mut dyn Read),
    /// The bytes that a function writes.
    Written(Writing<'a>),
    /// The reason why there are no bytes although there should be.
    Failure(String),
}

impl<'a> PayloadInput<'a> {
    /// Returns the input of the bytes that a stream yields.
    pub(crate) fn stream(source: &'a mut dyn Read) -> Self {
        Self {
            encoding: codec::BYTES,
            uncounted: 0,
            source: InputSource::PayloadStream(source),
        }
    }

    /// Returns the same input on the root, and no bytes on other ranks.
    pub(crate) fn only_if(self, is_root: bool) -> Self {
        let source = if is_root {
            self.source
        } else {
            InputSource::Nothing
        };
        Self { source, ..self }
    }
}

/// A payload that may have to be handed over after its announcement.
pub(crate) enum HeldInput<'a> {
    /// It has been handed over: it travels with the announcement, or is in a file.
    Gone,
    /// Bytes that the caller keeps until the call has ended.
    Slice(&'a [u8]),
    /// Bytes of our own.
    Held(Bytes),
    /// It has been handed over through shared memory, and these bytes are this rank's own part of the result.
    Shared(Bytes),
    /// It has been handed over to ranks of this host, through memory that they share, where it also is this rank's own
    /// part of the result.
    Placed(Leased),
    /// A stream that was too long to be held.
    Spooled(Spool),
}

impl HeldInput<'_> {
    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Spooled(spool) => spool.len(),
            other => other.as_slice().len() as u64,
        }
    }

    /// Returns true if it is this rank's own part of the result.
    pub(crate) fn is_own_part(&self) -> bool {
        matches!(self, Self::Shared(_)) || self.len() > 0
    }

    /// Returns the bytes that must be handed over, if they are a slice.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Held(bytes) => bytes,
            Self::Placed(leased) => leased,
            Self::Gone | Self::Shared(_) | Self::Spooled(_) => &[],
        }
    }

    /// Returns the bytes, copied only if the caller or shared memory keeps them.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Slice(bytes) => Bytes::copy_from_slice(bytes),
            Self::Held(bytes) | Self::Shared(bytes) => bytes.clone(),
            Self::Placed(leased) => Bytes::copy_from_slice(leased),
            Self::Gone | Self::Spooled(_) => Bytes::new(),
        }
    }

    /// Returns the same payload, independent of the caller.
    pub(crate) fn into_kept<'b>(self) -> HeldInput<'b> {
        match self {
            Self::Gone => HeldInput::Gone,
            Self::Slice(bytes) => HeldInput::Held(Bytes::copy_from_slice(bytes)),
            Self::Held(bytes) => HeldInput::Held(bytes),
            Self::Shared(bytes) => HeldInput::Shared(bytes),
            Self::Placed(leased) => HeldInput::Placed(leased),
            Self::Spooled(spool) => HeldInput::Spooled(spool),
        }
    }
}

/// Returns one payload of all pieces; a single piece is not copied.
pub(super) fn joined(guard: &CallGuard, pieces: &[Bytes], len: u64) -> Result<Bytes, Error> {
    let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
    if let (Some(only), None) = (filled.next(), filled.next()) {
        return Ok(only.clone());
    }
    let Some(mut bytes) = room_for(len) else {
        return Err(guard.raised(format!(
            "there is not enough memory to join a payload of {}, which goes from memory to memory; a shared \
             directory takes it in pieces",
            bytes_text(len)
        )));
    };
    for piece in pieces {
        bytes.extend_from_slice(piece);
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use fsgather_core::{Call, Operation, Site};

    use super::*;
    use crate::Communicator;

    #[test]
    fn pieces_are_joined_in_order_and_a_single_one_not_copied() {
        let communicator = Communicator::solo();
        let call = Call::new(Operation::AllGather, Site::named("a test"));
        let guard = CallGuard::begin(&communicator.inner, call).unwrap();
        let join = |pieces: &[&'static [u8]]| {
            let pieces: Vec<Bytes> = pieces.iter().copied().map(Bytes::from_static).collect();
            let len = pieces.iter().map(|piece| piece.len() as u64).sum();
            joined(&guard, &pieces, len).unwrap()
        };
        let only = b"only";
        let taken = join(&[b"", only, b""]);
        assert_eq!((&taken[..], taken.as_ptr()), (&only[..], only.as_ptr()));
        assert_eq!(
            join(&[b"one ", b"", b"after ", b"another"]),
            "one after another"
        );
        assert_eq!(join(&[b"", b""]), "");
        guard.succeed();
    }
}
