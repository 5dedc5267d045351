//! Compares pages of documentation with the sources: the tests, files and functions that they name exist.

use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

use super::{
    promises::{Place, TestName, ends_with, names_of_promises, names_with_file},
    source::{SourceFile, all_files, functions, root, rust_files},
};

/// The pages below `docs/`, and those at the top.
pub(crate) fn pages() -> Vec<SourceFile> {
    let mut pages = all_files();
    pages.retain(|page| {
        let is_page = Path::new(&page.path).extension() == Some("md".as_ref());
        is_page && (page.path.starts_with("docs/") || !page.path.contains('/'))
    });
    pages
}

#[test]
fn tests_that_the_documentation_names_exist() {
    let rust = rust_files().into_iter().map(|file| {
        let functions = functions(&file.code());
        (file, functions)
    });
    let python = all_files().into_iter().map(|file| {
        let functions = python_tests(&file);
        (file, functions)
    });
    let known: Vec<(SourceFile, Vec<String>)> = rust.chain(python).collect();
    let exists = |name: &TestName| known.iter().any(|(file, all)| name.is_in(file, all));
    let mut wrong = String::new();
    for page in pages().iter().filter(|page| page.path.contains('/')) {
        let mut names = names_with_file(&page.text);
        if page.path.starts_with("docs/design/") || page.path == "docs/guarantees.md" {
            names.extend(names_of_promises(&page.text));
        }
        for TestName { place, function } in names.iter().filter(|name| !exists(name)) {
            let function = match function.as_str() {
                "" => "a promise without a test",
                function => function,
            };
            let _ = match place {
                Place::File(place) | Place::Module(place) => {
                    writeln!(wrong, "{}: {function} in {place}", page.path)
                }
                Place::Unsaid => writeln!(wrong, "{}: {function}: say where", page.path),
            };
        }
    }
    assert!(wrong.is_empty(), "no such functions:\n{wrong}");
}

/// The test functions of a Python file; none for other files.
fn python_tests(file: &SourceFile) -> Vec<String> {
    if Path::new(&file.path).extension() != Some("py".as_ref()) {
        return Vec::new();
    }
    let defined = file
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("def "));
    let names = defined.filter_map(|line| Some(line.split_once('(')?.0));
    names
        .filter(|name| name.starts_with("test_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn changelog_has_the_numbers_of_formats() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog");
    for (name, path) in [
        ("Wire protocol", "crates/fsgather-control/src/wire.rs"),
        ("Last calls", "crates/fsgather-store/src/calls/mod.rs"),
    ] {
        let code = fs::read_to_string(root().join(path)).expect("the code");
        let number = code
            .split_once("const VERSION: u16 = ")
            .and_then(|(_, rest)| rest.split_once(';'))
            .map(|(number, _)| number);
        let line = format!("- {name}: {},", number.expect("a number"));
        assert!(changelog.contains(&line), "CHANGELOG.md lacks `{line}`");
    }
}

/// Pages only: the compiler rejects such marks in code.
#[test]
fn no_page_has_marks_of_a_merge_that_was_not_finished() {
    let is_mark = |line: &str| {
        ["<<<<<<< ", ">>>>>>> "]
            .iter()
            .any(|mark| line.starts_with(mark))
    };
    let pages = pages().into_iter();
    let marked: Vec<String> = pages
        .filter(|page| page.text.lines().any(is_mark))
        .map(|page| page.path)
        .collect();
    assert_eq!(marked, [""; 0]);
}

#[test]
fn files_that_the_documentation_names_exist() {
    let sources = rust_files();
    let mut wrong = String::new();
    for page in pages() {
        let is_about_code = ["docs/design/", "docs/adr/", "docs/architecture.md"]
            .iter()
            .any(|start| page.path.starts_with(start));
        for path in named_paths(&page.text) {
            let is_whole = ["crates/", "tests/", "scripts/"]
                .iter()
                .any(|start| path.starts_with(start));
            let is_source = Path::new(path).extension() == Some("rs".as_ref());
            let within = format!("/{path}/");
            let exists = if path.contains('*') {
                true
            } else if is_whole {
                root().join(path).exists()
            } else if is_about_code && is_source {
                sources.iter().any(|file| ends_with(&file.path, '/', path))
            } else if is_about_code && path.contains("/src") {
                sources.iter().any(|file| file.path.contains(&within))
            } else {
                true
            };
            if !exists {
                let _ = writeln!(wrong, "{}: {path}", page.path);
            }
        }
    }
    assert!(wrong.is_empty(), "no such files:\n{wrong}");
}

