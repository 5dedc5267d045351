//! Every error that `docs/reference/errors.md` describes, provoked from the library and from the command-line
//! tool where that can meet it: the text on the page is what ranks say.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

mod common;
#[path = "errors/page.rs"]
mod page;

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use common::{
    PEER_FAILED, Stage, World,
    build::command_line_tool,
    everybody, left_in,
    mounts::{Mounted, say},
    payloads, place, strangers,
};
use page::confirm;
use rustix::process::Signal;

/// A stage, when everything has been built.
fn new_stage() -> Stage {
    command_line_tool();
    Stage::new()
}

/// What these ranks say, in the same words, is what the page has for this test.
#[track_caller]
fn all_say(stage: &mut Stage, all: impl IntoIterator<Item = usize>, test: &str) {
    let ends = stage.end_all(all);
    for end in &ends {
        assert_eq!(end.error(), ends[0].error(), "{}", stage.transcript());
        confirm(test, end.kind(), end.code, end.error());
    }
}

/// The same for ranks that run the command-line tool.
#[track_caller]
fn all_tools_say(stage: &mut Stage, all: impl IntoIterator<Item = usize>, test: &str) {
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

/// Two ranks that take these steps each; all fail.
fn two(world: &World, one: &str, other: &str) -> Stage {
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, one));
    stage.start(&mut world.rank(1, other));
    stage
}

/// Two ranks that run the tool.
fn two_tools(world: &World, one: &[&str], other: &[&str]) -> Stage {
    let mut stage = new_stage();
    stage.start(&mut world.tool(0, one));
    stage.start(&mut world.tool(1, other));
    stage
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A file to hand over.
fn input(directory: &Path, len: usize) -> String {
    let path = directory.join("input");
    fs::write(&path, fsgather_tests::Generated::new(0, len).bytes()).expect("a file");
    text(&path).into()
}

// Config

#[test]
fn a_value_that_is_none() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TIMEOUT", "soon");
    let test = "a_value_that_is_none";
    all_say(&mut two(&world, "join", "join"), 0..2, test);
    let barrier = ["barrier"];
    all_tools_say(&mut two_tools(&world, &barrier, &barrier), 0..2, test);
}

#[test]
fn half_of_what_a_launcher_says() {
    let half = |mut command: Command| {
        command.env_clear().env("OMPI_COMM_WORLD_SIZE", "4");
        let mut stage = new_stage();
        stage.start(&mut command);
        stage
    };
    let test = "half_of_what_a_launcher_says";
    let mut rank = Command::new(common::build::rank_program());
    rank.arg("join");
    all_say(&mut half(rank), [0], test);
    let mut tool = Command::new(command_line_tool());
    tool.arg("barrier");
    all_tools_say(&mut half(tool), [0], test);
}

#[test]
fn a_group_without_its_maker() {
    let place = place();
    let mut stage = two(&World::new(2, place.path()), "join close", "join group:0");
    all_say(&mut stage, [1], "a_group_without_its_maker");
}

#[test]
fn a_runtime_that_would_stand_still() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "current join", "current join");
    all_say(&mut stage, 0..2, "a_runtime_that_would_stand_still");
}

#[test]
fn results_that_were_not_read() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join unread:100000", "join unread:100000");
    all_say(&mut stage, [0], "results_that_were_not_read");
}

#[test]
fn everything_to_every_standard_output() {
    let place = place();
    let world = World::new(2, place.path());
    let all = ["gather", "--all", "/dev/null"];
    let mut stage = two_tools(&world, &all, &all);
    all_tools_say(&mut stage, 0..2, "everything_to_every_standard_output");
}

// Rendezvous

#[test]
fn one_rank_twice() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = new_stage();
    for rank in [0, 1, 1] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    all_say(&mut stage, 0..3, "one_rank_twice");
    let mut stage = new_stage();
    for rank in [0, 1, 1] {
        stage.start(&mut world.tool(rank, &["barrier"]));
    }
    all_tools_say(&mut stage, 0..3, "one_rank_twice");
}

