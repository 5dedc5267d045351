//! The command-line tool as shell jobs use it.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{
    End, PEER_FAILED, STORAGE, Stage, World, assert_nothing_left, build::command_line_tool,
    left_in, name_of, payloads, place,
};
use fsgather_testkit::pace::allowed;
use fsgather_tests::Generated;
use rustix::process::Signal;

const RANKS: u32 = 3;

/// `fsgather run` with a shell script for each rank, in which `$TOOL` is the tool and `$WORK` a directory
/// to work in.
fn run(directory: &Path, work: &Path, script: &str) -> End {
    let mut stage = Stage::new();
    let mut command = Command::new(command_line_tool());
    command
        .args(["run", "-n", &RANKS.to_string(), "--timeout", "20s", "--dir"])
        .arg(directory)
        .args(["--", "sh", "-c", script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("TOOL", command_line_tool())
        .env("WORK", work)
        .current_dir(work);
    let index = stage.start(&mut command);
    let end = stage.end(index);
    assert!(
        left_in(directory).is_empty(),
        "{:?}\n{}",
        left_in(directory),
        stage.transcript()
    );
    end
}

#[track_caller]
fn succeed(end: &End) {
    assert_eq!(end.code, 0, "{end:?}");
}

/// A directory in which each rank has a file `part.RANK`, large or small.
fn work(len: usize) -> tempfile::TempDir {
    let work = place();
    for rank in 0..RANKS {
        let bytes = Generated::new(rank, len).bytes();
        fs::write(work.path().join(format!("part.{rank}")), bytes).expect("a file");
    }
    work
}

fn parts(len: usize) -> Vec<Vec<u8>> {
    (0..RANKS)
        .map(|rank| Generated::new(rank, len).bytes())
        .collect()
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string())
        .map(|name| name.expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn gather_all_gives_every_rank_a_file_from_every_rank() {
    for len in [100, 300_000] {
        let (directory, work) = (place(), work(len));
        succeed(&run(
            directory.path(),
            work.path(),
            "$TOOL gather part.$FSGATHER_RANK --all --out 'got.{rank}'",
        ));
        for rank in 0..RANKS {
            let got = work.path().join(format!("got.{rank}"));
            assert_eq!(files_in(&got), ["rank-00000", "rank-00001", "rank-00002"]);
            for (name, part) in files_in(&got).iter().zip(parts(len)) {
                assert!(fs::read(got.join(name)).expect("a file") == part, "{name}");
            }
        }
    }
}

#[test]
fn every_rank_compresses_as_it_likes_and_all_get_the_same() {
    let (directory, work) = (place(), place());
    let text = |rank: u32| {
        let lines = (0..200_000).map(|line| format!("{{\"rank\": {rank}, \"id\": {line}}}\n"));
        lines.collect::<String>()
    };
    for rank in 0..RANKS {
        fs::write(work.path().join(format!("part.{rank}")), text(rank)).expect("a file");
    }
    succeed(&run(
        directory.path(),
        work.path(),
        "case $FSGATHER_RANK in 0) how=none;; 1) how=lz4;; *) how=zstd:1;; esac
        FSGATHER_COMPRESS=$how $TOOL gather part.$FSGATHER_RANK --all --out 'got.{rank}'",
    ));
    for rank in 0..RANKS {
        for other in 0..RANKS {
            let got = format!("got.{rank}/rank-0000{other}");
            let got = fs::read_to_string(work.path().join(&got)).expect("a file");
            assert!(got == text(other), "{other} on {rank}");
        }
    }
}

#[test]
fn gather_to_the_root_writes_there_only() {
    let (directory, work) = (place(), work(300_000));
    succeed(&run(
        directory.path(),
        work.path(),
        "$TOOL gather part.$FSGATHER_RANK --root 1 --out got.$FSGATHER_RANK",
    ));
    let mut expected = ["got.1", "part.0", "part.1", "part.2"].map(str::to_owned);
    expected.sort();
    assert_eq!(files_in(work.path()), expected);
    assert_eq!(files_in(&work.path().join("got.1")).len(), 3);
}

#[test]
fn gather_concat_joins_standard_inputs_in_rank_order() {
    let (directory, work) = (place(), work(300_000));
    succeed(&run(
        directory.path(),
        work.path(),
        "cat part.$FSGATHER_RANK | $TOOL gather --concat=whole",
    ));
    let whole = fs::read(work.path().join("whole")).expect("a file");
    assert!(whole == parts(300_000).concat());
}

#[test]
fn gather_prints_lines_on_the_root_in_rank_order() {
    let (directory, work) = (place(), place());
    let end = run(
        directory.path(),
        work.path(),
        "echo score of $FSGATHER_RANK | $TOOL gather",
    );
    succeed(&end);
    let expected = ["[0] score of 0", "[0] score of 1", "[0] score of 2"];
    assert_eq!(end.stdout, expected);
}

#[test]
fn gather_keeps_names_where_they_differ() {
    let (directory, work) = (place(), work(10));
    succeed(&run(
        directory.path(),
        work.path(),
        "$TOOL gather part.$FSGATHER_RANK --out got --keep-names",
    ));
    let got = files_in(&work.path().join("got"));
    assert_eq!(got, ["part.0", "part.1", "part.2"]);
}

#[test]
fn gather_refuses_to_keep_names_that_are_alike_on_all_ranks() {
    let (directory, work) = (place(), work(10));
    let end = run(
        directory.path(),
        work.path(),
        "$TOOL gather part.0 --out got --keep-names",
    );
    assert_eq!(end.code, 2, "{end:?}");
    assert!(
        end.stderr
            .iter()
            .any(|line| line.contains("ranks 0 and 1 both")),
        "{end:?}"
    );
    assert!(!work.path().join("got").exists());
}

#[test]
fn gather_keeps_names_that_are_not_utf_8() {
    use std::os::unix::ffi::OsStringExt;
    let (directory, work) = (place(), work(10));
    succeed(&run(
        directory.path(),
        work.path(),
        r#"f=$(printf "x\\37$FSGATHER_RANK"); cp part.$FSGATHER_RANK "$f"; $TOOL gather "$f" --out got --keep-names"#,
    ));
    let got = fs::read_dir(work.path().join("got")).expect("a directory");
    let mut got: Vec<Vec<u8>> = got
        .map(|entry| entry.expect("an entry").file_name().into_vec())
        .collect();
    got.sort();
    assert_eq!(got, [b"x\xf8", b"x\xf9", b"x\xfa"]);
}

#[test]
fn a_closed_standard_stream_is_an_error_on_all_ranks_and_loses_nothing() {
    let scripts = [
        (
            "if [ $FSGATHER_RANK = 0 ]; then exec >&-; fi; $TOOL gather part.$FSGATHER_RANK",
            "output",
        ),
        (
            "if [ $FSGATHER_RANK = 1 ]; then exec <&-; fi; echo x | cat - >/dev/null; $TOOL gather",
            "input",
        ),
        ("exec <&-; $TOOL broadcast", "input"),
    ];
    for (script, stream) in scripts {
        let (directory, work) = (place(), work(10));
        let script = format!("{script}; echo code $? >&2");
        let end = run(directory.path(), work.path(), &script);
        let said = |text: &str| said_times(&end, text);
        assert!(
            said(&format!("standard {stream} is closed")) >= 1,
            "{end:?}"
        );
        assert_eq!(said("code 0"), 0, "{end:?}");
        assert_eq!(said("code "), 3, "{end:?}");
    }
}

#[test]
fn a_rank_whose_command_has_failed_before_is_told_that_its_next_one_is_another() {
    let (directory, work) = (place(), work(10));
    let script = "if [ $FSGATHER_RANK != 1 ]; then $TOOL gather part.$FSGATHER_RANK --concat=a; echo a $? >&2; fi; \
                  $TOOL gather part.$FSGATHER_RANK --concat=b --timeout 2s; echo b $? >&2";
    let end = run(directory.path(), work.path(), script);
    let said = |text: &str| said_times(&end, text);
    assert_eq!(
        said("ranks are in different commands: rank 0 on "),
        3,
        "{end:?}"
    );
    assert_eq!((said("a 14"), said("b 14")), (2, 1), "{end:?}");
    assert!(!work.path().join("a").exists() && !work.path().join("b").exists());
}

#[test]
fn the_command_line_of_another_rank_steers_no_terminal() {
    let (directory, work) = (place(), work(10));
    // Rank 1 names itself by what colours a terminal, sets its title and turns writing round.
    let script = "if [ $FSGATHER_RANK = 1 ]; then name=$(printf '\\033[31mred\\033]0;title\\007\\342\\200\\256'); fi; \
                  $TOOL gather part.$FSGATHER_RANK --concat=a --name \"mine$name\"";
    let end = run(directory.path(), work.path(), script);
    assert_eq!(end.code, 14, "{end:?}");
    let told = said_times(&end, "mine?[31mred?]0;title??");
    assert_eq!(told, 3, "{end:?}");
    let steers = |line: &&String| line.contains(['\u{1b}', '\u{7}', '\u{202e}']);
    assert_eq!(end.stderr.iter().find(steers), None);
}

#[test]
fn what_is_one_command_although_it_differs_needs_a_name() {
    let (directory, work) = (place(), work(10));
    let script = "$TOOL gather part.$FSGATHER_RANK --concat=whole.$((FSGATHER_RANK * 10))";
    let end = run(directory.path(), work.path(), script);
    assert_eq!(end.code, 14, "{end:?}");
    let end = run(
        directory.path(),
        work.path(),
        &format!("{script} --name whole"),
    );
    succeed(&end);
    assert!(work.path().join("whole.0").exists());
}

/// What a rank has said on standard error: what several say is said once.
fn said_by(end: &End, rank: u32) -> Vec<&str> {
    let speaks = |spans: &str| {
        spans.split(',').any(|span| {
            let (first, last) = span.split_once('-').unwrap_or((span, span));
            let number = |text: &str| text.trim().parse::<u32>();
            number(first)
                .is_ok_and(|first| first <= rank && number(last).is_ok_and(|last| rank <= last))
        })
    };
    let lines = end.stderr.iter();
    let said = lines.filter_map(|line| line.strip_prefix('[')?.split_once("] "));
    said.filter(|(spans, _)| speaks(spans))
        .map(|(_, line)| line)
        .collect()
}

/// How often ranks have said something on standard error.
fn said_times(end: &End, text: &str) -> usize {
    let all = (0..RANKS).flat_map(|rank| said_by(end, rank));
    all.filter(|line| line.contains(text)).count()
}

#[test]
fn a_file_larger_than_this_process_may_write_is_an_error_of_that_rank() {
    let (directory, work) = (place(), work(300_000));
    let script = "export FSGATHER_TRANSPORT=filesys; if [ $FSGATHER_RANK = 1 ]; then ulimit -f 64; fi; $TOOL gather part.$FSGATHER_RANK --all --out 'got.{rank}'";
    let end = run(directory.path(), work.path(), script);
    assert_eq!(end.code, 12, "{end:?}");
    for rank in 0..RANKS {
        let told = said_by(&end, rank);
        assert!(
            told.iter().any(|line| line.contains("ulimit -f")),
            "{end:?}"
        );
    }
}

#[test]
fn an_existing_output_is_an_error_on_all_ranks_without_force() {
    let (directory, work) = (place(), work(10));
    fs::write(work.path().join("whole"), "precious").expect("a file");
    let script = "$TOOL gather part.$FSGATHER_RANK --concat=whole; echo code $?";
    let end = run(directory.path(), work.path(), script);
    let mut codes = end.stdout.clone();
    codes.sort();
    assert_eq!(codes, ["[0] code 12", "[1] code 11", "[2] code 11"]);
    for rank in 0..RANKS {
        let whose = if rank == 0 { "" } else { "rank 0 on" };
        let told = said_by(&end, rank);
        let mut told = told.iter();
        assert!(
            told.any(|line| line.contains(whose) && line.contains("whole exists")),
            "{end:?}"
        );
    }
    let kept = fs::read(work.path().join("whole")).expect("a file");
    assert_eq!(kept, b"precious");
    let script = "$TOOL gather part.$FSGATHER_RANK --concat=whole --force";
    succeed(&run(directory.path(), work.path(), script));
    let whole = fs::read(work.path().join("whole")).expect("a file");
    assert!(whole == parts(10).concat());
}

#[test]
fn a_missing_input_is_told_to_all_ranks() {
    let (directory, work) = (place(), work(10));
    fs::remove_file(work.path().join("part.1")).expect("our file");
    let script = "$TOOL gather part.$FSGATHER_RANK --out got; echo code $?";
    let end = run(directory.path(), work.path(), script);
    let mut codes = end.stdout.clone();
    codes.sort();
    // That of its own failure on the very rank.
    assert_eq!(codes, ["[0] code 11", "[1] code 12", "[2] code 11"]);
    for rank in 0..RANKS {
        // In its own words where it happens.
        let told = said_by(&end, rank);
        let is_told = told.iter().any(|line| match rank {
            1 => line.starts_with("fsgather gather: cannot read part.1: No such file"),
            _ => line.contains("rank 1 on") && line.contains("part.1"),
        });
        assert!(is_told, "{end:?}");
    }
    assert!(!work.path().join("got").exists(), "{end:?}");
}

#[test]
fn an_output_that_cannot_be_written_fails_all_ranks() {
    let (directory, work) = (place(), work(10));
    fs::write(work.path().join("file"), "x").expect("a file");
    let script = "$TOOL gather part.$FSGATHER_RANK --out file/got; echo code $?";
    let end = run(directory.path(), work.path(), script);
    let code_of = |rank: u32| {
        let prefix = format!("[{rank}] code ");
        let mut lines = end.stdout.iter();
        lines.find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
    };
    assert_eq!(code_of(0), Some(STORAGE.to_string()), "{end:?}");
    for rank in 1..RANKS {
        assert_eq!(code_of(rank), Some(PEER_FAILED.to_string()), "{end:?}");
    }
}

#[test]
fn broadcast_hands_the_roots_file_to_every_rank() {
    let (directory, work) = (place(), work(300_000));
    succeed(&run(
        directory.path(),
        work.path(),
        "$TOOL broadcast part.$FSGATHER_RANK --root 2 --out 'got.{rank}'",
    ));
    for rank in 0..RANKS {
        let got = fs::read(work.path().join(format!("got.{rank}"))).expect("a file");
        assert!(got == parts(300_000)[2], "rank {rank}");
    }
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    let (directory, work) = (place(), place());
    let end = run(
        directory.path(),
        work.path(),
        "touch came.$FSGATHER_RANK; $TOOL barrier || exit; ls | wc -l",
    );
    succeed(&end);
    let mut counts = end.stdout.clone();
    counts.sort();
    assert_eq!(counts, ["[0] 3", "[1] 3", "[2] 3"]);
}

#[test]
fn several_gathers_in_one_script_do_not_meet_each_other() {
    let (directory, work) = (place(), work(100_000));
    succeed(&run(
        directory.path(),
        work.path(),
        "for i in 1 2 3 4 5; do $TOOL gather part.$FSGATHER_RANK --concat=whole.$i || exit; done",
    ));
    for i in 1..=5 {
        let whole = fs::read(work.path().join(format!("whole.{i}"))).expect("a file");
        assert!(whole == parts(100_000).concat());
    }
}

/// Three ranks gather; two have handed in, the third's input has no end yet.
fn a_gather_that_waits(directory: &Path, work: &Path) -> Stage {
    let world = World::new(RANKS, directory);
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        let file = format!("part.{rank}");
        let arguments: &[&str] = if rank == 2 {
            &["gather", "--out", "got"]
        } else {
            &["gather", &file, "--out", "got"]
        };
        stage.start(world.tool(rank, arguments).current_dir(work));
    }
    stage.wait_until("two payloads", || payloads(directory) == 2);
    stage
}

/// Asserts that a rank ends in time, because another was ended by a signal.
fn told_of(stage: &mut Stage, rank: usize, ended: usize, signal: &str, since: Instant) {
    let end = stage.end(rank);
    let took = end.at.saturating_duration_since(since);
    assert!(took < allowed(IN_TIME), "{took:?}\n{}", stage.transcript());
    assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
    let said = end.stderr.join("\n");
    let named = name_of(u32::try_from(ended).expect("small"), stage.pid(ended));
    for named in [named, format!("ended by {signal}")] {
        assert!(said.contains(&named), "{named}\n{}", stage.transcript());
    }
}

/// Within this a signalled rank has told the others and cleaned up.
const IN_TIME: Duration = Duration::from_secs(5);

/// A signal ends `rank` of a gather that waits, which says so, and the others are told.
fn ended_by(signal: Signal, name: &str, code: i32, rank: usize) {
    let (directory, work) = (place(), work(300_000));
    let mut stage = a_gather_that_waits(directory.path(), work.path());
    let sent = stage.signal(rank, signal);
    let own = stage.end(rank);
    assert_eq!(own.code, code, "{}", stage.transcript());
    let took = own.at.saturating_duration_since(sent);
    assert!(took < allowed(IN_TIME), "{took:?}\n{}", stage.transcript());
    let said = own.stderr.join("\n");
    assert!(said.contains(&format!("ended by {name}")), "{said}");
    told_of(&mut stage, 1 - rank, rank, name, sent);
    // The third waits for its input, and is told all the same.
    told_of(&mut stage, 2, rank, name, sent);
    assert_nothing_left(directory.path());
    assert!(!work.path().join("got").exists());
}

#[test]
fn a_rank_ended_by_sigterm_while_it_reads_its_input_tells_the_others() {
    let (directory, work) = (place(), work(300_000));
    let mut stage = a_gather_that_waits(directory.path(), work.path());
    let sent = stage.signal(2, Signal::TERM);
    told_of(&mut stage, 0, 2, "SIGTERM", sent);
    told_of(&mut stage, 1, 2, "SIGTERM", sent);
    let own = stage.end(2);
    assert_eq!(own.code, 143, "{}", stage.transcript());
    assert!(own.at.saturating_duration_since(sent) < allowed(IN_TIME));
    assert_nothing_left(directory.path());
    assert!(!work.path().join("got").exists());
}

#[test]
fn a_rank_ended_by_sigterm_tells_the_others() {
    ended_by(Signal::TERM, "SIGTERM", 143, 1);
}

#[test]
fn rank_0_ended_by_sigterm_tells_the_others() {
    ended_by(Signal::TERM, "SIGTERM", 143, 0);
}

#[test]
fn a_rank_ended_by_sigint_tells_the_others() {
    ended_by(Signal::INT, "SIGINT", 130, 1);
}

#[test]
fn a_long_gather_says_how_far_it_has_come_after_a_second_and_every_30_unless_told_not_to() {
    let (directory, work) = (place(), place());
    let mut stage = Stage::new();
    // Nothing of a rank's second can have passed before this.
    let since = Instant::now();
    for (job, progress) in [("one", "auto"), ("other", "off")] {
        let world = World::new(2, directory.path())
            .with("FSGATHER_JOB", job)
            .with("FSGATHER_LOG", "error")
            .with("FSGATHER_PROGRESS", progress);
        for rank in 0..2 {
            // Standard input has no end yet.
            let mut tool = world.tool(rank, &["gather", "--concat=whole"]);
            stage.start(tool.current_dir(work.path()));
        }
    }
    for least in [1, 25] {
        let line = stage.wait_for_where(0, "a line", |_| true);
        assert_eq!(line, "fsgather: rank 0: publishing 0 bytes, 0 bytes/s");
        let took = since.elapsed();
        assert!(took > Duration::from_secs(least), "{took:?}");
    }
    stage.let_pass(Duration::from_secs(2));
    // The other rank, and the jobs that were told not to, say nothing.
    let said = stage.transcript();
    assert_eq!(said.matches("publishing").count(), 2, "{said}");
    for index in 0..4 {
        stage.kill(index);
    }
}

#[test]
fn a_signal_while_ranks_meet_ends_all() {
    let directory = place();
    let world = World::new(RANKS, directory.path()).with("FSGATHER_LOG", "info");
    let mut stage = Stage::new();
    for rank in [0, 1] {
        stage.start(&mut world.tool(rank, &["barrier"]));
    }
    stage.wait_until_taken_in(1);
    let sent = stage.signal(1, Signal::TERM);
    let ends = stage.end_all(0..2);
    assert_eq!(
        (ends[0].code, ends[1].code),
        (PEER_FAILED, 143),
        "{}",
        stage.transcript()
    );
    let last = ends[0].at.max(ends[1].at);
    assert!(last.saturating_duration_since(sent) < allowed(Duration::from_secs(5)));
    assert_nothing_left(directory.path());
}

#[test]
fn a_barrier_that_a_rank_misses_names_it() {
    let directory = place();
    let started = Instant::now();
    let mut stage = Stage::new();
    let world = World::new(RANKS, directory.path());
    for rank in [0, 2] {
        stage.start(&mut world.tool(rank, &["barrier", "--timeout", "1s"]));
    }
    for end in stage.end_all(0..2) {
        assert_eq!(end.code, crate::common::TIMED_OUT, "{end:?}");
        let said = end.stderr.join("\n");
        assert!(said.contains("waiting for rank 1 (never joined)"), "{said}");
    }
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_nothing_left(directory.path());
}

#[test]
fn a_signal_that_was_ignored_does_not_end_a_rank() {
    let directory = place();
    let world = World::new(RANKS, directory.path()).with("FSGATHER_LOG", "info");
    let nohup = ["env", "--ignore-signal=HUP,INT"].map(str::to_owned);
    let mut stage = Stage::new();
    stage.start(&mut world.tool(0, &["barrier"]));
    stage.start(&mut world.tool_behind(&nohup, 1, &["barrier"]));
    stage.wait_until_taken_in(1);
    stage.signal(1, Signal::HUP);
    stage.signal(1, Signal::INT);
    stage.start(&mut world.tool(2, &["barrier"]));
    stage.succeed(0..3);
}
