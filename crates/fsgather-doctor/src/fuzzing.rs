//! The entries for fuzzers: each function takes any bytes, and panics where a promise is broken.

use bytes::Bytes;
use fsgather_core::read_message;

use crate::{facts::RankFacts, trial};

/// What ranks tell each other for a diagnosis.
pub fn facts(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    trial::try_reading(&body);
    let _ = read_message::<RankFacts>(&body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_do_no_harm() {
        // What ranks tell each other looks like any other body.
        fsgather_testkit::corpus::replay(&[("body", facts)]);
    }
}