/// The names of the types that a file declares.
fn declared_types(file: &SourceFile) -> Vec<String> {
    let code = file.code();
    let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric()).collect();
    let declares = |pair: &&[&str]| ["struct", "enum", "trait"].contains(&pair[0]);
    let pairs = words.windows(2).filter(declares);
    pairs.map(|pair| pair[1].to_owned()).collect()
}

#[test]
fn functions_of_types_that_the_documentation_names_exist() {
    let declared: BTreeSet<String> = rust_files().iter().flat_map(declared_types).collect();
    // The types that each file has functions for, and these functions.
    let known: Vec<(BTreeSet<String>, BTreeSet<String>)> = rust_files()
        .iter()
        .map(|file| {
            let code = file.code();
            let heads = code.lines().filter(|line| {
                let line = line
                    .trim_start_matches("pub(crate) ")
                    .trim_start_matches("pub ");
                line.starts_with("impl") || line.starts_with("trait ")
            });
            let words = |line: &str| -> Vec<String> {
                let words = line.split(|c: char| !c.is_alphanumeric());
                words.map(str::to_owned).collect()
            };
            let last = |path: String| Some(path.rsplit("::").next()?.to_owned());
            let functions = functions(&code).into_iter().filter_map(last);
            (heads.flat_map(words).collect(), functions.collect())
        })
        .collect();
    let mut wrong = String::new();
    // The programs of guides are compiled.
    for page in pages()
        .into_iter()
        .filter(|page| !page.path.starts_with("docs/guide/"))
    {
        for word in named_words(&page.text) {
            let Some((of, function)) = word.split_once("::") else {
                continue;
            };
            let is_method =
                of.starts_with(char::is_uppercase) && function.starts_with(char::is_lowercase);
            // Types of other crates are not checked.
            let is_in = |(types, functions): &(BTreeSet<String>, BTreeSet<String>)| {
                functions.contains(function) && (types.contains(of) || !declared.contains(of))
            };
            if is_method && !known.iter().any(is_in) {
                let _ = writeln!(wrong, "{}: {word}", page.path);
            }
        }
    }
    assert!(wrong.is_empty(), "no such functions:\n{wrong}");
}

#[test]
fn texts_of_all_errors_are_on_the_page_of_errors() {
    let source = fs::read_to_string(root().join("crates/fsgather-core/src/error/mod.rs"));
    let source = source.expect("the source of the errors");
    let page = fs::read_to_string(root().join("docs/reference/errors.md")).expect("the page");
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = one_line(&page);
    let texts: Vec<&str> = source
        .split("#[error(")
        .skip(1)
        .filter_map(|attribute| attribute.split('"').nth(1))
        .collect();
    assert!(texts.len() > 12, "{texts:?}");
    let mut missing = String::new();
    for text in texts {
        // The parts between the fields.
        let parts = text.split(['{', '}']).step_by(2).map(one_line);
        for part in parts.filter(|part| part.len() > 3 && !page.contains(part.as_str())) {
            let _ = writeln!(missing, "{part:?} of {text:?}");
        }
    }
    assert!(
        missing.is_empty(),
        "docs/reference/errors.md lacks:\n{missing}"
    );
}

/// Returns the words of a page that may be paths, cut at a colon.
fn named_paths(page: &str) -> impl Iterator<Item = &str> {
    named_words(page)
        .filter_map(|word| word.split(':').next())
        .map(|word| word.trim_end_matches(['.', '/']))
}

fn named_words(page: &str) -> impl Iterator<Item = &str> {
    page.split(|c: char| c.is_whitespace() || "`()[]<>|,;\"'".contains(c))
}
