//! `fsgather doctor` finds what keeps a job from running, names it, and leaves nothing.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

mod conformance;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{
    CONFIG, End, RENDEZVOUS, STORAGE, Stage, World, assert_nothing_left,
    build::command_line_tool,
    double_mount::DoubleMount,
    everybody, left_in,
    mounts::{Mounted, say},
    place, strangers,
};
use fsgather_testkit::pace::allowed;
use fsgather_testkit::process;
use serde_json::Value;

const USABLE: i32 = 0;

/// A stage whose time begins when the tool is there: building it does not count.
fn stage() -> Stage {
    command_line_tool();
    Stage::new()
}

/// What one process alone says under these variables.
fn alone(arguments: &[&str], variables: &[(&str, &str)]) -> End {
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

/// What ranks of a world say, each its end.
fn ranks(stage: &mut Stage, code: i32) -> Vec<End> {
    let ends = stage.end_all(0..2);
    for end in &ends {
        assert_eq!(end.code, code, "{}", stage.transcript());
    }
    ends
}

/// The document that a process has printed.
fn document(end: &End) -> Value {
    assert_eq!(end.stdout.len(), 1, "{end:?}");
    let document: Value = serde_json::from_str(&end.stdout[0]).expect("JSON");
    assert_eq!(document["schema_version"], 1);
    assert_eq!(document["exit_code"], end.code);
    document
}

/// The findings of a document at a level, as `topic: text`.
fn findings(document: &Value, level: &str) -> Vec<String> {
    let all = document["findings"].as_array().expect("findings");
    let wanted = all.iter().filter(|finding| finding["level"] == level);
    wanted
        .map(|finding| {
            let text = |field: &str| finding[field].as_str().expect("text").to_owned();
            format!("{}: {}", text("topic"), text("text"))
        })
        .collect()
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name");
    name.trim().to_owned()
}

#[test]
fn alone_it_tells_what_the_directory_can_do_and_what_only_several_ranks_can_try() {
    let place = place();
    let directory = place.path().to_str().expect("text");
    let brief = alone(&[directory], &[]);
    assert_eq!(brief.code, USABLE, "{brief:?}");
    assert_eq!(brief.stdout[0], "usable (0 problems, 0 warnings, 1 note)");
    let said = brief.stdout.join("\n");
    assert!(
        said.contains(" checks are ok; --verbose shows them"),
        "{said}"
    );
    assert!(said.contains("  FSGATHER_DIR "), "{said}");
    for text in ["every variable is understood", "FSGATHER_TIMEOUT"] {
        assert!(!said.contains(text), "{said}");
    }
    let end = alone(&[directory, "--verbose"], &[]);
    assert_eq!(end.code, USABLE, "{end:?}");
    let said = end.stdout.join("\n");
    for text in [
        "FSGATHER_DIR               ",
        "every variable is understood",
        "a world of one",
        "renaming works, hard links can be made; a payload of 1.5 MiB was published",
        "of up to",
        "are free",
        "no earlier run has left anything",
        &format!("srun fsgather doctor {directory}"),
        "usable (0 problems, 0 warnings, 1 note)",
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
}

#[test]
fn ranks_that_fsgather_run_starts_are_told_of_once_by_rank_0() {
    let place = place();
    let mut command = Command::new(command_line_tool());
    command
        .args(["run", "-n", "3", "--dir"])
        .arg(place.path())
        .arg("--")
        .arg(command_line_tool())
        .args(["doctor", "--json"])
        .env_clear();
    let mut stage = stage();
    stage.start(&mut command);
    let mut end = stage.end(0);
    assert_eq!(end.code, USABLE, "{}", stage.transcript());
    assert_eq!(end.stdout.len(), 1, "{end:?}");
    end.stdout[0] = end.stdout[0].trim_start_matches("[0] ").to_owned();
    let document = document(&end);
    assert_eq!(
        (&document["met"], &document["world_size"]),
        (&true.into(), &3.into())
    );
    assert_eq!(document["directory"], place.path().to_str().expect("text"));
    assert_eq!(document["world"]["carrier"], "tcp");
    assert_eq!(document["world"]["sees_same_mounts"], true);
    assert_eq!(findings(&document, "problem"), [""; 0]);
    assert_eq!(findings(&document, "warning"), [""; 0]);
    let ranks = document["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 3);
    for (number, facts) in ranks.iter().enumerate() {
        assert_eq!(
            (&facts["rank"], &facts["host"]),
            (&number.into(), &host().into())
        );
        let settings = facts["settings"].as_array().expect("settings");
        let of = |name: &str| {
            let mut named = settings.iter().filter(|setting| setting["name"] == name);
            named.next().expect(name)["origin"].as_str().expect("text")
        };
        assert_eq!(
            (of("FSGATHER_DIR"), of("FSGATHER_TIMEOUT")),
            ("FSGATHER_DIR", "default")
        );
        let own = facts["directory"]["own_uid"].as_u64();
        assert_eq!(own, Some(rustix::process::geteuid().as_raw().into()));
    }
    // One rank tries the addresses for all that share its network.
    let tried = ranks[1]["trial"]["reach"].as_array().expect("addresses");
    assert!(!tried.is_empty() && tried.iter().all(|fact| fact["seconds"].is_f64()));
    assert!(ranks[0]["directory"]["payload"]["read"]["mapped"].is_boolean());
    assert_nothing_left(place.path());
}

/// All names of fields in a document.
fn fields(document: &Value, all: &mut BTreeSet<String>) {
    match document {
        Value::Object(object) => {
            for (name, value) in object {
                all.insert(name.clone());
                fields(value, all);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, all)),
        _ => {}
    }
}

#[test]
fn the_page_on_documents_has_every_field_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("## doctor").expect("the section");
    let (_, example) = section.split_once("```json").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let example: Value = serde_json::from_str(example).expect("JSON");

    let place = place();
    let mut stage = stage();
    let world = World::new(2, place.path());
    for rank in 0..2 {
        stage.start(&mut world.tool(rank, &["doctor", "--json", "--conformance", "--calls=1"]));
    }
    let ends = ranks(&mut stage, USABLE);
    let (mut real, mut described) = (BTreeSet::new(), BTreeSet::new());
    fields(&document(&ends[0]), &mut real);
    fields(&example, &mut described);
    let shown_in_table = "address".to_owned();
    assert!(section.contains("\"address\"") && real.remove(&shown_in_table));
    assert_eq!(real, described);
}

#[test]
fn wrong_variables_are_all_named() {
    let place = place();
    let directory = place.path().to_str().expect("text");
    let variables = [
        ("FSGATHER_TIMEOUT", "30"),
        ("FSGATHER_PORT", "ssh"),
        ("FSGATHER_DRI", "/x"),
    ];
    let end = alone(&[directory], &variables);
    assert_eq!(end.code, CONFIG, "{end:?}");
    let said = end.stdout.join("\n");
    for text in [
        "FSGATHER_TIMEOUT=\"30\"",
        "a right one is FSGATHER_TIMEOUT=30m",
        "FSGATHER_PORT=\"ssh\"",
        "did you mean FSGATHER_DIR?",
        "not usable: settings are wrong (2 problems, 1 warning, 0 notes)",
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    let end = alone(&[directory, "--json"], &[("FSGATHER_LOG", "fsgather=loud")]);
    assert_eq!(end.code, CONFIG, "{end:?}");
    assert!(end.stderr.join("\n").contains("FSGATHER_LOG"), "{end:?}");
    // Each can be read, but they do not go together.
    let variables = [
        ("FSGATHER_CONTROL", "markers"),
        ("FSGATHER_RENDEZVOUS", "tcp://127.0.0.1:60001"),
    ];
    let document = document(&alone(&[directory, "--json"], &variables));
    assert_eq!(document["exit_code"], CONFIG);
    assert!(findings(&document, "problem")[0].contains("FSGATHER_CONTROL=markers"));
}

#[test]
fn directories_that_cannot_be_used_are_named() {
    let place = place();
    let file = place.path().join("file");
    fs::write(&file, "x").expect("a file");
    for path in [place.path().join("nowhere"), file] {
        let path = path.to_str().expect("text");
        let document = document(&alone(&[path, "--json"], &[]));
        assert_eq!(document["exit_code"], STORAGE);
        let problems = findings(&document, "problem");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with("directory: cannot use "),
            "{problems:?}"
        );
        assert!(problems[0].contains(path), "{problems:?}");
        // Ranks that cannot even meet there say so each for itself.
        let mut stage = stage();
        let world = World::new(2, Path::new(path));
        for rank in 0..2 {
            stage.start(&mut world.tool(rank, &["doctor"]));
        }
        for end in ranks(&mut stage, STORAGE) {
            // No more than what is wrong.
            let said = end.stdout.join("\n");
            assert!(end.stdout[0].starts_with("not usable: "), "{said}");
            assert!(end.stdout[0].contains("(1 problem, 0 warnings, "), "{said}");
            assert!(end.stdout[1].starts_with("report of rank "), "{said}");
            assert!(said.contains(path) && end.stdout.len() <= 5, "{said}");
        }
    }
}

#[test]
fn nothing_is_advised_that_harms_the_host() {
    for path in ["/dev/null", "/proc"] {
        let end = alone(&["--verbose", path], &[]);
        assert_eq!(end.code, STORAGE, "{end:?}");
        let said = end.stdout.join("\n");
        assert!(
            !said.contains("chmod") && !said.contains("make room"),
            "{said}"
        );
        assert!(said.contains("(1 problem, 0 warnings, "), "{said}");
    }
}

#[test]
fn a_read_only_directory_is_named_with_the_rank_that_cannot_write() {
    let place = place();
    // What others see is no hindrance.
    let Some(mounted) = Mounted::over(place.path(), "ro", "true") else {
        return;
    };
    let world = World::new(2, place.path()).with(
        "FSGATHER_RENDEZVOUS",
        &format!("tcp://127.0.0.1:{}", strangers::free_port()),
    );
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor", "--json"]));
    stage.start(&mut mounted.tool(&world, 1, &["doctor", "--json"]));
    let ends = ranks(&mut stage, STORAGE);
    let problems = findings(&document(&ends[0]), "problem").join("\n");
    assert!(problems.contains("ead-only file system"), "{problems}");
    assert!(
        problems.contains(place.path().to_str().expect("text")),
        "{problems}"
    );
    assert!(problems.contains(&host()), "{problems}");
    assert!(ends[1].stdout.is_empty(), "{ends:?}");
    assert_nothing_left(place.path());
}

#[test]
fn a_directory_that_is_not_shared_is_told_with_the_host() {
    let place = place();
    let Some(mounted) = Mounted::over(place.path(), "mode=0700", "true") else {
        return;
    };
    let world = World::new(2, place.path()).with(
        "FSGATHER_RENDEZVOUS",
        &format!("tcp://127.0.0.1:{}", strangers::free_port()),
    );
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor", "--json"]));
    stage.start(&mut mounted.tool(&world, 1, &["doctor", "--json"]));
    let ends = ranks(&mut stage, STORAGE);
    let document = document(&ends[0]);
    assert_eq!(document["conclusion"], "bad-directory");
    assert_eq!(document["world"]["blind"], Value::from(vec![1]));
    let problems = findings(&document, "problem");
    assert_eq!(problems.len(), 1, "{problems:?}");
    let named = format!("{} is not shared between all ranks", place.path().display());
    assert!(
        problems[0].contains(&named) && problems[0].contains(&host()),
        "{problems:?}"
    );
    let notes = findings(&document, "note").join("\n");
    assert!(
        notes.contains("from different places") && notes.contains("tmpfs"),
        "{notes}"
    );
    assert!(ends[1].stdout.is_empty(), "{ends:?}");
    assert_nothing_left(place.path());
    assert_nothing_left(&mounted.directory());
}

#[test]
fn ranks_that_do_not_share_the_place_where_they_meet_say_so_each_for_itself() {
    let place = place();
    let Some(mounted) = Mounted::over(place.path(), "mode=0700", "true") else {
        return;
    };
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor"]));
    stage.start(&mut mounted.tool(&world, 1, &["doctor"]));
    let started = Instant::now();
    let ends = ranks(&mut stage, RENDEZVOUS);
    assert!(started.elapsed() < allowed(Duration::from_secs(20)));
    let named = place.path().to_str().expect("text");
    for (rank, end) in ends.iter().enumerate() {
        let said = end.stdout.join("\n");
        assert!(said.contains(&format!("rank {rank} of 2")), "{said}");
        assert!(
            said.contains(&format!("if {named} is not the same directory")),
            "{said}"
        );
        assert!(
            said.contains(&format!("waiting for rank {}", 1 - rank)),
            "{said}"
        );
    }
    assert!(ends[1].stdout.join("\n").contains("on tmpfs"), "{ends:?}");
    // The launcher knows that ranks are on several hosts, and so it is plain why.
    let world = world
        .with("FSGATHER_LOCAL_WORLD_SIZE", "1")
        .with("FSGATHER_JOIN_TIMEOUT", "5m");
    let mut stage = self::stage();
    let started = Instant::now();
    stage.start(&mut world.tool(0, &["doctor"]));
    let end = stage.end(0);
    // Nobody waits for ranks that cannot come.
    assert!(started.elapsed() < allowed(Duration::from_secs(8)));
    assert_eq!(end.code, STORAGE, "{end:?}");
    let said = end.stdout.join("\n");
    assert!(said.contains(&format!("a file system of {} alone", host())));
    assert!(said.contains("(1 problem, 0 warnings, "), "{said}");
    assert_nothing_left(place.path());
}

/// Two ranks, of which the second has no network at all.
fn cut_off(control: &str) -> Option<(Stage, tempfile::TempDir)> {
    let alone = ["unshare".to_owned(), "--net".to_owned()];
    let tried = process::output(Command::new(&alone[0]).args([&alone[1], "true"]));
    if !tried.is_ok_and(|tried| tried.status.success()) {
        say("skipped: cannot make network namespaces here");
        return None;
    }
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_CONTROL", control);
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor", "--json"]));
    stage.start(&mut world.tool_behind(&alone, 1, &["doctor", "--json"]));
    Some((stage, place))
}

#[test]
fn ranks_that_cannot_reach_rank_0_are_a_failed_meeting_where_only_tcp_is_allowed() {
    let Some((mut stage, place)) = cut_off("tcp") else {
        return;
    };
    for end in ranks(&mut stage, RENDEZVOUS) {
        let document = document(&end);
        assert_eq!(
            (&document["met"], &document["conclusion"]),
            (&false.into(), &"no-meeting".into())
        );
        let problems = findings(&document, "problem");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("rank 1 on ") && problems[0].contains("over TCP"),
            "{problems:?}"
        );
    }
    assert_nothing_left(place.path());
}

#[test]
fn ranks_that_cannot_reach_rank_0_are_told_with_its_addresses_where_files_serve() {
    let Some((mut stage, place)) = cut_off("auto") else {
        return;
    };
    let ends = ranks(&mut stage, USABLE);
    let document = document(&ends[0]);
    assert_eq!(document["world"]["carrier"], "markers");
    let warnings = findings(&document, "warning").join("\n");
    assert!(
        warnings.contains("network: rank 0 cannot be reached over TCP"),
        "{warnings}"
    );
    assert!(warnings.contains("talk through marker files"), "{warnings}");
    assert_nothing_left(place.path());
}

#[test]
fn settings_that_differ_between_ranks_are_named() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor", "--json"]));
    let other = world.with("FSGATHER_TIMEOUT", "5m");
    stage.start(&mut other.tool(1, &["doctor", "--json"]));
    let ends = ranks(&mut stage, USABLE);
    assert_eq!(
        findings(&document(&ends[0]), "warning"),
        ["settings: FSGATHER_TIMEOUT differs: 30m on rank 0; 5m on rank 1"]
    );
}

