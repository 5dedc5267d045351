//! Scripts describe themselves, and refuse unknown arguments before they build anything.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, process::Command};

use fsgather_testkit::process;

use super::{documentation::pages, source::root};

/// Scripts without a command line: others read them, or cargo starts test programs with them.
const NOT_CALLED: [&str; 3] = ["arguments.sh", "staged.sh", "test-runner.sh"];

/// Scripts and beds that pass unknown arguments on to a program that is built first.
const HANDS_ON: [&str; 1] = ["python-tests.sh"];

/// Programs that no script may start before it has parsed its arguments.
const BUILDERS: [&str; 6] = ["cargo", "rustup", "rustc", "cc", "apt-get", "unshare"];

struct Answer {
    code: Option<i32>,
    text: String,
    has_built: bool,
}

/// Runs a script, given as its words, with stubs that fail and record that it builds.
fn run(words: &str) -> Answer {
    let place = tempfile::tempdir().expect("a directory");
    let trace = place.path().join("trace");
    for name in BUILDERS {
        let stub = place.path().join(name);
        let text = format!("#!/bin/sh\necho {name} >>'{}'\nexit 99\n", trace.display());
        fs::write(&stub, text).expect("a stub");
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let mut words = words.split(' ');
    let script = root().join("scripts").join(words.next().expect("a script"));
    let mut command = Command::new("timeout");
    command
        .args(["100", "bash", "-c", r#"PATH=$0:$PATH exec bash "$@""#])
        .arg(place.path())
        .arg(script)
        .args(words)
        .env("CARGO_TARGET_DIR", place.path().join("target"));
    let output = process::output(&mut command).expect("a shell");
    Answer {
        code: output.status.code(),
        text: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        has_built: trace.exists(),
    }
}

/// The names of files in a directory that end with `.sh`.
fn shell_files(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(directory)).expect("scripts");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension() == Some("sh".as_ref()))
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect()
}

/// The beds that `scripts/prove --list` prints.
fn beds() -> BTreeSet<String> {
    let list = run("prove --list");
    assert!(list.code == Some(0) && !list.has_built, "{}", list.text);
    let table = list.text.split("\n\n").nth(1).expect("a table");
    for line in table.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
    let rows = table.lines().skip(1);
    rows.filter_map(|row| Some(row.split_whitespace().next()?.to_owned()))
        .collect()
}

/// All commands that can be called: scripts, and beds as `prove NAME`.
fn commands() -> Vec<String> {
    let scripts = shell_files("scripts").into_iter();
    let scripts = scripts.filter(|name| !NOT_CALLED.contains(&&**name));
    let beds = beds().into_iter().map(|bed| format!("prove {bed}"));
    let all: Vec<_> = scripts.chain(beds).collect();
    assert!(all.len() > 30, "{all:?}");
    all
}

#[test]
fn each_script_describes_itself_without_building() {
    for command in commands() {
        let help = run(&format!("{command} --help"));
        assert!(
            help.code == Some(0) && !help.has_built,
            "{command}: {}",
            help.text
        );
        assert!(help.text.contains(&command), "{command}: {}", help.text);
    }
}

#[test]
fn scripts_refuse_unknown_arguments_before_they_build() {
    let all = commands().into_iter();
    let strict = all.filter(|command| !HANDS_ON.contains(&&**command));
    let mut tried: Vec<_> = strict.map(|name| name + " --no-such-option").collect();
    let words = [
        "prove no-such-bed",
        "prove clean-live long",
        "prove faults --seconds long",
        "prove filesystems --gathers",
        "prove filesystems floppy",
        "prove fuzz no-such-target",
        "prove lying-files 1 2 3",
        "prove lying-files many",
        "prove mutants --in-diff no/such/file",
        "prove mutants --sample",
        "prove mutants --since no-such-commit",
        "prove mutants no-such-part",
        "prove simulate --replay no/such/file",
        "prove simulate many",
        "test.sh slow",
    ];
    tried.extend(words.map(str::to_owned));
    for words in tried {
        let Answer {
            code,
            text,
            has_built,
        } = run(&words);
        let is_clear = !text.contains("unbound variable") && !text.contains(": line ");
        assert!(code == Some(2) && is_clear, "{words}: {code:?}\n{text}");
        assert!(!has_built, "{words} builds");
    }
}

#[test]
fn unknown_bed_is_answered_with_similar_names() {
    assert!(run("prove torhc").text.contains("torchrun"));
}

#[test]
fn each_proof_is_a_bed_and_each_bed_on_a_page_exists() {
    let beds = beds();
    for file in shell_files("scripts/proofs") {
        let name = file.trim_end_matches(".sh");
        assert!(beds.contains(name), "scripts/prove does not list {name}");
    }
    for page in pages() {
        for words in page.text.split("scripts/prove ").skip(1) {
            let end = words.find(|c: char| !(c.is_ascii_lowercase() || c == '-'));
            let name = words[..end.unwrap_or(words.len())].trim_start_matches("--");
            let is_bed = beds.contains(name) || ["", "list"].contains(&name);
            assert!(is_bed, "{}: there is no bed {name}", page.path);
        }
    }
}
