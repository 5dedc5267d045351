//! `fsgather run` with real processes.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use common::{finish, fsgather, run_script, start, watch};
use fsgather_testkit::process;
use rustix::process::{Signal, geteuid};

fn environment(lines: &[String]) -> BTreeMap<String, String> {
    lines
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Makes a named pipe and returns its path, quoted for a shell.
fn fifo(directory: &tempfile::TempDir, name: &str) -> String {
    let path = directory.path().join(name);
    let made = process::status(Command::new("mkfifo").arg(&path)).unwrap();
    assert!(made.success());
    format!("'{}'", path.display())
}

#[test]
fn each_rank_finds_both_families_of_variables() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut command = fsgather(&[
        "run",
        "-n",
        "3",
        "--timeout",
        "1m 30s",
        "--dir",
        path,
        "env",
    ]);
    command.env("TORCHELASTIC_USE_AGENT_STORE", "True");
    command.env("RANK", "77");
    let running = start(&mut command);
    let pid = running.pid();
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    let ranks: Vec<_> = (0..3)
        .map(|rank| environment(&done.lines_of(rank)))
        .collect();
    for (rank, found) in ranks.iter().enumerate() {
        let rank = rank.to_string();
        for (name, value) in [
            ("FSGATHER_RANK", rank.as_str()),
            ("FSGATHER_WORLD_SIZE", "3"),
            ("FSGATHER_LOCAL_RANK", &rank),
            ("FSGATHER_LOCAL_WORLD_SIZE", "3"),
            ("FSGATHER_DIR", path),
            ("FSGATHER_TIMEOUT", "1m30s"),
            ("FSGATHER_JOIN_TIMEOUT", "1m30s"),
            ("RANK", &rank),
            ("WORLD_SIZE", "3"),
            ("LOCAL_RANK", &rank),
            ("LOCAL_WORLD_SIZE", "3"),
            ("GROUP_RANK", "0"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!found.contains_key("TORCHELASTIC_USE_AGENT_STORE"));
        assert!(found["FSGATHER_JOB"].starts_with(&format!("run-{pid}-")));
        assert_eq!(found["FSGATHER_JOB"], found["TORCHELASTIC_RUN_ID"]);
        assert_eq!(found["FSGATHER_JOB"], ranks[0]["FSGATHER_JOB"]);
        assert_eq!(found["MASTER_PORT"], ranks[0]["MASTER_PORT"]);
        assert_ne!(found["MASTER_PORT"].parse::<u16>(), Ok(0));
    }
}

#[test]
fn directory_is_the_given_else_inherited_else_private_one() {
    let given = tempfile::tempdir().unwrap();
    let print = ["--", "sh", "-c", "echo $FSGATHER_DIR"];
    let directory = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = fsgather(&["run", "-n", "1", "--no-prefix"]);
        command.args(options).args(print).current_dir(given.path());
        finish(command.envs(variables.iter().copied()))
            .lines()
            .remove(0)
    };
    let here = given.path().to_str().unwrap();
    let both = [("FSGATHER_DIR", "/a"), ("EXP_DIR", "/b")];
    assert_eq!(directory(&["--dir", "."], &both), here);
    assert_eq!(directory(&[], &both), "/a");
    assert_eq!(directory(&[], &both[1..]), "/b");
    assert_eq!(
        directory(&[], &[("FSGATHER_DIR", ""), ("EXP_DIR", "b")]),
        format!("{here}/b")
    );
    let private = directory(&[], &[]);
    assert_eq!(private, format!("/tmp/fsgather-{}", geteuid().as_raw()));
    let mode = fs::metadata(private).unwrap().permissions().mode();
    assert_eq!(mode & 0o022, 0);
}

#[test]
fn rank_0_has_standard_input_and_the_others_have_none() {
    let mut command = run_script(2, &[], "cat; echo end");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = process::spawn(&mut command).unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let mut lines: Vec<_> = output.stdout.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    assert_eq!(lines, [&b""[..], b"[0] end", b"[0] hello", b"[1] end"]);
}

