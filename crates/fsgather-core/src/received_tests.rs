//! Tests of the bounds of data from other processes.

use std::{collections::BTreeMap, thread};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::{
    Call, CallName, Epoch, Error as Failure, Missing, Operation, Peer, PeerFailure, Rank, Site,
    error_form::SentError, plain_line,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Tree {
    Leaf(u8),
    Nodes {
        all: Vec<Tree>,
        last: Option<Box<Tree>>,
    },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Listed {
    number: u32,
    rest: Option<Box<Listed>>,
}

/// A type that takes more of the stack.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Large {
    rest: Option<Box<Large>>,
    content: [[u64; 32]; 16],
}

/// Returns the bytes of a list of `length` numbers.
fn listed(length: usize) -> Vec<u8> {
    let mut bytes = [7, 1].repeat(length - 1);
    bytes.extend([7, 0]);
    bytes
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    whole: (u8, i8, u16, i16, u32, i32, u64, i64),
    others: (u128, i128, f32, f64, bool, char),
    text: String,
    bytes: bytes::Bytes,
    map: BTreeMap<String, Vec<Option<u64>>>,
    rank: Rank,
    unit: (),
    tree: Tree,
    result: Result<(), [u16; 3]>,
}

fn everything() -> Everything {
    Everything {
        whole: (1, -2, 3, -4, 5, -6, 7, -8),
        others: (9, -10, 0.5, -0.25, true, 'ä'),
        text: "text\nof lines".into(),
        bytes: bytes::Bytes::from_static(b"\x1b\0"),
        map: [("a".into(), vec![None, Some(3)])].into(),
        rank: Rank::new(4),
        unit: (),
        tree: Tree::Nodes {
            all: vec![Tree::Leaf(1), Tree::Leaf(2)],
            last: Some(Box::new(Tree::Leaf(3))),
        },
        result: Err([1, 2, 3]),
    }
}

#[test]
fn what_is_within_the_bounds_is_read_as_it_was_written() {
    let bytes = postcard::to_stdvec(&everything()).unwrap();
    assert_eq!(read_message(&bytes), Ok(everything()));
    let more = [bytes.as_slice(), b"more"].concat();
    assert_eq!(read_value(&more), Ok((everything(), b"more".as_slice())));
    let short = read_value::<Everything>(&bytes[..bytes.len() - 1]);
    assert!(matches!(short, Err(Unreadable::Malformed(_))), "{short:?}");
}

#[test]
fn a_tag_is_read_as_it_was_written_and_steers_no_terminal() {
    let tag = "a\n\u{1b}[31mred \u{202e}\u{9b}2J \u{2028}é";
    let call = Call::new(Operation::Barrier, Site::default()).tagged(tag);
    let name = CallName::of(&call, Epoch::new(1));
    let read: Call = read_message(&postcard::to_stdvec(&call).unwrap()).unwrap();
    // Otherwise ranks with the same tag would be in different calls.
    assert_eq!(call.difference(&read), None);
    assert_eq!(read, call);
    let read: CallName = read_message(&postcard::to_stdvec(&name).unwrap()).unwrap();
    assert_eq!(read, name);
    for text in [read.to_string(), call.to_string()] {
        assert_eq!(plain_line(&text), text);
    }
    let mut bytes = postcard::to_stdvec(&call).unwrap();
    let place = bytes.iter().position(|byte| *byte == b'a').unwrap();
    bytes[place] = 0xff;
    let read = read_message::<Call>(&bytes);
    assert!(matches!(read, Err(Unreadable::Malformed(_))), "{read:?}");
}

#[test]
fn a_nested_error_of_kilobytes_is_refused() {
    // One byte for each nested error would end the process.
    let poisoned = postcard::to_stdvec(&SentError(Failure::config("x").poisoned())).unwrap();
    for levels in [1000, 5000, 50_000, 5_000_000] {
        let bytes = [vec![poisoned[0]; levels], poisoned.clone()].concat();
        let read = read_message::<SentError>(&bytes);
        assert_eq!(read, Err(Unreadable::TooDeep(DEEPEST_MESSAGE)));
    }
    let whole = SentError(Failure::config("x").poisoned());
    assert_eq!(read_message(&poisoned), Ok(whole));
}

#[test]
fn values_are_read_to_a_depth_limit_on_any_stack() {
    let read = || {
        // Two levels each: the structure and what may follow.
        let most = DEEPEST_VALUE / 2;
        let bytes = listed(most);
        let (longest, rest) = read_value::<Listed>(&bytes).unwrap();
        assert_eq!((longest.number, rest), (7, [].as_slice()));
        for length in [most + 1, 5000, 1_000_000] {
            let bytes = listed(length);
            let read = read_value::<Listed>(&bytes);
            assert_eq!(read, Err(Unreadable::TooDeep(DEEPEST_VALUE)));
        }
        let trees = [[1, 1].repeat(1_000_000), vec![0, 7]].concat();
        let read = read_value::<Tree>(&trees);
        assert_eq!(read, Err(Unreadable::TooDeep(DEEPEST_VALUE)));
    };
    // As small as that of any thread: the library's own have 2 MiB.
    let small = thread::Builder::new().stack_size(1 << 20);
    small.spawn(read).unwrap().join().unwrap();
    let read = || {
        let bytes = [1].repeat(5000);
        let read = read_value::<Large>(&bytes);
        assert_eq!(read, Err(Unreadable::TooDeep(DEEPEST_VALUE)));
    };
    let small = thread::Builder::new().stack_size(1 << 20);
    small.spawn(read).unwrap().join().unwrap();
}

#[test]
fn many_small_elements_take_a_bounded_multiple_of_bytes() {
    /// Returns a sequence of `length` elements, each of these bytes.
    fn sequence(length: u32, element: &[u8]) -> Vec<u8> {
        let mut bytes = postcard::to_stdvec(&length).unwrap();
        bytes.extend(element.repeat(length as usize));
        bytes
    }
    // Empty bodies, as in the release of a barrier of as many ranks: 32 bytes each.
    let bodies: Vec<bytes::Bytes> = read_message(&sequence(100_000, &[0])).unwrap();
    assert_eq!(bodies.len(), 100_000);
    // Ranks of which nothing is known, as a time-out lists them.
    let missing: Vec<Missing> = read_message(&sequence(100_000, &[9, 0, 0])).unwrap();
    assert_eq!(missing.len(), 100_000);
    // Anything larger is refused when the number of elements that were read reaches the bound.
    let large = read_message::<Vec<Option<[u64; 32]>>>(&sequence(100_000, &[0]));
    assert_eq!(large, Err(Unreadable::TooLarge));
    let few = read_message::<Vec<Option<[u64; 32]>>>(&sequence(1000, &[0]));
    assert_eq!(few.unwrap().len(), 1000);
    // A value of the program is as large as its type.
    let bytes = sequence(100_000, &[0]);
    let (value, _) = read_value::<Vec<Option<[u64; 32]>>>(&bytes).unwrap();
    assert_eq!(value.len(), 100_000);
}

#[test]
fn who_reads_a_sequence_or_a_map_hears_how_long_it_says_to_be() {
    #[derive(Debug, PartialEq)]
    struct Announced(Option<usize>);

    struct Hint;

    impl<'de> Visitor<'de> for Hint {
        type Value = Announced;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence or a map")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Announced, A::Error> {
            let hint = sequence.size_hint();
            while sequence.next_element::<u8>()?.is_some() {}
            Ok(Announced(hint))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Announced, A::Error> {
            let hint = map.size_hint();
            while map.next_entry::<u8, u8>()?.is_some() {}
            Ok(Announced(hint))
        }
    }

    #[derive(Debug, PartialEq)]
    struct Sequence(Announced);

    impl<'de> Deserialize<'de> for Sequence {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_seq(Hint).map(Self)
        }
    }

    #[derive(Debug, PartialEq)]
    struct Map(Announced);

    impl<'de> Deserialize<'de> for Map {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Hint).map(Self)
        }
    }

    let announced = Announced(Some(3));
    assert_eq!(read_message(&[3, 7, 7, 7]), Ok(Sequence(announced)));
    let announced = Announced(Some(2));
    assert_eq!(read_message(&[2, 7, 7, 8, 8]), Ok(Map(announced)));
}

