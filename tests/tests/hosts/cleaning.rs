//! Tests that `inspect` and `clean` spare jobs of other namespaces and of other users.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    STORAGE, Stage, World, assert_nothing_left,
    build::{cleaning_program, command_line_tool, rank_program},
    copy_program, everybody, left_in,
    leftovers::{crashed, gather_dirs, waiting},
    mounts::need_root,
    place,
    verbs::{Prefix, clean, command, inspected, text},
};

const OTHER_PIDS: Prefix<'static> = &["unshare", "--pid", "--fork", "--mount-proc"];

/// A time namespace of its own: its clocks for start times differ.
const OTHER_TIME: Prefix<'static> = &[
    "unshare",
    "--time",
    "--fork",
    "--kill-child",
    "--boottime",
    "100000",
    "--monotonic",
    "100000",
];

/// Runs a command with this machine id, and with this boot id if one is given.
const CLONE: &str = "mount --bind \"$1\" /etc/machine-id
    test -z \"$2\" || mount --bind \"$2\" /proc/sys/kernel/random/boot_id
    shift 2; exec \"$@\"";

#[test]
fn a_dead_owner_of_another_pid_namespace_proves_nothing() {
    need_root();
    let place = place();
    crashed(place.path(), 1);
    let seen = inspected(OTHER_PIDS, place.path());
    assert_eq!(seen["state"], "unknown", "{seen}");
    assert_eq!(seen["removable"], false, "{seen}");
    let plan = clean(OTHER_PIDS, place.path(), &["--execute"]);
    assert_eq!(plan["removed"].as_array().map(Vec::len), Some(0), "{plan}");
    assert_eq!(gather_dirs(place.path()).len(), 1, "{plan}");
}

