//! Results by name on a file system that hangs or is full.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use fsgather_core::{Error, Rank, lock};
use fsgather_store::{
    AttemptClaim, EntryKind, SampleDirectory, SampleFileHeader, SampleFileName, SampleWriter,
};
use rustix::io::Errno;

use crate::{
    dice::Dice,
    faults::{Fault, Planned, Severity},
    files::{Breaks, FileWorld},
    machine::{Machine, Outcome},
    profile::Profile,
};

const RESULTS: u32 = 16;
/// Length of results that do not all fit into 64 MiB.
const LARGE_BYTES: usize = 4 << 20;
const SMALL_BYTES: usize = 100;

/// The history of results that were added.
#[derive(Default)]
struct Run {
    /// The times at which each result had been added, and at which all were on disk, in virtual time from the beginning.
    times: Vec<Duration>,
    /// Time until the first warning of a waiting caller.
    warned: Option<Duration>,
    warnings: String,
    flushed: Option<Result<(), String>>,
    /// Results that a reader finds afterwards.
    found: usize,
}

/// Receives warnings.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        lock(&self.0).push_str(&String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Adds results of a length by a process whose first write of a result hits a fault.
fn add_results(result_bytes: usize, fault: Fault) -> Run {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone());
    tracing::subscriber::with_default(subscriber.finish(), || {
        let profile = Profile::named("nfs4");
        let files = FileWorld::new(profile, 1, &mut Dice::new(1, 40), Breaks::default());
        let planned = Planned {
            at: 0,
            is_at_write: true,
            fault,
        };
        let machine = Machine::new(files, vec![planned], 1);
        machine.keep_faults_back();
        let run = Arc::new(Mutex::new(Run::default()));
        let its = Arc::clone(&run);
        let seen = log.clone();
        machine.process(0, 1, "adding", move || {
            let added = add_and_read(machine, result_bytes, &seen);
            *lock(&its) = added.expect("an evaluation");
        });
        let outcome = machine.run(7_200_000_000_000);
        assert!(matches!(outcome, Outcome::Over(_)), "{outcome:?}");
        let mut run = std::mem::take(&mut *lock(&run));
        run.warnings.clone_from(&lock(&log.0));
        run
    })
}

fn add_and_read(machine: &'static Machine, result_bytes: usize, log: &Log) -> Result<Run, Error> {
    let directory = Path::new("/shared");
    let writer = SampleWriter::create(
        directory,
        SampleFileName::first(1, Rank::ZERO, 5),
        &SampleFileHeader::default(),
        b"",
    )?;
    machine.let_faults_come(Severity::Passing);
    let began = machine.now_in_model();
    let passed = || Duration::from_nanos(machine.now_in_model() - began);
    let mut run = Run::default();
    let mut check = || {
        if run.warned.is_none() && lock(&log.0).contains("samples wait") {
            run.warned = Some(passed());
        }
        Ok(())
    };
    for id in 0..RESULTS {
        let result = vec![id as u8; result_bytes];
        writer.add(EntryKind::Result, &id.into(), &[&result], &mut check)?;
        run.times.push(passed());
    }
    let flushed = writer.flush(&mut check);
    run.times.push(passed());
    run.flushed = Some(flushed.map_err(|error| error.to_string()));
    drop(writer);
    run.found = SampleDirectory::read(directory)?.index().len();
    Ok(run)
}

/// Lets a process on each of two hosts open three attempts, one after the other, and returns their numbers.
fn attempts_of_two_hosts(profile: &str, seed: u64) -> Vec<u32> {
    let mut dice = Dice::new(seed, 40);
    let files = FileWorld::new(Profile::named(profile), 2, &mut dice, Breaks::default());
    let machine = Machine::new(files, Vec::new(), seed);
    let numbers = Arc::new(Mutex::new(Vec::new()));
    for host in 0..2 {
        let numbers = Arc::clone(&numbers);
        machine.process(host, 1, "opening", move || {
            let directory = Path::new("/shared");
            let mut writers = Vec::new();
            for _ in 0..3 {
                let last = SampleDirectory::last_attempt(directory).expect("a listing");
                let claim = AttemptClaim::take(directory, last + 1).expect("a number");
                let nonce = u64::from(claim.number()) << 1 | host as u64;
                let name = SampleFileName::first(claim.number(), Rank::ZERO, nonce);
                let header = SampleFileHeader::default();
                let writer = SampleWriter::create(directory, name, &header, b"").expect("a file");
                lock(&numbers).push(claim.number());
                writer.hold(claim);
                writers.push(writer);
            }
        });
    }
    let outcome = machine.run(600_000_000_000);
    assert!(matches!(outcome, Outcome::Over(_)), "{outcome:?}");
    let mut numbers = std::mem::take(&mut *lock(&numbers));
    numbers.sort_unstable();
    numbers
}

#[test]
fn attempts_of_two_hosts_never_share_a_number() {
    for profile in ["nfs3", "nfs4"] {
        for seed in 0..20 {
            let numbers = attempts_of_two_hosts(profile, seed);
            let mut distinct = numbers.clone();
            distinct.dedup();
            assert_eq!(
                (numbers.len(), distinct.len()),
                (6, 6),
                "{profile}, {seed}: {numbers:?}"
            );
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn adding_waits_once_64_mib_wait_and_warns_after_5_s() {
    let run = add_results(LARGE_BYTES, Fault::Hangs(60 * SECOND));
    assert_eq!(run.flushed, Some(Ok(())));
    let [before @ .., last, _] = run.times.as_slice() else {
        panic!("{:?}", run.times);
    };
    assert!(before.iter().all(|time| *time < SECOND), "{before:?}");
    assert!(*last > 59 * SECOND, "{last:?}");
    let warned = run.warned.expect("a warning");
    assert!((5 * SECOND..6 * SECOND).contains(&warned), "{warned:?}");
    assert_eq!(run.found, RESULTS as usize);
}

#[test]
fn results_wait_in_memory_while_a_disk_is_full() {
    let run = add_results(SMALL_BYTES, Fault::NoRoom(Errno::NOSPC, 300 * SECOND));
    assert_eq!(run.flushed, Some(Ok(())), "{}", run.warnings);
    assert!(run.times.last() > Some(&(299 * SECOND)), "{:?}", run.times);
    assert!(
        run.warnings.contains("samples cannot be written"),
        "{}",
        run.warnings
    );
    assert_eq!(run.found, RESULTS as usize);
}

#[test]
fn a_file_that_may_not_be_longer_is_followed_by_another_at_once() {
    let run = add_results(SMALL_BYTES, Fault::Fails(Errno::FBIG));
    assert_eq!(run.flushed, Some(Ok(())));
    assert!(run.times.last() < Some(&SECOND), "{:?}", run.times);
    assert_eq!((run.warnings.as_str(), run.found), ("", RESULTS as usize));
}

#[test]
fn a_disk_that_stays_full_is_an_error_after_10_min() {
    let run = add_results(SMALL_BYTES, Fault::NoRoom(Errno::NOSPC, 3600 * SECOND));
    let error = run.flushed.expect("an end").expect_err("a full disk");
    let end = *run.times.last().expect("a time");
    assert!((600 * SECOND..620 * SECOND).contains(&end), "{end:?}");
    assert!(error.contains("0 of the 16 results"), "{error}");
    assert_eq!(run.found, 0);
}
