//! Scripts say what they are for, and refuse what they do not know, before they build anything.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

use fsgather_testkit::process;

use super::source::root;

/// What has no arguments of its own: it is read by others, or stands before every program that cargo runs.
const NOT_CALLED: [&str; 3] = ["arguments.sh", "staged.sh", "within-limit.sh"];

/// Those that hand on what they do not know, to a test program or to Python, which refuses it there.
const HANDS_ON: [&str; 6] = [
    "test.sh",
    "test-bad-luck.sh",
    "test-cut-links.sh",
    "test-networks.sh",
    "test-torch.sh",
    "test-torchrun.sh",
];

/// Programs that no script may come to before its arguments are understood.
const BUILDERS: [&str; 6] = ["cargo", "rustup", "rustc", "cc", "apt-get", "unshare"];

struct Said {
    code: Option<i32>,
    text: String,
    has_built: bool,
}

/// Runs a script where whatever builds leaves a trace, and fails.
fn run(script: &str, arguments: &[&str]) -> Said {
    let place = tempfile::tempdir().expect("a directory");
    let trace = place.path().join("trace");
    for name in BUILDERS {
        let stub = place.path().join(name);
        fs::write(
            &stub,
            format!("#!/bin/sh\necho {name} >>{}\nexit 99\n", trace.display()),
        )
        .expect("a stub");
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let mut command = Command::new("timeout");
    command
        // The stubs stand before all else on the path.
        .args(["20", "bash", "-c", r#"PATH=$0:$PATH exec bash "$@""#])
        .arg(place.path())
        .arg(root().join("scripts").join(script))
        .args(arguments)
        .env("CARGO_TARGET_DIR", place.path().join("target"));
    let output = process::output(&mut command).expect("a shell");
    let text = [output.stdout, output.stderr].concat();
    Said {
        code: output.status.code(),
        text: String::from_utf8_lossy(&text).into_owned(),
        has_built: trace.exists(),
    }
}

fn scripts() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(root().join("scripts")).expect("scripts");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut scripts: Vec<(String, PathBuf)> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "sh"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), path.clone())
        })
        .filter(|(name, _)| !NOT_CALLED.contains(&&**name))
        .collect();
    scripts.sort();
    assert!(scripts.len() > 20, "{scripts:?}");
    scripts
}

#[test]
fn every_script_says_what_it_is_for() {
    for (name, path) in scripts() {
        let source = fs::read_to_string(path).expect("a script");
        let head = source
            .lines()
            .nth(1)
            .and_then(|line| line.strip_prefix("# "));
        let head = head.unwrap_or_else(|| panic!("{name} does not begin with what it is for"));
        let Said {
            code,
            text,
            has_built,
        } = run(&name, &["--help"]);
        // The one for faults has its options in Python.
        let is_told = text.contains(head) || text.contains("usage: scripts/test-faults.sh");
        assert!(
            is_told && code == Some(0),
            "{name} --help: {code:?}\n{text}"
        );
        assert!(!has_built, "{name} --help builds");
    }
}

#[test]
fn every_script_refuses_what_it_does_not_know_before_it_builds() {
    let all = scripts();
    let strict = all.iter().filter(|(name, _)| !HANDS_ON.contains(&&**name));
    let mut tried: Vec<(&str, Vec<&str>)> = strict
        .map(|(name, _)| (name.as_str(), vec!["--no-such-option"]))
        .collect();
    for words in [
        "lying-files.sh many",
        "lying-files.sh 1 first",
        "lying-files.sh 1 2 3",
        "mutants.sh --sample",
        "mutants.sh --sample many",
        "mutants.sh --in-diff",
        "mutants.sh --in-diff no/such/file",
        "mutants.sh --since no-such-commit",
        "mutants.sh nopart",
        "quick-tests.sh core nopart",
        "simulate.sh many",
        "simulate.sh --replay",
        "simulate.sh --replay no/such/file",
        "test-clean-live.sh long",
        "test-faults.sh --seconds long",
        "test-races.sh more",
    ] {
        let (script, arguments) = words.split_once(' ').expect("arguments");
        tried.push((script, arguments.split(' ').collect()));
    }
    for (script, arguments) in tried {
        let Said {
            code,
            text,
            has_built,
        } = run(script, &arguments);
        let is_clear = !text.contains("unbound variable") && !text.contains(".sh: line ");
        assert!(
            code == Some(2) && is_clear,
            "{script} {arguments:?}: {code:?}\n{text}"
        );
        assert!(!has_built, "{script} {arguments:?} builds");
    }
}
