//! Tests that the README shows the real output for a newcomer.

#![expect(
    clippy::unwrap_used,
    reason = "a check reports by panicking, in its helpers too"
)]

mod common;

use std::{fs, path::Path, process::Command};

use fsgather_testkit::process;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap()
}

/// The first block of a language in the README.
fn block(language: &str) -> String {
    let text = readme();
    let begin = format!("```{language}\n");
    let (_, rest) = text.split_once(&begin).unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

/// Removes the parts that differ from run to run: times, and the name of the directory.
fn without_figures(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        let is_figure = word.parse::<f64>().is_ok() && word.contains('.');
        if word.starts_with("/tmp/") {
            "DIRECTORY"
        } else if is_figure && line.starts_with("rank 0 took") {
            "N"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_demo_prints_what_the_first_screen_shows() {
    let shown = block("console");
    let mut shown = shown.lines();
    assert_eq!(shown.next(), Some("$ cargo run --release -- demo"));
    let output = process::output(
        Command::new(common::build::command_line_tool())
            .arg("demo")
            .env("TMPDIR", "/tmp"),
    )
    .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let shown: Vec<String> = shown.map(without_figures).collect();
    let printed: Vec<String> = printed.lines().map(without_figures).collect();
    // `...` stands for the lines that the first screen leaves out.
    let left_out = shown.iter().position(|line| line == "...").unwrap();
    let (before, after) = (&shown[..left_out], &shown[left_out + 1..]);
    assert!(printed.starts_with(before), "{printed:#?}");
    assert!(printed.ends_with(after), "{printed:#?}");
}

#[test]
fn every_verb_of_the_command_is_in_the_table() {
    let help =
        process::output(Command::new(common::build::command_line_tool()).arg("--help")).unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, verbs) = help.split_once("Commands:\n").unwrap();
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    let readme = readme();
    let mut seen = 0;
    for verb in verbs.filter_map(|line| line.split_whitespace().next()) {
        if verb != "help" {
            let name = format!("`fsgather {verb}");
            assert!(readme.contains(&name), "{verb} is missing from the README");
            seen += 1;
        }
    }
    assert_eq!(seen, 15);
}

#[test]
fn files_that_the_readme_points_to_exist() {
    let readme = readme();
    let links: Vec<&str> = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    assert!(links.len() > 5);
    for link in links {
        let file = link.split('#').next().unwrap_or_default();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        assert!(path.exists(), "{link}");
    }
}
