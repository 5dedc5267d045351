//! Bytes on a connection: [`Preamble`], records and frames. No sockets here.
//!
//! A connection starts with a preamble in the clear both ways, so that builds that do not understand each other can report
//! that. After the handshake everything is cut into *records*: a length (2 bytes, little-endian) and that many encrypted
//! bytes. The decrypted records joined together are *frames*: a length (4 bytes, little-endian) and one postcard-encoded
//! message. Lengths are checked before anything is allocated. `docs/design/wire-protocol.md` has the tables.

use bytes::{Buf, BytesMut};
use fsgather_core::{read_message, read_message_in_place};
use serde::{Serialize, de::DeserializeOwned};

/// The version of everything on the wire.
///
/// 1: first version. 2: one welcome for all, moving to marker files. 3: groups; the rank that removes a payload. 4:
/// time-outs of single calls. 5: ranks that could not be reached; time namespaces of processes; the process that has
/// started a rank; keys and secrets that were given; links between hosts are encrypted. 6: numbers and places of calls. 7:
/// stacks. 8: tags of calls. 9: number of ranks that a roll-call leaves out. 10: stacks of ranks in different calls. 11:
/// transfers of links follow each other, and payloads go host by host. 12: hand-overs through memory of a host. 13: fewer
/// messages, held locks of interpreters. 14: messages in families.
pub const VERSION: u16 = 14;

/// The largest frame, in bytes without its length: the welcome to the largest world fits into it.
pub const FRAME_LIMIT: usize = 32 << 20;

/// Size of most frames, in bytes with the length and without payloads.
const USUAL_FRAME: usize = 320;

/// The largest record on the wire, in bytes without its length.
pub const RECORD_LIMIT: usize = 16 << 10;

/// Number of bytes that authentication adds to each record.
pub const TAG_LEN: usize = 16;

/// The largest piece of frames that one record carries.
pub const PLAIN_LIMIT: usize = RECORD_LIMIT - TAG_LEN;

const MAGIC: [u8; 4] = *b"fsg\x01";

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPurpose {
    /// Messages between a member and rank 0.
    Control,
    /// No messages; its end is the end of the other side's host.
    Watch,
    /// Payloads, between any two ranks.
    Payload,
    /// The question why a process cannot be a member, if it was given another secret than rank 0.
    Mismatch,
}

impl ConnectionPurpose {
    /// The byte that stands for it.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Control => 1,
            Self::Watch => 2,
            Self::Payload => 3,
            Self::Mismatch => 4,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Control),
            2 => Some(Self::Watch),
            3 => Some(Self::Payload),
            4 => Some(Self::Mismatch),
            _ => None,
        }
    }
}

/// The first eight bytes of a connection, both ways, in the clear.
///
/// | offset | bytes | meaning |
/// |---|---|---|
/// | 0 | 4 | `f` `s` `g` 0x01 |
/// | 4 | 2 | version, little-endian |
/// | 6 | 1 | purpose: 1 control, 2 watch, 3 payload, 4 mismatch |
/// | 7 | 1 | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// The sender's version.
    pub version: u16,
    /// Purpose of the connection; `None` for one of a later version.
    pub purpose: Option<ConnectionPurpose>,
}

impl Preamble {
    /// The length on the wire, in bytes.
    pub const LEN: usize = 8;

    /// Our preamble for a connection of this purpose.
    #[must_use]
    pub const fn ours(purpose: ConnectionPurpose) -> Self {
        Self {
            version: VERSION,
            purpose: Some(purpose),
        }
    }

    /// Encodes it for the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6] = self.purpose.map_or(0, ConnectionPurpose::code);
        bytes
    }

    /// Decodes it; `None` if the other side does not speak this protocol at all.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let [a, b, c, d, low, high, purpose, _] = bytes;
        ([a, b, c, d] == MAGIC).then(|| Self {
            version: u16::from_le_bytes([low, high]),
            purpose: ConnectionPurpose::from_code(purpose),
        })
    }
}

/// The reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A frame says that it is longer than [`FRAME_LIMIT`].
    #[error("a frame of {0} bytes exceeds the limit of {FRAME_LIMIT}")]
    FrameTooLong(usize),
    /// A frame does not hold a message of this version.
    #[error("a frame that is no message")]
    Malformed,
}