#[test]
fn elements_of_no_bytes_take_no_endless_time() {
    let endless = postcard::to_stdvec(&u64::MAX).unwrap();
    assert_eq!(read_value::<Vec<()>>(&endless), Err(Unreadable::TooLarge));
    assert_eq!(read_message::<Vec<()>>(&endless), Err(Unreadable::TooLarge));
    let some = postcard::to_stdvec(&vec![(); 100_000]).unwrap();
    assert_eq!(read_value::<Vec<()>>(&some).unwrap().0.len(), 100_000);
}

#[test]
fn texts_of_messages_are_plain_whatever_they_stand_for() {
    let said = Failure::PeerFailed {
        peer: Peer {
            rank: Rank::ZERO,
            host: "\u{1b}[31mevil\u{1b}]0;title\u{7}\nWARNING: rank 9".into(),
            pid: 1,
        },
        activity: crate::Activity::outside(crate::Phase::Computing),
        failure: PeerFailure::Raised {
            message: "\u{9b}2Jone line\nand another".into(),
        },
    };
    let bytes = postcard::to_stdvec(&SentError(said)).unwrap();
    let SentError(heard) = read_message(&bytes).unwrap();
    assert_eq!(
        heard.to_string(),
        "rank 0 on ?[31mevil?]0;title??WARNING: rank 9 (pid 1) failed (?2Jone line\nand another) while computing"
    );
    // The names in a line stay in that line.
    let site = postcard::to_stdvec("eval\n.py:1").unwrap();
    assert_eq!(
        read_message::<Site>(&site).unwrap().to_string(),
        "eval?.py:1"
    );
    assert_eq!(Site::named("eval\n.py:1").to_string(), "eval?.py:1");
    // A value of the program is not changed.
    let (value, _) = read_value::<String>(b"\x02\x1b[").unwrap();
    assert_eq!(value, "\u{1b}[");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_message::<SentError>(&bytes);
        let _ = read_message::<Everything>(&bytes);
        if let Ok((value, _)) = read_value::<Everything>(&bytes) {
            let again = postcard::to_stdvec(&value).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Everything>(&again).is_ok(), true);
        }
    }
}

#[test]
fn why_bytes_cannot_be_read_is_a_sentence() {
    let texts = [
        Unreadable::TooDeep(64).to_string(),
        Unreadable::TooLarge.to_string(),
        Unreadable::Malformed(postcard::Error::DeserializeUnexpectedEnd).to_string(),
    ];
    assert!(
        texts[0].contains("64 levels") && texts[1].contains("more elements"),
        "{texts:?}"
    );
    assert!(!texts[2].is_empty());
}
