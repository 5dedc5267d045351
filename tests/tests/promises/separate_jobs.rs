//! Jobs in one directory at the same time, and two processes with one rank.

use std::{fs, process::Command, time::Duration};

use crate::common::{
    RENDEZVOUS, Stage, World, assert_nothing_left, build::command_line_tool, everybody, place,
};

#[test]
fn two_processes_of_one_rank_are_both_told_of_each_other() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "twice");
    let mut stage = Stage::new();
    for rank in [0, 1, 1] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    let (error, _) = stage.fail_alike(0..3, RENDEZVOUS);
    assert!(error.contains("rank 1:"), "{error}");
    for twin in [1, 2] {
        let pid = format!("pid {}", stage.pid(twin));
        assert!(error.contains(&pid), "{pid}: {error}");
    }
    assert!(error.contains("FSGATHER_JOB"), "{error}");
    assert_nothing_left(place.path());
}

#[test]
fn two_processes_of_rank_0_are_told_of_each_other() {
    let place = place();
    let world = World::new(2, place.path())
        .with("FSGATHER_JOB", "twice")
        .with("FSGATHER_JOIN_TIMEOUT", "4s");
    let mut stage = Stage::new();
    for _ in 0..2 {
        stage.start(&mut world.rank(0, "join close"));
    }
    let (error, _) = stage.fail_alike(0..2, RENDEZVOUS);
    for twin in [0, 1] {
        let pid = format!("pid {}", stage.pid(twin));
        assert!(error.contains(&pid), "{pid}: {error}");
    }
    assert!(error.contains("FSGATHER_JOB"), "{error}");
    assert_nothing_left(place.path());
}

#[test]
fn a_second_job_of_the_same_name_is_told_and_the_first_goes_on() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOB", "twice");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join barrier at:running barrier close".into());
    stage.wait_at(everybody(2), "running");
    let newcomer = world.with("FSGATHER_JOIN_TIMEOUT", "2s");
    let newcomer = stage.start(&mut newcomer.rank(1, "join close"));
    let end = stage.end(newcomer);
    assert_eq!(end.code, RENDEZVOUS, "{}", stage.transcript());
    for process in [1, newcomer] {
        let pid = format!("pid {}", stage.pid(process));
        assert!(end.error().contains(&pid), "{pid}: {end:?}");
    }
    assert!(end.error().contains("FSGATHER_JOB"), "{end:?}");
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    assert_nothing_left(place.path());
}

#[test]
fn jobs_of_different_names_share_a_directory() {
    let place = place();
    let mut stage = Stage::new();
    for job in ["one", "two"] {
        let world = World::new(2, place.path()).with("FSGATHER_JOB", job);
        stage.start_all(&world, |_| {
            "join all_gather_bytes:100000 barrier close".into()
        });
    }
    stage.succeed(0..4);
    assert_nothing_left(place.path());
}

#[test]
fn jobs_without_id_of_one_process_never_exchange_ranks() {
    let two = [('a', 0), ('b', 1), ('a', 1), ('b', 0)];
    let three = [('a', 0), ('b', 1), ('c', 0), ('a', 1), ('b', 0), ('c', 1)];
    for order in [&two[..], &three] {
        let (place, own) = (place(), place());
        let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "5s");
        let mut stage = Stage::new();
        for &(job, rank) in order {
            let part = own.path().join(format!("{job}{rank}"));
            fs::write(&part, job.to_string()).expect("a file");
            let out = format!("--concat={}/out-{job}-{{rank}}", own.path().display());
            let part = part.to_str().expect("text");
            stage.start(&mut world.tool(rank, &["gather", "--all", &out, part]));
            // They start in this order.
            stage.let_pass(Duration::from_millis(50));
        }
        let mut failed = Vec::new();
        for (index, &(job, rank)) in order.iter().enumerate() {
            let end = stage.end(index);
            if end.code == 0 {
                let got = fs::read_to_string(own.path().join(format!("out-{job}-{rank}")));
                let right = format!("{job}{job}");
                assert_eq!(got.expect("a result"), right, "{}", stage.transcript());
            } else {
                failed.extend(end.stderr);
            }
        }
        // A rank that fails because of the end of another rank names that one instead.
        let is_told = failed.iter().any(|line| line.contains("FSGATHER_JOB"));
        assert!(failed.is_empty() || is_told, "{}", stage.transcript());
    }
}

