//! Entries for fuzzers: each function takes any bytes, and panics if a promise is broken.
#![allow(
    clippy::missing_panics_doc,
    reason = "every function panics, as the first sentence says"
)]

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    files,
    join::record::{RendezvousRecord, UnreachableReport},
    mesh,
    message::{ToCoordinator, ToMember},
    wire::{Deframer, Preamble, encode_frame},
};

/// Bytes of a connection after its handshake, to rank 0 and to a member.
pub fn frames(bytes: &[u8]) {
    if let Some(first) = bytes.first_chunk() {
        let _ = Preamble::from_bytes(*first);
    }
    messages::<ToCoordinator>(bytes);
    messages::<ToMember>(bytes);
}

/// The single message of a frame.
pub fn message(bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    frames(&[length.to_le_bytes().as_slice(), bytes].concat());
}

fn messages<M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let mut deframer = Deframer::default();
    // Records cut frames anywhere.
    for record in bytes.chunks(100) {
        deframer.push(record);
        while let Ok(Some(message)) = deframer.next_message::<M>() {
            // It can be sent on.
            if let Ok(frame) = encode_frame(&message, 0) {
                let mut again = Deframer::default();
                again.push(&frame);
                assert_eq!(again.next_message(), Ok(Some(message)));
            }
        }
    }
}

/// Records in a rendezvous, and those that programs exchange by a channel of their own.
pub fn record(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), of_this_version(bytes)] {
        if let Ok(record) = RendezvousRecord::from_bytes(&bytes) {
            let _ = format!("{record:?}");
            assert!(RendezvousRecord::from_bytes(&record.to_bytes()) == Ok(record));
        }
        if let Some(report) = UnreachableReport::from_bytes(&bytes) {
            assert_eq!(
                UnreachableReport::from_bytes(&report.to_bytes()),
                Some(report)
            );
        }
    }
}

/// Messages in files: letters, bulletins, signs of life.
pub fn letter(bytes: &[u8]) {
    files::try_reading(bytes);
    files::try_reading(&of_this_version(bytes));
}

/// Links between ranks: headers, answers, and a payload with its checks.
pub fn link(bytes: &[u8]) {
    mesh::try_reading(bytes);
}

fn of_this_version(bytes: &[u8]) -> Vec<u8> {
    [crate::wire::VERSION.to_le_bytes().as_slice(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_do_no_harm() {
        fsgather_testkit::corpus::replay(&[
            ("frames", frames),
            ("message", message),
            ("record", record),
            ("letter", letter),
            ("link", link),
        ]);
    }
}
