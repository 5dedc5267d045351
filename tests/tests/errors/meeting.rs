//! Errors before there is a communicator, and errors of wrong arguments.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use crate::{
    common::{self, World, build::command_line_tool, place, strangers},
    page::confirm,
    said::{all_say, all_tools_say, new_stage, text, two, two_tools},
};

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
fn a_pending_call_at_close() {
    let place = place();
    let world = World::new(2, place.path());
    let script = "join start_all_gather:10 close";
    let mut stage = two(&world, script, script);
    all_say(&mut stage, 0..2, "a_pending_call_at_close");
}

#[test]
fn everything_to_every_standard_output() {
    let place = place();
    let world = World::new(2, place.path());
    let all = ["gather", "--all", "/dev/null"];
    let mut stage = two_tools(&world, &all, &all);
    all_tools_say(&mut stage, 0..2, "everything_to_every_standard_output");
}

#[test]
fn rank_0_without_descriptors() {
    let place = place();
    let open = "ulimit -n 160; for n in $(seq 12 156); do eval \"exec $n</dev/null\"; done; exec \"$0\" \"$@\"";
    let full = ["bash", "-c", open].map(str::to_owned);
    let world = World::new(2, place.path());
    let test = "rank_0_without_descriptors";
    let mut stage = new_stage();
    stage.start(&mut world.rank_behind(&full, 0, "join"));
    all_say(&mut stage, [0], test);
    let mut stage = new_stage();
    stage.start(&mut world.tool_behind(&full, 0, &["barrier"]));
    all_tools_say(&mut stage, [0], test);
}

#[test]
fn one_rank_twice() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "twice");
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
    let world = World::new(2, place.path()).with("FSGATHER_JOB", "twice");
    // From two terminals.
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join at:running close"));
    stage.start(&mut world.rank_behind(&another_start(), 1, "join at:running close"));
    stage.wait_at([0, 1], "running");
    let newcomer = stage.start(&mut world.rank_behind(&another_start(), 1, "join close"));
    all_say(&mut stage, [newcomer], "a_job_that_runs_already");
    let newcomer = stage.start(&mut world.tool_behind(&another_start(), 1, &["barrier"]));
    all_tools_say(&mut stage, [newcomer], "a_job_that_runs_already");
    stage.go_all([0, 1]);
    stage.succeed([0, 1]);
}

#[test]
fn two_worlds_of_one_name() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "twice");
    let mut stage = new_stage();
    for rank in [0, 0, 1] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    let ends = stage.end_all(0..3);
    // Each rank 0 reports it from its own point of view.
    for end in &ends {
        confirm("two_worlds_of_one_name", end.kind(), end.code, end.error());
    }
}

/// A rank of a job of three as an agent of torchrun starts it.
fn of_attempt(restarts: u32, rank: u32, mut command: Command) -> Command {
    command
        .env_remove("FSGATHER_RANK")
        .env_remove("FSGATHER_WORLD_SIZE")
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", "3")
        .env("MASTER_ADDR", "n1")
        .env("MASTER_PORT", "29500")
        .env("TORCHELASTIC_RUN_ID", "job")
        .env("TORCHELASTIC_RESTART_COUNT", restarts.to_string());
    command
}

/// Checks the errors of ranks 0, 1 and 1 of these attempts, the second of which is accepted before the third starts; of programs and of the
/// tool.
fn attempts(counts: [u32; 3], fail: &[usize], test: &str) {
    let says = |is_tool: bool| {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_LOG", "info");
        let mut stage = new_stage();
        for (rank, count) in [0, 1, 1].into_iter().zip(counts) {
            let command = if is_tool {
                world.tool(rank, &["barrier"])
            } else {
                world.rank(rank, "join")
            };
            let index = stage.start(&mut of_attempt(count, rank, command));
            if index == 1 {
                stage.wait_until_taken_in(index);
            }
        }
        let fail = fail.iter().copied();
        if is_tool {
            all_tools_say(&mut stage, fail, test);
        } else {
            all_say(&mut stage, fail, test);
        }
    };
    says(false);
    says(true);
}

