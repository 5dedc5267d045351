//! Finds out, without a value, if a type needs a description in its data: [`has_to_be_described`].
//!
//! The type reads itself from made-up bytes. A type that asks for the kind of the next value, instead of expecting one,
//! needs a description; a type that rejects the bytes is assumed to need none.

use fsgather_core::{Unreadable, read_value};
use serde::de::DeserializeOwned;

/// Number of made-up bytes at a time.
const LENGTH: usize = 256;

/// Upper limit of the byte values: the number of a variant, the length of a list, or a flag that an optional value
/// exists.
const VARIANTS: u8 = 32;

/// Number of leading bytes that differ from the others in turn.
const CHOICES: usize = 16;

/// Upper limit of the values of such a byte.
const CHOSEN: u8 = 16;

/// Number of tries in which all bytes are mixed.
const MIXED: u64 = 64;

/// Returns true if values of this type can only be read from a source that gives the kind of each value.
pub(super) fn has_to_be_described<T: DeserializeOwned>() -> bool {
    let asks = |bytes: [u8; LENGTH]| {
        matches!(
            read_value::<T>(&bytes),
            Err(Unreadable::Malformed(postcard::Error::WontImplement))
        )
    };
    (0..VARIANTS).any(|byte| asks([byte; LENGTH]))
        || (0..CHOICES).any(|at| (0..CHOSEN).any(|byte| asks(ones_but(at, byte))))
        || (1..=MIXED).any(|seed| asks(mixed(seed)))
}

/// Returns bytes that are all 1, except one.
fn ones_but(at: usize, byte: u8) -> [u8; LENGTH] {
    std::array::from_fn(|payload_path| if payload_path == at { byte } else { 1 })
}

/// Small numbers in no order.
fn mixed(seed: u64) -> [u8; LENGTH] {
    let mut state = seed;
    std::array::from_fn(|_| {
        // A linear congruential generator, of which the upper bits are good enough.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let [high, next, ..] = state.to_be_bytes();
        next % if high % 4 == 0 { 4 } else { 2 }
    })
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, HashSet},
        net::IpAddr,
        num::NonZeroU8,
        path::PathBuf,
        time::{Duration, SystemTime},
    };

    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Tree {
        Leaf(f64),
        Node { left: Box<Tree>, others: Vec<Tree> },
        Nothing,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Plain {
        name: String,
        parts: Vec<Option<(u8, char, [f32; 4])>>,
        by_name: BTreeMap<String, HashSet<i64>>,
        tree: Option<Tree>,
        at: SystemTime,
        took: Duration,
        from: IpAddr,
        into: PathBuf,
        some: NonZeroU8,
        bytes: bytes::Bytes,
        nothing: (),
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Untagged {
        Number(u32),
        Text(String),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Flattened {
        id: u32,
        #[serde(flatten)]
        rest: BTreeMap<String, u32>,
    }

    #[derive(Deserialize)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only the type counts")]
    enum Tagged {
        One { a: u32 },
        Other { b: u32 },
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Evaluation {
        weights: Vec<f32>,
        by_name: Option<BTreeMap<String, Vec<u64>>>,
        kind: Outer,
        tree: Vec<Tree>,
        id: Option<u32>,
        about: Value,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Growing {
        grown: Vec<Self>,
        about: Option<Value>,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Outer {
        Empty,
        Inner(Inner),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Inner {
        A,
        B,
        C(Box<Deep>),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    struct Deep {
        values: Vec<Option<BTreeMap<u32, Value>>>,
    }

    /// Only two choices together lead to the value.
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Far {
        Away(Farther),
        Here,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type counts")]
    enum Farther {
        Nothing,
        Neither,
        Away(Value),
    }

    #[test]
    fn plain_types_need_no_description() {
        assert!(!has_to_be_described::<Plain>());
        assert!(!has_to_be_described::<Tree>());
        assert!(!has_to_be_described::<Vec<(u32, f32)>>());
        assert!(!has_to_be_described::<fsgather_core::error_form::SentError>());
        assert!(!has_to_be_described::<uuid::Uuid>());
    }

    #[test]
    fn types_that_ask_what_comes_next_are_found_however_deep() {
        assert!(has_to_be_described::<Value>());
        assert!(has_to_be_described::<Untagged>());
        assert!(has_to_be_described::<Flattened>());
        assert!(has_to_be_described::<Tagged>());
        assert!(has_to_be_described::<Vec<Result<(), Untagged>>>());
        assert!(has_to_be_described::<Outer>());
        assert!(has_to_be_described::<Far>());
        assert!(has_to_be_described::<Evaluation>());
        assert!(has_to_be_described::<Growing>());
    }
}
