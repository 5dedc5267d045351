//! The texts of `docs/reference/errors.md` that tests compare with the errors of ranks: [`confirm`].
//!
//! The heading of a section names a variant of `fsgather::Error` and its exit code. Each text has a block of its own, which begins with the
//! name of the test that provokes it. Variable parts are written in angle brackets.

use std::sync::OnceLock;

/// One text of the page.
pub(crate) struct Entry {
    /// The test that provokes it.
    pub(crate) test: String,
    kind: String,
    code: String,
    text: String,
}

pub(crate) const PAGE: &str = include_str!("../../../docs/reference/errors.md");

/// All texts of the page.
pub(crate) fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let (mut kind, mut code) = (String::new(), String::new());
        let mut entries = Vec::new();
        let mut lines = PAGE.lines();
        while let Some(line) = lines.next() {
            if let Some(heading) = line.strip_prefix("## ") {
                kind = heading.trim_matches('`').into();
                code.clear();
            } else if let Some(rest) = line.strip_prefix("Exit code: ") {
                code = rest.chars().take_while(char::is_ascii_digit).collect();
            } else if let Some(test) = line.strip_prefix("```text ") {
                let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                entries.push(Entry {
                    test: test.to_owned(),
                    kind: kind.clone(),
                    code: code.clone(),
                    text: block.join(" "),
                });
            }
        }
        entries
    })
}

/// Asserts that the page has this text for the test that provokes it, with this exit code. `kind` is empty if it is not known. If a race
/// decides between several errors, the page has a text for each.
#[track_caller]
pub(crate) fn confirm(test: &str, kind: &str, code: i32, said: &str) {
    let entries = || entries().iter().filter(|entry| entry.test == test);
    let fitting = entries().find(|entry| compare(&entry.text, said).is_ok());
    let Some(entry) = fitting.or_else(|| entries().next()) else {
        panic!("the page has no text for {test}: {kind} {code}\n{said}");
    };
    if let Err(at) = compare(&entry.text, said) {
        panic!(
            "{test}: the page says\n{}\nbut ranks say\n{said}\nwhich differs at\n{at}",
            entry.text
        );
    }
    assert_eq!(entry.code, code.to_string(), "exit code of {test}: {said}");
    assert!(kind.is_empty() || kind == entry.kind, "{test} is {kind}");
}

/// Compares a text with a template of the page; returns the rest of the text from the difference on.
pub(crate) fn compare<'a>(template: &str, mut text: &'a str) -> Result<(), &'a str> {
    let mut rest = template;
    loop {
        let (fixed, variable) = match rest.split_once('<') {
            None => (rest, None),
            Some((fixed, rest)) => (fixed, rest.split_once('>')),
        };
        text = text.strip_prefix(fixed).ok_or(text)?;
        let Some((name, after)) = variable else {
            return if text.is_empty() { Ok(()) } else { Err(text) };
        };
        // It ends where the next fixed part begins, if there is one.
        let next = after.split('<').next().unwrap_or_default();
        let end = if next.len() == after.len() {
            // The last fixed part is at the end of the text.
            text.len().checked_sub(next.len()).ok_or(text)?
        } else {
            text.find(next).ok_or(text)?
        };
        let (value, following) = text.split_at_checked(end).ok_or(text)?;
        if !fits(name, value) {
            return Err(text);
        }
        (text, rest) = (following, after);
    }
}

/// Returns true if a value fits a name in angle brackets.
fn fits(name: &str, value: &str) -> bool {
    let is_word = !value.is_empty() && !value.contains(char::is_whitespace);
    match name {
        "pid" | "port" | "n" | "bytes" | "line" => {
            is_word && value.bytes().all(|byte| byte.is_ascii_digit())
        }
        "host" | "world" => is_word,
        "path" => is_word && value.starts_with('/'),
        "time" => {
            let units = value.rsplit(' ').step_by(2);
            units
                .clone()
                .all(|unit| ["ms", "s", "min", "h", "d"].contains(&unit))
                && value.split(' ').count() == 2 * units.count()
        }
        _ => !value.is_empty(),
    }
}