#[test]
fn ranks_and_cleaners_in_another_time_namespace_disturb_nobody() {
    need_root();
    for control in ["tcp", "markers"] {
        let place = place();
        let mut stage = Stage::new();
        let world = World::new(2, place.path()).with("FSGATHER_CONTROL", control);
        let script = "join all_gather_bytes:300000 at:ready all_gather_bytes:300000 close";
        stage.start(&mut world.rank(0, script));
        let prefix: Vec<String> = OTHER_TIME.iter().map(ToString::to_string).collect();
        stage.start(&mut world.rank_behind(&prefix, 1, script));
        stage.wait_at(everybody(2), "ready");
        for prefix in [OTHER_TIME, &[]] {
            let done = clean(prefix, place.path(), &["--execute"]);
            assert_eq!(done["removed"].as_array().map(Vec::len), Some(0), "{done}");
        }
        stage.go_all(everybody(2));
        stage.succeed(everybody(2));
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_cleaner_on_a_clone_of_the_host_disturbs_nobody() {
    need_root();
    let (place, files, boot_id) = (place(), place(), "11111111-2222-3333-4444-555555555555\n");
    let in_files = |name: &str, text: &str| {
        let path = files.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("text").to_owned()
    };
    let machine = in_files("machine", "0123456789abcdef0123456789abcdef\n");
    let boot = in_files("boot", boot_id);
    let host = |boot: &str| {
        let words = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ];
        let words = words
            .into_iter()
            .chain(["sh", "-euc", CLONE, "sh", &machine, boot]);
        words.map(str::to_owned).collect::<Vec<String>>()
    };
    let (original, clone) = (host(""), host(&boot));
    let clone: Vec<&str> = clone.iter().map(String::as_str).collect();
    let mut stage = Stage::new();
    let world = World::new(2, place.path());
    for rank in 0..2 {
        let script = "join gather_bytes:0:300000:read close";
        stage.start(&mut world.rank_behind(&original, rank, script));
    }
    stage.wait_at([0], "reading");
    let seen = inspected(&clone, place.path());
    assert_eq!(
        (&seen["state"], &seen["removable"]),
        (&"unknown".into(), &false.into()),
        "{seen}"
    );
    let reason = seen["reason"].as_str().expect("text");
    assert!(
        reason.contains("booted since, but its last heartbeat"),
        "{reason}"
    );
    let done = clean(&clone, place.path(), &["--execute"]);
    assert_eq!(done["removed"].as_array().map(Vec::len), Some(0), "{done}");
    stage.go_all([0]);
    stage.succeed(everybody(2));
    assert_nothing_left(place.path());
}

#[test]
fn an_owner_resumed_after_its_directory_went_gets_an_error() {
    need_root();
    let place = place();
    let mut stage = Stage::new();
    waiting(&mut stage, &World::new(2, place.path()));
    let directory = gather_dirs(place.path()).remove(0);
    stage.signal(0, Signal::STOP);
    // Time stamps of the server may be off by 2 s, so that a young directory is not touched.
    stage.wait_until("the suspended one to be taken away", || {
        let named = place.path().to_str().expect("text");
        let cleaned = command(OTHER_PIDS, cleaning_program(), &[named, "200"]);
        assert!(cleaned.status.success(), "{}", text(&cleaned.stderr));
        !directory.exists()
    });
    let marks = left_in(place.path());
    let by = fs::read_to_string(&marks[0]).expect("the mark that stays");
    assert!(by.starts_with("fsgather clean"), "{by}");
    stage.signal(0, Signal::CONT);
    stage.go_all(everybody(2));
    let (error, _) = stage.fail_alike(everybody(2), STORAGE);
    assert!(error.contains(directory.to_str().expect("text")), "{error}");
    assert!(!directory.exists());
}

/// Two users of one group in a project directory, with this mode of gather directories if any.
fn two_users(mode: Option<&str>) {
    const GROUP: u32 = 54_300;
    const USERS: [u32; 2] = [54_301, 54_302];
    need_root();
    let place = place();
    let tools = [rank_program(), command_line_tool()];
    let tools = tools.map(|tool| {
        let copy = place.path().join(tool.file_name().expect("a name"));
        copy_program(tool, &copy);
        copy
    });
    let project = place.path().join("project");
    fs::create_dir(&project).expect("a directory");
    std::os::unix::fs::chown(&project, None, Some(GROUP)).expect("root");
    for (path, mode) in [(place.path(), 0o755), (&project, 0o2770)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(path, mode).expect("ours");
    }
    let group = format!("--regid={GROUP}");
    let users = USERS.map(|user| format!("--reuid={user}"));
    let as_user = |user: usize| ["setpriv", &users[user], &group, "--clear-groups"];
    let mut stages = [Stage::new(), Stage::new()];
    let mut gathers = Vec::new();
    for (user, stage) in stages.iter_mut().enumerate() {
        let mut world = World::new(2, &project);
        if let Some(mode) = mode {
            world = world.with("FSGATHER_DIR_MODE", mode);
        }
        for rank in 0..2 {
            let mut command = Command::new("setpriv");
            command.args(&as_user(user)[1..]).arg(&tools[0]);
            let script = "join all_gather_bytes:300000 at:ready all_gather_bytes:300000 close";
            stage.start(&mut world.set_up(command, rank, script));
        }
        stage.wait_at(everybody(2), "ready");
        let mut own = gather_dirs(&project);
        own.retain(|path| !gathers.contains(path));
        gathers.append(&mut own);
    }
    assert_eq!(gathers.len(), 2);
    let can_list = |user: usize, path: &Path| {
        let prefix = as_user(user);
        let path = path.join("payloads");
        let path = path.to_str().expect("text");
        command(&prefix, Path::new("ls"), &[path]).status.success()
    };
    assert!(can_list(0, &gathers[0]) && can_list(1, &gathers[1]));
    assert_eq!(can_list(0, &gathers[1]), mode.is_some());
    assert_eq!(can_list(1, &gathers[0]), mode.is_some());
    // The first user's job crashes; only that user removes its leftovers.
    for rank in 0..2 {
        stages[0].kill(rank);
    }
    stages[0].end_all(everybody(2));
    let tool = |user: usize| {
        let named = project.to_str().expect("text");
        let words = ["clean", "--json", "--execute", named];
        let output = command(&as_user(user), &tools[1], &words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let done: Value = serde_json::from_slice(&output.stdout).expect("a document");
        done
    };
    let done = tool(1);
    assert_eq!(done["removed"].as_array().map(Vec::len), Some(0), "{done}");
    assert!(
        done["kept"].to_string().contains("owned by uid 54301")
            && done["kept"].to_string().contains(r#""user":"uid 54301""#),
        "{done}"
    );
    assert!(gathers.iter().all(|gather| gather.exists()));
    let done = tool(0);
    assert!(!gathers[0].exists() && gathers[1].exists(), "{done}");
    stages[1].go_all(everybody(2));
    stages[1].succeed(everybody(2));
    assert_nothing_left(&project);
}

#[test]
fn users_of_one_project_directory_stay_apart() {
    two_users(None);
}

#[test]
fn users_sharing_in_a_group_still_clean_only_their_own() {
    two_users(Some("0770"));
}