#[test]
fn the_exit_code_is_that_of_the_failed_rank() {
    let done = finish(&mut run_script(3, &[], "[ $RANK != 1 ] || exit 7"));
    assert_eq!(done.code, Some(7));
    assert!(
        done.stderr.contains("fsgather run: rank 1 (pid "),
        "{}",
        done.stderr
    );
    assert!(
        done.stderr.contains(") exited with code 7"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_rank_killed_by_a_signal_means_128_and_its_number() {
    let done = finish(&mut run_script(1, &[], "kill -9 $$"));
    assert_eq!(done.code, Some(137));
    let said = ") was killed by signal 9 (SIGKILL)\n";
    assert!(done.stderr.contains(said), "{}", done.stderr);
}

#[test]
fn the_first_failure_counts_whatever_the_survivors_say() {
    let directory = tempfile::tempdir().unwrap();
    let (zero, one) = (fifo(&directory, "0"), fifo(&directory, "1"));
    // Ranks 0 and 1 notice the death of rank 2, as a gather would, and report it.
    let script = format!(
        "case $RANK in
           2) exec 3>{zero} 4>{one}; kill -9 $$;;
           *) read x <'{}'/$RANK; exit 11;;
         esac",
        directory.path().display()
    );
    let done = finish(&mut run_script(3, &[], &script));
    assert_eq!(done.code, Some(137), "{}", done.stderr);
    assert!(done.stderr.contains("rank 2 (pid "), "{}", done.stderr);
    assert!(
        done.stderr
            .ends_with("fsgather run: ranks 0 1 exited with code 11 as well\n"),
        "{}",
        done.stderr
    );
}

#[test]
fn survivors_get_grace_then_sigterm_then_sigkill() {
    let directory = tempfile::tempdir().unwrap();
    let ready = fifo(&directory, "ready");
    let script = format!(
        "if [ $RANK = 1 ]; then read x <{ready}; exit 3; fi
         trap 'echo got TERM' TERM
         echo >{ready}
         while :; do sleep 1000 & wait; done"
    );
    let options = ["--grace", "100ms", "--kill-after", "500ms"];
    let mut running = start(&mut run_script(2, &options, &script));
    running.wait_for("killing rank 0");
    let done = running.finish();
    assert_eq!(done.code, Some(3));
    assert_eq!(done.lines_of(0), ["got TERM"]);
    let said: Vec<&str> = done.stderr.lines().collect();
    assert!(
        said[0].ends_with("exited with code 3; the others have 100 ms to end"),
        "{said:?}"
    );
    assert_eq!(
        said[1..],
        [
            "fsgather run: ending rank 0 with SIGTERM",
            "fsgather run: killing rank 0, still there 500 ms after SIGTERM",
        ]
    );
}

#[test]
fn signals_are_passed_on_and_ranks_may_end_well() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
    ] {
        let script =
            format!("trap 'echo got {name}; exit 0' {name}; echo ready; sleep 1000 & wait");
        let mut running = start(&mut run_script(2, &[], &script));
        running.wait_for("ready");
        running.wait_for("ready");
        running.signal(signal);
        running.wait_for(&format!("SIG{name} passed on to ranks 0 1"));
        let done = running.finish();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        for rank in 0..2 {
            assert_eq!(done.lines_of(rank), ["ready", &format!("got {name}")]);
        }
    }
}

#[test]
fn ranks_that_die_of_a_signal_passed_on_give_its_code() {
    let mut running = start(&mut run_script(2, &[], "echo ready; exec sleep 1000"));
    running.wait_for("ready");
    running.wait_for("ready");
    running.signal(Signal::TERM);
    let done = running.finish();
    assert_eq!(done.code, Some(143));
    assert!(
        !done.stderr.contains("was killed"),
        "no news: {}",
        done.stderr
    );
}

