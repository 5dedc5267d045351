//! Tests rules for the whole repository: the dependencies between crates, and the places of effects.
//!
//! Each rule lists its exceptions with their reasons; an exception that is not needed any more fails as well, so that the lists stay true.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a check that cannot look has failed"
)]

#[path = "architecture/documentation.rs"]
mod documentation;
#[path = "architecture/graph.rs"]
mod graph;
#[path = "architecture/language.rs"]
mod language;
#[path = "architecture/promises.rs"]
mod promises;
#[path = "architecture/public_face.rs"]
mod public_face;
#[path = "architecture/scripts.rs"]
mod scripts;
#[path = "architecture/source.rs"]
mod source;

use std::{collections::BTreeSet, fmt::Write, fs};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use graph::{GRAPH, Row};
use source::{SourceFile, all_files, functions, lines_with, root, rust_files};

/// The only crate that talks to the terminal and decides how the process ends.
const PROGRAM: &str = "fsgather-cli";

/// Never a part of the released programs.
const TEST_SUPPORT: &str = "fsgather-testkit";

/// Measures parts of the other crates, and is never published.
const MEASUREMENTS: &str = "fsgather-bench";

/// Maximum length of a file, in lines.
const MAX_FILE_LINES: usize = 600;

fn members() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo describes the workspace");
    metadata.packages
}

/// The crates of the workspace that `package` uses, by one kind of dependency.
fn uses(package: &Package, ours: &BTreeSet<String>, kind: DependencyKind) -> BTreeSet<String> {
    let dependencies = package.dependencies.iter();
    dependencies
        .filter(|dependency| dependency.kind == kind && ours.contains(&dependency.name))
        .map(|dependency| dependency.name.clone())
        .collect()
}

fn row(name: &str) -> &'static Row {
    let found = GRAPH.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("{name} is new: give it a row in GRAPH"))
}

#[test]
fn crates_use_each_other_as_the_table_says() {
    let members = members();
    let ours: BTreeSet<String> = members.iter().map(|p| p.name.to_string()).collect();
    let mut wrong = String::new();
    for package in &members {
        let name = package.name.as_str();
        let row = row(name);
        let table: BTreeSet<String> = row.uses.iter().map(ToString::to_string).collect();
        let found = uses(package, &ours, DependencyKind::Normal);
        for other in found.difference(&table) {
            let _ = writeln!(wrong, "{name} -> {other}: not in the table");
        }
        for other in table.difference(&found) {
            let _ = writeln!(wrong, "{name} -> {other}: in the table only");
        }
        for other in uses(package, &ours, DependencyKind::Development) {
            if !row.uses.contains(&other.as_str()) && !row.tests_use.contains(&other.as_str()) {
                let _ = writeln!(wrong, "{name} -> {other} in tests: not in the table");
            }
        }
        for other in uses(package, &ours, DependencyKind::Build) {
            let _ = writeln!(wrong, "{name} -> {other} while building: never");
        }
    }
    for row in &GRAPH {
        if !ours.contains(row.name) {
            let _ = writeln!(wrong, "{}: in the table only", row.name);
        }
    }
    assert!(wrong.is_empty(), "wrong dependencies:\n{wrong}");
}

#[test]
fn test_support_is_never_shipped() {
    for package in members() {
        if [TEST_SUPPORT, MEASUREMENTS].contains(&package.name.as_str()) {
            let published = format!("{} is published", package.name);
            assert_eq!(package.publish, Some(Vec::new()), "{published}");
        }
        for dependency in &package.dependencies {
            assert!(
                dependency.name != TEST_SUPPORT || dependency.kind == DependencyKind::Development,
                "{} -> {TEST_SUPPORT} is not a dev-dependency",
                package.name
            );
        }
    }
}

#[test]
fn every_crate_takes_the_workspaces_lints() {
    for package in members() {
        let manifest = fs::read_to_string(&package.manifest_path).expect("a manifest");
        let mut section = "";
        let takes = manifest.lines().map(str::trim).any(|line| {
            if line.starts_with('[') {
                section = line;
            }
            section == "[lints]" && line == "workspace = true"
        });
        assert!(takes, "{} lacks `[lints] workspace = true`", package.name);
    }
}

/// A file that is exempt from a rule, and the reason.
type Exception = (&'static str, &'static str);

/// Fails with all findings, each a path and the violation, in files that are no exceptions.
fn judge(rule: &str, findings: &[(String, String)], exceptions: &[Exception]) {
    let mut wrong = String::new();
    for (path, what) in findings {
        if !exceptions.iter().any(|(exempt, _)| exempt == path) {
            let _ = writeln!(wrong, "{path}: {what}");
        }
    }
    for (exempt, reason) in exceptions {
        if !findings.iter().any(|(path, _)| path == exempt) {
            let _ = writeln!(wrong, "{exempt}: needs no exception any more ({reason})");
        }
    }
    assert!(wrong.is_empty(), "{rule}:\n{wrong}");
}

