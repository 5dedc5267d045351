//! Tests that each variant of the error type has a section on the page, and that each text of the page is provoked by a test.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::page::{PAGE, compare, entries};

/// The headings of sections on variants.
fn kinds() -> BTreeSet<&'static str> {
    let headings = PAGE.lines().filter_map(|line| line.strip_prefix("## `"));
    headings.filter_map(|line| line.strip_suffix('`')).collect()
}

#[test]
fn templates_fit_what_they_describe_and_nothing_else() {
    let template = "rank 1 on <host> (pid <pid>) was lost (<how>) while waiting";
    let says = |text| compare(template, text).is_ok();
    assert!(says(
        "rank 1 on n7 (pid 42) was lost (its (own) connection) while waiting"
    ));
    assert!(!says("rank 2 on n7 (pid 42) was lost (x) while waiting"));
    assert!(!says("rank 1 on n7 (pid x) was lost (x) while waiting"));
    assert!(!says("rank 1 on n7 (pid 42) was lost () while waiting"));
    assert!(!says("rank 1 on n7 (pid 42) was lost (x) while waiting."));
    assert!(compare("<a>", "x y").is_ok());
    assert!(compare("<path>: no", "/x/y: no").is_ok());
    let takes = |text| compare("after <time> without", text).is_ok();
    assert!(takes("after 3 s without") && takes("after 1 h 30 min without"));
    assert!(!takes("after 3s without") && !takes("after s without"));
}

#[test]
fn every_variant_has_a_section() {
    const ERRORS: &str = include_str!("../../../crates/fsgather-core/src/error/mod.rs");
    let (_, after) = ERRORS.split_once("pub enum Error {").expect("the type");
    let (variants, _) = after.split_once("\n}").expect("its end");
    let variants: BTreeSet<&str> = variants
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.strip_suffix(" {"))
        .filter(|name| name.starts_with(char::is_uppercase))
        .collect();
    assert_eq!(kinds(), variants);
}

#[test]
fn every_text_is_provoked() {
    const TESTS: [&str; 4] = [
        include_str!("calls.rs"),
        include_str!("meeting.rs"),
        include_str!("storage.rs"),
        include_str!("../hosts/errors.rs"),
    ];
    let mut missing = String::new();
    for entry in entries() {
        let test = format!("\n#[test]\nfn {}()", entry.test);
        if !TESTS.iter().any(|tests| tests.contains(&test)) {
            let _ = writeln!(missing, "{}", entry.test);
        }
    }
    assert!(missing.is_empty(), "no such tests:\n{missing}");
}
