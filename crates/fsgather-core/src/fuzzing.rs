//! The entries for fuzzers: each function takes any bytes, and panics if a promise is broken.
#![expect(clippy::panic, reason = "a fuzzer learns of what is wrong by a panic")]
#![allow(
    clippy::missing_panics_doc,
    reason = "every function panics, as the first sentence says"
)]

use serde::{Deserialize, Serialize};

use crate::{error_form::SentError, read_message, read_value};

/// A type of a program that contains itself in every possible way.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Tree {
    Leaf(Option<String>, f64, ()),
    Nodes(Vec<Tree>),
    Named(std::collections::BTreeMap<String, Tree>),
    Pair {
        left: Box<Tree>,
        right: Option<Box<Tree>>,
    },
}

/// Reads an error of another rank: its texts must be plain, and it must read the same after it is sent again.
pub fn error(bytes: &[u8]) {
    let Ok(SentError(error)) = read_message(bytes) else {
        return;
    };
    let text = error.to_string();
    let steers = |character: char| character.is_control() && !"\n\t".contains(character);
    assert!(!text.contains(steers), "{text:?}");
    let sent = SentError(error);
    let again = postcard::to_stdvec(&sent).unwrap_or_default();
    assert_eq!(read_message(&again), Ok(sent));
}

/// Reads a value of a program.
pub fn value(bytes: &[u8]) {
    let Ok((value, _)) = read_value::<Tree>(bytes) else {
        return;
    };
    let again = postcard::to_stdvec(&value).unwrap_or_default();
    match read_value::<Tree>(&again) {
        Ok((_, [])) => {}
        other => panic!("read and written it is {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_do_no_harm() {
        fsgather_testkit::corpus::replay(&[("error", error), ("value", value)]);
    }
}
