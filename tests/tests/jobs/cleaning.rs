//! Tests what is left after a crash, who sees it, and who may remove it.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use crate::common::{
    STORAGE, Stage, World, assert_nothing_left,
    build::{cleaning_program, command_line_tool},
    everybody, left_in,
    leftovers::copy_of,
    place,
};
use fsgather_testkit::process;
use rustix::process::Signal;
use serde_json::Value;

/// As another user, or from another pid namespace.
type Prefix<'a> = &'a [&'a str];

const OTHER_PIDS: Prefix<'static> = &["unshare", "--pid", "--fork", "--mount-proc"];

/// A time namespace of its own: clocks of which start times are counted differ.
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

/// On a machine of this id, and in this boot where one is named.
const CLONE: &str = "mount --bind \"$1\" /etc/machine-id
    test -z \"$2\" || mount --bind \"$2\" /proc/sys/kernel/random/boot_id
    shift 2; exec \"$@\"";

fn command(prefix: Prefix<'_>, program: &Path, arguments: &[&str]) -> Output {
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The document that a verb prints, which must end with `code`.
fn json(prefix: Prefix<'_>, arguments: &[&str], code: i32) -> Value {
    let output = command(prefix, command_line_tool(), arguments);
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["schema_version"], 1);
    document
}

/// The only gather directory that `inspect` sees in a directory.
fn inspected(prefix: Prefix<'_>, directory: &Path) -> Value {
    let named = directory.to_str().expect("text");
    let document = json(prefix, &["inspect", "--json", named], 0);
    let gathers = document["directories"][0]["gather_dirs"].clone();
    assert_eq!(gathers.as_array().map(Vec::len), Some(1), "{document}");
    gathers[0].clone()
}

fn clean(prefix: Prefix<'_>, directory: &Path, more: &[&str]) -> Value {
    let named = directory.to_str().expect("text");
    json(prefix, &[&["clean", "--json", named], more].concat(), 0)
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: only root can do this");
    }
    is_root
}

fn gather_dirs(directory: &Path) -> Vec<PathBuf> {
    let mut left = left_in(directory);
    left.retain(|path| path.join("owner").exists());
    left
}

fn can_run(prefix: Prefix<'_>) -> bool {
    let can = process::output(Command::new(prefix[0]).args(&prefix[1..]).arg("true"));
    let can = can.is_ok_and(|output| output.status.success());
    if !can {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: {prefix:?} cannot be had here");
    }
    can
}

/// A world that holds a gather directory, and waits.
fn waiting(stage: &mut Stage, world: &World) {
    stage.start_all(world, |_| {
        "join all_gather_bytes:300000 at:ready all_gather_bytes:300000 close".into()
    });
    stage.wait_at(everybody(world.ranks), "ready");
}

#[test]
fn a_gather_killed_as_a_whole_is_stale_and_a_stopped_one_is_live() {
    let place = place();
    let mut stage = Stage::new();
    let world = World::new(2, place.path())
        .with("FSGATHER_JOB", "4711")
        .with("FSGATHER_TRACE", "off");
    waiting(&mut stage, &world);
    stage.signal(0, Signal::STOP);
    let seen = inspected(&[], place.path());
    assert_eq!(
        (&seen["state"], &seen["removable"]),
        (&"live".into(), &false.into())
    );
    let owner = &seen["owner"];
    assert_eq!(owner["pid"], stage.pid(0));
    assert_eq!(
        (&seen["job"], &seen["world_size"]),
        (&"4711".into(), &2.into())
    );
    let plan = clean(&[], place.path(), &["--execute", "--older-than", "1ms"]);
    assert_eq!(plan["removed"].as_array().map(Vec::len), Some(0), "{plan}");
    stage.kill(0);
    stage.kill(1);
    stage.end_all(everybody(2));
    let seen = inspected(&[], place.path());
    assert_eq!(seen["state"], "stale", "{seen}");
    let reason = seen["reason"].as_str().expect("text");
    let pid = format!("pid {} on ", stage.pid(0));
    assert!(
        reason.contains(&pid) && reason.ends_with("has ended"),
        "{reason}"
    );
    if is_root() {
        let seen = inspected(OTHER_PIDS, place.path());
        assert_eq!(seen["state"], "unknown", "{seen}");
        assert_eq!(seen["removable"], false, "{seen}");
        let plan = clean(OTHER_PIDS, place.path(), &["--execute"]);
        assert_eq!(plan["removed"].as_array().map(Vec::len), Some(0), "{plan}");
        assert_eq!(gather_dirs(place.path()).len(), 1, "{plan}");
    }
    let plan = clean(&[], place.path(), &[]);
    // The gather directory, rank 0's record, and the rendezvous directory that is empty then.
    assert_eq!(plan["planned"].as_array().map(Vec::len), Some(3), "{plan}");
    assert_eq!(gather_dirs(place.path()).len(), 1, "a plan removes nothing");
    clean(&[], place.path(), &["--execute"]);
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
}

