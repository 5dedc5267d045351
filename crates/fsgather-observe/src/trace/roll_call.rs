//! The activities of all ranks as text, for the process that has asked. Pure.

use fsgather_core::{RollCall, plain_line};

/// Returns a roll call as one line of at most `max_bytes` bytes. Ranks that do not fit are counted.
#[must_use]
pub fn to_text(all: &RollCall, max_bytes: usize) -> Option<String> {
    let mut shown = all.clone();
    loop {
        let text = serde_json::to_string(&shown).ok()?;
        if text.len() <= max_bytes || shown.groups.is_empty() {
            return Some(text);
        }
        shown.leave_out();
    }
}

/// Reads such a line; none if it is something else. Its texts cannot control a terminal.
#[must_use]
pub fn from_text(text: &str) -> Option<RollCall> {
    // Control characters are in it as escape sequences of JSON.
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    serde_json::from_value(plain(value)).ok()
}

fn plain(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(plain_line(&text).into_owned()),
        Value::Array(all) => all.into_iter().map(plain).collect(),
        Value::Object(all) => all
            .into_iter()
            .map(|(key, value)| (key, plain(value)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fsgather_core::{Rank, StackFrame, Whereabouts};

    use super::*;

    #[test]
    fn a_roll_call_is_read_back_without_control_characters() {
        let frame = |function: &str| StackFrame {
            file: "eval.py".into(),
            line: Some(4),
            function: function.into(),
            is_own: true,
        };
        let roll_call = |function: &str| {
            let doing = Whereabouts::own(vec![frame(function)], None);
            RollCall::of([(Rank::new(1), Arc::new(doing))])
        };
        let text = to_text(&roll_call("load"), 1000).unwrap();
        assert_eq!(from_text(&text), Some(roll_call("load")));
        let steered = text.replace("load", r"lo\u001b[2J\nad");
        assert_ne!(steered, text);
        assert_eq!(from_text(&steered), Some(roll_call("lo?[2J?ad")));
        assert_eq!(from_text("no"), None);
        assert!(!text.contains('\n'));
    }

    #[test]
    fn ranks_that_do_not_fit_are_counted() {
        let frame = |line| StackFrame {
            file: "/home/ada/eval.py".into(),
            line: Some(line),
            function: "load".into(),
            is_own: true,
        };
        let doing = |rank: u32| Arc::new(Whereabouts::own(vec![frame(rank / 2)], None));
        let all = RollCall::of((0..20).map(|rank| (Rank::new(rank), doing(rank))));
        let whole = to_text(&all, 1 << 20).unwrap();
        assert_eq!(from_text(&whole).unwrap(), all);
        let cut = to_text(&all, whole.len() / 2).unwrap();
        assert!(cut.len() <= whole.len() / 2);
        let read = from_text(&cut).unwrap();
        assert_eq!(read.groups, all.groups[..read.groups.len()]);
        assert!(!read.groups.is_empty());
        let lines = read.to_string();
        let last = format!(
            "\n  {} more ranks do something else",
            20 - 2 * read.groups.len()
        );
        assert!(lines.ends_with(&last), "{lines}");
    }
}
