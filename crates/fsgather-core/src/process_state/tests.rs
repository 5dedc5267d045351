use std::{
    fs::File,
    io::{PipeWriter, pipe},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::*;

/// Starts a thread that waits, and looks at it until it waits in the call that is expected.
fn waits_in(name: &str, wait: impl FnOnce() + Send + 'static) -> Option<String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_pid().unsigned_abs())
            .unwrap();
        wait();
    });
    let thread = told.recv().unwrap();
    let start = Instant::now();
    loop {
        let state = state_of_own(thread);
        if let Some(ThreadState::Waiting { call, on, .. }) = &state
            && call.as_deref() == Some(name)
        {
            return on.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{state:?}");
        thread::yield_now();
    }
}

#[test]
fn a_thread_that_reads_a_connection_waits_for_its_other_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_other, _) = listener.accept().unwrap();
    let peer = format!("tcp {}", stream.peer_addr().unwrap());
    let on = waits_in("recvfrom", move || {
        let _ = stream.read(&mut [0]);
    });
    assert_eq!(on, Some(peer));
    let own = format!("tcp listening on {}", listener.local_addr().unwrap());
    let on = waits_in("accept4", move || drop(listener.accept()));
    assert_eq!(on, Some(own));
}

#[test]
fn a_wait_for_a_thread_or_a_pipe_is_reported_as_such() {
    let (_keep, never) = mpsc::channel::<()>();
    let waits = move || {
        let _ = never.recv();
    };
    assert_eq!(waits_in("futex", waits), None);
    let (mut reader, writer): (_, PipeWriter) = pipe().unwrap();
    let on = waits_in("read", move || {
        let _ = reader.read(&mut [0]);
    });
    assert_eq!(on.as_deref(), Some("a pipe"));
    drop(writer);
}

#[test]
fn a_thread_that_opens_a_file_is_told_with_its_path() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let path = fifo.clone();
    let on = waits_in("openat", move || drop(File::open(path)));
    assert_eq!(on.as_deref(), fifo.to_str());
    drop(File::options().write(true).open(fifo));
}

#[test]
fn a_stat_is_read_whatever_the_process_is_called() {
    let fields: Vec<String> = (4..=30).map(|field: u32| field.to_string()).collect();
    let fields = fields.join(" ");
    let stat = Stat::parse(&format!("12 (a) R 1) T {fields}")).unwrap();
    let expected = Stat {
        name: "a) R 1".into(),
        state: 'T',
        parent: 4,
        ticks: 14 + 15,
        ticks_of_children: 16 + 17,
        start_time: 22,
    };
    assert_eq!(stat, expected);
    assert_eq!(Stat::parse(""), None);
    assert_eq!(Stat::parse("1 (x) R"), None);
}

#[test]
fn time_of_a_tree_includes_its_children() {
    let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let script = format!("sh -c '{spin}'; sh -c '{spin}; echo; read _' & wait");
    let mut command = process::Command::new("sh");
    command.args(["-c", &script]).stdin(process::Stdio::piped());
    let mut child = fsgather_testkit::process::spawn(&mut command).unwrap();
    let time = || cpu_times_of_trees(&[child.id(), u32::MAX], 100);
    let begun = Instant::now();
    while time()[0].is_none_or(|time| time < Duration::from_millis(50)) {
        assert!(begun.elapsed() < fsgather_testkit::pace::patience());
        fsgather_testkit::pace::rest();
    }
    assert_eq!(time()[1], None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_processor_time_of_a_program_is_that_without_our_threads() {
    const TICKS_PER_SECOND: u64 = 100;
    let spin = |name: &str| {
        let spinning = thread::Builder::new().name(name.into()).spawn(|| {
            let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            while used().tv_sec == 0 && used().tv_nsec < 100_000_000 {}
            // That of all threads comes last: it grows meanwhile.
            let program = cpu_time(TICKS_PER_SECOND).unwrap();
            let all = Stat::read("/proc/self/stat").unwrap().ticks * 1000 / TICKS_PER_SECOND;
            (program, Duration::from_millis(all))
        });
        spinning.unwrap().join().unwrap()
    };
    let enough = Duration::from_millis(80);
    let (program, all) = spin("fsgather-spin");
    assert!(all.saturating_sub(program) >= enough, "{program:?} {all:?}");
    let (program, _) = spin("program");
    assert!(program >= enough, "{program:?}");
    let start = Stat::read("/proc/self/stat").unwrap().start_time;
    let neighbour = |start| cpu_time_of_process(process::id(), start, TICKS_PER_SECOND);
    assert!(neighbour(start).unwrap() >= program);
    assert_eq!(neighbour(start + 1), None);
}
