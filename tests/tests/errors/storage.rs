//! Errors of directories and of the files in them.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    common::{World, build::command_line_tool, left_in, payloads, place},
    page::confirm,
    said::{all_say, all_tools_say, input, new_stage, two, two_tools},
};

#[test]
fn a_directory_that_is_not_there() {
    let place = place();
    let world = World::new(2, &place.path().join("nowhere"));
    let test = "a_directory_that_is_not_there";
    all_say(&mut two(&world, "join", "join"), 0..2, test);
    let gather = ["gather", "/dev/null"];
    all_tools_say(&mut two_tools(&world, &gather, &gather), 0..2, test);
}

#[test]
fn a_directory_that_is_replaced() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let script = |len: u32| format!("join all_gather_bytes:300000 at:ready all_gather_bytes:{len}");
    let mut stage = two(&world, &script(10), &script(300_000));
    stage.wait_at(0..2, "ready");
    let is_gather = |path: &PathBuf| path.is_dir();
    for gather in left_in(place.path()).into_iter().filter(is_gather) {
        fs::rename(&gather, place.path().join("moved")).expect("a gather directory");
        fs::create_dir(&gather).expect("another one");
    }
    for rank in 0..2 {
        stage.go(rank);
    }
    all_say(&mut stage, 0..2, "a_directory_that_is_replaced");
}

/// The payload file of a rank.
fn payload_of(rank: u32, directory: &Path) -> PathBuf {
    let gathers = left_in(directory).into_iter();
    let payloads = gathers.filter_map(|path| fs::read_dir(path.join("payloads")).ok());
    let mut files = payloads
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let found = files.find(|path| {
        let mut written_by = [0; 4];
        let file = fs::File::open(path).expect("a payload");
        file.read_exact_at(&mut written_by, 12).expect("a header");
        u32::from_le_bytes(written_by) == rank
    });
    found.expect("a payload of that rank")
}

/// Damages rank 1's payload before rank 0 reads it, and checks the error of rank 0, of a program and of the tool.
fn payload_that_suffers(harm: impl Fn(&Path), test: &str) {
    let (place, work) = (place(), place());
    let world = World::new(2, place.path()).with("FSGATHER_VERIFY", "always");
    let gather = "join gather_bytes:0:2000000:read";
    let mut stage = two(&world, gather, &format!("{gather} fails:close"));
    stage.wait_at([0], "reading");
    harm(&payload_of(1, place.path()));
    stage.go(0);
    all_say(&mut stage, [0], test);
    // The others get it at their next call.
    let line = stage.wait_for_where(1, "its error", |line| line.starts_with("failed "));
    let told = &line["failed ".len()..];
    confirm(test, "", stage.end(0).code, told);

    let file = input(work.path(), 2_000_000);
    let mut stage = new_stage();
    // Its reader waits for a line before it reads the first part.
    let script = "exec 3<&0
        { \"$@\" </dev/null || echo \"code $?\" >&2; } | { read -r line <&3; cat >/dev/null; }";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]);
    shell.arg(command_line_tool()).args(["gather", &file]);
    stage.start(&mut world.set_up(shell, 0, ""));
    stage.start(&mut world.tool(1, &["gather", &file]));
    stage.wait_until("two payloads", || payloads(place.path()) == 2);
    harm(&payload_of(1, place.path()));
    stage.go(0);
    let end = stage.end(0);
    let code = end
        .stderr
        .iter()
        .find_map(|line| line.strip_prefix("code "));
    let code = code.and_then(|code| code.parse().ok()).expect("a failure");
    confirm(test, "", code, end.told_by_tool());
    all_tools_say(&mut stage, [1], test);
}

#[test]
fn a_payload_that_is_removed() {
    let remove = |path: &Path| fs::remove_file(path).expect("a payload");
    payload_that_suffers(remove, "a_payload_that_is_removed");
}

fn overwrite(path: &Path, bytes: &[u8], at: u64) {
    let file = fs::OpenOptions::new().write(true).open(path);
    let file = file.expect("a payload");
    file.write_all_at(bytes, at).expect("a payload");
}

#[test]
fn a_payload_that_is_damaged() {
    let damage = |path: &Path| overwrite(path, b"damage", 1_500_000);
    payload_that_suffers(damage, "a_payload_that_is_damaged");
}

#[test]
fn a_payload_of_another_version() {
    let another = |path: &Path| overwrite(path, &99_u16.to_le_bytes(), 8);
    payload_that_suffers(another, "a_payload_of_another_version");
}