#[test]
fn a_job_that_runs_already() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join at:running close", "join at:running close");
    stage.wait_at([0, 1], "running");
    let late = world.with("FSGATHER_JOIN_TIMEOUT", "1s");
    let newcomer = stage.start(&mut late.rank(1, "join close"));
    all_say(&mut stage, [newcomer], "a_job_that_runs_already");
    let newcomer = stage.start(&mut late.tool(1, &["barrier"]));
    all_tools_say(&mut stage, [newcomer], "a_job_that_runs_already");
    stage.go_all([0, 1]);
    stage.succeed([0, 1]);
}

#[test]
fn two_worlds_of_one_name() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = new_stage();
    for rank in [0, 0, 1] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    let ends = stage.end_all(0..3);
    // Each rank 0 says it from its own point of view.
    for end in &ends {
        confirm("two_worlds_of_one_name", end.kind(), end.code, end.error());
    }
}

#[test]
fn a_port_that_is_taken() {
    let taken = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let world = World::new(2, Path::new("/nonexistent"))
        .with("FSGATHER_RENDEZVOUS", &format!("tcp://127.0.0.1:{port}"))
        .with("FSGATHER_TRANSPORT", "memory");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    all_say(&mut stage, [0], "a_port_that_is_taken");
    let mut stage = new_stage();
    stage.start(&mut world.tool(0, &["barrier"]));
    all_tools_say(&mut stage, [0], "a_port_that_is_taken");
}

#[test]
fn a_rank_without_a_network() {
    let alone = ["unshare".to_owned(), "--net".to_owned()];
    let tried = Command::new("unshare").args(["--net", "true"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return say("skipped: cannot make network namespaces here");
    }
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_CONTROL", "tcp");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    stage.start(&mut world.rank_behind(&alone, 1, "join"));
    // At the same time, for that it is clear takes some seconds.
    let world = world.with("FSGATHER_JOB", "another");
    stage.start(&mut world.tool(0, &["barrier"]));
    stage.start(&mut world.tool_behind(&alone, 1, &["barrier"]));
    all_say(&mut stage, 0..2, "a_rank_without_a_network");
    all_tools_say(&mut stage, 2..4, "a_rank_without_a_network");
}

#[test]
fn a_record_of_a_rank_0_that_is_gone() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    let rendezvous = place.path().join("all_gather_via_filesys");
    stage.wait_until("a record", || {
        let entries = fs::read_dir(&rendezvous).into_iter().flatten();
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.any(|name| name.starts_with("rendezvous-"))
    });
    stage.kill(0);
    stage.end(0);
    let test = "a_record_of_a_rank_0_that_is_gone";
    let rank = stage.start(&mut world.rank(1, "join"));
    all_say(&mut stage, [rank], test);
    let rank = stage.start(&mut world.tool(1, &["barrier"]));
    all_tools_say(&mut stage, [rank], test);
}

// Timeout

#[test]
fn a_rank_that_does_not_come() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOIN_TIMEOUT", "1s");
    let mut stage = two(&world, "join", "join");
    all_say(&mut stage, 0..2, "a_rank_that_does_not_come");
    let barrier = ["barrier"];
    let mut stage = two_tools(&world, &barrier, &barrier);
    all_tools_say(&mut stage, 0..2, "a_rank_that_does_not_come");
}

#[test]
fn a_rank_0_that_does_not_come() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "1s");
    let mut stage = new_stage();
    stage.start(&mut world.rank(1, "join"));
    all_say(&mut stage, [0], "a_rank_0_that_does_not_come");
    let mut stage = new_stage();
    stage.start(&mut world.tool(1, &["barrier"]));
    all_tools_say(&mut stage, [0], "a_rank_0_that_does_not_come");
}

