//! Tests that the command reads directories with odd names, links, pipes and devices from others, without following them elsewhere,
//! blocking, or printing characters that control a terminal.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::SystemTime,
};

use fsgather_core::{GatherId, JobKey, ProcessId, RendezvousBackend, Salt, WorldSize};
use fsgather_store::{
    BackendDirectory, FileBackend, GatherDir, OwnerRecord, check_writable, make_rendezvous,
    this_process,
};
use fsgather_testkit::{pace::cases, process};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::{build::command_line_tool, place};

/// Commands that read a directory, or change it.
const COMMANDS: [&[&str]; 8] = [
    &["inspect", "--json"],
    &["clean", "--long"],
    &["clean", "--execute", "--older-than", "1s"],
    &["doctor"],
    &["inspect"],
    &["inspect", "--long"],
    &["clean"],
    &["clean", "--json"],
];

/// Runs commands on a directory, and checks their output.
fn run_all(commands: &[&[&str]], directory: &Path, what: &str) {
    for arguments in commands {
        let mut command = Command::new(command_line_tool());
        command
            .args(*arguments)
            .arg(directory)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = process::output(&mut command).expect("a program that can be started");
        is_plain(&output, &format!("{arguments:?} with {what}"));
    }
}

/// Checks that a command has exited, and that its output cannot control a terminal.
fn is_plain(output: &Output, what: &str) {
    assert!(output.status.code().is_some(), "{what}: {output:?}");
    for said in [&output.stdout, &output.stderr] {
        let said =
            str::from_utf8(said).unwrap_or_else(|error| panic!("{what}: {error}: {output:?}"));
        assert!(!said.contains("panicked"), "{what}: {said}");
        // Documents are for programs: only control characters must be escaped in them.
        let is_document = said.starts_with('{');
        let is_odd = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}' && !is_document;
        let odd = said.chars().find(is_odd);
        assert_eq!(odd, None, "{what}: {said:?}");
        assert!(
            !said.lines().any(|line| line.starts_with("FORGED")),
            "{what}: {said}"
        );
    }
}

const ODD_NAMES: [&[u8]; 8] = [
    b"notes\nFORGED line",
    b"\x1b]0;title\x07",
    b"red\x1b[31m.txt",
    b"\xff\xfe\n\x1b[2J",
    b"gather-\x1b[31m",
    b"rendezvous-\nFORGED",
    "txt.\u{202e}evil".as_bytes(),
    b" \t\r",
];

fn with_odd_names(directory: &Path) -> Vec<PathBuf> {
    let paths = ODD_NAMES.map(|name| directory.join(OsStr::from_bytes(name)));
    for path in &paths {
        fs::write(path, b"precious").expect("a file");
    }
    paths.to_vec()
}

/// A process that has ended and has a wrong host name.
fn liar() -> ProcessId {
    let mut child = process::spawn(&mut Command::new("true")).expect("a process");
    child.wait().expect("its end");
    ProcessId {
        pid: child.id(),
        host: "n3\nFORGED\x1b[31m".into(),
        ..this_process().expect("this process")
    }
}

fn gather_dir(rendezvous: &Path, salt: u32) -> GatherDir {
    let gather = GatherId::new(SystemTime::UNIX_EPOCH, Salt::from_random(salt));
    let owner = OwnerRecord {
        process: liar(),
        uid: rustix::process::geteuid().as_raw(),
        user: "ada\nFORGED\x1b[31m".into(),
        job: Some("4711\nFORGED\x1b[31m".into()),
        world_size: WorldSize::ONE,
        gather,
        communicator: uuid(),
        created: gather.time(),
        ranks: vec![liar()],
    };
    let own = check_writable(rendezvous).expect("a directory");
    GatherDir::create(rendezvous, 0o700, &owner, own).expect("a directory")
}

fn uuid() -> uuid::Uuid {
    uuid::Uuid::nil()
}

#[test]
fn odd_names_and_texts_are_shown_with_their_escapes_and_stay() {
    let place = place();
    let rendezvous = make_rendezvous(place.path()).expect("a directory");
    let (bare, strange) = (gather_dir(&rendezvous, 1), gather_dir(&rendezvous, 2));
    strange.mark_aborted("FORGED\n\x1b[31m").expect("a mark");
    let key = JobKey {
        uid: 1,
        family: "none".into(),
        job: None,
        launch: None,
        attempt: None,
        world_size: WorldSize::ONE,
        number: 0,
        master: None,
    };
    let own = check_writable(&rendezvous).expect("a directory");
    let directories = vec![BackendDirectory {
        directory: rendezvous.clone(),
        own,
    }];
    let backend = FileBackend::new(directories, key.hash(), liar());
    backend.post(b"FORGED\n\x1b[31m").expect("a record");
    // As after a process that was killed.
    std::mem::forget(backend);
    let mut odd = with_odd_names(&rendezvous);
    for directory in [strange.path().to_owned(), strange.path().join("payloads")] {
        odd.extend(with_odd_names(&directory));
    }
    run_all(&COMMANDS, place.path(), "odd names");
    assert!(odd.iter().all(|path| path.exists()), "{:?}", strange.path());
    assert!(!bare.path().exists(), "what is known goes");
}

/// Puts a file of some kind in the place of a directory, given its path and a directory outside.
type PutInPlace = fn(&Path, &Path) -> io::Result<()>;

const IN_PLACE: [(&str, PutInPlace); 6] = [
    ("a pipe", |path, _| {
        Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0)?)
    }),
    ("a link to an endless device", |path, _| {
        symlink("/dev/zero", path)
    }),
    ("a file", |path, _| fs::write(path, b"precious")),
    ("a link to itself", |path, _| symlink(path, path)),
    ("a dangling link", |path, _| symlink("nowhere", path)),
    ("a link outside", |path, outside| symlink(outside, path)),
];

const PLACES: [&str; 3] = [
    "all_gather_via_filesys",
    "all_gather_via_filesys/gather-20261121t033336z-5f3a9c01",
    ".dist_test",
];

#[test]
fn files_in_the_place_of_directories_are_reported_and_stay() {
    let places = &PLACES[..cases(1, 3)];
    let commands = &COMMANDS[..cases(4, 8)];
    for (what, put) in IN_PLACE {
        for name in places {
            let (place, outside) = (place(), place());
            fs::write(outside.path().join("precious"), b"precious").expect("a file");
            let path = place.path().join(name);
            if name.contains('/') {
                make_rendezvous(place.path()).expect("a directory");
            }
            put(&path, outside.path()).expect(what);
            let before = fs::symlink_metadata(&path).expect("it").file_type();
            run_all(commands, place.path(), &format!("{what} at {name}"));
            run_all(commands, &path, &format!("{what} as {name} itself"));
            let after = fs::symlink_metadata(&path).map(|found| found.file_type());
            assert_eq!(after.ok(), Some(before), "{what} at {name}");
            let kept = fs::read(outside.path().join("precious")).expect("what was there");
            assert_eq!(kept, b"precious", "{what} at {name}");
        }
    }
}
