//! Compares the errors of ranks with the page: [`all_say`].

use std::{fs, path::Path};

use super::page::confirm;
use crate::common::{Stage, World, build::command_line_tool};

/// A stage, when everything has been built.
pub(crate) fn new_stage() -> Stage {
    command_line_tool();
    Stage::new()
}

/// Asserts that these ranks fail with the same error, which the page has for this test.
#[track_caller]
pub(crate) fn all_say(stage: &mut Stage, all: impl IntoIterator<Item = usize>, test: &str) {
    let ends = stage.end_all(all);
    for end in &ends {
        assert_eq!(end.error(), ends[0].error(), "{}", stage.transcript());
        confirm(test, end.kind(), end.code, end.error());
    }
}

/// The same for ranks that run the command-line tool.
#[track_caller]
pub(crate) fn all_tools_say(stage: &mut Stage, all: impl IntoIterator<Item = usize>, test: &str) {
    let ends = stage.end_all(all);
    for end in &ends {
        assert_eq!(
            end.told_by_tool(),
            ends[0].told_by_tool(),
            "{}",
            stage.transcript()
        );
        confirm(test, "", end.code, end.told_by_tool());
    }
}

/// Two ranks with these steps; both fail.
pub(crate) fn two(world: &World, one: &str, other: &str) -> Stage {
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, one));
    stage.start(&mut world.rank(1, other));
    stage
}

/// Two ranks that run the tool.
pub(crate) fn two_tools(world: &World, one: &[&str], other: &[&str]) -> Stage {
    let mut stage = new_stage();
    stage.start(&mut world.tool(0, one));
    stage.start(&mut world.tool(1, other));
    stage
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Makes an input file; returns its path.
pub(crate) fn input(directory: &Path, len: usize) -> String {
    let path = directory.join("input");
    fs::write(&path, fsgather_tests::Generated::new(0, len).bytes()).expect("a file");
    text(&path).into()
}