#[test]
fn ranks_and_cleaners_in_another_time_namespace_disturb_nobody() {
    if !is_root() || !can_run(OTHER_TIME) {
        return;
    }
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
    if !is_root() {
        return;
    }
    let place = place();
    let (files, boot_id) = (
        crate::common::place(),
        "11111111-2222-3333-4444-555555555555\n",
    );
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
    if !can_run(&clone) {
        return;
    }
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
fn an_owner_that_wakes_after_its_directory_was_taken_away_gets_an_error() {
    if !is_root() {
        return;
    }
    let place = place();
    let mut stage = Stage::new();
    waiting(&mut stage, &World::new(2, place.path()));
    let directory = gather_dirs(place.path()).remove(0);
    stage.signal(0, Signal::STOP);
    // Time stamps of the server may be off by 2 s, so that a young directory is left alone.
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

#[test]
fn cleaning_all_the_time_disturbs_nobody_who_lives() {
    const LASTING: Duration = Duration::from_secs(12);
    let place = place();
    let rendezvous = place.path().join("all_gather_via_filesys");
    let until = Instant::now() + LASTING;
    let cleaned = std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| {
            let mut removed = 0;
            while Instant::now() < until {
                let done = clean(&[], place.path(), &["--execute", "--older-than", "1ms"]);
                let paths = done["removed"].as_array().expect("a list").iter();
                removed += paths
                    .filter(|item| {
                        item["path"]
                            .as_str()
                            .is_some_and(|path| path.contains("/gather-"))
                    })
                    .count();
            }
            removed
        });
        let mut killed = 0;
        for job in 0.. {
            if Instant::now() > until {
                break;
            }
            let mut stage = Stage::new();
            let world = World::new(2, place.path()).with("FSGATHER_JOB", &job.to_string());
            if job % 3 == 0 {
                waiting(&mut stage, &world);
                stage.kill(0);
                stage.kill(1);
                stage.end_all(everybody(2));
                killed += 1;
            } else {
                stage.start_all(&world, |_| {
                    "join all_gather_bytes:300000 gather_bytes:0:300000 close".into()
                });
                stage.succeed(everybody(2));
            }
        }
        (cleaner.join().expect("the cleaner"), killed)
    });
    // A process that is killed may leave a probe, of which only its age tells that nobody needs it.
    Stage::new().wait_until("all of it to go", || {
        clean(&[], place.path(), &["--execute", "--older-than", "1ms"]);
        !rendezvous.exists()
    });
    let (removed, killed) = cleaned;
    assert!(
        killed > 0 && removed > 0 && removed <= killed,
        "{cleaned:?}"
    );
}

#[test]
fn a_later_attempt_removes_what_an_earlier_one_has_left() {
    let place = place();
    let of = |job: &str| World::new(2, place.path()).with("FSGATHER_JOB", job);
    for job in ["4711", "4712"] {
        let mut stage = Stage::new();
        stage.start_all(&of(job), |_| "join gather_bytes:0:300000:read close".into());
        stage.wait_at([0], "reading");
        stage.kill(0);
        stage.kill(1);
        stage.end_all(everybody(2));
    }
    assert_eq!(gather_dirs(place.path()).len(), 2);
    assert!(crate::common::payloads(place.path()) > 0);
    let mut stage = Stage::new();
    // Another world size is the same job.
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "4711");
    stage.start_all(&world, |_| "join all_gather_bytes:300000 close".into());
    stage.succeed(everybody(3));
    let left = gather_dirs(place.path());
    assert_eq!(left.len(), 1, "{left:?}");
    let owner = fs::read_to_string(left[0].join("owner")).expect("a record");
    assert!(owner.contains("\njob=4712\n"), "{owner}");
    clean(&[], place.path(), &["--execute"]);
    let mut left = left_in(place.path());
    // Whoever was killed in the middle of asking for the server's time has left it for ten minutes.
    let is_probe = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("probe-")
    };
    left.retain(|path| !is_probe(path));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn text_is_for_people_and_tells_what_to_do() {
    let place = place();
    let named = place.path().to_str().expect("text");
    let mut stage = Stage::new();
    waiting(
        &mut stage,
        &World::new(2, place.path())
            .with("FSGATHER_JOB", "a\u{1b}[2Jb")
            .with("FSGATHER_TRACE", "off"),
    );
    stage.kill(0);
    stage.kill(1);
    stage.end_all(everybody(2));
    let output = command(&[], command_line_tool(), &["inspect", named]);
    let shown = text(&output.stdout);
    assert!(
        !shown.contains('\u{1b}') && shown.contains("a\\u{1b}[2Jb"),
        "{shown}"
    );
    assert!(
        shown.contains("0 live, 1 stale, 0 finished, 0 unknown, 1 leftover;"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("fsgather clean {named} --execute\n")),
        "{shown}"
    );
    let missing = place.path().join("missing");
    let missing = missing.to_str().expect("text");
    let output = command(&[], command_line_tool(), &["inspect", missing]);
    assert_eq!(output.status.code(), Some(STORAGE));
    assert!(text(&output.stderr).contains(missing));
    let output = command(&[], command_line_tool(), &["clean", missing]);
    assert_eq!(
        text(&output.stderr),
        format!("fsgather clean: cannot read {missing}: No such file or directory (os error 2)\n")
    );
    let bare = command(
        &[],
        command_line_tool(),
        &["clean", named, "--older-than", "5"],
    );
    assert_eq!(bare.status.code(), Some(2));
    assert_eq!(gather_dirs(place.path()).len(), 1);
}

