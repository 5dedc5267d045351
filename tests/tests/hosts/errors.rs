//! Errors of `docs/reference/errors.md` that only root can provoke: those of networks, mounts, owners and sockets of other processes. The
//! program `errors` provokes the others, and checks that each text of the page is provoked here or there.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

#[path = "../errors/page.rs"]
mod page;
#[path = "../errors/said.rs"]
mod said;

use std::{
    fs, io,
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
};

use page::confirm;
use rustix::{
    io::ioctl_fionread,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open},
};
use said::{all_say, all_tools_say, input, new_stage, two, two_tools};

use crate::common::{
    World,
    mounts::{Mounted, need_root},
    place, strangers,
};

/// The words before a command that run it without any network, not even a loopback.
fn without_network() -> [String; 2] {
    need_root();
    ["unshare", "--net"].map(ToOwned::to_owned)
}

#[test]
fn a_rank_without_a_network() {
    let alone = without_network();
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_CONTROL", "tcp");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    stage.start(&mut world.rank_behind(&alone, 1, "join"));
    // At the same time, because detecting it takes some seconds.
    let world = world.with("FSGATHER_JOB", "another");
    stage.start(&mut world.tool(0, &["barrier"]));
    stage.start(&mut world.tool_behind(&alone, 1, &["barrier"]));
    all_say(&mut stage, 0..2, "a_rank_without_a_network");
    all_tools_say(&mut stage, 2..4, "a_rank_without_a_network");
}

#[test]
fn no_network_and_nothing_in_plain_text() {
    let alone = without_network();
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_ENCRYPT", "1");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join"));
    stage.start(&mut world.rank_behind(&alone, 1, "join"));
    all_say(&mut stage, 0..2, "no_network_and_nothing_in_plain_text");
}

#[test]
fn two_starts_on_one_host() {
    need_root();
    let elsewhere = ["unshare", "--pid", "--fork", "--mount-proc"].map(ToOwned::to_owned);
    let another_start = ["setsid", "--fork", "--wait"].map(ToOwned::to_owned);
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = new_stage();
    stage.start(&mut world.rank_behind(&elsewhere, 0, "join"));
    stage.start(&mut world.rank(1, "join"));
    stage.start(&mut world.rank_behind(&another_start, 2, "join"));
    let ends = stage.end_all(0..3);
    // The rank that came first is named first.
    for end in ends {
        let text = end.error().replace("rank 2 (", "rank 1 (");
        let text = text.replacen(" and rank 1 (", " and rank 2 (", 1);
        confirm("two_starts_on_one_host", end.kind(), end.code, &text);
    }
}

#[test]
fn a_directory_of_somebody_else() {
    need_root();
    let place = place();
    let rendezvous = place.path().join("all_gather_via_filesys");
    fs::create_dir(&rendezvous).expect("a directory");
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&rendezvous, everybody).expect("ours");
    chown(&rendezvous, Some(54_300), None).expect("root");
    let world = World::new(2, place.path());
    let test = "a_directory_of_somebody_else";
    all_say(&mut two(&world, "join", "join"), 0..2, test);
    let gather = ["gather", "/dev/null"];
    all_tools_say(&mut two_tools(&world, &gather, &gather), 0..2, test);
}

#[test]
fn a_directory_that_cannot_be_written() {
    let place = place();
    let mounted = Mounted::over(place.path(), "ro", "true");
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
    let mounted = Mounted::over(place.path(), "size=2m", "true");
    let world = World::new(2, place.path()).with("FSGATHER_TRANSPORT", "filesys");
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

#[test]
fn a_directory_that_hosts_do_not_share() {
    let place = place();
    let mounted = Mounted::over(place.path(), "mode=0700", "true");
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

/// The connections of a process of ours, as copies of its sockets.
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

/// The connections of the first process to the second one, as copies of its sockets.
fn links(one: u32, other: u32) -> Vec<TcpStream> {
    // One end may be a socket for both versions of IP.
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
    need_root();
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = new_stage();
    stage.start(&mut world.rank(0, "join at:idle"));
    for rank in [1, 2] {
        let script = "join group:1,2 at:here gather_bytes:1:100000000 close_group";
        stage.start(&mut world.rank(rank, script));
    }
    stage.wait_at([1, 2], "here");
    stage.go_all([1, 2]);
    let [one, other] = [1, 2].map(|rank| stage.pid(rank));
    // More than a request, in transit.
    let is_sending = |link: &TcpStream| ioctl_fionread(link).is_ok_and(|unread| unread > 4096);
    stage.wait_until("a payload on its way", || {
        links(other, one).iter().any(is_sending)
    });
    // It must not receive more while the link is broken.
    stage.signal(2, Signal::STOP);
    for link in links(one, other) {
        link.shutdown(Shutdown::Both).expect("a connection");
    }
    stage.signal(2, Signal::CONT);
    all_say(&mut stage, [2], "a_link_that_breaks");
}