/// Puts one message into a frame. `payload_len` is the number of payload bytes in it, so that they are not copied as the frame grows.
///
/// # Errors
///
/// [`WireError::FrameTooLong`] when the message does not fit, [`WireError::Malformed`] when it cannot
/// be encoded.
pub fn encode_frame<M: Serialize>(message: &M, payload_len: usize) -> Result<Vec<u8>, WireError> {
    let mut frame = Vec::with_capacity(payload_len.saturating_add(USUAL_FRAME));
    frame.extend_from_slice(&[0; 4]);
    let mut frame = postcard::to_extend(message, frame).map_err(|_| WireError::Malformed)?;
    let length = frame.len() - 4;
    let prefix = u32::try_from(length)
        .ok()
        .filter(|_| length <= FRAME_LIMIT)
        .ok_or(WireError::FrameTooLong(length))?;
    frame[..4].copy_from_slice(&prefix.to_le_bytes());
    Ok(frame)
}

/// Frames from this length on are handed out without a copy; the bytes in shorter ones are copied in any case.
const LONG_FRAME: usize = 16 << 10;

/// Joins decrypted records and cuts them into frames.
///
/// The payloads of a long frame are parts of the memory in which it was joined. Once none of them is in use any more, the
/// next frames are joined there.
#[derive(Debug, Default)]
pub struct Deframer {
    buffer: BytesMut,
}

impl Deframer {
    /// Takes in one decrypted record.
    pub fn push(&mut self, plain: &[u8]) {
        self.buffer.extend_from_slice(plain);
    }