#[test]
fn an_address_at_which_nobody_is() {
    let port = strangers::free_port();
    let world = World::new(2, Path::new("/nonexistent"))
        .with("FSGATHER_RENDEZVOUS", &format!("tcp://127.0.0.1:{port}"))
        .with("FSGATHER_JOIN_TIMEOUT", "1s")
        .with("FSGATHER_TRANSPORT", "memory");
    let mut stage = new_stage();
    stage.start(&mut world.rank(1, "join"));
    all_say(&mut stage, [0], "an_address_at_which_nobody_is");
    let mut stage = new_stage();
    stage.start(&mut world.tool(1, &["barrier"]));
    all_tools_say(&mut stage, [0], "an_address_at_which_nobody_is");
}

#[test]
fn a_rank_that_stands_still() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_TIMEOUT", "2s");
    let mut stage = two(
        &world,
        "join barrier barrier",
        "join barrier at:here barrier",
    );
    stage.wait_at([1], "here");
    stage.signal(1, Signal::STOP);
    all_say(&mut stage, [0], "a_rank_that_stands_still");
    stage.signal(1, Signal::CONT);
    stage.go(1);
    all_say(&mut stage, [1], "a_rank_that_stands_still");
}

#[test]
fn an_input_that_does_not_end() {
    let (place, work) = (place(), place());
    let world = World::new(2, place.path());
    let input = input(work.path(), 300_000);
    let mut stage = two_tools(
        &world,
        &[
            "gather",
            "--timeout",
            "2s",
            &input,
            "--concat=/dev/null",
            "--force",
        ],
        &["gather", "--timeout", "2s"],
    );
    all_tools_say(&mut stage, 0..2, "an_input_that_does_not_end");
}

// PeerFailed

#[test]
fn a_rank_that_is_killed() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = new_stage();
    stage.start_all(&world, |rank| {
        let stop = if rank == 1 { "at:here" } else { "" };
        format!("join barrier {stop} barrier close")
    });
    stage.wait_at([1], "here");
    stage.kill(1);
    all_say(&mut stage, [0, 2], "a_rank_that_is_killed");
}

/// Three ranks gather by the tool; `late` waits for the end of its input, the others have handed in.
fn a_gather_that_waits_for(late: usize, directory: &Path, work: &Path) -> Stage {
    let world = World::new(3, directory);
    let input = input(work, 300_000);
    let mut stage = new_stage();
    for rank in 0..3 {
        let file = if rank as usize == late { "-" } else { &input };
        let out = work.join("got");
        let arguments = ["gather", file, "--out", text(&out)];
        stage.start(&mut world.tool(rank, &arguments));
    }
    stage.wait_until("two payloads", || payloads(directory) == 2);
    stage
}

#[test]
fn a_tool_that_is_killed() {
    let (place, work) = (place(), place());
    let mut stage = a_gather_that_waits_for(1, place.path(), work.path());
    stage.kill(1);
    all_tools_say(&mut stage, [0, 2], "a_tool_that_is_killed");
}

#[test]
fn a_tool_that_is_ended() {
    let (place, work) = (place(), place());
    let mut stage = a_gather_that_waits_for(1, place.path(), work.path());
    stage.signal(1, Signal::TERM);
    all_tools_say(&mut stage, [0, 2], "a_tool_that_is_ended");
}

#[test]
fn a_rank_0_that_is_killed_during_a_call() {
    let place = place();
    let test = "a_rank_0_that_is_killed_during_a_call";
    let mut stage = new_stage();
    stage.start_all(&World::new(3, place.path()), |rank| {
        let stop = if rank == 0 { "at:here" } else { "" };
        format!("join {stop} all_gather_bytes:100000 close")
    });
    stage.wait_at([0], "here");
    stage.wait_until("two payloads", || payloads(place.path()) == 2);
    // They have announced them a moment later.
    stage.let_pass(std::time::Duration::from_millis(300));
    stage.kill(0);
    all_say(&mut stage, 1..3, test);
}

#[test]
fn a_rank_0_that_is_killed_between_calls() {
    let place = place();
    let mut stage = new_stage();
    stage.start_all(&World::new(3, place.path()), |_| {
        "join barrier at:here barrier".into()
    });
    stage.wait_at(0..3, "here");
    stage.kill(0);
    stage.end(0);
    stage.go_all(1..3);
    all_say(&mut stage, 1..3, "a_rank_0_that_is_killed_between_calls");
}

