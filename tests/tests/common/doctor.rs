//! `fsgather doctor` on one rank or several, and its report.

use std::{fs, process::Command};

use serde_json::Value;

use super::{End, Stage, build::command_line_tool};

pub(crate) const USABLE: i32 = 0;

/// A stage whose time begins when the tool exists: building it does not count.
pub(crate) fn stage() -> Stage {
    command_line_tool();
    Stage::new()
}

/// The end of a single process with these variables.
pub(crate) fn alone(arguments: &[&str], variables: &[(&str, &str)]) -> End {
    let mut command = Command::new(command_line_tool());
    command
        .arg("doctor")
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(variables.iter().copied());
    let mut stage = stage();
    stage.start(&mut command);
    stage.end(0)
}

/// The ends of the ranks of a world.
pub(crate) fn ranks(stage: &mut Stage, code: i32) -> Vec<End> {
    let ends = stage.end_all(0..2);
    for end in &ends {
        assert_eq!(end.code, code, "{}", stage.transcript());
    }
    ends
}

/// The document that a process has printed.
pub(crate) fn document(end: &End) -> Value {
    assert_eq!(end.stdout.len(), 1, "{end:?}");
    let document: Value = serde_json::from_str(&end.stdout[0]).expect("JSON");
    assert_eq!(document["schema_version"], 1);
    assert_eq!(document["exit_code"], end.code);
    document
}

/// The findings of a document at a level, as `topic: text`.
pub(crate) fn findings(document: &Value, level: &str) -> Vec<String> {
    let all = document["findings"].as_array().expect("findings");
    let wanted = all.iter().filter(|finding| finding["level"] == level);
    wanted
        .map(|finding| {
            let text = |field: &str| finding[field].as_str().expect("text").to_owned();
            format!("{}: {}", text("topic"), text("text"))
        })
        .collect()
}

pub(crate) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name");
    name.trim().to_owned()
}