/// The places where one of `words` occurs in `code`, as findings.
fn occurrences(file: &SourceFile, code: &str, words: &[&str]) -> Vec<(String, String)> {
    let mut findings = Vec::new();
    for word in words {
        for line in lines_with(code, word) {
            findings.push((file.path.clone(), format!("`{word}` in line {line}")));
        }
    }
    findings
}

fn shipped_occurrences(of: impl Fn(&str) -> bool, words: &[&str]) -> Vec<(String, String)> {
    let files = rust_files();
    let shipped = files
        .iter()
        .filter(|file| file.shipped_with().is_some_and(&of));
    shipped
        .flat_map(|file| occurrences(file, &file.shipped_code(), words))
        .collect()
}

#[test]
fn comments_of_modules_declare() {
    const QUESTIONS: [&str; 9] = [
        "How", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Why",
    ];
    let findings: Vec<_> = rust_files()
        .iter()
        .filter_map(|file| {
            let first = file.text.strip_prefix("//! ")?.split_whitespace().next()?;
            let asks = QUESTIONS.contains(&first);
            asks.then(|| {
                (
                    file.path.clone(),
                    format!("its comment begins with `{first}`"),
                )
            })
        })
        .collect();
    judge("a module's first sentence declares", &findings, &[]);
}

#[test]
fn libraries_do_not_print_or_exit() {
    let words = [
        "println!",
        "print!",
        "eprintln!",
        "eprint!",
        "dbg!",
        "process::exit",
        "process::abort",
    ];
    // Tests may print the reason why they ended a process.
    let is_library = |name: &str| ![PROGRAM, TEST_SUPPORT, MEASUREMENTS].contains(&name);
    let findings = shipped_occurrences(is_library, &words);
    judge("only the program prints and exits", &findings, &[]);
}

#[test]
fn bytes_of_others_are_read_in_one_place() {
    let words = [
        "postcard::from_bytes",
        "postcard::take_from_bytes",
        "postcard::Deserializer",
    ];
    let findings = shipped_occurrences(|_| true, &words);
    let owner: Exception = (
        "crates/fsgather-core/src/received.rs",
        "it bounds depth and memory, and makes texts plain",
    );
    judge("one file reads postcard", &findings, &[owner]);
}

#[test]
fn variables_are_read_in_one_place() {
    let words = [
        "env::var",
        "env::var_os",
        "env::vars",
        "env::vars_os",
        "env::set_var",
        "env::remove_var",
    ];
    let findings = shipped_occurrences(|_| true, &words);
    let owners: [Exception; 2] = [
        (
            "crates/fsgather-config/src/environment.rs",
            "the owner of environment variables, from which their documentation is generated",
        ),
        (
            "crates/fsgather-testkit/src/pace.rs",
            "whether tests are to be quick is asked by tests alone",
        ),
    ];
    judge("one file reads variables", &findings, &owners);
}

#[test]
fn unsafe_code_is_where_it_has_to_be() {
    let files = rust_files();
    let findings: Vec<_> = files
        .iter()
        .flat_map(|file| occurrences(file, &file.code(), &["unsafe"]))
        .collect();
    let memory =
        "Python's memory is shared through its C functions; the argument stands beside each";
    let objects = "objects of Python are taken apart and made by its C functions, for speed";
    let owners: [Exception; 18] = [
        (
            "crates/fsgather-arena/src/forks.rs",
            "what `fork` calls is given to a function of C; the argument stands beside it",
        ),
        (
            "crates/fsgather-arena/src/memory.rs",
            "memory that other processes write to is reached through pointers; the argument stands beside it",
        ),
        (
            "crates/fsgather-cli/src/run/launch.rs",
            "a process can make itself a session only between fork and exec; the argument stands beside it",
        ),
        (
            "crates/fsgather-cli/src/standard_streams.rs",
            "what is called before the runtime begins is named to the loader; the argument stands above it",
        ),
        (
            "crates/fsgather-control/src/forked.rs",
            "what `fork` calls in a child is given to a function of C; the argument stands above it",
        ),
        (
            "crates/fsgather-core/src/room.rs",
            "advice about memory is unsafe in itself; the argument stands beside it",
        ),
        (
            "crates/fsgather-python/src/main_interpreter.rs",
            "the number of an interpreter comes from C functions; the argument stands beside it",
        ),
        (
            "crates/fsgather-store/src/payload/map.rs",
            "mapping a file is unsafe in itself; the argument stands beside it",
        ),
        ("crates/fsgather-plain/src/buffer/borrowed.rs", memory),
        ("crates/fsgather-plain/src/buffer/memory.rs", memory),
        ("crates/fsgather-plain/src/buffer/protocol.rs", memory),
        ("crates/fsgather-plain/src/encode.rs", objects),
        ("crates/fsgather-plain/src/dicts.rs", objects),
        ("crates/fsgather-plain/src/make.rs", objects),
        ("crates/fsgather-plain/src/tensor_bytes.rs", objects),
        ("crates/fsgather-plain/src/object.rs", objects),
        (
            "tests/tests/lying_files/coroutines.rs",
            "a process of a model ends where it stands; the argument stands beside it",
        ),
        (
            "tests/tests/lying_files/descriptors.rs",
            "what such a process had open is closed by its number; the argument stands beside it",
        ),
    ];
    judge("few files hold unsafe code", &findings, &owners);
}

