//! Pulls.

use fsgather_control::mesh::Source;
use fsgather_core::Rank;

use crate::bed::{Bed, call, ignore, payload};

#[test]
fn a_payload_is_fetched_in_chunks_or_whole() {
    let meshes = Bed::new(2).meshes();
    let own = payload(1, (3 << 20) + 17);
    meshes[1].offer(call(0), Source::Memory(own.clone().into()));
    let mut pull = meshes[0]
        .pull(call(0), Rank::new(1), own.len() as u64)
        .unwrap();
    let mut got = Vec::new();
    while let Some(chunk) = pull.next_chunk(&mut ignore).unwrap() {
        got.extend_from_slice(&chunk);
    }
    assert!(got == own);
    let pull = meshes[0]
        .pull(call(0), Rank::new(1), own.len() as u64)
        .unwrap();
    assert!(pull.read_to_end(&mut ignore).unwrap() == own);
    assert_eq!(meshes[1].links_accepted(), 1);
}
