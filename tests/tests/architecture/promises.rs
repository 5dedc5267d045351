//! Reads the names of tests in the documentation: [`TestName`].

use super::source::SourceFile;

/// The name of a test in the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestName {
    /// The place of the test; a name without a place takes that of the previous one.
    pub(crate) place: Place,
    /// The function; or other text between the backticks, if that is not a name.
    pub(crate) function: String,
}

/// The place of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a file, by the end of its path.
    File(String),
    /// In a module, by the end of its path: `writer::tests`.
    Module(String),
    /// Neither this name nor an earlier one has a place.
    Unsaid,
}

impl TestName {
    /// Returns true if one of `functions`, which are those of `file` with their modules there, is this test.
    pub(crate) fn is_in(&self, file: &SourceFile, functions: &[String]) -> bool {
        let (place, path) = match &self.place {
            Place::File(end) => (ends_with(&file.path, '/', end), self.function.clone()),
            Place::Module(end) => (true, format!("{end}::{}", self.function)),
            Place::Unsaid => return false,
        };
        let modules = file.modules();
        let is_this = |function: &String| ends_with(&format!("{modules}::{function}"), ':', &path);
        place && functions.iter().any(is_this)
    }
}

/// Returns true if `end` equals the last parts of `path`, which `separator` separates.
pub(crate) fn ends_with(path: &str, separator: char, end: &str) -> bool {
    let rest = path.strip_suffix(end);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(separator))
}

/// All names of the form `` `file.rs::function` ``.
pub(crate) fn names_with_file(page: &str) -> Vec<TestName> {
    let blocks = blocks(page);
    let spans = blocks.iter().flat_map(|block| spans(block));
    spans
        .filter_map(|span| {
            let (file, function) = span.split_once(".rs::")?;
            Some(TestName {
                place: Place::File(format!("{file}.rs")),
                function: function.into(),
            })
        })
        .collect()
}

/// The tests of all promises of a page.
///
/// These are the names in the column `test` of a table, whose cells must not be empty, and those after the word `test:` or `tests:`, up to
/// the closing parenthesis if there is an opening one before the word, otherwise up to the end of the paragraph or list item.
pub(crate) fn names_of_promises(page: &str) -> Vec<TestName> {
    let mut names = names_in_tables(page);
    for block in blocks(page) {
        for (start, label) in ["test:", "tests:", "Test:", "Tests:"]
            .into_iter()
            .flat_map(|label| block.match_indices(label))
        {
            let before = block[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '`' || c == '_') {
                continue;
            }
            let rest = &block[start + label.len()..];
            if rest.starts_with(':') {
                continue;
            }
            let end = if before == Some('(') {
                rest.find(')')
            } else {
                None
            };
            names.extend(test_names(&rest[..end.unwrap_or(rest.len())]));
        }
    }
    names
}

fn names_in_tables(page: &str) -> Vec<TestName> {
    let mut names = Vec::new();
    let mut column = None;
    for line in page.lines().map(str::trim) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            column = None;
        } else if let Some(column) = column {
            let cell: &str = cells.get(column).copied().unwrap_or_default();
            if cell.is_empty() {
                names.push(test_name(cell, Place::Unsaid));
            }
            names.extend(test_names(cell));
        } else {
            column = cells
                .iter()
                .position(|cell| matches!(*cell, "test" | "tests"));
        }
    }
    names
}

fn test_names(text: &str) -> Vec<TestName> {
    let mut names: Vec<TestName> = Vec::new();
    for span in spans(text) {
        let before = names.last().map(|name| name.place.clone());
        names.push(test_name(span, before.unwrap_or(Place::Unsaid)));
    }
    names
}

fn test_name(span: &str, before: Place) -> TestName {
    let (place, function) = match span.rsplit_once("::") {
        Some((file, function)) if has_extension(file) => (Place::File(file.into()), function),
        Some((module, function)) => (Place::Module(module.into()), function),
        None => (before, span),
    };
    TestName {
        place,
        function: function.into(),
    }
}

fn has_extension(path: &str) -> bool {
    let extension = std::path::Path::new(path).extension();
    extension.is_some_and(|extension| extension == "rs" || extension == "py")
}

/// Paragraphs, list items, headings and table rows, each on one line.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in page.lines() {
        let line = line.trim();
        if line.is_empty() || begins_block(line) {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut() {
            block.push_str(line);
            block.push(' ');
        }
    }
    blocks
}

fn begins_block(line: &str) -> bool {
    let is_numbered = |rest: &str, letters: usize| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && (letters > 0 || rest[digits..].starts_with('.'))
    };
    let letters = line.bytes().take_while(u8::is_ascii_uppercase).count();
    line.starts_with(['-', '*', '#', '|']) || is_numbered(&line[letters..], letters)
}

/// The texts between single backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn functions(page: &str) -> Vec<String> {
    let names = names_of_promises(page).into_iter();
    names.map(|name| name.function).collect()
}

#[test]
fn names_are_found_after_the_label_only() {
    let page = "D1 `Epoch` is never used twice (test: `epochs_count_up`,\n`no_two`), says `Rank`.\n\
                D2 the latest: `no`, `tests::no`. Tests: `x.rs::third` and\n`a::fourth`\n- `no`, item";
    let expected = ["epochs_count_up", "no_two", "third", "fourth"];
    assert_eq!(functions(page), expected);
    let third = TestName {
        place: Place::File("x.rs".into()),
        function: "third".into(),
    };
    assert_eq!(names_with_file(page), [third]);
}

#[test]
fn a_test_is_found_under_its_whole_path_only() {
    let file = SourceFile {
        path: "crates/fsgather-store/src/payload/writer_tests.rs".into(),
        text: String::new(),
    };
    let functions = ["one".to_owned(), "inner::two".to_owned()];
    let is_there = |page: &str| -> Vec<bool> {
        let names = test_names(page).into_iter();
        names.map(|name| name.is_in(&file, &functions)).collect()
    };
    assert_eq!(is_there("`writer::tests::one`, `inner::two`"), [true; 2]);
    assert_eq!(is_there("`payload::writer::tests::one`"), [true]);
    assert_eq!(is_there("`writer_tests.rs::one`, `two`"), [true; 2]);
    assert_eq!(
        is_there("`one`, `writer::one`, `ter::tests::one`"),
        [false; 3]
    );
    assert_eq!(
        is_there("`tests.rs::one`, `writer::tests::two`"),
        [false; 2]
    );
}

#[test]
fn test_names_are_read_from_their_column_and_required() {
    let page = "| | promise | test |\n|---|---|---|\n| D1 | `no` | `a::tests::one`, `two` |\n\
                | D2 | untested | |\n| D3 | cannot be tested | none: needs two hosts |\n\n\
                | | x | y |\n|---|---|---|\n| `no` | `no` | |";
    assert_eq!(functions(page), ["one", "two", ""]);
}
