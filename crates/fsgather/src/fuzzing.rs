//! The entries for fuzzers: each function takes any bytes, and panics if a promise is broken.
#![allow(
    clippy::missing_panics_doc,
    reason = "it panics, as the first sentence says"
)]

use bytes::Bytes;

use crate::{payload::header::PayloadHeader, setup};

/// Bodies of exchanges: announcements of payloads, set-ups.
pub fn body(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    if let Some(announcement) = PayloadHeader::from_body(&body) {
        let again = announcement.clone().into_body();
        assert!(again.is_ok_and(|again| PayloadHeader::from_body(&again) == Some(announcement)));
    }
    setup::try_reading(&body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_do_no_harm() {
        fsgather_testkit::corpus::replay(&[("body", body)]);
    }
}
