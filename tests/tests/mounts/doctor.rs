//! `fsgather doctor` reports directories that are not shared, file systems that lack something, and file systems that hang.

use std::path::Path;

use serde_json::Value;

use crate::common::{
    End, RENDEZVOUS, STORAGE, World, assert_nothing_left,
    doctor::{USABLE, document, findings, host, ranks, stage},
    double_mount::DoubleMount,
    mounts::Mounted,
    place, strangers,
};

/// Runs doctor on two ranks, of which only rank 1 sees a file system of its own in the place of the directory; returns that file system and
/// both ends.
fn with_a_mount_of_rank_1(directory: &Path, options: &str) -> (Mounted, Vec<End>) {
    let mounted = Mounted::over(directory, options, "true");
    let world = World::new(2, directory).with(
        "FSGATHER_RENDEZVOUS",
        &format!("tcp://127.0.0.1:{}", strangers::free_port()),
    );
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor", "--json"]));
    stage.start(&mut mounted.tool(&world, 1, &["doctor", "--json"]));
    let ends = ranks(&mut stage, STORAGE);
    (mounted, ends)
}

#[test]
fn a_read_only_directory_is_named_with_its_rank() {
    let place = place();
    // The directory of rank 0 is fine.
    let (_mounted, ends) = with_a_mount_of_rank_1(place.path(), "ro");
    let document = document(&ends[0]);
    let problems = findings(&document, "problem").join("\n");
    assert!(problems.contains("ead-only file system"), "{problems}");
    assert!(
        problems.contains(place.path().to_str().expect("text")),
        "{problems}"
    );
    let all = document["findings"].as_array().expect("findings");
    let is_problem = |finding: &&Value| finding["level"] == "problem";
    let problem = all.iter().find(is_problem).expect("a problem");
    assert_eq!(problem["ranks"], Value::from(vec![1]));
    assert!(ends[1].stdout.is_empty(), "{ends:?}");
    assert_nothing_left(place.path());
}

#[test]
fn a_directory_that_is_not_shared_is_reported_with_the_host() {
    let place = place();
    let (mounted, ends) = with_a_mount_of_rank_1(place.path(), "mode=0700");
    let document = document(&ends[0]);
    assert_eq!(document["conclusion"], "bad-directory");
    let problems = findings(&document, "problem");
    assert_eq!(problems.len(), 1, "{problems:?}");
    let named = place.path().display().to_string();
    assert!(
        problems[0].contains(&named) && problems[0].contains(&host()),
        "{problems:?}"
    );
    assert!(ends[1].stdout.is_empty(), "{ends:?}");
    assert_nothing_left(place.path());
    assert_nothing_left(&mounted.directory());
}

#[test]
fn ranks_without_a_shared_meeting_place_each_say_so() {
    let place = place();
    let mounted = Mounted::over(place.path(), "mode=0700", "true");
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor"]));
    stage.start(&mut mounted.tool(&world, 1, &["doctor"]));
    let ends = ranks(&mut stage, RENDEZVOUS);
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
    // The launcher says that ranks are on several hosts, so that the cause is clear.
    let world = world
        .with("FSGATHER_LOCAL_WORLD_SIZE", "1")
        .with("FSGATHER_JOIN_TIMEOUT", "10m");
    let mut stage = self::stage();
    stage.start(&mut world.tool(0, &["doctor"]));
    // It does not wait 10 minutes for a rank that cannot join.
    let end = stage.end(0);
    assert_eq!(end.code, STORAGE, "{end:?}");
    let said = end.stdout.join("\n");
    assert!(said.contains(&format!("a file system of {} alone", host())));
    assert!(said.contains("(1 problem, 0 warnings)"), "{said}");
    assert_nothing_left(place.path());
}

/// The document of doctor on two hosts that mount one directory separately.
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
fn two_mounts_of_one_directory_are_one_directory() {
    let mount = DoubleMount::new();
    // Although both trust their caches for 30 s.
    let document = on_two_hosts(&mount, USABLE);
    let told = findings(&document, "ok").join("\n");
    assert!(told.contains("is one directory for all"), "{told}");
}

#[test]
fn what_a_file_system_lacks_or_refuses_is_told() {
    let mount = DoubleMount::with("--no-rename --no-link", 1);
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
fn a_file_system_that_hangs_is_named() {
    let mount = DoubleMount::with("", 1);
    mount.rules(1, "fsync probe-* hang");
    let world = mount.world().with("FSGATHER_JOIN_TIMEOUT", "5s");
    let mut stage = stage();
    stage.start(&mut mount.tool(&world, 0, &["doctor"]));
    let named = mount.directory();
    let expected = format!("{} does not answer: writing a file in it", named.display());
    stage.wait_for_where(0, &expected, |line| line.contains(&expected));
    // The kernel does not release a process that waits for a FUSE server.
    mount.rules(1, "");
    assert_eq!(stage.end(0).code, STORAGE, "{}", stage.transcript());
}