#[test]
fn what_crashed_runs_have_left_is_counted_and_left_alone() {
    let place = place();
    let rendezvous = place.path().join("all_gather_via_filesys");
    let mut stage = stage();
    stage.start_all(&World::new(2, place.path()), |_| {
        "join all_gather_bytes:300000 at:here close".into()
    });
    stage.wait_at(everybody(2), "here");
    for rank in everybody(2) {
        stage.kill(rank);
    }
    stage.end_all(everybody(2));
    let left = left_in(place.path());
    assert!(!left.is_empty());
    let document = document(&alone(
        &[place.path().to_str().expect("text"), "--json"],
        &[],
    ));
    let notes = findings(&document, "note").join("\n");
    assert!(
        notes.contains("leftovers: earlier runs have left "),
        "{notes}"
    );
    assert_eq!(left_in(place.path()), left);
    assert!(rendezvous.exists());
}

#[test]
fn anybody_who_may_remove_files_is_warned_of() {
    let place = place();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).expect("our directory");
    let document = document(&alone(
        &[place.path().to_str().expect("text"), "--json"],
        &[],
    ));
    let warnings = findings(&document, "warning");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("anybody may remove") && warnings[0].contains("0777"));
}

/// What two hosts say that mount one directory each for itself.
fn on_two_hosts(mount: &DoubleMount, code: i32) -> Value {
    let world = mount.world();
    let mut stage = stage();
    for rank in 0..2 {
        stage.start(&mut mount.tool(&world, rank, &["doctor", "--json"]));
    }
    let ends = ranks(&mut stage, code);
    assert_nothing_left(&mount.behind());
    document(&ends[0])
}

