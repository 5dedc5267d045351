//! The command-line tool, and the text or document that a verb prints.

use std::{
    path::Path,
    process::{Command, Output},
};

use fsgather_testkit::process;
use serde_json::Value;

use super::build::command_line_tool;

/// A command that runs another one, as another user or in another namespace.
pub(crate) type Prefix<'a> = &'a [&'a str];

/// Runs a program behind a prefix.
pub(crate) fn command(prefix: Prefix<'_>, program: &Path, arguments: &[&str]) -> Output {
    let mut words = prefix.to_vec();
    words.push(program.to_str().expect("text"));
    words.extend(arguments);
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    process::output(&mut command).expect("a program that can be started")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the document that a verb prints, which must end with `code`.
pub(crate) fn json(prefix: Prefix<'_>, arguments: &[&str], code: i32) -> Value {
    let output = command(prefix, command_line_tool(), arguments);
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["schema_version"], 1);
    document
}

/// Returns the only gather directory that `inspect` finds in a directory.
pub(crate) fn inspected(prefix: Prefix<'_>, directory: &Path) -> Value {
    let named = directory.to_str().expect("text");
    let document = json(prefix, &["inspect", "--json", named], 0);
    let gathers = document["directories"][0]["gather_dirs"].clone();
    assert_eq!(gathers.as_array().map(Vec::len), Some(1), "{document}");
    gathers[0].clone()
}

/// Returns the document of `clean`.
pub(crate) fn clean(prefix: Prefix<'_>, directory: &Path, more: &[&str]) -> Value {
    let named = directory.to_str().expect("text");
    json(prefix, &[&["clean", "--json", named], more].concat(), 0)
}

/// Returns what a verb that succeeds writes to its standard output, which is a pipe.
pub(crate) fn said(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(command_line_tool());
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(variables.iter().copied());
    let output = process::output(&mut command).expect("a program that can be started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}
