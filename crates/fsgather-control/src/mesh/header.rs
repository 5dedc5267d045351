//! The messages on a link besides payloads: [`Greeting`], [`Header`], [`Reply`]. Pure.
//!
//! After the handshake the side that has dialled sends a greeting, as a message, which the other one answers if the first
//! does not want encryption. From then on the side that has dialled begins each transfer with a header, and the other side
//! answers a pull with a reply. All numbers are little-endian.
//!
//! | header | offset | size | field |
//! |---|---|---|---|
//! | | 0 | 1 | kind: 1 ring, 2 pull |
//! | | 1 | 3 | 0 |
//! | | 4 | 4 | rank of the sender |
//! | | 8 | 8 | channel |
//! | | 16 | 8 | epoch |
//! | | 24 | 8 | xxh3-64 of bytes 0 to 23 |
//!
//! | reply | offset | size | field |
//! |---|---|---|---|
//! | | 0 | 1 | 0 the payload follows, 1 it was withdrawn |
//! | | 1 | 7 | 0 |
//! | | 8 | 8 | length of the payload |
//! | | 16 | 8 | xxh3-64 of bytes 0 to 15 |
//!
//! After a ring transfer the receiver sends one byte, 6, to confirm that everything was right.

use fsgather_core::{CallId, ChannelId, Epoch, Rank, hash::Hash64};
use serde::{Deserialize, Serialize};

/// The byte of the receiver of a ring transfer once everything was right.
pub(super) const RECEIVED: u8 = 6;

/// The first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// The rank that sends it.
    pub(super) rank: Rank,
    /// True if it wants the following data to be encrypted.
    pub(super) encrypted: bool,
}

/// Kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferKind {
    /// Payloads follow, from left to right in a ring.
    Ring,
    /// A request for the payload of the other side.
    Pull,
}

/// The beginning of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: TransferKind,
    pub(super) from: Rank,
    pub(super) call: CallId,
}

impl Header {
    pub(super) const LEN: usize = 32;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = match self.kind {
            TransferKind::Ring => 1,
            TransferKind::Pull => 2,
        };
        bytes[4..8].copy_from_slice(&self.from.get().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.call.channel.get().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.call.epoch.get().to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Decodes one; `None` if the bytes are not a header.
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let kind = match bytes {
            [1, 0, 0, 0, ..] => TransferKind::Ring,
            [2, 0, 0, 0, ..] => TransferKind::Pull,
            _ => return None,
        };
        let word = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_le_bytes);
        is_sealed(&bytes).then_some(Self {
            kind,
            from: Rank::new(u32::from_le_bytes(*bytes[4..].first_chunk()?)),
            call: CallId {
                channel: ChannelId::new(word(8)?),
                epoch: Epoch::new(word(16)?),
            },
        })
    }
}

/// Reads any bytes as each of these, with the check that belongs to them, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(super) fn try_reading(bytes: &[u8]) {
    if let Some(mut header) = bytes.first_chunk().copied() {
        seal(&mut header);
        if let Some(read) = Header::from_bytes(header) {
            assert_eq!(Header::from_bytes(read.to_bytes()), Some(read));
        }
    }
    if let Some(mut reply) = bytes.first_chunk().copied() {
        seal(&mut reply);
        if let Some(read) = Reply::from_bytes(reply) {
            assert_eq!(Reply::from_bytes(read.to_bytes()), Some(read));
        }
    }
}

/// The answer to a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The payload follows, with this length in bytes.
    Follows(u64),
    /// There is no such payload any more.
    Withdrawn,
}

impl Reply {
    pub(super) const LEN: usize = 24;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let (code, len) = match self {
            Self::Follows(len) => (0, len),
            Self::Withdrawn => (1, 0),
        };
        let mut bytes = [0; Self::LEN];
        bytes[0] = code;
        bytes[8..16].copy_from_slice(&len.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Decodes one; `None` if the bytes are not a reply.
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let len = u64::from_le_bytes(*bytes[8..].first_chunk()?);
        if !is_sealed(&bytes) {
            return None;
        }
        match bytes[..8] {
            [0, 0, 0, 0, 0, 0, 0, 0] => Some(Self::Follows(len)),
            [1, 0, 0, 0, 0, 0, 0, 0] => Some(Self::Withdrawn),
            _ => None,
        }
    }
}

/// Puts the checksum of all preceding bytes into the last eight.
fn seal(bytes: &mut [u8]) {
    if let Some((body, checksum)) = bytes.split_last_chunk_mut::<8>() {
        *checksum = Hash64::of(body).to_le_bytes();
    }
}

fn is_sealed(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<8>()
        .is_some_and(|(body, checksum)| *checksum == Hash64::of(body).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_convert_both_ways_and_notice_damage(
            pull: bool, from: u32, channel: u64, epoch: u64, bit in 0..Header::LEN * 8,
        ) {
            let header = Header {
                kind: if pull { TransferKind::Pull } else { TransferKind::Ring },
                from: Rank::new(from),
                call: CallId { channel: ChannelId::new(channel), epoch: Epoch::new(epoch) },
            };
            let mut bytes = header.to_bytes();
            prop_assert_eq!(Header::from_bytes(bytes), Some(header));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::from_bytes(bytes), None);
        }

        #[test]
        fn replies_convert_both_ways_and_notice_damage(len: u64, bit in 0..Reply::LEN * 8) {
            for reply in [Reply::Follows(len), Reply::Withdrawn] {
                let mut bytes = reply.to_bytes();
                prop_assert_eq!(Reply::from_bytes(bytes), Some(reply));
                bytes[bit / 8] ^= 1 << (bit % 8);
                prop_assert_eq!(Reply::from_bytes(bytes), None);
            }
        }

        #[test]
        fn arbitrary_bytes_are_no_header(bytes: [u8; Header::LEN]) {
            let _ = Header::from_bytes(bytes);
        }
    }
}