#[test]
fn a_rank_of_an_earlier_attempt() {
    attempts([1, 1, 0], &[2], "a_rank_of_an_earlier_attempt");
}

#[test]
fn two_attempts_in_one_world() {
    attempts([1, 0, 1], &[0, 1, 2], "two_attempts_in_one_world");
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
fn a_rank_that_has_another_secret() {
    let place = place();
    let with = |secret: &str| {
        let world = World::new(2, place.path()).with("FSGATHER_JOB", "of two minds");
        world.with("FSGATHER_SECRET", &secret.repeat(32))
    };
    let mut stage = new_stage();
    stage.start(&mut with("5c").rank(0, "join"));
    stage.start(&mut with("5d").rank(1, "join"));
    all_say(&mut stage, 0..2, "a_rank_that_has_another_secret");
}

#[test]
fn a_secret_that_others_can_read() {
    let place = place();
    let file = place.path().join("secret");
    fs::write(&file, "5c".repeat(32)).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("its mode");
    let world = World::new(2, place.path()).with("FSGATHER_SECRET_FILE", text(&file));
    let test = "a_secret_that_others_can_read";
    all_say(&mut two(&world, "join", "join"), 0..2, test);
    let barrier = ["barrier"];
    all_tools_say(&mut two_tools(&world, &barrier, &barrier), 0..2, test);
}

#[test]
fn a_record_of_a_rank_0_that_is_gone() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    let rendezvous = place.path().join("all_gather_via_filesys");
    // The name exists before its contents.
    stage.wait_until("a whole record", || {
        let mut entries = fs::read_dir(&rendezvous).into_iter().flatten().flatten();
        entries.any(|entry| {
            let is_record = entry
                .file_name()
                .to_string_lossy()
                .starts_with("rendezvous-");
            is_record && entry.metadata().is_ok_and(|found| found.len() > 0)
        })
    });
    stage.kill(0);
    stage.end(0);
    let test = "a_record_of_a_rank_0_that_is_gone";
    let rank = stage.start(&mut world.rank(1, "join"));
    all_say(&mut stage, [rank], test);
    let rank = stage.start(&mut world.tool(1, &["barrier"]));
    all_tools_say(&mut stage, [rank], test);
}

/// The words before a command that start it separately, like a rank of another start.
fn another_start() -> [String; 3] {
    ["setsid", "--fork", "--wait"].map(ToOwned::to_owned)
}

/// Rank 0, and rank 1 of another start.
fn ranks_of_two_starts(place: &Path) -> common::Stage {
    let world = World::new(2, place).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    stage.start(&mut world.rank_behind(&another_start(), 1, "join"));
    stage
}

#[test]
fn a_rank_0_of_another_start() {
    let place = place();
    let mut stage = ranks_of_two_starts(place.path());
    all_say(&mut stage, [1], "a_rank_0_of_another_start");
}

#[test]
fn a_rank_of_another_start() {
    let place = place();
    let mut stage = ranks_of_two_starts(place.path());
    all_say(&mut stage, [0], "a_rank_of_another_start");
}

#[test]
fn a_meeting_that_had_failed_before() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "2s");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    stage.end(0);
    let late = stage.start(&mut world.rank(1, "join"));
    all_say(&mut stage, [late], "a_meeting_that_had_failed_before");
}

#[test]
fn a_rank_that_does_not_come() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOIN_TIMEOUT", "1s");
    let mut stage = two(&world, "join", "join");
    all_say(&mut stage, 0..2, "a_rank_that_does_not_come");
    let barrier = ["barrier"];
    // A job without an earlier failed meeting.
    let world = world.with("FSGATHER_JOB", "another");
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
    let world = world.with("FSGATHER_JOB", "another");
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
fn a_build_of_another_version() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.write_all(b"fsg\x01\x63\0\x01\0");
            // The peer closes the connection when it has read this.
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