/// Two users of one group in a project directory, with this mode of gather directories if any.
fn two_users(mode: Option<&str>) {
    const GROUP: u32 = 54_300;
    const USERS: [u32; 2] = [54_301, 54_302];
    if !is_root() {
        return;
    }
    let place = place();
    let tools = [crate::common::build::rank_program(), command_line_tool()];
    let tools = tools.map(|tool| {
        let copy = place.path().join(tool.file_name().expect("a name"));
        crate::common::copy_program(tool, &copy);
        copy
    });
    let project = place.path().join("project");
    fs::create_dir(&project).expect("a directory");
    std::os::unix::fs::chown(&project, None, Some(GROUP)).expect("root");
    for (path, mode) in [(place.path(), 0o755), (&project, 0o2770)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
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
    // The first user's crashes; only that user removes what is left of it.
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
fn users_who_share_within_their_group_still_clean_only_their_own() {
    two_users(Some("0770"));
}

/// Many copies of what one crashed job has left, under names of other jobs; their number.
fn many_leftovers(directory: &Path, count: u32) -> u32 {
    let mut stage = Stage::new();
    let world = World::new(2, directory).with("FSGATHER_JOB", "4711");
    waiting(&mut stage, &world);
    stage.kill(0);
    stage.kill(1);
    stage.end_all(everybody(2));
    let [gather] = &gather_dirs(directory)[..] else {
        return 0;
    };
    for number in 1..count {
        copy_of(gather, number);
    }
    count
}

#[test]
fn a_cleaning_that_is_interrupted_says_what_has_gone_and_what_has_not() {
    use std::io::{BufRead, BufReader, Read};
    let place = place();
    let count = many_leftovers(place.path(), 1200);
    assert!(count > 0);
    for (signal, name, code) in [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)] {
        let before = gather_dirs(place.path()).len();
        let mut command = Command::new(command_line_tool());
        command
            .args(["clean", "--execute"])
            .arg(place.path())
            .env_clear()
            .stdout(std::process::Stdio::piped());
        let mut child = process::spawn(&mut command).expect("a program that can be started");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = String::new();
        // It tells each removal as it happens, and cannot go on for long while nobody reads.
        output.read_line(&mut said).expect("text");
        assert!(said.starts_with("removed  "), "{said}");
        let pid = i32::try_from(child.id()).expect("a pid");
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("ours");
        output.read_to_string(&mut said).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(code), "{said}");
        let removed = said.lines().filter(|line| line.starts_with("removed  "));
        let removed = removed.count();
        let left = gather_dirs(place.path()).len();
        assert_eq!(before - left, removed, "{said}");
        assert!(left > 0, "{said}");
        let summary = said.lines().last().expect("a summary");
        let expected = format!("stopped by {name}: {removed} removed (");
        assert!(summary.starts_with(&expected), "{summary}");
        assert!(summary.contains(" to go ("), "{summary}");
    }
    assert_eq!(clean(&[], place.path(), &["--execute"])["stopped"], false);
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
}

#[test]
fn a_world_that_lives_has_left_nothing() {
    let place = place();
    let named = place.path().to_str().expect("text");
    let mut stage = Stage::new();
    let world = World::new(2, place.path());
    // The first rank of two: it waits for the other one.
    stage.start(&mut world.rank(0, "join close"));
    let of_inspect = || json(&[], &["inspect", "--json", named], 0)["directories"][0].clone();
    stage.wait_until("a record", || {
        let seen = of_inspect();
        assert_eq!(
            seen["leftovers"].as_array().map(Vec::len),
            Some(0),
            "{seen}"
        );
        let meeting = &seen["meetings"][0];
        meeting["forming"] == true && meeting["world_size"] == 2
    });
    let shown = command(&[], command_line_tool(), &["inspect", named]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("1 forming, 0 live, "), "{shown}");
    assert!(shown.contains(", 0 leftovers;"), "{shown}");
    assert!(
        shown.contains("      2 ranks expected; its writer, pid "),
        "{shown}"
    );
    fs::write(place.path().join("all_gather_via_filesys/thesis.tex"), "x").expect("a file");
    let plan = clean(&[], place.path(), &["--execute", "--older-than", "1ms"]);
    assert_eq!(plan["removed"].as_array().map(Vec::len), Some(0), "{plan}");
    let kept = plan["kept"].to_string();
    assert!(
        kept.contains("thesis.tex") && kept.contains("not written by fsgather"),
        "{kept}"
    );
    stage.start(&mut world.rank(1, "join close"));
    stage.succeed(everybody(2));
}