#[test]
fn a_second_signal_kills() {
    let script = "trap '' TERM HUP; echo ready; while :; do sleep 1000 & wait; done";
    let mut running = start(&mut run_script(2, &[], script));
    running.wait_for("ready");
    running.wait_for("ready");
    running.signal(Signal::TERM);
    running.wait_for("SIGTERM passed on");
    running.signal(Signal::HUP);
    running.wait_for("killing ranks 0 1, after a second signal");
    assert_eq!(running.finish().code, Some(143));
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let script = "trap 'echo got HUP' HUP; echo ready; sleep 1000 & wait";
    let run = run_script(1, &[], script);
    let mut command = Command::new("env");
    command.arg("--ignore-signal=HUP").arg(run.get_program());
    let mut running = start(command.args(run.get_args()));
    running.wait_for("ready");
    running.signal(Signal::HUP);
    running.signal(Signal::TERM);
    let done = running.finish();
    assert_eq!(done.code, Some(143));
    assert!(!done.stderr.contains("SIGHUP"), "{}", done.stderr);
}

#[test]
fn when_run_is_killed_so_are_the_ranks() {
    let mut running = start(&mut run_script(3, &[], "echo pid $$; exec sleep 1000"));
    let ranks: Vec<_> = (0..3)
        .map(|_| watch(running.wait_for("pid ").split_once("pid ").unwrap().1))
        .collect();
    running.signal(Signal::KILL);
    for rank in &ranks {
        rank.wait();
    }
    assert_eq!(running.finish().code, None);
}

#[test]
fn when_run_is_killed_so_is_what_ranks_have_started() {
    let script = "sleep 1000 & echo child $!; sleep 1000; true";
    let mut running = start(&mut run_script(2, &[], script));
    let children: Vec<_> = (0..2)
        .map(|_| watch(running.wait_for("child ").split_once("child ").unwrap().1))
        .collect();
    running.signal(Signal::KILL);
    for child in &children {
        child.wait();
    }
    assert_eq!(running.finish().code, None);
}

#[test]
fn what_ranks_leave_behind_is_ended_too() {
    let script = "sleep 1000 & echo left $!; cat; exit 5";
    let mut running = start(run_script(1, &[], script).stdin(Stdio::piped()));
    let leftover = watch(running.wait_for("left ").split_once("left ").unwrap().1);
    running.close_input();
    leftover.wait();
    assert_eq!(running.finish().code, Some(5));
}

#[test]
fn a_command_that_does_not_exist_is_said_once() {
    for (command, said) in [
        (
            "no-such-command",
            "cannot start `no-such-command`: no such command in PATH",
        ),
        (
            "/no/such/file",
            "cannot start `/no/such/file`: no such file",
        ),
    ] {
        let mut run = fsgather(&["run", "-n", "5", "--dir", "/tmp", "--", command]);
        // A directory without read permission could contain one.
        let done = finish(run.env("PATH", "/usr/bin:/bin"));
        assert_eq!(done.code, Some(127));
        assert_eq!(done.stderr, format!("fsgather run: {said}\n"));
        assert_eq!(done.stdout, b"");
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let path = script.to_str().unwrap();
    for (mode, said) in [
        (0o644, "Permission denied"),
        (0o755, "the interpreter named"),
    ] {
        fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
        let done = finish(&mut fsgather(&[
            "run", "-n", "5", "--dir", "/tmp", "--", path,
        ]));
        assert_eq!(done.code, Some(126));
        assert!(done.stderr.contains(said), "{}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
}

#[test]
fn wrong_usage_ends_with_2_before_anything_starts() {
    for wrong in [
        &["run", "-n", "0", "--", "echo"][..],
        &["run", "-n", "100000", "--", "echo"],
        &["run", "--", "echo"],
        &["run", "-n", "2"],
        &["run", "-n", "2", "--timeout", "30", "--", "echo"],
        &["run", "-n", "2", "--timeout", "0s", "--", "echo"],
        &["run", "-n", "2", "--json", "--no-prefix", "--", "echo"],
        &[
            "run",
            "-n",
            "2",
            "--dir",
            "/no/such/directory",
            "--",
            "echo",
        ],
        &["gather", "--concat=", "/dev/null"],
        &["gather", "--out", "", "/dev/null"],
        &["broadcast", "--out=", "/dev/null"],
        &["no-such-verb"],
        &[],
    ] {
        let done = finish(&mut fsgather(wrong));
        assert_eq!(done.code, Some(2), "{wrong:?}: {}", done.stderr);
        assert_eq!(done.stdout, b"", "{wrong:?}");
        assert!(!done.stderr.is_empty(), "{wrong:?}");
    }
}

#[test]
fn too_few_open_files_are_reported_before_anything_starts() {
    let run = run_script(100, &[], "echo started");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .arg(run.get_program());
    let done = finish(command.args(run.get_args()));
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("ulimit -n 232"), "{}", done.stderr);
    assert_eq!(done.stdout, b"");
}

#[test]
fn the_limit_of_open_files_is_raised_for_ranks_too() {
    let run = run_script(8, &[], "[ $(ulimit -Sn) -gt 40 ] && echo raised");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -Sn 40; exec \"$0\" \"$@\""])
        .arg(run.get_program());
    let done = finish(command.args(run.get_args()));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.lines_of(7), ["raised"]);
}