/// Rank 1 of three fails by itself; what the others say.
fn fails_by_itself(step: &str, test: &str) {
    let place = place();
    let mut stage = new_stage();
    stage.start_all(&World::new(3, place.path()), |rank| {
        let step = if rank == 1 {
            step
        } else {
            "all_gather:10 close"
        };
        format!("join {step}")
    });
    all_say(&mut stage, [0, 2], test);
}

#[test]
fn a_rank_that_panics() {
    fails_by_itself("panic", "a_rank_that_panics");
}

#[test]
fn a_value_that_cannot_be_encoded() {
    fails_by_itself("encode_fails", "a_value_that_cannot_be_encoded");
}

#[test]
fn a_rank_that_leaves() {
    fails_by_itself("drop", "a_rank_that_leaves");
}

#[test]
fn an_input_that_is_not_there() {
    let (place, work) = (place(), place());
    let input = input(work.path(), 10);
    let missing = work.path().join("missing");
    let world = World::new(2, place.path());
    let mut stage = two_tools(
        &world,
        &["gather", &input, "--concat=/dev/null", "--force"],
        &["gather", text(&missing)],
    );
    all_tools_say(&mut stage, 0..2, "an_input_that_is_not_there");
}

// Desync

#[test]
fn different_calls() {
    let place = place();
    let world = World::new(2, place.path());
    all_say(
        &mut two(&world, "join barrier", "join gather:0:10"),
        0..2,
        "different_calls",
    );
}

#[test]
fn different_verbs() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two_tools(
        &world,
        &["barrier"],
        &["broadcast", "--root", "1", "/dev/null"],
    );
    all_tools_say(&mut stage, 0..2, "different_verbs");
}

#[test]
fn different_roots() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join gather_bytes:0:10", "join gather_bytes:1:10");
    all_say(&mut stage, 0..2, "different_roots");
    let to = |root| ["gather", "--root", root, "/dev/null"];
    let mut stage = two_tools(&world, &to("0"), &to("1"));
    all_tools_say(&mut stage, 0..2, "different_roots");
}

#[test]
fn different_types() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join all_gather:10", "join all_gather_bytes:10");
    all_say(&mut stage, 0..2, "different_types");
}

// Storage

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
fn a_directory_that_cannot_be_written() {
    let place = place();
    let Some(mounted) = Mounted::over(place.path(), "ro", "true") else {
        return;
    };
    let world = World::new(2, place.path());
    let test = "a_directory_that_cannot_be_written";
    let mut stage = new_stage();
    for rank in 0..2 {
        stage.start(&mut mounted.rank(&world, rank, "join"));
    }
    all_say(&mut stage, 0..2, test);
    let mut stage = new_stage();
    for rank in 0..2 {
        stage.start(&mut mounted.tool(&world, rank, &["gather", "/dev/null"]));
    }
    all_tools_say(&mut stage, 0..2, test);
}