/// Ranks of two jobs that have been started, and make their first call after the ranks that resemble them have failed.
#[test]
fn late_calls_hear_of_jobs_that_have_failed() {
    let waiting = ["sh", "-c", "read line; exec \"$0\" \"$@\""].map(str::to_owned);
    for name in ["", "one-name"] {
        let (place, own) = (place(), place());
        let world = World::new(2, place.path()).with("FSGATHER_JOB", name);
        let mut stage = Stage::new();
        for (job, rank) in [('a', 0), ('b', 1), ('b', 0), ('a', 1)] {
            let part = own.path().join(job.to_string());
            fs::write(&part, job.to_string()).expect("a file");
            let part = part.to_str().expect("text");
            let gather = ["gather", "--concat=/dev/null", part];
            stage.start(&mut world.tool_behind(&waiting, rank, &gather));
        }
        for both in [[0, 1], [2, 3]] {
            stage.go_all(both);
            for rank in both {
                let end = stage.end(rank);
                assert_eq!(end.code, RENDEZVOUS, "{}", stage.transcript());
                let is_told = end.stderr.iter().any(|line| line.contains("FSGATHER_JOB"));
                assert!(is_told, "{}", stage.transcript());
            }
        }
    }
}

/// Two jobs without an id that one shell starts in the background, with a command in between. Returns exit code, result and standard error of
/// each of the four ranks.
#[expect(
    clippy::expect_used,
    reason = "the tests that share it fail in the same way"
)]
fn started_by_one_shell(between: &str) -> Vec<(char, i32, String, String)> {
    const SCRIPT: &str = r#"
        for job in a b; do
            [ $job = a ] || $BETWEEN
            for rank in 0 1; do
                (
                    FSGATHER_RANK=$rank "$TOOL" gather --all --concat="$OUT/got-$job-{rank}" "$OUT/$job" 2>"$OUT/said-$job-$rank"
                    echo $? >"$OUT/code-$job-$rank"
                ) &
            done
        done
        wait"#;
    let (place, own) = (place(), place());
    for job in ["a", "b"] {
        fs::write(own.path().join(job), job).expect("a file");
    }
    let world = World::new(2, place.path());
    let mut shell = world.set_up(Command::new("sh"), 0, "");
    shell
        .args(["-c", SCRIPT])
        .env_remove("FSGATHER_RANK")
        .env("BETWEEN", between)
        .env("TOOL", command_line_tool())
        .env("OUT", own.path());
    let mut stage = Stage::new();
    stage.start(&mut shell);
    stage.succeed([0]);
    let read = |name: String| fs::read_to_string(own.path().join(name)).unwrap_or_default();
    let ranks = ['a', 'b'].map(|job| [0, 1].map(|rank| (job, rank)));
    let ranks = ranks.into_iter().flatten();
    let ends = ranks.map(|(job, rank)| {
        let code = read(format!("code-{job}-{rank}"));
        let code = code.trim().parse().unwrap_or(-1);
        let got = read(format!("got-{job}-{rank}"));
        (job, code, got, read(format!("said-{job}-{rank}")))
    });
    ends.collect()
}

#[test]
fn two_jobs_without_id_that_one_shell_starts_at_once() {
    let ends = started_by_one_shell("true");
    let failed: Vec<_> = ends.iter().filter(|end| end.1 != 0).collect();
    // A rank that fails because of the end of another rank names that one instead.
    let is_told = |end: &&(_, i32, _, String)| {
        end.1 == RENDEZVOUS && end.3.contains("FSGATHER_JOB to a different name")
    };
    assert!(failed.is_empty() || failed.iter().any(is_told), "{ends:?}");
    for (job, code, got, _) in &ends {
        // A rank that is too quick to see the other job gets its own data.
        assert!(*code != 0 || *got == format!("{job}{job}"), "{ends:?}");
    }
}

#[test]
fn two_jobs_without_id_in_turn_from_a_shell_succeed() {
    for (job, code, got, said) in started_by_one_shell("wait") {
        assert_eq!((code, got), (0, format!("{job}{job}")), "{said}");
    }
}
