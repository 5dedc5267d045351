//! Reads what the documentation says about tests: [`TestName`].

/// The name of a test as the documentation gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestName {
    /// The end of the path of the file that holds it, if one was named.
    pub(crate) file: Option<String>,
    /// The function; anything else between the backticks, when it was no name.
    pub(crate) function: String,
}

/// All names of the form `` `file.rs::function` ``.
pub(crate) fn names_with_file(page: &str) -> Vec<TestName> {
    let blocks = blocks(page);
    let spans = blocks.iter().flat_map(|block| spans(block));
    spans
        .filter_map(|span| {
            let (file, function) = span.split_once(".rs::")?;
            Some(TestName {
                file: Some(format!("{file}.rs")),
                function: function.into(),
            })
        })
        .collect()
}

/// The tests of all promises on a page.
///
/// These are the names in the column `test` of a table, whose cells must not be empty, and those that
/// follow the word `test:` or `tests:`, up to the closing parenthesis if there is an opening one before
/// the word, else up to the end of the paragraph or list item.
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
            names.extend(spans(&rest[..end.unwrap_or(rest.len())]).map(test_name));
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
                names.push(test_name(cell));
            }
            names.extend(spans(cell).map(test_name));
        } else {
            column = cells
                .iter()
                .position(|cell| matches!(*cell, "test" | "tests"));
        }
    }
    names
}

fn test_name(span: &str) -> TestName {
    let (file, function) = match span.rsplit_once("::") {
        Some((file, function)) if has_extension(file) => (Some(file.into()), function),
        Some((_, function)) => (None, function),
        None => (None, span),
    };
    TestName {
        file,
        function: function.into(),
    }
}

fn has_extension(path: &str) -> bool {
    std::path::Path::new(path).extension() == Some("rs".as_ref())
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

/// What stands between single backticks.
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
        file: Some("x.rs".into()),
        function: "third".into(),
    };
    assert_eq!(names_with_file(page), [third]);
}

#[test]
fn names_are_found_in_the_column_for_tests_and_may_not_be_missing() {
    let page = "| | promise | test |\n|---|---|---|\n| D1 | `no` | `a::tests::one`, `two` |\n\
                | D2 | untested | |\n| D3 | cannot be tested | none: needs two hosts |\n\n\
                | | x | y |\n|---|---|---|\n| `no` | `no` | |";
    assert_eq!(functions(page), ["one", "two", ""]);
}
