//! Tests the output of `ps` about a job of another user.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use fsgather_testkit::process;

use crate::common::{Stage, World, build::command_line_tool, everybody, mounts::need_root, place};

#[test]
fn another_user_is_told_whose_job_runs() {
    need_root();
    let place = place();
    let tool = place.path().join("fsgather");
    crate::common::copy_program(command_line_tool(), &tool);
    let world = World::new(2, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join barrier at:here close".to_owned());
    stage.wait_at([0, 1], "here");
    let rendezvous = place.path().join("all_gather_via_filesys");
    for path in [place.path(), &rendezvous] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    for options in [&["ps"][..], &["ps", "--stacks"], &["ps", "--json"]] {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=54301", "--regid=54301", "--clear-groups"])
            .arg(&tool)
            .args(options)
            .arg(place.path());
        let output = process::output(&mut command).expect("setpriv");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert!(!said.contains("no job runs"), "{said}");
        let why = "-r00000: Permission denied (os error 13); it is of root, who can read it; nor 1 more of that job";
        assert!(said.contains(why), "{said}");
    }
    for rank in 0..2 {
        stage.go(rank);
    }
    stage.succeed(everybody(2));
}
