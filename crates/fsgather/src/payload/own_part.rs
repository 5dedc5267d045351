//! Keeps a payload that only its own rank receives: [`kept`].

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

/// Maximum length of a payload that is copied in memory, in bytes. A copy costs half as much as writing a file and
/// mapping it. A longer payload goes to a file, so that a root needs no more memory for its own part than for those of
/// others.
const COPIED: u64 = 8 << 20;

/// Returns the bytes of a payload that only this rank receives, if it can keep them.
///
/// Ranks that share memory copy the payload into that memory, which is warm.
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
