//! Encoded entries that are not on disk: [`EntryQueue`]. Pure.
//!
//! They are kept in pieces, which move as they are: a process that is short of memory has no room for a copy of all.

use std::collections::VecDeque;

use fsgather_core::Error;

use crate::samples::{
    entry::{EntryKind, encode_entry},
    sample_id::SampleId,
};

/// Bytes that are written at a time at most, except that a single entry always may.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Whole entries in pieces of at most [`PIECE_BYTES`], except that a single entry may be longer.
#[derive(Debug, Default)]
pub(crate) struct EntryQueue {
    pieces: VecDeque<Vec<u8>>,
    len: usize,
}

/// A place between two entries of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    /// Pieces before it,
    pieces: usize,
    /// and bytes before it in the next piece.
    bytes: usize,
}

impl EntryQueue {
    /// Length of all entries in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Appends an entry, whose value comes in pieces, and returns its length.
    pub(crate) fn push(
        &mut self,
        nonce: u64,
        sequence: u64,
        kind: EntryKind,
        id: &SampleId,
        value: &[&[u8]],
    ) -> Result<usize, Error> {
        let value_len: usize = value.iter().map(|piece| piece.len()).sum();
        let has_room = |piece: &Vec<u8>| piece.len() + value_len <= PIECE_BYTES;
        let last = match self.pieces.back() {
            Some(last) if has_room(last) => self.pieces.pop_back(),
            _ => None,
        };
        let mut piece = last.unwrap_or_default();
        let before = piece.len();
        let encoded = encode_entry(&mut piece, nonce, sequence, kind, id, value);
        let added = piece.len() - before;
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
        self.len += added;
        encoded.map(|()| added)
    }

    /// Removes the entry that was appended last, which has this length.
    pub(crate) fn pop(&mut self, entry_len: usize) {
        self.len -= entry_len;
        if let Some(piece) = self.pieces.back_mut() {
            piece.truncate(piece.len() - entry_len);
            if piece.is_empty() {
                self.pieces.pop_back();
            }
        }
    }

    /// Moves all entries of another queue to the end of this one.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.pieces.append(&mut other.pieces);
        self.len += std::mem::take(&mut other.len);
    }

    /// The entries that follow a position in one piece; none only at the end.
    pub(crate) fn rest_at(&self, position: QueuePosition) -> &[u8] {
        let piece = self.pieces.get(position.pieces);
        piece.map_or(&[], |piece| &piece[position.bytes..])
    }

    /// Returns the position `len` bytes further in the same piece.
    pub(crate) fn advance(&self, mut position: QueuePosition, len: usize) -> QueuePosition {
        position.bytes += len;
        if self.rest_at(position).is_empty() {
            position.pieces += 1;
            position.bytes = 0;
        }
        position
    }

    /// Removes the entries before a position.
    pub(crate) fn remove_until(&mut self, position: QueuePosition) {
        self.pieces.drain(..position.pieces);
        if let Some(piece) = self.pieces.front_mut() {
            piece.drain(..position.bytes);
        }
        self.len = self.pieces.iter().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut EntryQueue, sequence: u64, value: &[u8]) -> usize {
        let id = SampleId::from(sequence);
        let pushed = queue.push(7, sequence, EntryKind::Result, &id, &[value]);
        pushed.unwrap()
    }

    #[test]
    fn entries_are_kept_in_bounded_pieces() {
        let mut queue = EntryQueue::default();
        let value = vec![1; PIECE_BYTES / 3];
        let lengths: usize = (0..10)
            .map(|sequence| push(&mut queue, sequence, &value))
            .sum();
        let large = push(&mut queue, 10, &vec![2; 3 * PIECE_BYTES]);
        assert_eq!(queue.len(), lengths + large);
        let (last, others) = queue.pieces.make_contiguous().split_last().unwrap();
        assert_eq!(last.len(), large);
        assert!(others.iter().all(|piece| piece.len() <= PIECE_BYTES + 100));
        queue.pop(large);
        assert_eq!((queue.len(), queue.pieces.len()), (lengths, 5));
    }

    #[test]
    fn entries_before_a_position_are_removed() {
        let mut queue = EntryQueue::default();
        let first = push(&mut queue, 0, b"a");
        let second = push(&mut queue, 1, b"b");
        let mut other = EntryQueue::default();
        let third = push(&mut other, 2, &vec![1; 2 * PIECE_BYTES]);
        queue.append(&mut other);
        assert_eq!((queue.len(), other.len()), (first + second + third, 0));
        let at = queue.advance(QueuePosition::default(), first);
        assert_eq!(queue.rest_at(at).len(), second);
        queue.remove_until(at);
        assert_eq!(queue.len(), second + third);
        let at = queue.advance(QueuePosition::default(), second);
        assert_eq!(queue.rest_at(at).len(), third);
        queue.remove_until(queue.advance(at, third));
        assert_eq!((queue.len(), queue.pieces.len()), (0, 0));
        assert!(queue.rest_at(QueuePosition::default()).is_empty());
    }
}
