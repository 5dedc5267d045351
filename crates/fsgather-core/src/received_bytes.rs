//! Bytes in messages that stay where the message was received: [`read_message_in_place`], [`in_place`] and
//! [`in_place_each`].

use std::{cell::RefCell, fmt};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, Visitor},
};

use crate::received::{Unreadable, read_message};

/// Minimum length of bytes that are not copied: copying shorter ones costs next to nothing, and keeping one does not
/// keep the whole message.
const LEAST_SHARED: usize = 16 << 10;

/// Bytes that are smaller than one of this many equal parts of their message are copied, for the same reason: programs
/// that keep one rank's part of call after call should need little more memory than those parts.
const MOST_KEPT: usize = 4;

thread_local! {
    /// The message that is being read on this thread.
    static RECEIVED: RefCell<Option<Bytes>> = const { RefCell::new(None) };
}

/// Reads a message of ours as [`read_message`] does; the bytes in it that are read with `in_place` are not copied.
///
/// Bytes of at least 16 KiB, and of at least about a quarter of the message, are parts of `received`, whose memory
/// exists as long as one of them does.
///
/// # Errors
///
/// Those of [`read_message`].
pub fn read_message_in_place<T: DeserializeOwned>(received: &Bytes) -> Result<T, Unreadable> {
    RECEIVED.set(Some(received.clone()));
    let _reading = Reading;
    read_message(received)
}

/// Clears the message when reading ends, even by a panic.
struct Reading;

impl Drop for Reading {
    fn drop(&mut self) {
        RECEIVED.set(None);
    }
}

/// Reads bytes: `#[serde(deserialize_with = "in_place")]`. Copies them if the reader is not [`read_message_in_place`].
///
/// # Errors
///
/// If the input is not bytes.
pub(crate) fn in_place<'de, D: Deserializer<'de>>(source: D) -> Result<Bytes, D::Error> {
    InPlace::deserialize(source).map(|read| read.0)
}

/// Like [`in_place`], for a sequence of bytes of several ranks.
///
/// # Errors
///
/// If the input is not a sequence of bytes.
pub(crate) fn in_place_each<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<Bytes>, D::Error> {
    let read = Vec::<InPlace>::deserialize(source)?;
    Ok(read.into_iter().map(|read| read.0).collect())
}

struct InPlace(Bytes);

impl<'de> Deserialize<'de> for InPlace {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_bytes(InPlaceVisitor)
    }
}

struct InPlaceVisitor;

impl<'de> Visitor<'de> for InPlaceVisitor {
    type Value = InPlace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<InPlace, E> {
        Ok(InPlace(Bytes::copy_from_slice(bytes)))
    }

    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<InPlace, E> {
        let shared = RECEIVED.with_borrow(|received| part_of(received.as_ref()?, bytes));
        Ok(InPlace(
            shared.unwrap_or_else(|| Bytes::copy_from_slice(bytes)),
        ))
    }
}

/// Returns these bytes as a part of the received message, if they are one and long enough.
fn part_of(received: &Bytes, bytes: &[u8]) -> Option<Bytes> {
    let start = bytes
        .as_ptr()
        .addr()
        .checked_sub(received.as_ptr().addr())?;
    let end = start.checked_add(bytes.len())?;
    // The rest of a message of equal parts is small.
    let is_much = received.len() - received.len() / 32 <= bytes.len().saturating_mul(MOST_KEPT);
    (bytes.len() >= LEAST_SHARED && is_much && end <= received.len())
        .then(|| received.slice(start..end))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use serde::Serialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Message {
        #[serde(deserialize_with = "in_place")]
        own: Bytes,
        #[serde(deserialize_with = "in_place_each")]
        all: Vec<Bytes>,
    }

    fn message() -> Message {
        Message {
            own: vec![1; 2 * LEAST_SHARED].into(),
            all: vec![
                vec![2; LEAST_SHARED - 1].into(),
                Bytes::new(),
                vec![3; 3 * LEAST_SHARED].into(),
            ],
        }
    }

    fn addresses(bytes: &[u8]) -> Range<usize> {
        let start = bytes.as_ptr().addr();
        start..start + bytes.len()
    }

    fn lies_in(part: &[u8], whole: &[u8]) -> bool {
        let (part, whole) = (addresses(part), addresses(whole));
        whole.start <= part.start && part.end <= whole.end
    }

    #[test]
    fn long_bytes_stay_in_place_and_short_ones_are_copied() {
        let received = Bytes::from(postcard::to_stdvec(&message()).unwrap());
        let read: Message = read_message_in_place(&received).unwrap();
        assert_eq!(read, message());
        assert!(lies_in(&read.own, &received));
        let shared: Vec<bool> = read
            .all
            .iter()
            .map(|part| lies_in(part, &received))
            .collect();
        assert_eq!(shared, [false, false, true]);
    }

    #[test]
    fn of_many_parts_none_keeps_all_of_the_others() {
        let shared = |parts: usize| {
            let message = Message {
                own: Bytes::new(),
                all: vec![vec![7; LEAST_SHARED].into(); parts],
            };
            let received = Bytes::from(postcard::to_stdvec(&message).unwrap());
            let read: Message = read_message_in_place(&received).unwrap();
            assert_eq!(read, message);
            let mut all = read.all.into_iter();
            all.all(|part| lies_in(&part, &received))
        };
        assert_eq!(
            [1, MOST_KEPT, MOST_KEPT + 1].map(shared),
            [true, true, false]
        );
    }

    #[test]
    fn an_ordinary_read_copies_even_after_a_bad_message() {
        let received = Bytes::from(postcard::to_stdvec(&message()).unwrap());
        assert!(read_message_in_place::<Message>(&received.slice(..10)).is_err());
        let read: Message = read_message(&received).unwrap();
        assert_eq!(read, message());
        assert!(!lies_in(&read.own, &received));
    }

    #[test]
    fn bytes_from_elsewhere_are_no_part_of_what_was_received() {
        let all = Bytes::from(vec![0; 4 * LEAST_SHARED]);
        let middle = all.slice(LEAST_SHARED..3 * LEAST_SHARED);
        assert_eq!(part_of(&middle, &middle), Some(middle.clone()));
        assert_eq!(part_of(&middle, &all), None);
        assert_eq!(part_of(&middle, &all[..LEAST_SHARED]), None);
        assert_eq!(part_of(&middle, &all[2 * LEAST_SHARED..]), None);
    }

    #[test]
    fn a_thirty_second_of_a_message_need_not_be_of_its_parts() {
        let received = Bytes::from(vec![0; 128 * LEAST_SHARED]);
        let enough = received.slice(..31 * LEAST_SHARED);
        assert_eq!(part_of(&received, &enough), Some(enough.clone()));
        assert_eq!(part_of(&received, &enough[1..]), None);
    }

    #[test]
    fn a_message_that_was_read_is_let_go_of() {
        let received = Bytes::from(postcard::to_stdvec(&message()).unwrap());
        drop(read_message_in_place::<Message>(&received).unwrap());
        assert!(received.is_unique());
    }
}
