//! The command-line tool as shell jobs use it.

use std::fs;

use rustix::process::Signal;

use crate::common::{
    PEER_FAILED, STORAGE, Stage, World, assert_nothing_left, place,
    shell::{
        RANKS, a_gather_that_waits, ended_by, files_in, parts, run, said_by, said_times, succeed,
        told_of, work,
    },
};

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
        "case $FSGATHER_RANK in 0) how=none;; *) how=zstd;; esac
        FSGATHER_COMPRESS=$how fsgather gather part.$FSGATHER_RANK --all --out 'got.{rank}'",
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
        "fsgather gather part.$FSGATHER_RANK --root 1 --out got.$FSGATHER_RANK",
    ));
    let mut expected = ["got.1", "part.0", "part.1", "part.2"].map(str::to_owned);
    expected.sort();
    assert_eq!(files_in(work.path()), expected);
    assert_eq!(files_in(&work.path().join("got.1")).len(), 3);
}

#[test]
fn gather_prints_lines_on_the_root_in_rank_order() {
    let (directory, work) = (place(), place());
    let end = run(
        directory.path(),
        work.path(),
        "echo score of $FSGATHER_RANK | fsgather gather",
    );
    succeed(&end);
    let expected = ["[0] score of 0", "[0] score of 1", "[0] score of 2"];
    assert_eq!(end.stdout, expected);
}

#[test]
fn gather_refuses_to_keep_names_that_are_alike_on_all_ranks() {
    let (directory, work) = (place(), work(10));
    let end = run(
        directory.path(),
        work.path(),
        "fsgather gather part.0 --out got --keep-names",
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
        r#"f=$(printf "x\\37$FSGATHER_RANK"); cp part.$FSGATHER_RANK "$f"; fsgather gather "$f" --out got --keep-names"#,
    ));
    let got = fs::read_dir(work.path().join("got")).expect("a directory");
    let mut got: Vec<Vec<u8>> = got
        .map(|entry| entry.expect("an entry").file_name().into_vec())
        .collect();
    got.sort();
    assert_eq!(got, [b"x\xf8", b"x\xf9", b"x\xfa"]);
}

#[test]
fn a_closed_standard_stream_fails_on_all_and_loses_nothing() {
    let scripts = [
        (
            "if [ $FSGATHER_RANK = 0 ]; then exec >&-; fi; fsgather gather part.$FSGATHER_RANK",
            "output",
        ),
        (
            "if [ $FSGATHER_RANK = 1 ]; then exec <&-; fi; echo x | cat - >/dev/null; fsgather gather",
            "input",
        ),
        ("exec <&-; fsgather broadcast", "input"),
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
fn barrier_beside_gather_blames_no_setting() {
    for barrier in [0, 1] {
        let (directory, work) = (place(), work(10));
        let script = format!(
            "if [ $FSGATHER_RANK = {barrier} ]; then fsgather barrier; \
             else fsgather gather part.$FSGATHER_RANK; fi"
        );
        let end = run(directory.path(), work.path(), &script);
        let said = |text: &str| said_times(&end, text);
        assert_eq!(said("FSGATHER_TRANSPORT"), 0, "{end:?}");
        assert!(said("ranks are in different commands") >= 3, "{end:?}");
    }
}

#[test]
fn ranks_in_different_commands_get_an_error_that_names_both() {
    let (directory, work) = (place(), work(10));
    let script = "if [ $FSGATHER_RANK = 1 ]; then name=b; else name=a; fi; \
                  fsgather gather part.$FSGATHER_RANK --concat=$name; echo $name $? >&2";
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
    // The name of rank 1 has characters that colour a terminal, set its title and change the writing direction.
    let script = "if [ $FSGATHER_RANK = 1 ]; then name=$(printf '\\033[31mred\\033]0;title\\007\\342\\200\\256'); fi; \
                  fsgather gather part.$FSGATHER_RANK --concat=a --name \"mine$name\"";
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
    let script = "fsgather gather part.$FSGATHER_RANK --concat=whole.$((FSGATHER_RANK * 10))";
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

#[test]
fn a_file_over_the_size_limit_is_an_error_of_that_rank() {
    let (directory, work) = (place(), work(300_000));
    let script = "export FSGATHER_TRANSPORT=filesys; if [ $FSGATHER_RANK = 1 ]; then ulimit -f 64; fi; fsgather gather part.$FSGATHER_RANK --all --out 'got.{rank}'";
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
fn payloads_above_the_file_size_limit_go_through_rank_0() {
    let (directory, work) = (place(), work(300_000));
    let script = "ulimit -f 64; fsgather gather part.$FSGATHER_RANK | wc -c";
    let end = run(directory.path(), work.path(), script);
    succeed(&end);
    let mut sizes = end.stdout.clone();
    sizes.sort();
    assert_eq!(sizes, ["[0] 900000", "[1] 0", "[2] 0"], "{end:?}");
}

#[test]
fn an_existing_output_is_an_error_on_all_ranks_without_force() {
    let (directory, work) = (place(), work(10));
    fs::write(work.path().join("whole"), "precious").expect("a file");
    let script = "fsgather gather part.$FSGATHER_RANK --concat=whole; echo code $?";
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
    let script = "fsgather gather part.$FSGATHER_RANK --concat=whole --force";
    succeed(&run(directory.path(), work.path(), script));
    let whole = fs::read(work.path().join("whole")).expect("a file");
    assert!(whole == parts(10).concat());
}

#[test]
fn an_output_that_cannot_be_written_fails_all_ranks() {
    let (directory, work) = (place(), work(10));
    fs::write(work.path().join("file"), "x").expect("a file");
    let script = "fsgather gather part.$FSGATHER_RANK --out file/got; echo code $?";
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
fn several_gathers_in_one_script_do_not_meet_each_other() {
    let (directory, work) = (place(), work(100_000));
    succeed(&run(
        directory.path(),
        work.path(),
        "for i in 1 2 3 4 5; do fsgather gather part.$FSGATHER_RANK --concat=whole.$i || exit; done",
    ));
    for i in 1..=5 {
        let whole = fs::read(work.path().join(format!("whole.{i}"))).expect("a file");
        assert!(whole == parts(100_000).concat());
    }
}

#[test]
fn sigterm_while_a_rank_reads_its_input_fails_all_ranks() {
    let (directory, work) = (place(), work(300_000));
    let mut stage = a_gather_that_waits(directory.path(), work.path());
    stage.signal(2, Signal::TERM);
    told_of(&mut stage, 0, 2, "SIGTERM");
    told_of(&mut stage, 1, 2, "SIGTERM");
    let own = stage.end(2);
    assert_eq!(own.code, 143, "{}", stage.transcript());
    assert_nothing_left(directory.path());
    assert!(!work.path().join("got").exists());
}

#[test]
fn sigint_of_rank_0_fails_all_ranks() {
    ended_by(Signal::INT, "SIGINT", 130, 0);
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
    stage.signal(1, Signal::TERM);
    let ends = stage.end_all(0..2);
    assert_eq!(
        (ends[0].code, ends[1].code),
        (PEER_FAILED, 143),
        "{}",
        stage.transcript()
    );
    assert_nothing_left(directory.path());
}

#[test]
fn a_barrier_that_a_rank_misses_names_it() {
    let directory = place();
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
