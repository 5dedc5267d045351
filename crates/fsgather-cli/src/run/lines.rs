//! Cuts the output of a rank into lines: [`Lines`]. Pure: reads and writes nothing.

use std::time::{Duration, Instant};

use fsgather::{Rank, WorldSize};

use crate::colour::{Hue, Paint};

/// Maximum length of a line that is kept whole, in bytes without its line break.
pub(super) const PIECE_BYTES: usize = 64 * 1024;

/// Time for which the beginning of a line is held back: most lines are complete by then, and a prompt is seen in time.
const PARTIAL_LINE_DELAY: Duration = Duration::from_millis(100);

/// The position of a terminal's cursor after the bytes passed on so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    /// At the start of a new line.
    LineStart,
    /// In a line.
    InLine,
    /// At the start of a line that has text: a progress bar draws it again.
    AfterReturn,
}

/// Turns one stream of one rank into lines, in bounded memory.
///
/// Bytes need not be text; only line feeds and carriage returns mean something. A line longer than [`PIECE_BYTES`] is split
/// into pieces of that length. The beginning of a line is passed on after a short time.
#[derive(Debug)]
pub(super) struct Lines {
    /// The text before each line; `None` passes all bytes on unchanged and at once.
    prefix: Option<Vec<u8>>,
    /// The beginning of a line that is held back: at most [`PIECE_BYTES`] bytes.
    partial: Vec<u8>,
    partial_since: Option<Instant>,
    cursor: Cursor,
}

impl Lines {
    /// Lines that begin with `[rank] `, as wide as the largest rank of the world needs.
    pub(super) fn prefixed(rank: Rank, world: WorldSize, paint: Paint) -> Self {
        let width = (world.get() - 1).to_string().len();
        let prefix = format!("[{:>width$}]", rank.get());
        Self::new(Some((paint.on(Hue::Of(rank), &prefix) + " ").into()))
    }

    /// Lines that begin with a given text.
    pub(super) fn with_prefix(prefix: impl Into<Vec<u8>>) -> Self {
        Self::new(Some(prefix.into()))
    }

    /// Bytes as they are.
    pub(super) const fn unchanged() -> Self {
        Self::new(None)
    }

    const fn new(prefix: Option<Vec<u8>>) -> Self {
        Self {
            prefix,
            partial: Vec::new(),
            partial_since: None,
            cursor: Cursor::LineStart,
        }
    }

