//! Lists the variables that a verb reads, for its help: [`text`].

use fsgather_config::{
    environment::{
        CONTROL, DIR, JOB, JOIN_TIMEOUT, LOG, PROGRESS, RANK, RENDEZVOUS, SECRET, TIMEOUT,
        TRANSPORT,
    },
    settings::variables,
};

/// Variables of a verb, each with its effect if that differs from the table of settings.
type Rows = &'static [(&'static str, Option<&'static str>)];

/// Variables of verbs that look at directories.
const PLACES: Rows = &[(DIR, Some("where to look, if no DIR is given; else EXP_DIR"))];

/// Variables of verbs that look at one directory as a rank.
const DOCTOR: Rows = &[
    (RANK, None),
    (DIR, Some("the directory, if no DIR is given; else EXP_DIR")),
    (JOB, None),
    (JOIN_TIMEOUT, None),
    (TRANSPORT, None),
    (CONTROL, None),
    (RENDEZVOUS, None),
    (SECRET, None),
    (LOG, None),
];

/// Variables of verbs that start ranks in a directory of their own.
const DEMO: Rows = &[
    (PROGRESS, None),
    (
        LOG,
        Some("what ranks say of their work; else as -q and -v say"),
    ),
];

/// Variables of verbs that start ranks.
const STARTING: Rows = &[
    (DIR, None),
    (PROGRESS, None),
    (
        LOG,
        Some("what ranks say of their work; else as -q and -v say"),
    ),
];

/// Variables of verbs that run as a rank.
const RANKS: Rows = &[
    (RANK, None),
    (DIR, None),
    (JOB, None),
    (TIMEOUT, None),
    (JOIN_TIMEOUT, None),
    (TRANSPORT, None),
    (CONTROL, None),
    (RENDEZVOUS, None),
    (SECRET, None),
    (PROGRESS, None),
    (LOG, None),
];

fn rows(verb: &str) -> Rows {
    match verb {
        "gather" | "broadcast" | "barrier" => RANKS,
        "doctor" => DOCTOR,
        "inspect" | "clean" | "ps" | "trace" => PLACES,
        "run" | "bench" => STARTING,
        "demo" => DEMO,
        _ => &[],
    }
}

/// The help text of a variable in the table of settings.
fn told(name: &str) -> &'static str {
    let mut known = variables().filter(|variable| variable.name == name);
    known.next().map_or("", |variable| variable.help)
}

/// The variables of a verb, one per line; empty if it has none.
pub(crate) fn text(verb: &str) -> String {
    let rows = rows(verb);
    if rows.is_empty() {
        return String::new();
    }
    let lines = rows.iter().map(|(name, does)| {
        let does = does.unwrap_or_else(|| told(name));
        format!("  {name:<21}  {does}\n")
    });
    format!(
        "Variables (all: docs/reference/environment.md):\n{}\n",
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_told() {
        for (name, does) in [RANKS, STARTING, PLACES, DEMO, DOCTOR].concat() {
            assert!(does.is_some() || !told(name).is_empty(), "{name}");
        }
    }
}
