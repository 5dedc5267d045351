//! Keeps what a rank hands in and it alone receives: [`kept`].

use bytes::Bytes;
use fsgather_core::room_for;

use crate::{
    call::guard::CallGuard,
    payload::{
        input::{InputSource, joined},
        path::PayloadPath,
        shared_memory::Share,
    },
};

/// Up to this length a copy in memory is made, in bytes. It costs half of what writing a file and mapping that does; a longer
/// payload goes to one, so that a root needs no more memory for its own part than for those of others.
const COPIED: u64 = 8 << 20;

/// The bytes of a payload that goes to nobody but this rank, if that is so and it can keep them.
///
/// Ranks that share memory copy into that: it is warm.
pub(super) fn kept(
    guard: &CallGuard,
    source: &InputSource<'_>,
    path: &PayloadPath,
    shares: bool,
    inline_limit: usize,
) -> Option<Bytes> {
    if !Share::is_only_reader(&guard.inner, &guard.ticket) {
        return None;
    }
    let copies = matches!(path, PayloadPath::Files(_)) && !shares;
    let is_copied = |len: u64| copies && len > inline_limit as u64 && len <= COPIED;
    match source {
        InputSource::Shared(bytes) if shares || copies => Some(bytes.clone()),
        InputSource::Slice(bytes) if is_copied(bytes.len() as u64) => {
            let mut copy = room_for(bytes.len() as u64)?;
            copy.extend_from_slice(bytes);
            Some(copy.into())
        }
        InputSource::Pieces(pieces) => {
            let len = pieces.iter().map(|piece| piece.len() as u64).sum();
            is_copied(len).then(|| joined(guard, pieces, len).ok())?
        }
        _ => None,
    }
}