#[test]
fn an_unwritable_trace_is_reported_before_ranks_start() {
    let options = ["--trace", "/no/such/directory/calls.html"];
    let done = finish(&mut run_script(1, &options, "echo started"));
    assert_eq!((done.code, done.lines().len()), (Some(12), 0));
    assert!(
        done.stderr.contains("/no/such/directory/calls.html"),
        "{}",
        done.stderr
    );
}

#[test]
fn sixty_four_ranks_are_no_problem() {
    let done = finish(&mut run_script(64, &[], "echo $RANK of $WORLD_SIZE"));
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    let mut lines = done.lines();
    lines.sort();
    let expected: Vec<String> = (0..64)
        .map(|rank| format!("[{rank:>2}] {rank} of 64"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn with_json_standard_output_is_one_document() {
    let directory = tempfile::tempdir().unwrap();
    let ready = fifo(&directory, "ready");
    let script =
        format!("echo out; case $RANK in 0) read x <{ready}; exit 4;; 1) echo >{ready};; esac");
    let done = finish(&mut run_script(2, &["--json"], &script));
    assert_eq!(done.code, Some(4));
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["schema_version"], 1);
    assert_eq!(document["world_size"], 2);
    assert_eq!(document["exit_code"], 4);
    assert!(document["job"].as_str().unwrap().starts_with("run-"));
    assert!(document["seconds"].as_f64().unwrap() > 0.0);
    let cause = document["cause"].as_str().unwrap();
    assert!(
        cause.starts_with("rank 0 (pid ") && cause.ends_with("exited with code 4"),
        "{cause}"
    );
    assert_eq!(document["ranks"][0]["exit_code"], 4);
    assert_eq!(document["ranks"][1]["exit_code"], 0);
    assert_eq!(document["ranks"][1]["signal"], serde_json::Value::Null);
    assert!(done.stderr.contains("[1] out"), "{}", done.stderr);
}

#[test]
fn the_help_has_examples_and_says_how_it_ends() {
    let help = finish(&mut fsgather(&["run", "--help"]));
    assert_eq!(help.code, Some(0));
    let text = help.lines().join("\n");
    for part in [
        "Usage: fsgather run [OPTIONS] --ranks <N> <CMD>...",
        "Examples:\n  fsgather run -n 4 -- python evaluate.py",
        "FSGATHER_RANK",
        "TORCHELASTIC_RUN_ID",
        "--grace <D>",
        "--kill-after <D>",
        "SIGHUP",
        "schema_version",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    let short = finish(&mut fsgather(&["-h"])).lines().join("\n");
    assert!(
        short.contains("run") && !short.contains("guard-run"),
        "{short}"
    );
    let long = finish(&mut fsgather(&["--help"])).lines().join("\n");
    assert!(long.contains("Exit codes:\n    0  done"), "{long}");
}
