//! The announcement of a rank's payload to the others: [`PayloadHeader`].

use bytes::{BufMut, Bytes, BytesMut};
use fsgather_arena::Location;
use fsgather_core::{GatherId, Route, read_message};
use fsgather_store::Locator;
use serde::{Deserialize, Serialize};

/// The location of a rank's payload, for the others.
///
/// In bytes: the first byte is the kind, the rest is the payload itself, or postcard.
///
/// | first byte | rest |
/// |---|---|
/// | 0 | seal (u64, little-endian) and the payload |
/// | 1 | gather id and locator of a payload file |
/// | 2 | length (u64) and digest (u128) of a payload that travels in further rounds, and an optional text: why it is in no file |
/// | 3 | length (u64) of a payload that travels over connections between ranks |
/// | 4 | location of a payload in its owner's arena, in memory that ranks share |
/// | 5 | length (u64) of a payload that only its owner receives, who has it |
/// | 6 | location of a payload in its owner's arena, for ranks of its host; to other hosts it travels over connections |
/// | 7 | length (u64) of a payload that exceeds the bound of its call, and is not sent |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PayloadHeader {
    /// In the announcement.
    Inline {
        /// Binds it to its [origin](crate::payload::origin::PayloadOrigin).
        seal: u64,
        payload: Bytes,
    },
    /// In a file.
    File(FileHeader),
    /// In the rounds that follow.
    Relayed(RelayHeader),
    /// Over connections between ranks, which carry checksums of their own.
    Linked {
        /// In bytes.
        len: u64,
    },
    /// In memory that the ranks of a host share.
    Shared(Location),
    /// In memory that the ranks of its host share, and over connections to those of others.
    Placed(Location),
    /// With the rank itself, its only recipient.
    Kept {
        /// In bytes.
        len: u64,
    },
    /// Nowhere: it exceeds the bound of the call.
    TooLarge {
        /// In bytes, as the bound counts them.
        len: u64,
    },
}

/// The location of a payload file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileHeader {
    /// The gather directory.
    pub(crate) directory: GatherId,
    /// The name of the file, and its expected content.
    pub(crate) locator: Locator,
}

/// The expected data at the end of the rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RelayHeader {
    /// In bytes.
    pub(crate) len: u64,
    /// The digest of its [origin](crate::payload::origin::PayloadOrigin) and its bytes.
    pub(crate) digest: u128,
    /// The reason why it is not in a file although payloads of this call go through files.
    pub(crate) instead: Option<String>,
}

/// The bytes that an announcement adds to an inline payload: the kind and the seal.
pub(crate) const INLINE_OVERHEAD: usize = 9;

impl PayloadHeader {
    /// Returns the announcement as the body of a contribution.
    pub(crate) fn into_body(self) -> Result<Bytes, postcard::Error> {
        let body = match self {
            Self::Inline { seal, payload } => return Ok(inline_body(seal, &[payload])),
            Self::File(file) => postcard::to_extend(&file, vec![1])?,
            Self::Relayed(relayed) => postcard::to_extend(&relayed, vec![2])?,
            Self::Linked { len } => postcard::to_extend(&len, vec![3])?,
            Self::Shared(location) => postcard::to_extend(&location, vec![4])?,
            Self::Kept { len } => postcard::to_extend(&len, vec![5])?,
            Self::Placed(location) => postcard::to_extend(&location, vec![6])?,
            Self::TooLarge { len } => postcard::to_extend(&len, vec![7])?,
        };
        Ok(body.into())
    }

    /// Returns the route of a contribution's payload, by the first byte of the body.
    pub(crate) fn route(body: &[u8]) -> Route {
        match body.first() {
            Some(0) => Route::Message,
            Some(1) => Route::File,
            Some(2) => Route::Relay,
            Some(3 | 6) => Route::Link,
            Some(4) => Route::SharedMemory,
            Some(5) => Route::Kept,
            _ => Route::None,
        }
    }

    /// Reads the body of a contribution; returns `None` if it is not an announcement.
    pub(crate) fn from_body(body: &Bytes) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        match kind {
            0 => Some(Self::Inline {
                seal: rest.first_chunk().copied().map(u64::from_le_bytes)?,
                payload: body.slice(INLINE_OVERHEAD..),
            }),
            1 => read_message(rest).ok().map(Self::File),
            2 => read_message(rest).ok().map(Self::Relayed),
            3 => read_message(rest).ok().map(|len| Self::Linked { len }),
            4 => read_message(rest).ok().map(Self::Shared),
            5 => read_message(rest).ok().map(|len| Self::Kept { len }),
            6 => read_message(rest).ok().map(Self::Placed),
            7 => read_message(rest).ok().map(|len| Self::TooLarge { len }),
            _ => None,
        }
    }
}

/// Returns the body of a contribution that contains the payload itself, joined from its pieces.
pub(crate) fn inline_body(seal: u64, pieces: &[Bytes]) -> Bytes {
    let len: usize = pieces.iter().map(Bytes::len).sum();
    let mut body = BytesMut::with_capacity(len + INLINE_OVERHEAD);
    body.put_u8(0);
    body.put_u64_le(seal);
    for piece in pieces {
        body.put_slice(piece);
    }
    body.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn announcements_convert_both_ways(
            payload: Vec<u8>, seal: u64, len: u64, digest: u128, instead in prop::option::of("[a-z ]{0,20}"),
            place: [u8; Location::BYTES],
        ) {
            let inline = PayloadHeader::Inline { seal, payload: payload.into() };
            let relayed = PayloadHeader::Relayed(RelayHeader { len, digest, instead });
            let location = Location::from_bytes(&place);
            let in_memory = [PayloadHeader::Shared(location), PayloadHeader::Placed(location)];
            let lengths = [PayloadHeader::Linked { len }, PayloadHeader::Kept { len }, PayloadHeader::TooLarge { len }];
            for announcement in [inline, relayed].into_iter().chain(in_memory).chain(lengths) {
                let body = announcement.clone().into_body().unwrap();
                prop_assert_eq!(PayloadHeader::from_body(&body), Some(announcement));
            }
        }

        #[test]
        fn an_announcement_tells_its_way(len: u64, place: [u8; Location::BYTES]) {
            let location = Location::from_bytes(&place);
            let relayed = RelayHeader { len, digest: 7, instead: None };
            for (announcement, way) in [
                (PayloadHeader::Inline { seal: len, payload: Bytes::from_static(b"x") }, Route::Message),
                (PayloadHeader::Relayed(relayed), Route::Relay),
                (PayloadHeader::Linked { len }, Route::Link),
                (PayloadHeader::Placed(location), Route::Link),
                (PayloadHeader::Shared(location), Route::SharedMemory),
                (PayloadHeader::Kept { len }, Route::Kept),
            ] {
                prop_assert_eq!(PayloadHeader::route(&announcement.into_body().unwrap()), way);
            }
            prop_assert_eq!(PayloadHeader::route(&[1]), Route::File);
            prop_assert_eq!(PayloadHeader::route(&[]), Route::None);
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_read(body: Vec<u8>) {
            let _ = PayloadHeader::from_body(&body.into());
        }
    }
}