    /// The next whole message, if its frame has arrived in full.
    ///
    /// # Errors
    ///
    /// When the other side does not keep to the protocol; nothing after that can be read.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, WireError> {
        let Some((prefix, rest)) = self.buffer.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > FRAME_LIMIT {
            return Err(WireError::FrameTooLong(length));
        }
        let Some(body) = rest.get(..length) else {
            // The record that ends this frame may begin the next one.
            let missing = length - rest.len() + PLAIN_LIMIT;
            self.buffer.reserve(missing);
            return Ok(None);
        };
        let message = if length < LONG_FRAME {
            let message = read_message(body);
            self.buffer.advance(4 + length);
            message
        } else {
            self.buffer.advance(4);
            read_message_in_place(&self.buffer.split_to(length).freeze())
        };
        message.map(Some).map_err(|_| WireError::Malformed)
    }

    /// Returns true if all bytes taken in have been handed out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{ChannelId, Epoch, Error, Step, Table, Verdict};
    use proptest::prelude::*;

    use super::*;
    use crate::message::{CallReply, EndRequest, ToCoordinator, ToMember};

    proptest! {
        #[test]
        fn messages_survive_any_cut_into_records(
            messages in proptest::collection::vec("[ -~äΩ€]{0,300}", 0..20),
            record in 1_usize..500,
        ) {
            let stream: Vec<u8> = messages
                .iter()
                .flat_map(|message| encode_frame(message, 0).unwrap())
                .collect();
            let mut deframer = Deframer::default();
            let mut read: Vec<String> = Vec::new();
            for piece in stream.chunks(record) {
                deframer.push(piece);
                while let Some(message) = deframer.next_message().unwrap() {
                    read.push(message);
                }
            }
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn arbitrary_bytes_never_panic_or_allocate_beyond_the_limit(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..20),
        ) {
            let mut deframer = Deframer::default();
            for piece in pieces {
                deframer.push(&piece);
                if !matches!(deframer.next_message::<ToCoordinator>(), Ok(Some(_))) {
                    break;
                }
            }
            prop_assert!(deframer.buffer.capacity() <= FRAME_LIMIT * 2);
        }

        #[test]
        fn preambles_convert_both_ways(version: u16, code in 1_u8..=4) {
            let purpose = ConnectionPurpose::from_code(code);
            prop_assert!(purpose.is_some());
            let preamble = Preamble { version, purpose };
            prop_assert_eq!(Preamble::from_bytes(preamble.to_bytes()), Some(preamble));
        }
    }

    fn release(lengths: &[usize]) -> ToMember {
        let bodies = lengths.iter().zip(1..);
        let bodies = bodies.map(|(length, byte)| vec![byte; *length].into());
        ToMember::Call(CallReply::Release {
            step: Step::verdict(ChannelId::WORLD, Epoch::FIRST),
            verdict: Verdict {
                table: Some(Table {
                    bodies: bodies.collect(),
                    acknowledge: true,
                }),
                further_rounds: 0,
                last: None,
            },
        })
    }

    proptest! {
        #[test]
        fn payloads_survive_any_record_cut_and_any_kept_payloads(
            calls in proptest::collection::vec(
                (proptest::collection::vec(0_usize..40_000, 0..6), 0_usize..6),
                1..8,
            ),
            record in 1_usize..PLAIN_LIMIT,
        ) {
            let releases: Vec<ToMember> = calls.iter().map(|(lengths, _)| release(lengths)).collect();
            let stream: Vec<u8> = releases
                .iter()
                .flat_map(|release| encode_frame(release, 0).unwrap())
                .collect();
            let mut deframer = Deframer::default();
            let (mut read, mut kept) = (0, Vec::new());
            for piece in stream.chunks(record) {
                deframer.push(piece);
                while let Some(message) = deframer.next_message::<ToMember>().unwrap() {
                    prop_assert_eq!(&message, &releases[read]);
                    let ToMember::Call(CallReply::Release { verdict: Verdict { table: Some(table), .. }, .. }) = message else {
                        unreachable!("equal to one");
                    };
                    // A program drops the payloads that it has received, except those that it still uses.
                    kept.extend(table.bodies.into_iter().zip(1_u8..).skip(calls[read].1));
                    read += 1;
                }
            }
            prop_assert_eq!(read, releases.len());
            for (body, byte) in kept {
                prop_assert!(body.iter().all(|one| *one == byte));
            }
        }
    }

    #[test]
    fn received_memory_is_reused_once_no_payload_holds_it() {
        let mut deframer = Deframer::default();
        let mut next = |length| {
            for piece in encode_frame(&release(&[length]), 0)
                .unwrap()
                .chunks(PLAIN_LIMIT)
            {
                deframer.push(piece);
            }
            match deframer.next_message().unwrap() {
                Some(ToMember::Call(CallReply::Release {
                    verdict:
                        Verdict {
                            table: Some(mut table),
                            ..
                        },
                    ..
                })) => table.bodies.remove(0),
                other => panic!("{other:?}"),
            }
        };
        let first = next(200 << 10);
        let place = first.as_ptr();
        let second = next(200 << 10);
        assert_ne!(second.as_ptr(), place, "the first one is held");
        let place = second.as_ptr();
        drop((first, second));
        assert_eq!(next(200 << 10).as_ptr(), place);
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_allocation() {
        let mut deframer = Deframer::default();
        deframer.push(&u32::MAX.to_le_bytes());
        let refused = deframer.next_message::<String>();
        assert_eq!(refused, Err(WireError::FrameTooLong(u32::MAX as usize)));
        assert!(deframer.buffer.capacity() < 1024);
    }

    #[test]
    fn an_error_in_an_error_and_so_on_is_no_message() {
        let leaving = ToCoordinator::End(EndRequest::Leave {
            cause: Some(Error::config("x").poisoned()),
        });
        let mut body = encode_frame(&leaving, 0).unwrap().split_off(4);
        let mut deframer = Deframer::default();
        deframer.push(&frame(&body));
        assert_eq!(deframer.next_message(), Ok(Some(leaving)));
        // The family, the variant, that there is a cause, and one byte for each error around it.
        let around = body[3];
        body.splice(3..3, vec![around; 50_000]);
        deframer.push(&frame(&body));
        let refused = deframer.next_message::<ToCoordinator>();
        assert_eq!(refused, Err(WireError::Malformed));
    }

    fn frame(body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap();
        [length.to_le_bytes().as_slice(), body].concat()
    }

    #[test]
    fn a_stranger_is_recognised_by_its_first_bytes() {
        assert_eq!(Preamble::from_bytes(*b"GET / HT"), None);
    }
}
