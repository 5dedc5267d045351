//! The files of the repository for the checks: [`SourceFile`], and its text without the parts that do not count.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

/// Directories without files of ours.
const SKIPPED: [&str; 6] = [
    ".git",
    ".venv",
    "__pycache__",
    "node_modules",
    "proptest-regressions",
    "target",
];

/// One text file of the repository.
pub(crate) struct SourceFile {
    /// Relative to the top, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("tests/ has a parent").to_owned()
}

/// All text files of the repository, in order.
pub(crate) fn all_files() -> Vec<SourceFile> {
    let mut files = Vec::new();
    collect(&root(), "", &mut files);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(
        files.len() > 50,
        "the walk went wrong: {} files",
        files.len()
    );
    files
}

/// All Rust files below `crates/` and `tests/`.
pub(crate) fn rust_files() -> Vec<SourceFile> {
    let mut files = all_files();
    files.retain(|file| {
        let has_place = file.path.starts_with("crates/") || file.path.starts_with("tests/");
        has_place && Path::new(&file.path).extension() == Some("rs".as_ref())
    });
    files
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<SourceFile>) {
    // Files that are removed meanwhile, or are not text, need no check.
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !SKIPPED.contains(&name.as_str()) => {
                collect(&entry.path(), &format!("{path}/"), files);
            }
            // The lock file that cargo writes for fuzzing is not part of the repository.
            Ok(kind) if kind.is_file() && path != "tests/fuzz/Cargo.lock" => {
                if let Ok(text) = fs::read_to_string(entry.path()) {
                    files.push(SourceFile { path, text });
                }
            }
            _ => {}
        }
    }
}

impl SourceFile {
    /// The name of the crate whose library or program contains this file; none for tests, examples and files that are not Rust.
    pub(crate) fn shipped_with(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        let stem = rest.strip_prefix("src/")?.strip_suffix(".rs")?;
        (!stem.ends_with("tests")).then_some(name)
    }

    /// The module path of this file, after the name of its package: `fsgather-store::payload::writer::tests`.
    pub(crate) fn modules(&self) -> String {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let mut names: Vec<&str> = path
            .split('/')
            .filter(|name| !["src", "lib", "main", "mod"].contains(name))
            .collect();
        // Long unit tests are in a file beside the tested one.
        if let Some(tested) = names.last().and_then(|last| last.strip_suffix("_tests")) {
            names.pop();
            names.extend([tested, "tests"]);
        }
        names.join("::")
    }

    /// The text with comments and the contents of literals blanked out; line numbers do not change.
    pub(crate) fn code(&self) -> String {
        let mut code: Vec<char> = self.text.chars().collect();
        let mut at = 0;
        while at < code.len() {
            let end = skipped_at(&code, at);
            blank(&mut code, at..end);
            at = end.max(at + 1);
        }
        code.into_iter().collect()
    }

    /// [`SourceFile::code`] without items that are compiled only for tests.
    pub(crate) fn shipped_code(&self) -> String {
        const MARK: &str = "#[cfg(test)]";
        let mut code = self.code();
        while let Some(start) = code.find(MARK) {
            let rest = &code[start..];
            let length = match rest.find(['{', ';']) {
                Some(open) if rest[open..].starts_with('{') => open + braces(&rest[open..]),
                Some(semicolon) => semicolon + 1,
                None => rest.len(),
            };
            let mut item: Vec<char> = rest[..length].chars().collect();
            let all = 0..item.len();
            blank(&mut item, all);
            let item: String = item.into_iter().collect();
            code.replace_range(start..start + length, &item);
        }
        code
    }
}

/// The line numbers, from 1, where `word` occurs outside longer identifiers.
pub(crate) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let in_identifier = |c: char| c.is_alphanumeric() || c == '_';
    let occurs = |line: &str| {
        line.match_indices(word).any(|(start, _)| {
            let before = line[..start].chars().next_back();
            let after = line[start + word.len()..].chars().next();
            let ends_open = word.ends_with(in_identifier);
            !(before.is_some_and(in_identifier) || ends_open && after.is_some_and(in_identifier))
        })
    };
    (1..)
        .zip(code.lines())
        .filter_map(|(number, line)| occurs(line).then_some(number))
        .collect()
}

/// The names of all functions that are defined in `code`, after those of the modules around them there: `tests::one_test`.
pub(crate) fn functions(code: &str) -> Vec<String> {
    let mut functions = Vec::new();
    // Each with the number of open braces within it.
    let mut modules: Vec<(&str, usize)> = Vec::new();
    let (mut keyword, mut begun, mut depth) = ("", None, 0_usize);
    let in_identifier = |c: char| c.is_alphanumeric() || c == '_';
    for piece in code.split_inclusive(|c| !in_identifier(c)) {
        let word = piece.trim_end_matches(|c| !in_identifier(c));
        match keyword {
            "fn" if !word.is_empty() => {
                let around = modules.iter().map(|(name, _)| *name);
                let path: Vec<&str> = around.chain([word]).collect();
                functions.push(path.join("::"));
            }
            "mod" if !word.is_empty() => begun = Some(word),
            _ => {}
        }
        match &piece[word.len()..] {
            "{" => {
                depth += 1;
                modules.extend(begun.take().map(|name| (name, depth)));
            }
            "}" => {
                modules.pop_if(|(_, inner)| *inner == depth);
                depth = depth.saturating_sub(1);
            }
            ";" => begun = None,
            _ => {}
        }
        let goes_on = piece.ends_with(char::is_whitespace);
        keyword = match (goes_on, word) {
            (true, "") => keyword,
            (true, word) => word,
            (false, _) => "",
        };
    }
    functions
}

/// The end of a comment or literal that begins at `at`; `at` itself if none does.
fn skipped_at(code: &[char], at: usize) -> usize {
    let rest = &code[at..];
    let follows_word = at > 0 && (code[at - 1].is_alphanumeric() || code[at - 1] == '_');
    match rest {
        ['/', '/', ..] => at + rest.iter().take_while(|c| **c != '\n').count(),
        ['/', '*', ..] => at + block_comment(rest),
        ['"', ..] => at + quoted(rest, '"'),
        ['\'', '\\', ..] => at + quoted(rest, '\''),
        // Anything else after a single quote is a lifetime.
        ['\'', _, '\'', ..] => at + 3,
        ['r', '#' | '"', ..] if !follows_word => at + raw_string(rest),
        ['b' | 'c', 'r', '#' | '"', ..] if !follows_word => match raw_string(&rest[1..]) {
            0 => at,
            length => at + 1 + length,
        },
        _ => at,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a raw string that begins with its `r`; 0 for a raw identifier.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    let body = 1 + hashes;
    if rest.get(body) != Some(&'"') {
        return 0;
    }
    let mut end: Vec<char> = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    let closing = rest[body + 1..]
        .windows(end.len())
        .position(|window| window == end);
    closing.map_or(rest.len(), |closing| body + 1 + closing + end.len())
}

/// The length of a block that begins with its opening brace.
fn braces(rest: &str) -> usize {
    let mut depth = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    rest.len()
}

fn blank(code: &mut [char], range: Range<usize>) {
    for c in &mut code[range] {
        if *c != '\n' {
            *c = ' ';
        }
    }
}
