//! Cutting what a rank prints into whole lines: [`Lines`]. Pure; reads and writes nothing.

use fsgather::{Rank, WorldSize};

use crate::colour::{Hue, Paint};

/// The longest line that is kept whole, in bytes without its line break.
pub(super) const PIECE: usize = 64 * 1024;

/// Turns one stream of one rank into lines, in bounded memory.
///
/// Bytes need not be text; only line feeds mean something. A line longer than [`PIECE`] comes in pieces
/// of that length.
#[derive(Debug)]
pub(super) struct Lines {
    /// What stands before each line; `None` passes bytes on unchanged, never adding a line break.
    prefix: Option<Vec<u8>>,
    /// The beginning of a line whose end has not come yet: at most [`PIECE`] bytes.
    partial: Vec<u8>,
}

impl Lines {
    /// Lines that begin with `[rank] `, as wide as the largest rank of the world needs.
    pub(super) fn prefixed(rank: Rank, world: WorldSize, paint: Paint) -> Self {
        let width = (world.get() - 1).to_string().len();
        let prefix = format!("[{:>width$}]", rank.get());
        Self::with_prefix(paint.on(Hue::Of(rank), &prefix) + " ")
    }

    /// Lines that begin with a given text.
    pub(super) fn with_prefix(prefix: impl Into<Vec<u8>>) -> Self {
        Self {
            prefix: Some(prefix.into()),
            partial: Vec::new(),
        }
    }

    /// Bytes as they are, passed on a line at a time.
    pub(super) const fn unchanged() -> Self {
        Self {
            prefix: None,
            partial: Vec::new(),
        }
    }

    /// Takes bytes and appends to `out` what they complete.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut content, ended) = match line.strip_suffix(b"\n") {
                Some(content) => (content, true),
                None => (line, false),
            };
            while content.len() > PIECE - self.partial.len() {
                let (piece, rest) = content.split_at(PIECE - self.partial.len());
                self.emit(piece, self.prefix.is_some(), out);
                content = rest;
            }
            if ended {
                self.emit(content, true, out);
            } else {
                self.partial.extend_from_slice(content);
            }
        }
    }

    /// Appends to `out` what is left when no more bytes will come.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.emit(b"", self.prefix.is_some(), out);
        }
    }

    fn emit(&mut self, content: &[u8], line_break: bool, out: &mut Vec<u8>) {
        if let Some(prefix) = &self.prefix {
            out.extend_from_slice(prefix);
        }
        out.append(&mut self.partial);
        out.extend_from_slice(content);
        if line_break {
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn relay(mut lines: Lines, chunks: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in chunks {
            lines.push(chunk, &mut out);
            assert!(lines.partial.len() <= PIECE);
        }
        lines.finish(&mut out);
        out
    }

    fn of_rank(rank: u32, world: u32) -> Lines {
        Lines::prefixed(Rank::new(rank), WorldSize::new(world).unwrap(), Paint::NONE)
    }

    #[test]
    fn lines_come_whole_and_the_last_one_is_completed() {
        let out = relay(of_rank(0, 2), &[b"a", b"b\nc", b"\n\nlast"]);
        assert_eq!(out, b"[0] ab\n[0] c\n[0] \n[0] last\n");
    }

    #[test]
    fn ranks_are_padded_to_the_width_of_the_largest() {
        assert_eq!(relay(of_rank(3, 11), &[b"x\n"]), b"[ 3] x\n");
        assert_eq!(relay(of_rank(3, 10), &[b"x\n"]), b"[3] x\n");
    }

    #[test]
    fn the_colour_of_a_rank_ends_with_its_number() {
        let lines = Lines::prefixed(Rank::new(1), WorldSize::new(2).unwrap(), Paint::ALL);
        let out = relay(lines, &[b"x\n"]);
        assert_eq!(out, b"\x1b[32m[1]\x1b[0m x\n");
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_one_line() {
        let mut line = vec![b'x'; PIECE];
        line.push(b'\n');
        let out = relay(of_rank(0, 1), &[&line]);
        assert_eq!(out, [b"[0] ", &line[..]].concat());
        let out = relay(of_rank(0, 1), &[&line[..PIECE], b"\n"]);
        assert_eq!(out, [b"[0] ", &line[..]].concat());
    }

    #[test]
    fn an_endless_line_comes_in_pieces() {
        let long = vec![b'x'; 2 * PIECE + 5];
        let out = relay(of_rank(0, 1), &[&long]);
        let lengths: Vec<usize> = out.split(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        assert_eq!(lengths, [PIECE + 4, PIECE + 4, 5 + 4, 0]);
    }

    proptest! {
        #[test]
        fn unchanged_means_unchanged(
            runs in proptest::collection::vec(
                (prop_oneof![Just(b'\n'), any::<u8>()], 0..40_000_usize), 0..8,
            ),
        ) {
            let chunks: Vec<Vec<u8>> =
                runs.into_iter().map(|(byte, count)| vec![byte; count]).collect();
            let borrowed: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            prop_assert!(relay(Lines::unchanged(), &borrowed) == chunks.concat());
        }

        #[test]
        fn how_bytes_arrive_makes_no_difference(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            cut in 0_usize..200,
        ) {
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(relay(of_rank(0, 1), &[one, two]), relay(of_rank(0, 1), &[&bytes]));
        }

        #[test]
        fn every_line_is_there_once_with_its_prefix(
            lines in proptest::collection::vec("[^\n]{1,20}", 1..20),
        ) {
            let text = lines.join("\n");
            let expected = format!("[0] {}\n", lines.join("\n[0] "));
            prop_assert_eq!(relay(of_rank(0, 1), &[text.as_bytes()]), expected.into_bytes());
        }
    }
}
