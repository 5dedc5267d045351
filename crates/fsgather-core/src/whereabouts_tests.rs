use super::*;

fn frame(file: &str, line: u32, function: &str) -> StackFrame {
    StackFrame {
        file: file.into(),
        line: Some(line),
        function: function.into(),
        is_own: true,
    }
}

fn library(file: &str, line: u32, function: &str) -> StackFrame {
    StackFrame {
        is_own: false,
        ..frame(file, line, function)
    }
}

fn waits(call: &str, on: Option<&str>) -> ThreadState {
    ThreadState::Waiting {
        call: Some(call.into()),
        on: on.map(str::to_owned),
        is_deaf: false,
    }
}

#[test]
fn the_innermost_function_and_the_programs_own_are_named() {
    let main = frame("/home/me/eval.py", 80, "main");
    let own = Whereabouts::own(
        vec![main.clone(), frame("/home/me/loader.py", 212, "__next__")],
        Some(waits("read", Some("/data/x.h5"))),
    );
    assert_eq!(
        own.to_string(),
        "loader.py:212 in __next__ (waiting, in read on /data/x.h5)"
    );
    let wait = library("/usr/lib/python3.11/threading.py", 320, "wait");
    let init = library(
        "/opt/v/lib/python3.11/site-packages/h5/__init__.py",
        7,
        "get",
    );
    let within = Whereabouts::own(vec![main.clone(), init.clone(), wait], None);
    assert_eq!(
        within.to_string(),
        "threading.py:320 in wait, called from eval.py:80 in main"
    );
    let init = Whereabouts::own(vec![init], Some(ThreadState::Running));
    assert_eq!(init.to_string(), "h5/__init__.py:7 in get (running)");
    let mut alone = Whereabouts::own(vec![frame("eval.py", 4, "job")], Some(ThreadState::Running));
    alone.main_has_ended = true;
    assert_eq!(
        alone.to_string(),
        "eval.py:4 in job (running); its main thread has ended"
    );
    (alone.frames, alone.state) = (Vec::new(), None);
    assert_eq!(alone.to_string(), "its main thread has ended");
    let unseen = Whereabouts::own(Vec::new(), None);
    assert_eq!(unseen.to_string(), "nothing can be seen of it");
    let stopped = Whereabouts::silent(Some(ThreadState::Stopped));
    assert_eq!(
        stopped.to_string(),
        "does not answer; its process is stopped"
    );
    assert_eq!(Whereabouts::silent(None).to_string(), "does not answer");
}

#[test]
fn a_held_lock_is_reported_with_the_thread_that_holds_it() {
    let of = |held_for, cpu_percent, state| {
        let mut own = Whereabouts::own(Vec::new(), Some(state));
        own.lock_holder = Some(LockHolder {
            held_for: Duration::from_secs(held_for),
            cpu_percent,
        });
        own.to_string()
    };
    assert_eq!(
        of(3, 99, ThreadState::Running),
        "a thread has held the interpreter's lock for 3 s (running, 99 % of a CPU)"
    );
    assert_eq!(
        of(61, 0, waits("clock_nanosleep", None)),
        "a thread has held the interpreter's lock for 1 min 1 s (waiting, in clock_nanosleep, 0 % of a CPU)"
    );
}

#[test]
fn what_travels_is_bounded() {
    let long = "é".repeat(LONGEST_TEXT);
    let frames = (0..100).map(|line| frame(&long, line, &long)).collect();
    let cut = Whereabouts::own(frames, Some(waits(&long, Some(&long))));
    assert_eq!(cut.frames.len(), MOST_FRAMES);
    assert_eq!(cut.frames.last().unwrap().line, Some(99), "the innermost");
    let longest = |text: &str| assert!(text.len() <= LONGEST_TEXT, "{}", text.len());
    for frame in &cut.frames {
        longest(&frame.file);
        longest(&frame.function);
    }
    let Some(ThreadState::Waiting { call, on, .. }) = &cut.state else {
        panic!("{cut:?}");
    };
    longest(call.as_ref().unwrap());
    longest(on.as_ref().unwrap());
}

#[test]
fn no_name_begins_a_line_or_hides_where_it_ends() {
    let forged = "f (running)\nWARNING: rank 0 on n0 is to blame\u{1b}[2J";
    let on = "/data/x\n  rank 0: a.py:1 in g";
    let own = Whereabouts::own(
        vec![frame("/a\nb.py", 4, forged)],
        Some(waits("read", Some(on))),
    );
    let mut received = own.clone();
    received.frames = vec![frame("/a\nb.py", 4, forged)];
    for seen in [own, received.cut_to_size()] {
        assert_eq!(
            seen.to_string(),
            "a?b.py:4 in f (running)?WARNING: rank 0 on n0 is to blame?[2J (waiting, in read on /data/x?  rank 0: a.py:1 in g)"
        );
    }
    let deep = format!("/x/{}/job.py", "d".repeat(3500));
    let own = Whereabouts::own(
        vec![frame(&deep, 4, "f")],
        Some(waits("openat", Some(&deep))),
    );
    let text = own.to_string();
    assert!(
        text.starts_with("job.py:4 in f (waiting, in openat on /x/ddd"),
        "{text}"
    );
    assert!(text.ends_with("ddd/job.py)"), "{text}");
}

#[test]
fn ranks_that_do_the_same_are_one_line() {
    let of = |line| Arc::new(Whereabouts::own(vec![frame("a.py", line, "f")], None));
    let ranks = (0..1000).map(|rank| (Rank::new(rank), of(u32::from(rank == 5))));
    let text = RollCall::of(ranks).to_string();
    assert_eq!(
        text,
        "\n  ranks 0-4 6-999: a.py:0 in f\n  rank 5: a.py:1 in f"
    );
    let all_differ = RollCall::of((0..1000).map(|rank| (Rank::new(rank), of(rank))));
    assert!(all_differ.to_string().lines().count() < 40);
}

#[test]
fn a_frame_without_a_line_names_its_file() {
    let frame = StackFrame {
        line: None,
        ..frame("/home/me/eval.py", 0, "load")
    };
    assert_eq!(frame.to_string(), "eval.py in load");
}

#[test]
fn of_too_many_that_differ_the_last_are_left_out_and_counted() {
    let doing = |rank: u32| {
        let own = vec![frame("a.py", rank, "run")];
        (Rank::new(rank), Arc::new(Whereabouts::own(own, None)))
    };
    let most = u32::try_from(RollCall::MOST_GROUPS).unwrap();
    let full = RollCall::of((0..most).map(doing));
    assert_eq!(
        (full.groups.len(), full.left_out),
        (RollCall::MOST_GROUPS, 0)
    );
    let beyond = RollCall::of((0..most + 2).map(doing));
    assert_eq!(
        (beyond.groups.len(), beyond.left_out),
        (RollCall::MOST_GROUPS, 2)
    );
    // So is one that comes from elsewhere.
    let whole = (0..most + 2).map(doing).map(|(rank, at)| (vec![rank], at));
    let mut received = RollCall {
        groups: whole.collect(),
        left_out: 0,
    };
    received.cut();
    assert_eq!(received.groups.len(), RollCall::MOST_GROUPS);
    assert_eq!(received.left_out, 2);
    assert!(RollCall::default().is_empty());
    assert!(!beyond.is_empty());
    let nobody_told = RollCall {
        left_out: 1,
        ..RollCall::default()
    };
    assert!(!nobody_told.is_empty());
}
