//! Formats quantities for messages, and makes texts from other processes plain.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Deserializer};

/// Returns a duration for reading: `850 ms`, `1.5 s`, `3 s`, `2 min 5 s`, `1 d 4 h`. Two units at most, and nothing
/// finer than a tenth of a second above one: the rest is dropped.
///
/// Durations that are typed, such as those of variables, have no spaces: `2m5s`. This is for reading only.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match (seconds, millis) {
        (0, 1..) => return format!("{millis} ms"),
        (1..10, 1..) => return format!("{seconds}.{} s", millis / 100),
        _ => {}
    }
    let largest = UNITS.iter().position(|(unit, _)| seconds >= *unit);
    let units = &UNITS[largest.unwrap_or(UNITS.len() - 1)..];
    let mut left = seconds;
    let parts = units.iter().take(2).map(|(unit, word)| {
        let count = left / unit;
        left %= unit;
        (count, word)
    });
    let parts: Vec<(u64, &&str)> = parts.collect();
    let told = parts
        .iter()
        .enumerate()
        .filter(|(at, (count, _))| *at == 0 || *count > 0);
    let texts: Vec<String> = told
        .map(|(_, (count, word))| format!("{count} {word}"))
        .collect();
    texts.join(" ")
}

/// Returns a duration as it can be typed, in an option or a variable: `30s`, `1h 30m`, `7d`. Nothing is dropped.
#[must_use]
pub fn typed_duration_text(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    let counts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (u64::from(nanos / 1_000_000), "ms"),
        (u64::from(nanos / 1000 % 1000), "us"),
        (u64::from(nanos % 1000), "ns"),
    ];
    let told = counts.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = told.map(|(count, unit)| format!("{count}{unit}")).collect();
    if texts.is_empty() {
        "0s".to_owned()
    } else {
        texts.join(" ")
    }
}

/// Returns a number of bytes for reading: `17 bytes`, `64.0 MiB`.
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

/// Maximum number of ranges of ranks in a message: readable, in a line that is not too long.
const MOST_RANGES: usize = 24;

/// Returns ranks in ascending order as messages list them: `0-3 7`. Two neighbours are two ranks, not a range. After 24
/// ranges the remaining ranks are counted: `0 2 4 ... and 976 more`.
#[must_use]
pub fn rank_ranges(ranks: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if rank == last.saturating_add(1) => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let uncounted = ranges.split_off(ranges.len().min(MOST_RANGES));
    let texts = ranges.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first} {last}"),
        _ => format!("{first}-{last}"),
    });
    let told = texts.collect::<Vec<String>>().join(" ");
    let more = uncounted
        .iter()
        .map(|(first, last)| u64::from(last - first) + 1);
    match more.sum::<u64>() {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

/// Returns the text, or as much of its beginning as fits into `most` bytes together with a note that it was cut.
pub(crate) fn cut_text(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let note = format!("... (cut; {} in all)", bytes_text(text.len() as u64));
    let kept = floor_boundary(text, most.saturating_sub(note.len()));
    format!("{}{note}", &text[..kept])
}

/// Returns the last boundary between characters of `text` that is not behind `at` bytes.
#[must_use]
pub fn floor_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at)
        .rev()
        .find(|place| text.is_char_boundary(*place))
        .unwrap_or(0)
}

/// Returns the first boundary between characters of `text` that is not before `at` bytes.
#[must_use]
pub fn ceil_boundary(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|place| text.is_char_boundary(*place))
        .unwrap_or(text.len())
}

/// Returns the text, or its beginning and its end, which says the most in a path, with `...` between them.
pub(crate) fn cut_within(text: &str, most: usize) -> String {
    const NOTE: &str = "...";
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(NOTE.len());
    let start = floor_boundary(text, kept / 3);
    let end = ceil_boundary(text, text.len() - (kept - kept / 3));
    format!("{}{NOTE}{}", &text[..start], &text[end..])
}

/// Returns a text of another process, safe for a terminal: each character that controls a terminal, or reverses the
/// direction of writing, becomes a `?`. Lines stay lines. The text gets no longer.
#[must_use]
pub fn plain_text(text: &str) -> Cow<'_, str> {
    // Nearly all texts are plain; a look at bytes is enough for them.
    let is_ascii = text
        .bytes()
        .all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~'));
    if is_ascii || !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let plain = |character: char| if steers(character) { '?' } else { character };
    Cow::Owned(text.chars().map(plain).collect())
}

/// Like [`plain_text`], for a name or other text within a line: line ends also become `?`, so that no name begins a
/// line of a log.
#[must_use]
pub fn plain_line(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let breaks = |character: char| steers(character) || matches!(character, '\n' | '\t');
    if !text.contains(breaks) {
        return Cow::Borrowed(text);
    }
    let plain = |character: char| if breaks(character) { '?' } else { character };
    Cow::Owned(text.chars().map(plain).collect())
}

