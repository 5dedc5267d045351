//! Lists the variables that a verb heeds, for its help: [`text`].

/// Variables with what they do, in words that fit beside them.
type Rows = &'static [(&'static str, &'static str)];

/// Of verbs that look at directories.
const PLACES: Rows = &[(
    "FSGATHER_DIR",
    "where to look, if no DIR is given; else EXP_DIR",
)];

/// Of verbs that start ranks.
const STARTING: Rows = &[
    (
        "FSGATHER_DIR",
        "the directory, if no --dir is given; else EXP_DIR",
    ),
    ("FSGATHER_PROGRESS", "`off`: shows no progress"),
    (
        "FSGATHER_LOG",
        "what ranks say of their work; else as -q and -v say",
    ),
];

/// Of verbs that are done as a rank.
const RANKS: Rows = &[
    ("FSGATHER_RANK", "who this is, with FSGATHER_WORLD_SIZE"),
    (
        "FSGATHER_DIR",
        "the directory, if no --dir is given; else EXP_DIR",
    ),
    ("FSGATHER_JOB", "which job this is; else the launcher's"),
    (
        "FSGATHER_TIMEOUT",
        "how long nothing may move, without --timeout",
    ),
    (
        "FSGATHER_JOIN_TIMEOUT",
        "how long ranks wait for each other to meet",
    ),
    (
        "FSGATHER_TRANSPORT",
        "how payloads travel: auto, filesys or memory",
    ),
    ("FSGATHER_CONTROL", "how ranks talk: auto, tcp or markers"),
    (
        "FSGATHER_RENDEZVOUS",
        "where ranks meet, if not in the directory",
    ),
    ("FSGATHER_SECRET", "what ranks must know to join"),
    ("FSGATHER_PROGRESS", "`off`: shows no progress"),
    (
        "FSGATHER_LOG",
        "what is said of the work, such as info; see -v",
    ),
];

fn rows(verb: &str) -> Rows {
    match verb {
        "gather" | "broadcast" | "barrier" | "doctor" => RANKS,
        "inspect" | "clean" => PLACES,
        "run" | "bench" | "demo" => STARTING,
        _ => &[],
    }
}

/// The variables of a verb, one a line; nothing where there are none.
pub(crate) fn text(verb: &str) -> String {
    let rows = rows(verb);
    if rows.is_empty() {
        return String::new();
    }
    let lines = rows
        .iter()
        .map(|(name, does)| format!("  {name:<21}  {does}\n"));
    format!(
        "Variables (all: docs/reference/environment.md):\n{}\n",
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use fsgather_config::environment;

    use super::*;

    #[test]
    fn every_variable_is_known() {
        for (name, _) in [RANKS, STARTING, PLACES].concat() {
            let is_known = environment::ALL
                .iter()
                .any(|variable| variable.name == name);
            assert!(is_known, "{name}");
        }
    }
}