#[test]
fn two_mounts_of_one_directory_are_proved_to_be_one_and_new_files_are_timed() {
    let Some(mount) = DoubleMount::new() else {
        return;
    };
    let document = on_two_hosts(&mount, USABLE);
    let told = findings(&document, "ok").join("\n");
    assert!(told.contains("is one directory for all"), "{told}");
    assert!(
        told.contains("a new file is seen by the other hosts within"),
        "{told}"
    );
    // Although both trust for 30 s what they remember.
    let trial = &document["ranks"][1]["trial"];
    for seconds in [
        &trial["saw_rank_0_seconds"],
        &trial["seen_by_rank_0_seconds"],
    ] {
        assert!(
            seconds.as_f64().is_some_and(|seconds| seconds < 5.0),
            "{trial}"
        );
    }
    assert!(trial["read"]["seconds"].is_f64(), "{trial}");
}

#[test]
fn what_a_file_system_lacks_or_refuses_is_told() {
    let Some(mount) = DoubleMount::with("--no-rename --no-link", 1) else {
        return;
    };
    let notes = findings(&on_two_hosts(&mount, USABLE), "note").join("\n");
    assert!(
        notes.contains("neither renaming nor hard links work"),
        "{notes}"
    );
    mount.rules(1, "fsync payload-* EDQUOT");
    let document = on_two_hosts(&mount, STORAGE);
    let problems = findings(&document, "problem").join("\n");
    assert!(problems.contains("uota exceeded"), "{problems}");
    let advice = document["findings"].to_string();
    assert!(
        advice.contains("your quota is used up: remove something, or name another directory"),
        "{advice}"
    );
    mount.rules(1, "");
}

#[test]
fn a_file_system_that_does_not_answer_is_told_within_20_seconds() {
    let Some(mount) = DoubleMount::with("", 1) else {
        return;
    };
    mount.rules(1, "fsync probe-* hang");
    let world = mount.world().with("FSGATHER_JOIN_TIMEOUT", "5s");
    let mut stage = stage();
    let started = Instant::now();
    stage.start(&mut mount.tool(&world, 0, &["doctor"]));
    let named = mount.directory();
    let expected = format!("{} does not answer: writing a file in it", named.display());
    stage.wait_for_where(0, &expected, |line| line.contains(&expected));
    assert!(started.elapsed() < allowed(Duration::from_secs(25)));
    // The kernel does not let go of a process that a FUSE server keeps waiting.
    mount.rules(1, "");
    assert_eq!(stage.end(0).code, STORAGE, "{}", stage.transcript());
}
