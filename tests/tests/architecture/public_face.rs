//! Keeps the list of public items of the API crate.

use std::{collections::BTreeSet, fs};

use super::source::root;

/// All items that `fsgather` exports at its root, by purpose.
const ITEMS: &[(&str, &[&str])] = &[
    (
        "membership, and how to get one",
        &[
            "Communicator",
            "Builder",
            "Rendezvous",
            "Bootstrap",
            "Interrupt",
        ],
    ),
    (
        "what the builder takes",
        &["Transport", "Control", "CompressionSetting", "Verify"],
    ),
    ("who", &["Rank", "WorldSize"]),
    ("what goes wrong", &["Error", "ErrorKind", "error"]),
    (
        "calls with options, calls in two halves",
        &["Options", "Pending"],
    ),
    (
        "what is handed in, and how values become bytes",
        &["Input", "Pieces", "Stream", "WritablePayload", "codec"],
    ),
    ("what is received", &["parts", "Payload"]),
    (
        "the functions of existing jobs, and the end of a program",
        &["compat", "main"],
    ),
    ("evaluations that survive", &["samples"]),
    ("for packages in other languages", &["bindings"]),
    ("for fuzzers, where a build is one", &["fuzzing"]),
];

/// The names that `pub use` and `pub mod` at the top level of a `lib.rs` export. Pure.
fn exported(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut statement = String::new();
    for line in source.lines() {
        let begins = line.starts_with("pub use ") || line.starts_with("pub mod ");
        if statement.is_empty() && !begins {
            continue;
        }
        statement.push_str(line.trim());
        if !statement.ends_with(';') {
            continue;
        }
        let body = std::mem::take(&mut statement);
        let body = body.trim_end_matches(';').replace("pub use ", "");
        let paths = body.split(['{', '}', ',']).map(str::trim);
        let last = paths.filter_map(|path| path.rsplit([':', ' ']).next());
        names.extend(last.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    names
}

#[test]
fn exports_are_found_in_every_form() {
    let source =
        "mod a;\npub mod b;\npub use a::One;\npub use c::{\n    Two,\n    d::{Three, four},\n};\n";
    let expected = ["One", "Three", "Two", "b", "four"].map(str::to_owned);
    assert_eq!(exported(source), BTreeSet::from(expected));
}

#[test]
fn programs_find_what_the_list_says_and_nothing_else() {
    let listed = ITEMS.iter().flat_map(|(_, names)| names.iter());
    let listed: BTreeSet<String> = listed.map(ToString::to_string).collect();
    let path = root().join("crates/fsgather/src/lib.rs");
    let found = exported(&fs::read_to_string(path).expect("a file"));
    let added: Vec<_> = found.difference(&listed).collect();
    let missing: Vec<_> = listed.difference(&found).collect();
    assert!(added.is_empty(), "not in the list: {added:?}");
    assert!(missing.is_empty(), "in the list only: {missing:?}");
}
