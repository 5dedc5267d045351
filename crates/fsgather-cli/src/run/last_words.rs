//! The last lines that a rank has said on standard error: [`LastWords`]. Pure; it is told what time it is.
//!
//! They tell whether a rank has ended by an error that it has met with, or has got over it and said something else since.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How many lines are kept.
const KEPT: usize = 32;

/// How much of a line is kept, in bytes.
const LONGEST: usize = 4096;

/// With so many bytes of an error a line is about it.
const BEGINNING: usize = 60;

/// What a rank has said before something may be heard only so much later.
const LAG: Duration = Duration::from_millis(100);

/// What Python says between an exception and the one that it led to.
const LED_TO: [&str; 2] = [
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
];

/// Lines that begin something: those that are indented belong to the one before, as in a traceback of Python. Warnings are
/// left out, which no program ends by.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWords {
    lines: VecDeque<(Instant, String)>,
    is_more: bool,
}

impl LastWords {
    /// Takes lines, the last with or without its line break. Of many the last ones alone are looked at.
    pub(super) fn hear(&mut self, said: &[u8], now: Instant) {
        let mut begun = said.rsplit(|byte| *byte == b'\n').filter_map(beginning);
        let latest: Vec<String> = begun.by_ref().take(KEPT).collect();
        self.is_more |= latest.len() == KEPT && begun.next().is_some();
        for line in latest.into_iter().rev() {
            if self.lines.len() == KEPT {
                self.lines.pop_front();
                self.is_more = true;
            }
            self.lines.push_back((now, line));
        }
    }

    /// Whether the rank has said something else after an error that it has met with at that time.
    pub(super) fn go_on_after(&self, error: &str, told_at: Instant) -> bool {
        let is_about = |(_, line): &(Instant, String)| is_about(line, error);
        let Some(last) = self.lines.iter().rposition(is_about) else {
            // It has kept the error to itself, or said it in other words.
            let is_later = |(at, _): &(Instant, String)| *at > told_at + LAG;
            let oldest = self.lines.front().filter(|_| self.is_more);
            return self.lines.iter().any(is_later) || oldest.is_some_and(|(at, _)| *at >= told_at);
        };
        let mut later = self.lines.iter().skip(last + 1);
        // What an exception led to is about it as well.
        later
            .next()
            .is_some_and(|(_, next)| !LED_TO.iter().any(|words| next.contains(words)))
    }
}

/// A line, if it begins something that a program may end by.
fn beginning(line: &[u8]) -> Option<String> {
    let line = &line[..line.len().min(LONGEST)];
    if line.first().is_none_or(|first| b" \t".contains(first)) {
        return None;
    }
    let line = String::from_utf8_lossy(line);
    let is_warning = line.contains("Warning: ") || line.contains("warning: ");
    let line = line.trim_end();
    (!is_warning && !line.is_empty()).then(|| line.to_owned())
}

/// Whether a line says an error, or a part of it.
fn is_about(line: &str, error: &str) -> bool {
    let beginning = &error[..error.floor_char_boundary(BEGINNING)];
    // An error of several lines was made one.
    let ends_with_beginning = || {
        let shortest = error.len().min(8);
        line.char_indices()
            .map(|(at, _)| &line[at..])
            .take_while(|end| end.len() >= shortest)
            .any(|end| error.starts_with(end))
    };
    line.contains(beginning) || error.contains(line) || ends_with_beginning()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &str = "timed out after 1 s in barrier: waiting for rank 1; rank 1: in load";

    fn goes_on(error: &str, lines: &[&str]) -> bool {
        let told_at = Instant::now();
        let mut words = LastWords::default();
        for line in lines {
            words.hear(line.as_bytes(), told_at);
        }
        words.go_on_after(error, told_at)
    }

    #[test]
    fn a_rank_goes_on_that_says_something_else_after_its_error() {
        let said = "fsgather barrier: timed out after 1 s in barrier: waiting for rank 1\n";
        let indented = "  rank 1: in load\n";
        assert!(!goes_on(ERROR, &[]));
        assert!(!goes_on(ERROR, &["loading\n", said, indented, "\n"]));
        assert!(goes_on(
            ERROR,
            &[said, indented, "segfault in user code\n", "\n"]
        ));
        assert!(!goes_on(
            ERROR,
            &[said, "fsgather: rank 0: warning: its calls are kept\n"]
        ));
    }

    #[test]
    fn a_traceback_belongs_to_its_exception() {
        let traceback = [
            "Traceback (most recent call last):\n",
            "  File \"job.py\", line 3, in <module>\n",
            "    fsgather.barrier()\n",
            "fsgather.TimedOut: timed out after 1 s in barrier: waiting for rank 1\n",
            "  rank 1: in load\n",
        ];
        assert!(!goes_on(ERROR, &traceback));
        let led_to = [
            "\n",
            "The above exception was the direct cause of the following exception:\n",
            "\n",
            "Traceback (most recent call last):\n",
            "  File \"job.py\", line 5, in <module>\n",
            "RuntimeError: evaluation failed\n",
        ];
        assert!(!goes_on(ERROR, &[&traceback[..], &led_to].concat()));
        let another = [
            "Traceback (most recent call last):\n",
            "  File \"job.py\", line 9, in <module>\n",
            "KeyError: 'x'\n",
        ];
        assert!(goes_on(ERROR, &[&traceback[..], &another].concat()));
    }

    #[test]
    fn an_error_of_several_lines_is_recognised_by_each_of_them() {
        let error = "ValueError: one two three";
        assert!(!goes_on(
            error,
            &["[rank1]: ValueError: one\n", "two\n", "three\n"]
        ));
        assert!(goes_on(error, &["ValueError: one\n", "two\n", "four\n"]));
    }

    #[test]
    fn of_an_error_that_nobody_has_heard_the_time_tells() {
        let told_at = Instant::now();
        let mut words = LastWords::default();
        words.hear(b"loading", told_at + LAG / 2);
        assert!(!words.go_on_after(ERROR, told_at));
        words.hear(b"segfault in user code", told_at + LAG * 2);
        assert!(words.go_on_after(ERROR, told_at));
        // So many lines are not all from before.
        let mut words = LastWords::default();
        for frame in 0..=KEPT {
            words.hear(format!("#{frame}").as_bytes(), told_at);
        }
        assert!(words.go_on_after(ERROR, told_at));
        assert!(words.lines.len() == KEPT);
        // Nor are they where they come together, of which the last are kept.
        let mut words = LastWords::default();
        let many: Vec<String> = (0..1000).map(|at| format!("#{at}")).collect();
        words.hear(many.join("\n").as_bytes(), told_at);
        let kept: Vec<&str> = words.lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(
            (kept.len(), kept[0], kept[KEPT - 1]),
            (KEPT, "#968", "#999")
        );
        assert!(words.is_more);
    }
}
