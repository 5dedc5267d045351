//! Counts phrases that read as translated, in comments, documentation and names, and lets no count rise.
//!
//! `tests/plain-english.txt` has the limit of each count. `UPDATE_DOCS=1` lowers the limits to the counts of today.

use std::{collections::BTreeMap, env, fmt::Write, fs, path::Path, sync::LazyLock};

use regex::Regex;

use super::source::{SourceFile, all_files, root};

/// Limits of the counts, relative to the top.
const LIMITS: &str = "tests/plain-english.txt";

/// Maximum length of the name of a test.
const MAX_TEST_NAME_CHARS: usize = 60;

/// Phrases in comments and documentation. Those that end in `?!` do not count in a question.
const PHRASES: [(&str, &str); 10] = [
    ("told", r"\b(?:is|are|was|were|be|been) told\b"),
    ("what-subject", r"(?:^|[.:;] )What\b?!"),
    ("who-subject", r"(?:^|[.:;] )(?:Who|Whoever)\b?!"),
    (
        "nobody",
        r"\b(?:nobody|somebody|everybody|whoever|whatever)\b",
    ),
    ("whom", r"\bwhom\b"),
    ("so-many", r"\bso (?:many|much)\b"),
    ("come-to", r"\b(?:comes?|came|coming) to\b"),
    ("but-for", r"\bbut for\b"),
    ("get-on", r"\b(?:gets?|got|getting) on\b"),
    (
        "fronted-of",
        r"(?:^|[.:;] )Of (?:a|an|the|what|these|those|all|one|several)\b",
    ),
];

/// First words of a doc comment that ask instead of naming the item.
const QUESTION: &str = r"^(?:What|How|Which|Who|Whom|Whose|Where|When|Why|Of)\b";

/// Constants without a thing or a unit in their name.
const BARE_CONSTANT: &str = "^(?:MOST|LEAST|LONGEST|SHORTEST|LARGEST|LONG|SHORT|MUCH|MANY|FEW|SEVERAL|HELD|KEPT|NOTED|SHOWN[A-Z_]*|AT_ONCE|AT_A_TIME|\
    TOGETHER|OF_EACH|LOOKED_AT|SAID|LATE|TRIES|PAUSE|OWN_WORD|OTHERS_WORD|COMES[A-Z_]*|STANDS_STILL|BEGUN_WITHIN|LAST_WORDS?|TRIED_AGAIN|ONCE|\
    AGAIN|ENOUGH|OLDER)$";

/// The places of each count, as `file:line: text`.
type Places = BTreeMap<&'static str, Vec<String>>;

struct Phrase {
    name: &'static str,
    pattern: Regex,
    skips_questions: bool,
}

impl Phrase {
    fn count(&self, line: &str) -> usize {
        self.pattern
            .find_iter(line)
            .filter(|found| !(self.skips_questions && is_question(&line[found.end()..])))
            .count()
    }
}

/// Returns true if the sentence that continues with `rest` is a question.
fn is_question(rest: &str) -> bool {
    rest.find(['.', '?'])
        .is_some_and(|end| rest[end..].starts_with('?'))
}

static QUESTION_PATTERN: LazyLock<Regex> = LazyLock::new(|| compiled(QUESTION));
static BARE_CONSTANT_PATTERN: LazyLock<Regex> = LazyLock::new(|| compiled(BARE_CONSTANT));
static CONSTANT_ITEM: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"^(?:pub(?:\([^)]*\))? )?const (\w+):"));
static FUNCTION_ITEM: LazyLock<Regex> = LazyLock::new(|| compiled(r"^(?:async )?fn (\w+)\("));

static PATTERNS: LazyLock<Vec<Phrase>> = LazyLock::new(|| {
    let phrases = PHRASES.iter().map(|(name, pattern)| Phrase {
        name,
        pattern: compiled(pattern.trim_end_matches("?!")),
        skips_questions: pattern.ends_with("?!"),
    });
    phrases.collect()
});

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a valid pattern")
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| part == "tests") || path.ends_with("tests.rs")
}

/// Adds the places of the phrases in a line of prose.
fn look_at_prose(places: &mut Places, path: &str, number: usize, line: &str) {
    for phrase in PATTERNS.iter() {
        let found = phrase.count(line);
        let place = || format!("{path}:{number}: {}", line.trim());
        places
            .entry(phrase.name)
            .or_default()
            .extend((0..found).map(|_| place()));
    }
}

fn look_at_page(places: &mut Places, page: &SourceFile) {
    let mut fenced = false;
    for (number, line) in (1..).zip(page.text.lines()) {
        fenced ^= line.starts_with("```");
        if !fenced {
            look_at_prose(places, &page.path, number, line);
        }
    }
}