#[test]
fn the_store_neither_locks_files_nor_waits_for_notices() {
    let words = [
        "flock",
        "fcntl_lock",
        "lock_exclusive",
        "lock_shared",
        "FlockOperation",
        "inotify",
        "fanotify",
        "notify",
    ];
    let findings = shipped_occurrences(|name| name == "fsgather-store", &words);
    judge("neither is to be trusted over a network", &findings, &[]);
}

#[test]
fn tests_start_processes_by_one_harness() {
    let words = ["spawn()", "output()", "status()"];
    let files = rust_files();
    let findings: Vec<_> = files
        .iter()
        .flat_map(|file| {
            // Line by line, so that shipped code in the same file does not count.
            let shipped = match file.shipped_with() {
                Some(name) if name != TEST_SUPPORT => {
                    occurrences(file, &file.shipped_code(), &words)
                }
                _ => Vec::new(),
            };
            let mut found = occurrences(file, &file.code(), &words);
            found.retain(|finding| !shipped.contains(finding));
            found
        })
        .collect();
    let exceptions: [Exception; 1] = [(
        "crates/fsgather-testkit/src/process.rs",
        "it is the harness: processes have a limit and begin with signals at their default",
    )];
    judge("a test does not wait for ever", &findings, &exceptions);
}

#[test]
fn files_are_short() {
    let findings: Vec<_> = all_files()
        .into_iter()
        .filter(|file| file.path.starts_with("crates/") || file.path.starts_with("tests/"))
        .map(|file| (file.text.lines().count(), file.path))
        .filter(|(lines, _)| *lines > MAX_FILE_LINES)
        .map(|(lines, path)| (path, format!("{lines} lines, split it")))
        .collect();
    let exceptions: [Exception; 2] = [
        (
            "crates/fsgather-cli/data/digits.csv",
            "a data set with one sample a line",
        ),
        (
            "crates/fsgather-cli/licences.txt",
            "texts of others, collected by a script",
        ),
    ];
    judge("files have at most 600 lines", &findings, &exceptions);
}

#[test]
fn no_package_registry_is_named() {
    // Put together here, so that this file does not name them either.
    let registries = [
        ["crates", "io"],
        ["pypi", "org"],
        ["pythonhosted", "org"],
        ["npmjs", "org"],
        ["npmjs", "com"],
        ["anaconda", "org"],
        ["docker", "io"],
        ["ghcr", "io"],
        ["quay", "io"],
        ["golang", "org"],
        ["rubygems", "org"],
    ]
    .map(|parts| parts.join("."));
    let mut findings = Vec::new();
    for file in all_files() {
        let text = file.text.to_lowercase();
        for registry in registries.iter().filter(|name| text.contains(*name)) {
            findings.push((file.path.clone(), format!("names {registry}")));
        }
    }
    let lock: Exception = (
        "Cargo.lock",
        "cargo itself notes in it where packages come from",
    );
    judge(
        "where packages come from is the user's choice",
        &findings,
        &[lock],
    );
}

#[test]
fn checks_see_code_and_nothing_else() {
    let file = SourceFile {
        path: "crates/fsgather-core/src/a.rs".into(),
        text: [
            "// println!(\"1\") in a comment",
            "/* println! /* nested */ println! */ let a = \"println!\\\" println!\";",
            "let b = r#\"println!\" println!\"#; let c = '\"'; let d: &'static str = br\"println!\";",
            "println!(\"5\"); eprintln!(); let unsafe_code = 1;",
            "#[cfg(test)]",
            "mod tests { fn one_test() { println!(\"{}\", '}'); } }",
            "fn after(r: u8) { println!(); }",
        ]
        .join("\n"),
    };
    assert_eq!(file.shipped_with(), Some("fsgather-core"));
    assert_eq!(lines_with(&file.code(), "println!"), [4, 6, 7]);
    assert_eq!(lines_with(&file.shipped_code(), "println!"), [4, 7]);
    assert_eq!(lines_with(&file.code(), "unsafe"), [0_usize; 0]);
    let code = file.code();
    assert_eq!(functions(&code), ["tests::one_test", "after"]);
}

#[test]
#[should_panic(expected = "b.rs: wrong")]
fn a_finding_outside_the_exceptions_fails() {
    let findings = [
        ("a.rs".into(), "wrong".into()),
        ("b.rs".into(), "wrong".into()),
    ];
    judge("a rule", &findings, &[("a.rs", "a reason")]);
}

#[test]
#[should_panic(expected = "a.rs: needs no exception any more")]
fn an_exception_that_is_not_needed_fails() {
    judge("a rule", &[], &[("a.rs", "a reason")]);
}
