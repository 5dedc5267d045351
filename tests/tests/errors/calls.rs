//! Errors of calls: of ranks that are late, lost, or in other calls, and of values that do not fit.

use std::{
    fs, io,
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use rustix::{
    io::ioctl_fionread,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open},
};

use crate::{
    common::{PEER_FAILED, STORAGE, Stage, World, everybody, mounts::say, payloads, place},
    page::confirm,
    said::{all_say, all_tools_say, input, new_stage, text, two, two_tools},
};

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

/// The argument by which a gather writes one file.
fn whole(directory: &Path) -> String {
    format!("--concat={}", text(&directory.join("whole")))
}

#[test]
fn an_input_that_does_not_end() {
    let (place, work) = (place(), place());
    let world = World::new(2, place.path());
    let input = input(work.path(), 300_000);
    let whole = whole(work.path());
    let mut stage = two_tools(
        &world,
        &["gather", "--timeout", "2s", &input, &whole],
        &["gather", "--timeout", "2s", "-", &whole],
    );
    all_tools_say(&mut stage, 0..2, "an_input_that_does_not_end");
}

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
    stage.let_pass(Duration::from_millis(300));
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
    // They notice it between calls, of which nothing is seen from here.
    stage.let_pass(Duration::from_secs(2));
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
        &["gather", &input, &whole(work.path())],
        &["gather", text(&missing), &whole(work.path())],
    );
    let ends = stage.end_all(0..2);
    let (said, own) = (ends[0].told_by_tool(), ends[1].told_by_tool());
    // The rank itself says what is the matter, in its own words.
    let is_own = own.starts_with("cannot read ") && said.contains(&format!("failed ({own})"));
    assert!(is_own, "{}", stage.transcript());
    confirm("an_input_that_is_not_there", "", ends[0].code, said);
    assert_eq!(ends[1].code, STORAGE, "{}", stage.transcript());
}

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
fn different_transports() {
    // The world is made with files, so that only who asks for memory has something to set up.
    let place = place();
    let world = World::new(2, place.path());
    let by = |transport| format!("join by:{transport}:-:300000");
    let mut stage = two(&world, &by("memory"), &by("filesys"));
    all_say(&mut stage, 0..2, "different_transports");
}

#[test]
fn different_directories() {
    let (place, one, other) = (place(), place(), place());
    let world = World::new(2, place.path());
    let by = |directory: &Path| format!("join by:filesys:{}:300000", text(directory));
    let mut stage = two(&world, &by(one.path()), &by(other.path()));
    all_say(&mut stage, 0..2, "different_directories");
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
}

#[test]
fn different_tags() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join tagged:bleu", "join tagged:rouge");
    all_say(&mut stage, 0..2, "different_tags");
}

#[test]
fn different_types() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join all_gather:10", "join all_gather_bytes:10");
    all_say(&mut stage, 0..2, "different_types");
}

#[test]
fn a_value_over_the_bound() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join list:1000:10", "join list:1000:2000");
    all_say(&mut stage, 0..2, "a_value_over_the_bound");
}

#[test]
fn arrays_that_do_not_fit() {
    let place = place();
    let world = World::new(2, place.path());
    let mut stage = two(&world, "join misshapen", "join misshapen");
    all_say(&mut stage, 0..2, "arrays_that_do_not_fit");
}

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

/// The connections that a process of ours has, as copies of its sockets.
fn connections(pid: u32) -> Vec<TcpStream> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(number.expect("a pid"), PidfdFlags::empty()).expect("a process");
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("its files");
    let numbers = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    let copies =
        numbers.filter_map(|file| pidfd_getfd(&process, file, PidfdGetfdFlags::empty()).ok());
    let streams = copies.map(TcpStream::from);
    streams
        .filter(|stream| stream.peer_addr().is_ok())
        .collect()
}

/// The ends that the first process has of connections to the second one.
fn links(one: u32, other: u32) -> Vec<TcpStream> {
    // One end may be of a socket for both versions of IP.
    let end = |address: io::Result<SocketAddr>| {
        let address = address.ok()?;
        Some((address.ip().to_canonical(), address.port()))
    };
    let other = connections(other);
    let is_link = |link: &TcpStream| {
        let ends = (end(link.local_addr()), end(link.peer_addr()));
        let mut turned = other
            .iter()
            .map(|it| (end(it.peer_addr()), end(it.local_addr())));
        turned.any(|turned| turned == ends)
    };
    connections(one).into_iter().filter(is_link).collect()
}

#[test]
fn a_link_that_breaks() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join at:idle"));
    for rank in [1, 2] {
        let script = "join group:1,2 at:here gather_bytes:1:100000000 close_group";
        stage.start(&mut world.rank(rank, script));
    }
    stage.wait_at([1, 2], "here");
    if connections(stage.pid(1)).is_empty() {
        return say("skipped: sockets of other processes cannot be had here");
    }
    stage.go_all([1, 2]);
    let [one, other] = [1, 2].map(|rank| stage.pid(rank));
    // More than a request, and on its way.
    let is_sending = |link: &TcpStream| ioctl_fionread(link).is_ok_and(|unread| unread > 4096);
    stage.wait_until("a payload on its way", || {
        links(other, one).iter().any(is_sending)
    });
    // It takes nothing more while the link is being broken.
    stage.signal(2, Signal::STOP);
    for link in links(one, other) {
        link.shutdown(Shutdown::Both).expect("a connection");
    }
    stage.signal(2, Signal::CONT);
    all_say(&mut stage, [2], "a_link_that_breaks");
}