fn look_at_rust(places: &mut Places, file: &SourceFile) {
    let mut in_doc = false;
    let mut is_test = 0_u8;
    for (number, line) in (1..).zip(file.text.lines()) {
        let line = line.trim();
        let mut add = |name, text: &str| {
            let place = format!("{}:{number}: {text}", file.path);
            places.entry(name).or_default().push(place);
        };
        let doc = line.strip_prefix("///").map(str::trim_start);
        if let Some(first) = doc.filter(|_| !in_doc && !is_test_file(&file.path))
            && QUESTION_PATTERN.is_match(first)
        {
            add("docs-question", first);
        }
        in_doc = doc.is_some();
        if let Some(found) = CONSTANT_ITEM.captures(line)
            && BARE_CONSTANT_PATTERN.is_match(&found[1])
        {
            add("bare-constants", &found[1]);
        }
        if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
            is_test = 4;
        }
        if let Some(found) = FUNCTION_ITEM.captures(line)
            && is_test > 0
            && found[1].len() > MAX_TEST_NAME_CHARS
        {
            add("long-test-names", &found[1]);
        }
        is_test = is_test.saturating_sub(1);
        if let Some(comment) = line.strip_prefix("//") {
            let text = comment.trim_start_matches(['/', '!']).trim_start();
            look_at_prose(places, &file.path, number, text);
        }
    }
}

fn places() -> Places {
    let mut places = Places::new();
    for name in ["bare-constants", "docs-question", "long-test-names"] {
        places.insert(name, Vec::new());
    }
    for file in all_files() {
        match Path::new(&file.path)
            .extension()
            .and_then(|extension| extension.to_str())
        {
            Some("rs") => look_at_rust(&mut places, &file),
            Some("md") => look_at_page(&mut places, &file),
            _ => {}
        }
    }
    places
}

fn limits(table: &str) -> BTreeMap<&str, usize> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let (name, limit) = row.split_once(' ')?;
        Some((name, limit.trim().parse().expect("a number")))
    })
    .collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is for tests alone")]
fn plain_english_counts_never_rise() {
    let path = root().join(LIMITS);
    let table = fs::read_to_string(&path).expect("the table of limits");
    let (limits, places) = (limits(&table), places());
    if env::var_os("UPDATE_DOCS").is_some() {
        let mut lowered: String = table
            .lines()
            .filter(|line| line.starts_with('#'))
            .fold(String::new(), |all, line| all + line + "\n");
        for (name, found) in &places {
            let limit = limits
                .get(name)
                .map_or(found.len(), |limit| found.len().min(*limit));
            let _ = writeln!(lowered, "{name} {limit}");
        }
        return fs::write(&path, lowered).expect("the table can be written");
    }
    let mut wrong = String::new();
    for (name, found) in &places {
        let limit = *limits
            .get(name)
            .unwrap_or_else(|| panic!("{LIMITS} has no row {name}"));
        if found.len() > limit {
            let _ = writeln!(
                wrong,
                "{name}: {} places, at most {limit} allowed; for example in files that you changed:",
                found.len()
            );
            for place in changed_first(found) {
                let _ = writeln!(wrong, "    {place}");
            }
        }
    }
    assert!(wrong.is_empty(), "CONTRIBUTING.md has the rules:\n{wrong}");
}

/// At most twenty places, those in the files that were modified last first.
fn changed_first(places: &[String]) -> Vec<&String> {
    let modified = |place: &&String| {
        let file = place.split(':').next().unwrap_or_default();
        fs::metadata(root().join(file))
            .and_then(|data| data.modified())
            .ok()
    };
    let mut sorted: Vec<&String> = places.iter().collect();
    sorted.sort_by_key(|place| std::cmp::Reverse(modified(place)));
    sorted.truncate(20);
    sorted
}

#[test]
fn phrases_are_found_and_questions_are_not() {
    let mut places = Places::new();
    look_at_prose(&mut places, "a.md", 1, "What is read is told. What is it?");
    look_at_prose(
        &mut places,
        "a.md",
        2,
        "Of a rank nobody comes to know so much.",
    );
    let counts: Vec<_> = places
        .iter()
        .filter(|(_, found)| !found.is_empty())
        .map(|(name, found)| (*name, found.len()))
        .collect();
    assert_eq!(
        counts,
        [
            ("come-to", 1),
            ("fronted-of", 1),
            ("nobody", 1),
            ("so-many", 1),
            ("told", 1),
            ("what-subject", 1)
        ]
    );
}
