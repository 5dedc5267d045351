//! Tests what `trace` makes of files of calls that are not whole: it tells that, and takes no older call for the last one.

mod common;

use std::{fs, path::Path, process::Command};

use common::{Stage, World, build::command_line_tool, everybody, place};
use fsgather_testkit::process;

/// The status of `fsgather trace`, and all that it says.
fn trace(directory: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(command_line_tool());
    command.arg("trace").arg(directory).env_clear();
    let output = process::output(&mut command).expect("a program");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

/// What the header takes, and a record.
const HEADER: usize = 4096;
const RECORD: usize = 192;

#[test]
fn of_a_file_that_was_cut_no_older_call_is_taken_for_the_last_one() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TRACE", "always");
    let mut stage = Stage::new();
    let script = format!("join {}close", "barrier ".repeat(20));
    stage.start_all(&world, |_| script.clone());
    stage.succeed(everybody(2));
    let entries = fs::read_dir(place.path().join("all_gather_via_filesys")).expect("a directory");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("/calls-"))
        .collect();
    files.sort();
    let [_, file] = files.as_slice() else {
        panic!("{files:?}");
    };
    let whole = fs::read(file).expect("a file");
    let (status, said) = trace(place.path());
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains(", 2 ranks on ") && !said.contains("not read"),
        "{said}"
    );
    // Somewhere within the header, just after it, and among the calls.
    let cuts = [
        0,
        10,
        200,
        HEADER - 1,
        HEADER,
        HEADER + RECORD,
        HEADER + 5 * RECORD + 7,
    ];
    for cut in cuts {
        fs::write(file, &whole[..cut]).expect("a file");
        let (status, said) = trace(place.path());
        assert_eq!(status, Some(0), "{cut}: {said}");
        let not_read = format!("  not read: {}: ", file.display());
        assert!(said.contains(&not_read), "{cut}: {said}");
        assert!(
            said.contains(", 1 of 2 ranks have left their calls "),
            "{cut}: {said}"
        );
    }
    // A part in the middle: what came later is told, and what is away as well.
    let mut holed = whole.clone();
    holed[HEADER + 3 * RECORD..HEADER + 7 * RECORD].fill(0);
    fs::write(file, &holed).expect("a file");
    let (status, said) = trace(place.path());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains(", 2 ranks on "), "{said}");
    let what = ": 4 of its last 21 calls, which are missing or damaged";
    assert!(said.contains(what), "{said}");
    // None that can be read: they are there nevertheless.
    for file in &files {
        fs::write(file, &whole[..10]).expect("a file");
    }
    let (status, said) = trace(place.path());
    assert_eq!(status, Some(2), "{said}");
    for file in &files {
        let why = format!("not read: {}: it is incomplete or damaged", file.display());
        assert!(said.contains(&why), "{said}");
    }
}
