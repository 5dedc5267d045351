//! Threads of this program that wait are told with the functions that they wait in, and never with others.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(clippy::unwrap_used, reason = "a check that cannot look has failed")]

use std::{
    collections::BTreeMap,
    hint::black_box,
    io::{PipeReader, Read, Write, pipe},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use fsgather_core::{ThreadState, Whereabouts};
use fsgather_stacks::{Caller, look};

/// Looks are about the thread that has come last.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline(never)]
fn naps(of: Duration) -> u32 {
    thread::park_timeout(of);
    black_box(1)
}

#[inline(never)]
fn waits_for_lock(lock: &Mutex<u32>) -> u32 {
    *lock.lock().unwrap() + black_box(1)
}

#[inline(never)]
fn reads(pipe: &mut PipeReader) -> u32 {
    let mut byte = [0];
    black_box(pipe.read_exact(&mut byte).is_ok());
    u32::from(byte[0])
}

#[inline(never)]
fn outer(work: &mut dyn FnMut() -> u32) -> u32 {
    work() + black_box(1)
}

/// What is told of a thread that does this, as soon as it waits in one of these calls.
fn told(calls: &[&str], work: impl FnOnce() + Send + 'static) -> Whereabouts {
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let _in_a_call = Caller::enter();
        tell.send(()).unwrap();
        work();
    });
    hear.recv().unwrap();
    let start = Instant::now();
    loop {
        let seen = look(None).unwrap();
        if let Some(ThreadState::Waiting {
            call: Some(call), ..
        }) = &seen.state
            && calls.contains(&call.as_str())
            && !seen.frames.is_empty()
        {
            return seen;
        }
        assert!(start.elapsed() < Duration::from_mins(2), "{seen}");
        thread::yield_now();
    }
}

fn names(seen: &Whereabouts) -> Vec<&str> {
    let frames = seen.frames.iter();
    let names = frames.map(|frame| {
        frame
            .function
            .strip_prefix("machine_code::")
            .unwrap_or(&frame.function)
    });
    names.filter(|name| !name.contains("closure")).collect()
}

#[test]
fn who_waits_for_a_lock_sleeps_or_reads_is_told_with_the_functions_that_have_led_there() {
    let _alone = alone();
    let seen = told(&["futex"], || {
        outer(&mut || naps(Duration::from_mins(1)));
    });
    assert_eq!(names(&seen), ["outer", "naps"], "{seen}");
    assert_eq!(seen.to_string(), "machine_code::naps (waiting, in futex)");
    assert!(
        seen.frames
            .iter()
            .all(|frame| frame.is_own && frame.line.is_none())
    );

    let lock = Arc::new(Mutex::new(1));
    let held = lock.lock().unwrap();
    let other = Arc::clone(&lock);
    let seen = told(&["futex"], move || {
        outer(&mut || waits_for_lock(&other));
    });
    assert_eq!(names(&seen), ["outer", "waits_for_lock"], "{seen}");
    drop(held);

    let (mut reader, writer) = pipe().unwrap();
    let seen = told(&["read"], move || {
        reads(&mut reader);
    });
    assert_eq!(
        seen.to_string(),
        "machine_code::reads (waiting, in read on a pipe)"
    );
    drop(writer);
}

#[test]
fn of_a_thread_that_goes_on_no_function_is_told_that_it_was_not_in() {
    const LOOKS: usize = 2000;
    let _alone = alone();
    let goes = Arc::new(AtomicBool::new(true));
    let (mut reader, mut writer) = pipe().unwrap();
    let lock = Arc::new(Mutex::new(1));
    let (tell, hear) = mpsc::channel();
    let worker = {
        let (goes, lock) = (Arc::clone(&goes), Arc::clone(&lock));
        thread::spawn(move || {
            let _in_a_call = Caller::enter();
            tell.send(()).unwrap();
            while goes.load(Ordering::Relaxed) {
                first(&mut reader, &lock);
                second(&lock);
                third(&mut reader, 3);
            }
        })
    };
    // Until nobody reads any more.
    let feeder = thread::spawn(move || {
        loop {
            let held = lock.lock().unwrap();
            thread::park_timeout(Duration::from_micros(300));
            drop(held);
            if writer.write_all(&[1]).is_err() {
                break;
            }
            thread::park_timeout(Duration::from_micros(300));
        }
    });
    hear.recv().unwrap();
    let mut seen = BTreeMap::new();
    for _ in 0..LOOKS {
        let whereabouts = look(None).unwrap();
        let names: Vec<String> = names(&whereabouts).into_iter().map(str::to_owned).collect();
        *seen.entry(names).or_insert(0) += 1;
    }
    goes.store(false, Ordering::Relaxed);
    worker.join().unwrap();
    feeder.join().unwrap();
    let possible: [&[&str]; 7] = [
        &[],
        &["first", "outer", "reads"],
        &["first", "outer", "waits_for_lock"],
        &["second", "waits_for_lock"],
        &["second", "naps"],
        &["third", "third", "third", "reads"],
        &["third", "naps"],
    ];
    for stack in seen.keys() {
        assert!(
            possible.iter().any(|possible| possible == stack),
            "{seen:#?}"
        );
    }
    let named: usize = seen
        .iter()
        .filter(|(stack, _)| !stack.is_empty())
        .map(|(_, times)| times)
        .sum();
    eprintln!("{named} of {LOOKS} with functions: {seen:#?}");
    assert!(named > LOOKS / 100, "{seen:#?}");
}

#[inline(never)]
fn first(pipe: &mut PipeReader, lock: &Mutex<u32>) -> u32 {
    let read = outer(&mut || reads(pipe));
    read + outer(&mut || waits_for_lock(lock))
}

#[inline(never)]
fn second(lock: &Mutex<u32>) -> u32 {
    waits_for_lock(lock) + naps(Duration::from_micros(200))
}

#[inline(never)]
fn third(pipe: &mut PipeReader, depth: u32) -> u32 {
    match depth {
        1 => reads(pipe) + black_box(1),
        3 => third(pipe, 2) + naps(Duration::from_micros(100)),
        _ => third(pipe, depth - 1) + black_box(1),
    }
}
