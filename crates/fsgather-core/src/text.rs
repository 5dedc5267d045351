//! How quantities read in messages, and texts that others have written.

use std::{borrow::Cow, time::Duration};

/// A duration as people say it: `850ms`, `3s`, `2m 5s`. Finer units than are of use are dropped.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(10) {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

/// A number of bytes as people say it: `17 bytes`, `64.0 MiB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// The text, or as much of its beginning as fits into so many bytes together with a note that it was cut.
pub(crate) fn cut_text(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let note = format!("... (cut; {} in all)", bytes_text(text.len() as u64));
    let mut kept = most.saturating_sub(note.len());
    while !text.is_char_boundary(kept) {
        kept -= 1;
    }
    format!("{}{note}", &text[..kept])
}

/// A text that others have written, as it may go to a terminal: what steers one, or turns writing round, is a `?`.
/// Lines stay lines. It gets no longer by that.
#[must_use]
pub fn plain_text(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let plain = |character: char| if steers(character) { '?' } else { character };
    Cow::Owned(text.chars().map(plain).collect())
}

/// Whether terminals do something else with a character than to show it or to go on to the next line.
fn steers(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control() && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_texts_steer_no_terminal_and_keep_their_lines() {
        assert!(matches!(
            plain_text("a\n\tb ä €"),
            Cow::Borrowed("a\n\tb ä €")
        ));
        let odd = "\u{1b}[31mred\u{1b}]0;title\u{7} \u{9b}2J\r\u{202e}\u{0}x\u{7f}";
        assert_eq!(plain_text(odd), "?[31mred?]0;title? ?2J???x?");
        for character in '\0'..=char::MAX {
            let text = character.to_string();
            let plain = plain_text(&text);
            assert!(plain.len() <= text.len());
            assert!(
                plain
                    .chars()
                    .all(|kept| !kept.is_control() || "\n\t".contains(kept))
            );
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_say_so() {
        assert_eq!(cut_text("short", 5), "short");
        let long = "ä".repeat(500);
        for most in 30..60 {
            let cut = cut_text(&long, most);
            assert!(cut.len() <= most && cut.len() + 2 > most, "{cut}");
            assert!(
                cut.ends_with("ä... (cut; 1000 bytes in all)") || most < 32,
                "{cut}"
            );
            // What has been cut stays as it is.
            assert_eq!(cut_text(&cut, most), cut);
        }
    }

    #[test]
    fn quantities_read_as_people_say_them() {
        assert_eq!(duration_text(Duration::from_micros(850_400)), "850ms");
        assert_eq!(duration_text(Duration::from_millis(125_700)), "2m 5s");
        assert_eq!(bytes_text(17), "17 bytes");
        assert_eq!(bytes_text(64 << 20), "64.0 MiB");
        assert_eq!(bytes_text(u64::MAX), "16384.0 PiB");
    }
}
