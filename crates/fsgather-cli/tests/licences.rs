//! The licence texts that the program carries.

use std::{path::Path, process::Command};

use fsgather_testkit::process;

#[test]
fn the_texts_are_those_of_what_is_linked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut collect = Command::new("python3");
    collect.arg("scripts/collect-licences").arg("--check");
    let checked = process::output(collect.current_dir(root)).unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}

#[test]
fn a_reader_may_have_seen_enough() {
    let line = format!("'{}' licences | head -n 1", env!("CARGO_BIN_EXE_fsgather"));
    let seen = process::output(Command::new("sh").args(["-c", &line])).unwrap();
    assert!(String::from_utf8_lossy(&seen.stdout).starts_with("fsgather is under"));
    assert_eq!(String::from_utf8_lossy(&seen.stderr), "");
}

#[test]
fn the_command_prints_them() {
    let printed = |arguments: &[&str]| {
        let output = process::output(
            Command::new(env!("CARGO_BIN_EXE_fsgather"))
                .args(arguments)
                .env_clear(),
        );
        let output = output.unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let texts = printed(&["licences"]);
    for package in [
        "fsgather",
        "ring 0",
        "zstd-sys 2",
        "The Rust standard library",
    ] {
        assert!(texts.contains(&format!("\n{package}")), "{package}");
    }
    let document: serde_json::Value =
        serde_json::from_str(&printed(&["--json", "licences"])).unwrap();
    assert_eq!(document["licence"], "MIT OR Apache-2.0");
    assert_eq!(document["texts"], texts);
}