    /// Takes bytes and appends to `out` the lines that they complete.
    pub(super) fn push(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<u8>) {
        if self.prefix.is_none() {
            return out.extend_from_slice(bytes);
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut content, is_whole) = match line.strip_suffix(b"\n") {
                Some(content) => (content, true),
                None => (line, false),
            };
            while content.len() > PIECE_BYTES - self.partial.len() {
                let (piece, rest) = content.split_at(PIECE_BYTES - self.partial.len());
                self.partial.extend_from_slice(piece);
                self.end_line(out);
                content = rest;
            }
            self.partial.extend_from_slice(content);
            if is_whole {
                self.end_line(out);
            } else if !self.partial.is_empty() {
                self.partial_since.get_or_insert(now);
            }
        }
    }

    /// The time at which the beginning of a line must be passed on with [`flush`](Self::flush).
    pub(super) fn flush_at(&self) -> Option<Instant> {
        self.partial_since.map(|since| since + PARTIAL_LINE_DELAY)
    }

    /// Appends to `out` the beginning of a line, without a line break.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        self.partial_since = None;
        for segment in self.partial.split_inclusive(|byte| *byte == b'\r') {
            let text = segment.strip_suffix(b"\r").unwrap_or(segment);
            if !text.is_empty() {
                if self.cursor != Cursor::InLine {
                    out.extend_from_slice(prefix);
                }
                self.cursor = Cursor::InLine;
            }
            out.extend_from_slice(segment);
            if text.len() < segment.len() && self.cursor == Cursor::InLine {
                self.cursor = Cursor::AfterReturn;
            }
        }
        self.partial.clear();
    }

    /// Appends the rest to `out` after the last bytes.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.flush(out);
        if self.is_in_line() {
            self.end_line(out);
        }
    }

    /// Returns true if the bytes passed on so far end within a line.
    pub(super) fn is_in_line(&self) -> bool {
        self.cursor != Cursor::LineStart
    }

    /// Begins a new line: another stream has written since.
    pub(super) const fn restart(&mut self) {
        self.cursor = Cursor::LineStart;
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        self.flush(out);
        if self.cursor == Cursor::LineStart {
            out.extend_from_slice(self.prefix.as_deref().unwrap_or_default());
        }
        out.push(b'\n');
        self.cursor = Cursor::LineStart;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn relay(mut lines: Lines, chunks: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in chunks {
            lines.push(chunk, Instant::now(), &mut out);
            assert!(lines.partial.len() <= PIECE_BYTES);
        }
        lines.finish(&mut out);
        out
    }

    fn of_rank(rank: u32, world: u32) -> Lines {
        Lines::prefixed(Rank::new(rank), WorldSize::new(world).unwrap(), Paint::NONE)
    }

    #[test]
    fn lines_are_whole_and_the_last_one_is_completed() {
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
        let mut line = vec![b'x'; PIECE_BYTES];
        line.push(b'\n');
        let out = relay(of_rank(0, 1), &[&line]);
        assert_eq!(out, [b"[0] ", &line[..]].concat());
        let out = relay(of_rank(0, 1), &[&line[..PIECE_BYTES], b"\n"]);
        assert_eq!(out, [b"[0] ", &line[..]].concat());
    }

    #[test]
    fn an_endless_line_is_split_into_pieces() {
        let long = vec![b'x'; 2 * PIECE_BYTES + 5];
        let out = relay(of_rank(0, 1), &[&long]);
        let lengths: Vec<usize> = out.split(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        assert_eq!(lengths, [PIECE_BYTES + 4, PIECE_BYTES + 4, 5 + 4, 0]);
    }

    #[test]
    fn a_prompt_is_passed_on_after_the_delay_and_continued() {
        let (mut lines, mut out, start) = (of_rank(0, 1), Vec::new(), Instant::now());
        lines.push(b"whole\nok", start, &mut out);
        lines.push(b"? ", start + Duration::from_millis(50), &mut out);
        assert_eq!(out, b"[0] whole\n");
        assert_eq!(lines.flush_at(), Some(start + PARTIAL_LINE_DELAY));
        lines.flush(&mut out);
        assert_eq!(out, b"[0] whole\n[0] ok? ");
        assert!(lines.is_in_line() && lines.flush_at().is_none());
        lines.push(b"yes\n", start, &mut out);
        assert_eq!(out, b"[0] whole\n[0] ok? yes\n");
        assert!(!lines.is_in_line());
    }

    #[test]
    fn a_line_interrupted_by_another_stream_begins_anew() {
        let (mut lines, mut out) = (of_rank(0, 1), Vec::new());
        lines.push(b"ok? ", Instant::now(), &mut out);
        lines.flush(&mut out);
        lines.restart();
        lines.push(b"yes\n", Instant::now(), &mut out);
        assert_eq!(out, b"[0] ok? [0] yes\n");
    }

    #[test]
    fn progress_bars_keep_their_prefix() {
        let (mut lines, mut out) = (of_rank(0, 1), Vec::new());
        for text in [b"\r1/3", b"\r2/3", b"\r3/3"] {
            lines.push(text, Instant::now(), &mut out);
            lines.flush(&mut out);
        }
        lines.finish(&mut out);
        assert_eq!(out, b"\r[0] 1/3\r[0] 2/3\r[0] 3/3\n");
        assert_eq!(
            relay(of_rank(0, 1), &[b"a\r\nb\r\n"]),
            b"[0] a\r\n[0] b\r\n"
        );
    }

    #[test]
    fn unchanged_bytes_are_never_held_back() {
        let (mut lines, mut out) = (Lines::unchanged(), Vec::new());
        lines.push(b"\r1/3", Instant::now(), &mut out);
        assert_eq!(out, b"\r1/3");
        assert!(lines.flush_at().is_none() && !lines.is_in_line());
        lines.finish(&mut out);
        assert_eq!(out, b"\r1/3");
    }

    proptest! {
        #[test]
        fn how_bytes_arrive_makes_no_difference(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
            cut in 0_usize..200,
            is_flushed in any::<bool>(),
        ) {
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            let (mut lines, mut out) = (of_rank(0, 1), Vec::new());
            lines.push(one, Instant::now(), &mut out);
            if is_flushed {
                lines.flush(&mut out);
            }
            lines.push(two, Instant::now(), &mut out);
            lines.finish(&mut out);
            prop_assert_eq!(out, relay(of_rank(0, 1), &[&bytes]));
        }

        #[test]
        fn every_line_is_there_once_with_its_prefix(
            lines in proptest::collection::vec("[^\n\r]{1,20}", 1..20),
        ) {
            let text = lines.join("\n");
            let expected = format!("[0] {}\n", lines.join("\n[0] "));
            prop_assert_eq!(relay(of_rank(0, 1), &[text.as_bytes()]), expected.into_bytes());
        }
    }
}
