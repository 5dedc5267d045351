//! Entry points for fuzzers: each function takes arbitrary bytes, and panics if a promise is broken.
#![allow(
    clippy::missing_panics_doc,
    reason = "every function panics, as the first sentence says"
)]

use fsgather_core::{hash::Hash128, read_message};

use crate::{
    GatherFacts, Locator, OwnerRecord, PayloadName,
    layout::{GatherEntry, RendezvousEntry, parse_nonce_name},
    messages::{
        names::{HostName, MarkerName},
        sealed,
    },
    os::mount,
    payload::format::{ChunkEntry, ENTRY_LEN, FOOTER_LEN, Footer, HEADER_LEN, Header},
    rendezvous::record::Record,
};

/// Names of files: a parsed name prints as it was, and is never a path to another directory.
pub fn name(bytes: &[u8]) {
    let Ok(name) = str::from_utf8(bytes) else {
        return;
    };
    let printed = [
        RendezvousEntry::parse(name).map(|entry| entry.to_string()),
        GatherEntry::parse(name).map(|entry| entry.to_string()),
        PayloadName::parse(name).map(|entry| entry.to_string()),
        HostName::parse(name).map(|entry| entry.to_string()),
        MarkerName::parse(name).map(|entry| entry.to_string()),
    ];
    for printed in printed.into_iter().flatten() {
        assert_eq!(printed, name);
        assert!(!printed.contains(['/', '\0']) && !printed.starts_with('.'));
    }
    let _ = parse_nonce_name(name);
}

/// Records of the rendezvous directory, sealed messages, owner records, lines of the mount table.
pub fn file(bytes: &[u8]) {
    let checked = [bytes, &Hash128::of(bytes).to_le_bytes()].concat();
    for bytes in [bytes, &checked] {
        if let Ok(record) = Record::from_bytes(bytes) {
            assert!(
                record
                    .to_bytes()
                    .is_ok_and(|again| Record::from_bytes(&again) == Ok(record))
            );
        }
        let _ = sealed::unseal(bytes.to_vec(), "");
    }
    assert!(sealed::unseal(sealed::seal(bytes, "here"), "here").is_ok_and(|body| body == bytes));
    let text = String::from_utf8_lossy(bytes);
    let sum = Hash128::of(text.as_bytes());
    for text in [text.to_string(), format!("{text}xxh3_128={sum:032x}\n")] {
        if let Ok(owner) = OwnerRecord::from_text(text.as_bytes()) {
            let _ = owner.to_text();
        }
    }
    mount::try_reading(bytes);
}

/// Payload files: header, chunks, footer, and their announcements.
pub fn payload(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<HEADER_LEN>() {
        let _ = Header::from_bytes(header);
    }
    if let Some(entry) = bytes.first_chunk::<ENTRY_LEN>() {
        let _ = ChunkEntry::from_bytes(entry);
    }
    if let Some(footer) = bytes.first_chunk::<FOOTER_LEN>() {
        let _ = Footer::from_bytes(footer);
    }
    if let Ok(locator) = read_message::<Locator>(bytes) {
        let _ = locator.check();
        assert!(!locator.name.to_string().contains('/'));
    }
    let _ = read_message::<GatherFacts>(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_do_no_harm() {
        fsgather_testkit::corpus::replay(&[("name", name), ("file", file), ("payload", payload)]);
    }
}