/// Returns a text of the program that ranks compare, in the form for other ranks: characters that would become `?` [on
/// the way](plain_text), and so change the text, are spelled out.
#[must_use]
pub fn spelled_text(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let spelled = |mut all: String, character: char| {
        if steers(character) {
            all.extend(character.escape_default());
        } else {
            all.push(character);
        }
        all
    };
    Cow::Owned(text.chars().fold(String::new(), spelled))
}

/// Reads names as [plain ones](plain_line): `#[serde(deserialize_with = "name")]`.
pub(crate) fn name<'de, D: Deserializer<'de>, T: From<String>>(source: D) -> Result<T, D::Error> {
    let text = String::deserialize(source)?;
    let changed = match plain_line(&text) {
        Cow::Borrowed(_) => None,
        Cow::Owned(plain) => Some(plain),
    };
    Ok(changed.unwrap_or(text).into())
}

/// Returns true if a character controls a terminal or the direction of text, other than as a line end or a tab.
#[must_use]
pub fn steers(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control() && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_compare_is_the_same_text_after_the_way() {
        assert!(matches!(spelled_text("a\n\tb ä €"), Cow::Borrowed(_)));
        let odd = "\u{1b}[31m\u{202e}\u{0}x\n\u{7f}ü";
        let told = spelled_text(odd);
        assert_eq!(told, "\\u{1b}[31m\\u{202e}\\u{0}x\n\\u{7f}ü");
        assert_eq!(plain_text(&told), told);
        assert_ne!(spelled_text("\u{1}"), spelled_text("\u{2}"));
    }

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
    fn names_are_plain_and_stay_within_their_line() {
        assert!(matches!(plain_line("a ä €"), Cow::Borrowed("a ä €")));
        let odd = "f (running)\nWARNING: it was rank 0\t\r\u{2028}\u{1b}[2J";
        assert_eq!(plain_line(odd), "f (running)?WARNING: it was rank 0????[2J");
        for character in '\0'..=char::MAX {
            let text = character.to_string();
            let plain = plain_line(&text);
            assert_eq!(plain, plain_text(&text).replace(['\n', '\t'], "?"));
        }
    }

    #[test]
    fn of_long_names_both_ends_are_kept() {
        assert_eq!(cut_within("short", 5), "short");
        let path = format!("/data/{}/job.py", "é".repeat(2000));
        for most in 60..200 {
            let cut = cut_within(&path, most);
            assert!(cut.len() <= most && cut.len() + 4 > most, "{cut}");
            assert!(
                cut.starts_with("/data/é") && cut.ends_with("é/job.py"),
                "{cut}"
            );
            assert!(cut.contains("é...é"), "{cut}");
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
            // A text that has been cut does not change again.
            assert_eq!(cut_text(&cut, most), cut);
        }
    }

    #[test]
    fn quantities_read_as_people_say_them() {
        for (millis, text) in [
            (0, "0 s"),
            (850, "850 ms"),
            (1002, "1.0 s"),
            (3000, "3 s"),
            (9999, "9.9 s"),
            (10_400, "10 s"),
            (125_700, "2 min 5 s"),
            (300_000, "5 min"),
            (5_400_000, "1 h 30 min"),
            (3_605_000, "1 h"),
            (86_400_000, "1 d"),
            (93_784_000, "1 d 2 h"),
            (259_202_000, "3 d"),
        ] {
            assert_eq!(duration_text(Duration::from_millis(millis)), text);
        }
        assert_eq!(duration_text(Duration::from_micros(850_400)), "850 ms");
        for text in ["0s", "30s", "1h 30m", "7d", "1d 2h 3m 4s 5ms 6us 7ns"] {
            let duration = humantime::parse_duration(text).unwrap();
            assert_eq!(typed_duration_text(duration), text);
        }
        assert!(duration_text(Duration::MAX).ends_with(" d 7 h"));
        assert_eq!(rank_ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3 7 9 10");
        assert_eq!(rank_ranges(&[]), "");
        let even: Vec<u32> = (0..500).map(|half| 2 * half).collect();
        assert_eq!(rank_ranges(&even[..4]), "0 2 4 6");
        let text = rank_ranges(&even);
        assert!(text.starts_with("0 2 4 "), "{text}");
        assert!(text.ends_with(" 44 46 and 476 more"), "{text}");
        assert_eq!(bytes_text(17), "17 bytes");
        assert_eq!(bytes_text(1023), "1023 bytes");
        assert_eq!(bytes_text(1024), "1.0 KiB");
        assert_eq!(bytes_text(64 << 20), "64.0 MiB");
        assert_eq!(bytes_text(u64::MAX), "16384.0 PiB");
    }
}
