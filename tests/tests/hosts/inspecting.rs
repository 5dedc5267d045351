//! Tests the output of `inspect` and `clean` about leftovers of other users.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    process::Command,
};

use fsgather_testkit::process;

use crate::common::{
    build::command_line_tool, leftovers::crashed, mounts::need_root, place, verbs::said,
};

#[test]
fn what_others_have_left_is_told_with_the_way_to_remove_it() {
    const STRANGER: u32 = 54_301;
    need_root();
    let place = place();
    let tool = place.path().join("fsgather");
    crate::common::copy_program(command_line_tool(), &tool);
    let shared = place.path().join("shared");
    fs::create_dir(&shared).expect("a directory");
    let named = shared.to_str().expect("text");
    let gathers = crashed(&shared, 3);
    let rendezvous = gathers[0].parent().expect("a directory");
    for path in [place.path(), &shared, rendezvous] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    // Its files belong to another user; its record says root, and the server is believed.
    let of_nobody = &gathers[1];
    for path in [of_nobody.clone(), of_nobody.join("owner")] {
        chown(&path, Some(65_534), None).expect("root");
    }
    fs::set_permissions(of_nobody, fs::Permissions::from_mode(0o700)).expect("ours");
    let nobody = fs::read_to_string("/etc/passwd").expect("users");
    let line = nobody
        .lines()
        .find(|line| line.split(':').nth(2) == Some("65534"));
    let name = line
        .and_then(|line| line.split(':').next())
        .expect("a user without rights");
    let told = said(&["inspect", named], &[]);
    assert!(told.contains(&format!("      owned by {name}; ")), "{told}");
    let advice = format!(
        "1 belongs to another user: for u in {name}; do runuser -u $u -- fsgather clean {named} --execute; done\n"
    );
    assert!(told.contains(&advice), "{told}");
    let plan = said(&["clean", named], &[]);
    assert!(plan.ends_with(&advice), "{plan}");
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={STRANGER}"), "--clear-groups"])
        .arg(&tool)
        .args(["inspect", named]);
    let output = process::output(&mut command).expect("setpriv");
    let told = String::from_utf8(output.stdout).expect("text");
    assert!(
        told.contains("owned by root; ") && told.contains(&format!("owned by {name}; ")),
        "{told}"
    );
    assert!(told.contains("; at least "), "{told}");
    let closed = told.lines().find(|line| line.contains("00000001"));
    let closed = closed.expect("a row");
    assert!(
        closed.ends_with('?') && !closed.contains(" 0 bytes"),
        "{told}"
    );
    assert!(
        told.contains(&format!(
            "belong to 2 other users ({name}, root), each of whom can remove their own\n"
        )),
        "{told}"
    );
}