#[test]
fn a_disk_that_fills_up() {
    let (place, work) = (place(), place());
    let Some(mounted) = Mounted::over(place.path(), "size=2m", "true") else {
        return;
    };
    let world = World::new(2, place.path());
    let test = "a_disk_that_fills_up";
    let mut stage = new_stage();
    for (rank, len) in [(0, 10), (1, 4_000_000)] {
        let script = format!("join all_gather_bytes:{len}");
        stage.start(&mut mounted.rank(&world, rank, &script));
    }
    all_say(&mut stage, 0..2, test);
    let large = input(work.path(), 4_000_000);
    let mut stage = new_stage();
    for (rank, file) in [(0, "/dev/null"), (1, large.as_str())] {
        stage.start(&mut mounted.tool(&world, rank, &["gather", file]));
    }
    all_tools_say(&mut stage, 0..2, test);
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

/// Something happens to rank 1's payload before rank 0 reads it; what rank 0 says, be it a program or the tool.
fn payload_that_suffers(harm: impl Fn(&Path), test: &str) {
    let (place, work) = (place(), place());
    let world = World::new(2, place.path());
    let gather = "join gather_bytes:0:2000000:read";
    let mut stage = two(&world, gather, &format!("{gather} fails:close"));
    stage.wait_at([0], "reading");
    harm(&payload_of(1, place.path()));
    stage.go(0);
    all_say(&mut stage, [0], test);
    // It comes to the others with their next call.
    let line = stage.wait_for_where(1, "its error", |line| line.starts_with("failed "));
    let told = &line["failed ".len()..];
    confirm(test, "", stage.end(0).code, told);

    let file = input(work.path(), 2_000_000);
    let mut stage = new_stage();
    // Its reader takes the first part only when it is told to.
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

// NotShared

#[test]
fn a_directory_that_hosts_do_not_share() {
    let place = place();
    let Some(mounted) = Mounted::over(place.path(), "mode=0700", "true") else {
        return;
    };
    let test = "a_directory_that_hosts_do_not_share";
    let address = || format!("tcp://127.0.0.1:{}", strangers::free_port());
    let world = |address: &str| {
        World::new(2, place.path())
            .with("FSGATHER_TRANSPORT", "filesys")
            .with("FSGATHER_RENDEZVOUS", address)
            .with("FSGATHER_SECRET", &"5c".repeat(32))
    };
    let its = world(&address());
    let mut stage = new_stage();
    stage.start(&mut its.rank(0, "join"));
    stage.start(&mut mounted.rank(&its, 1, "join"));
    all_say(&mut stage, 0..2, test);
    let its = world(&address());
    let mut stage = new_stage();
    stage.start(&mut its.tool(0, &["gather", "/dev/null"]));
    stage.start(&mut mounted.tool(&its, 1, &["gather", "/dev/null"]));
    all_tools_say(&mut stage, 0..2, test);
}

// Corrupt

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

// Incompatible

#[test]
fn a_payload_of_another_version() {
    let another = |path: &Path| overwrite(path, &99_u16.to_le_bytes(), 8);
    payload_that_suffers(another, "a_payload_of_another_version");
}

#[test]
fn a_build_of_another_version() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.write_all(b"fsg\x01\x63\0\x01\0");
            // It closes when it has heard this.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let world = World::new(2, Path::new("/nonexistent"))
        .with("FSGATHER_RENDEZVOUS", &format!("tcp://127.0.0.1:{port}"))
        .with("FSGATHER_JOIN_TIMEOUT", "1s")
        .with("FSGATHER_TRANSPORT", "memory");
    let mut stage = new_stage();
    stage.start(&mut world.rank(1, "join"));
    all_say(&mut stage, [0], "a_build_of_another_version");
    let mut stage = new_stage();
    stage.start(&mut world.tool(1, &["barrier"]));
    all_tools_say(&mut stage, [0], "a_build_of_another_version");
}

// TooLarge

#[test]
fn a_value_over_the_bound() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join list:1000:10", "join list:1000:2000");
    all_say(&mut stage, 0..2, "a_value_over_the_bound");
}

// Mismatch

#[test]
fn arrays_that_do_not_fit() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join misshapen", "join misshapen");
    all_say(&mut stage, 0..2, "arrays_that_do_not_fit");
}

// Poisoned

#[test]
fn a_communicator_that_has_failed() {
    let place = place();
    let world = World::new(2, place.path());
    let steps = |step: &str| format!("join fails:{step} barrier");
    let mut stage = two(&world, &steps("all_gather:10"), &steps("source_fails"));
    let ends = stage.end_all(everybody(2));
    for end in &ends {
        let code = end.code;
        assert_eq!(code, PEER_FAILED, "{}", stage.transcript());
        confirm(
            "a_communicator_that_has_failed",
            end.kind(),
            code,
            end.error(),
        );
    }
}
