//! The ranks that get warnings, and ranks whose warnings are not read, which do not block.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::common::{Stage, World, assert_nothing_left, place};

#[test]
fn warnings_are_heard_where_a_program_listens_to_no_log() {
    for (log, is_heard) in [("", true), ("error", false)] {
        let place = place();
        let mut stage = Stage::new();
        for rank in 0..2 {
            let transport = ["memory", "auto"][rank as usize];
            let world = World::new(2, place.path()).with("FSGATHER_TRANSPORT", transport);
            let world = world.with("FSGATHER_LOG", log);
            stage.start(&mut world.rank(rank, "deaf join barrier close"));
        }
        let ends = stage.end_all(0..2);
        let warning = "fsgather: rank 1: warning: FSGATHER_TRANSPORT differs: ";
        let said: Vec<bool> = ends
            .iter()
            .map(|end| end.stderr.iter().any(|line| line.starts_with(warning)))
            .collect();
        assert_eq!(said, [false, is_heard], "{log}: {}", stage.transcript());
        assert!(
            ends.iter().all(|end| end.code == 0),
            "{}",
            stage.transcript()
        );
    }
}

/// Makes a full pipe, which has no reader while it is held.
fn full_pipe(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("few bits");
    let mut pipe = options.custom_flags(flags).open(path).expect("our pipe");
    loop {
        match pipe.write_all(b"x") {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return pipe;
            }
        }
    }
}

#[test]
fn a_rank_whose_warnings_nobody_reads_goes_on() {
    let (place, elsewhere) = (place(), place());
    let path = elsewhere.path().join("full");
    let _pipe = full_pipe(&path);
    let path = path.to_string_lossy().into_owned();
    let behind = ["sh", "-c", "exec 2>\"$0\"; exec \"$@\"", &path].map(str::to_owned);
    // Rank 0 warns during set-up: in a program without a log subscriber, and in the command.
    let world = World::new(2, place.path()).with("FSGATHER_TYPO", "1");
    let mut stage = Stage::new();
    let ranks = [
        world.rank_behind(&behind, 0, "deaf join barrier close"),
        world.rank(1, "join barrier close"),
        world.tool_behind(&behind, 0, &["barrier"]),
        world.tool(1, &["barrier"]),
    ];
    let job = |at: usize| ["of a program", "of commands"][at / 2];
    for (at, mut command) in ranks.into_iter().enumerate() {
        stage.start(command.env("FSGATHER_JOB", job(at)));
    }
    let ends = stage.end_all(0..4);
    assert!(
        ends.iter().all(|end| end.code == 0),
        "{}",
        stage.transcript()
    );
    assert_nothing_left(place.path());
}
