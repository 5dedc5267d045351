//! Repeated output: [`Frames`].

use std::{
    io,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use fsgather::Error;
use fsgather_core::typed_duration_text;

use crate::{
    colour,
    output::{self, Stream},
    table::plain,
};

/// Output that is shown repeatedly, on a terminal each time in place of the last one.
pub(in crate::verbs) struct Frames {
    /// The interval between two frames; none for a single one.
    interval: Option<Duration>,
    has_begun: bool,
}

impl Frames {
    pub(in crate::verbs) const fn new(interval: Option<Duration>) -> Self {
        Self {
            interval,
            has_begun: false,
        }
    }

    /// Shows the current frame.
    ///
    /// # Errors
    ///
    /// Returns an error if standard output cannot be written.
    pub(in crate::verbs) fn show(
        &mut self,
        text: &str,
        errors: &[(PathBuf, Error)],
        now: SystemTime,
    ) -> io::Result<()> {
        let Some(interval) = self.interval else {
            return output::write(Stream::Stdout, text.as_bytes());
        };
        let clock = format!(
            "{}, every {}",
            humantime::format_rfc3339_seconds(now)
                .to_string()
                .replace('T', " ")
                .replace('Z', " UTC"),
            typed_duration_text(interval)
        );
        let errors: Vec<String> = errors
            .iter()
            .map(|(_, error)| plain(&error.to_string()) + "\n")
            .collect();
        let errors = errors.concat();
        let text = format!("{clock}\n\n{text}{errors}");
        let size = output::size().filter(|_| colour::has_cursor());
        let shown = match size {
            Some((_, rows)) => {
                let begin = if self.has_begun { "" } else { "\x1b[2J" };
                format!("{begin}{}", over(&fitted(&text, rows)))
            }
            None => format!("{text}\n"),
        };
        self.has_begun = true;
        output::write(Stream::Stdout, shown.as_bytes())
    }
}

/// A text that replaces the previous one on a terminal. It clears nothing in between, so it does not flicker. The terminal cuts lines that
/// are longer than a row, so that rows are lines.
fn over(text: &str) -> String {
    let lines = text.replace('\n', "\x1b[K\n");
    ["\x1b[?7l\x1b[H", &lines, "\x1b[J\x1b[?7h"].concat()
}

/// Cuts a text to `rows` rows: its beginning, and the few lines of its summary.
fn fitted(text: &str, rows: usize) -> String {
    const END: usize = 4;
    let lines: Vec<&str> = text.lines().collect();
    // The cursor needs a row, too.
    let room = rows.saturating_sub(1);
    if lines.len() <= room || room <= END + 1 {
        return text.to_owned();
    }
    let begin = room - END - 1;
    let left = lines.len() - begin - END;
    let hint = format!("  ... {left} more lines");
    let (begin, end) = (&lines[..begin], &lines[lines.len() - END..]);
    [begin, &[&hint], end, &[""]].concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_the_place_of_the_last_one_without_clearing_it() {
        assert_eq!(
            over("a\nbc\n"),
            "\x1b[?7l\x1b[Ha\x1b[K\nbc\x1b[K\n\x1b[J\x1b[?7h"
        );
    }

    #[test]
    fn a_low_terminal_has_the_beginning_and_what_it_comes_to() {
        let lines: Vec<String> = (1..=40).map(|line| format!("line {line}\n")).collect();
        let text = lines.concat();
        assert_eq!(fitted(&text, 41), text);
        let shown = fitted(&text, 24);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 23);
        assert_eq!(
            lines[17..],
            [
                "line 18",
                "  ... 18 more lines",
                "line 37",
                "line 38",
                "line 39",
                "line 40"
            ]
        );
    }
}
