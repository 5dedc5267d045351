//! Ranks that do not come, come late, stand still, or are not who they say they are.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{
    PEER_FAILED, RENDEZVOUS, Stage, TIMED_OUT, World, assert_nothing_left, everybody, name_of,
    others, place, refusals_in,
};
use fsgather_testkit::pace::allowed;
use rustix::process::Signal;

#[test]
fn ranks_that_never_start_are_named_exactly() {
    let place = place();
    let world = World::new(6, place.path()).with("FSGATHER_JOIN_TIMEOUT", "3s");
    let started = Instant::now();
    let mut stage = Stage::new();
    for rank in [0, 1, 3, 5] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    let (error, ends) = stage.fail_alike(0..4, TIMED_OUT);
    assert!(
        error.contains("waiting for rank 2 (never joined), rank 4 (never joined);"),
        "{error}"
    );
    assert!(error.contains("FSGATHER_JOIN_TIMEOUT"), "{error}");
    for end in ends {
        let took = end.at.saturating_duration_since(started);
        assert!(took >= Duration::from_secs(3) && took < allowed(Duration::from_secs(6)));
    }
    assert_nothing_left(place.path());
}

#[test]
fn without_rank_0_the_others_say_so() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOIN_TIMEOUT", "1s");
    let mut stage = Stage::new();
    for rank in [1, 2] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    // The later one may hear of the earlier one's end.
    for end in stage.end_all(0..2) {
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
        let named = end.error().contains("waiting for rank 0 (never joined)");
        assert!(named, "{end:?}");
    }
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_that_starts_late_is_waited_for() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    for rank in [0, 1] {
        stage.start(&mut world.rank(rank, "join all_gather_bytes:100000 close"));
    }
    stage.wait_until_taken_in(1);
    stage.let_pass(Duration::from_secs(1));
    stage.start(&mut world.rank(2, "join all_gather_bytes:100000 close"));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

/// A world of three whose members look before rank 0 has left its record.
fn succeeds_with_rank_0_last(world: &World) {
    let mut stage = Stage::new();
    for rank in [1, 2] {
        stage.start(&mut world.rank(rank, "join barrier close"));
    }
    stage.let_pass(Duration::from_secs(1));
    stage.start(&mut world.rank(0, "join barrier close"));
    stage.succeed(everybody(3));
}

#[test]
fn rank_0_that_starts_late_is_waited_for() {
    let place = place();
    succeeds_with_rank_0_last(&World::new(3, place.path()));
}

#[test]
fn a_stopped_rank_is_waited_for() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(3, place.path()), |_| {
        "join barrier at:here barrier close".into()
    });
    stage.wait_at(everybody(3), "here");
    stage.signal(2, Signal::STOP);
    stage.go_all(everybody(3));
    stage.wait_for(0, "done at:here");
    // Longer than a dead process takes to be noticed.
    stage.let_pass(Duration::from_secs(3));
    assert!(stage.runs(0) && stage.runs(1));
    stage.signal(2, Signal::CONT);
    stage.succeed(everybody(3));
}

#[test]
fn a_stopped_rank_is_named_when_time_is_up() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", "3s");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join barrier at:here barrier close".into());
    stage.wait_at(everybody(3), "here");
    stage.signal(2, Signal::STOP);
    stage.go_all(everybody(3));
    let (error, _) = stage.fail_alike(0..2, TIMED_OUT);
    let name = format!("waiting for {}", name_of(2, stage.pid(2)));
    let name = name.trim_end_matches(')');
    assert!(error.contains(name) && !error.contains("rank 1"), "{error}");
    assert!(error.contains("FSGATHER_TIMEOUT"), "{error}");
    stage.signal(2, Signal::CONT);
    // It learns what the others have agreed on.
    let own = stage.end(2);
    assert_eq!(
        (own.code, own.error()),
        (TIMED_OUT, error.as_str()),
        "{own:?}"
    );
}

/// Three ranks of which two wait in a barrier, and the third stands at "here".
fn two_wait(timeout: &str) -> (Stage, tempfile::TempDir) {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TIMEOUT", timeout);
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        "join barrier at:here barrier at:there close".into()
    });
    stage.wait_at(everybody(3), "here");
    stage.go_all(0..2);
    for rank in 0..2 {
        stage.wait_for(rank, "done at:here");
    }
    // They say nothing more before they wait.
    stage.let_pass(Duration::from_millis(500));
    (stage, place)
}

/// Stops these, and has them go on after so long.
fn suspend(stage: &mut Stage, ranks: std::ops::Range<usize>, seconds: u64) {
    for rank in ranks.clone() {
        stage.signal(rank, Signal::STOP);
    }
    stage.let_pass(Duration::from_secs(seconds));
    for rank in ranks {
        stage.signal(rank, Signal::CONT);
    }
}

#[test]
fn a_job_that_is_suspended_for_longer_than_its_time_out_goes_on() {
    let (mut stage, place) = two_wait("6s");
    suspend(&mut stage, 0..3, 9);
    stage.go(2);
    stage.wait_at(everybody(3), "there");
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_0_that_is_suspended_for_longer_than_the_time_out_goes_on() {
    let (mut stage, place) = two_wait("6s");
    suspend(&mut stage, 0..1, 9);
    stage.go(2);
    stage.wait_at(everybody(3), "there");
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_that_was_suspended_reads_its_verdict_before_it_gives_rank_0_up() {
    let (mut stage, place) = two_wait("3s");
    stage.signal(1, Signal::STOP);
    stage.go(2);
    stage.wait_at([0, 2], "there");
    stage.let_pass(Duration::from_secs(14));
    stage.signal(1, Signal::CONT);
    stage.wait_at([1], "there");
    stage.go_all(everybody(3));
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

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
fn a_second_job_of_the_same_name_is_told_and_the_first_goes_on() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOB", "twice");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join barrier at:running barrier close".into());
    stage.wait_at(everybody(2), "running");
    let newcomer = world.with("FSGATHER_JOIN_TIMEOUT", "1s");
    let newcomer = stage.start(&mut newcomer.rank(1, "join close"));
    let end = stage.end(newcomer);
    assert_eq!(end.code, RENDEZVOUS, "{}", stage.transcript());
    let running = format!("pid {} as rank 1", stage.pid(1));
    assert!(end.error().contains(&running), "{running}: {end:?}");
    assert!(end.error().contains("FSGATHER_JOB"), "{end:?}");
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    assert_nothing_left(place.path());
}

#[test]
fn jobs_of_different_names_share_a_directory() {
    let place = place();
    let mut stage = Stage::new();
    for job in ["one", "two", "three"] {
        let world = World::new(3, place.path()).with("FSGATHER_JOB", job);
        stage.start_all(&world, |_| {
            "join all_gather_bytes:100000 barrier close".into()
        });
    }
    stage.succeed(everybody(9));
    assert_nothing_left(place.path());
}

#[test]
fn an_early_end_while_others_join_is_told() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    for rank in [0, 1] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    stage.wait_until_taken_in(1);
    stage.signal(1, Signal::TERM);
    let (error, _) = stage.fail_alike(others(2, 1), PEER_FAILED);
    assert!(error.starts_with(&name_of(1, stage.pid(1))), "{error}");
}

/// How long those may take who come to a meeting that has failed.
const TOLD: Duration = Duration::from_secs(10);

/// A world of three of which rank 1 is killed after it has joined, while rank 2 is at work still.
fn a_failed_meeting(world: &World) -> (Stage, String) {
    let mut stage = Stage::new();
    stage.start(&mut world.rank(2, "at:late join close"));
    stage.wait_at([0], "late");
    // What is meant for a process is told from what is not by time stamps, which count in ticks.
    stage.let_pass(Duration::from_secs(1));
    for rank in [0, 1] {
        stage.start(&mut world.rank(rank, "join close"));
    }
    stage.wait_until_taken_in(2);
    stage.signal(2, Signal::KILL);
    let end = stage.end(1);
    assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
    let error = end.error().to_owned();
    assert!(error.starts_with(&name_of(1, stage.pid(2))), "{error}");
    (stage, error)
}

#[test]
fn who_comes_to_a_meeting_that_has_failed_is_told_why() {
    let place = place();
    let world = World::new(3, place.path())
        .with("FSGATHER_JOB", "late")
        .with("FSGATHER_JOIN_TIMEOUT", "60s");
    let (mut stage, error) = a_failed_meeting(&world);
    let came = Instant::now();
    stage.go(0);
    let late = stage.end(0);
    assert_eq!((late.code, late.error()), (PEER_FAILED, error.as_str()));
    let took = late.at.saturating_duration_since(came);
    assert!(took < allowed(TOLD), "{took:?}");
    assert_eq!(refusals_in(place.path()).len(), 1);
}

/// It cannot be told from a rank of the next attempt, which must not fail for what became of the one before.
#[test]
fn who_is_started_after_a_meeting_has_failed_hears_of_it() {
    let place = place();
    let world = World::new(3, place.path())
        .with("FSGATHER_JOB", "too late")
        .with("FSGATHER_JOIN_TIMEOUT", "3s");
    let (_earlier, error) = a_failed_meeting(&world);
    let expected =
        format!("a meeting of this job had failed before this rank was started: {error}");
    for rank in [1, 0] {
        // What the other one leaves in its turn is news for nobody here.
        let mut stage = Stage::new();
        stage.start(&mut world.rank(rank, "join close"));
        let end = stage.end(0);
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
        assert!(end.error().ends_with(&format!("; {expected}")));
        assert_eq!(end.error().matches("had failed before").count(), 1);
        let warnings = end.warnings();
        assert!(
            warnings.iter().any(|warning| warning.contains(&expected)),
            "{warnings:?}"
        );
    }
}

/// A rank that runs, and has not begun to meet, while something happens to a meeting.
fn runs_already(stage: &mut Stage, world: &World, rank: u32) -> usize {
    let index = stage.start(&mut world.rank(rank, "at:late join close"));
    stage.wait_at([index], "late");
    // What is meant for a process is told from what is not by time stamps, which count in ticks.
    stage.let_pass(Duration::from_secs(1));
    index
}

/// What a rank says that comes now, at once.
fn told_at_once(stage: &mut Stage, late: usize) -> crate::common::End {
    let came = Instant::now();
    stage.go(late);
    let end = stage.end(late);
    let took = end.at.saturating_duration_since(came);
    assert!(took < allowed(TOLD), "{took:?}\n{}", stage.transcript());
    end
}

#[test]
fn a_rank_that_is_ended_before_it_has_met_anybody_leaves_word() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOB", "ended");
    let mut stage = Stage::new();
    let rank0 = runs_already(&mut stage, &world, 0);
    let ended = stage.start(&mut world.tool(1, &["barrier"]));
    let looks = "looking for rank 0";
    let log = place.path().join("all_gather_via_filesys");
    stage.wait_until(looks, || log.exists());
    stage.signal(ended, Signal::TERM);
    assert_eq!(stage.end(ended).code, 143);
    let told = told_at_once(&mut stage, rank0);
    assert_eq!(told.code, PEER_FAILED, "{}", stage.transcript());
    let name = name_of(1, stage.pid(ended));
    let expected = format!("{name} failed (ended by SIGTERM) while joining");
    assert_eq!(told.error(), expected);
}

#[test]
fn who_comes_when_rank_0_was_killed_is_told_so() {
    let place = place();
    let world = World::new(3, place.path())
        .with("FSGATHER_JOB", "killed")
        .with("FSGATHER_JOIN_TIMEOUT", "60s");
    let mut stage = Stage::new();
    let late = runs_already(&mut stage, &world, 2);
    let rank0 = stage.start(&mut world.rank(0, "join close"));
    let member = stage.start(&mut world.rank(1, "join close"));
    stage.wait_until_taken_in(member);
    stage.kill(rank0);
    let end = stage.end(member);
    assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
    let name = name_of(0, stage.pid(rank0));
    assert!(end.error().starts_with(&name), "{end:?}");
    let told = told_at_once(&mut stage, late);
    assert_eq!((told.code, told.error()), (end.code, end.error()));
}

#[test]
fn a_rank_0_that_comes_when_the_others_have_given_up_is_told_at_once() {
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_JOB", "slow");
    let mut stage = Stage::new();
    let rank0 = runs_already(&mut stage, &world, 0);
    let impatient = world.with("FSGATHER_JOIN_TIMEOUT", "1s");
    let member = stage.start(&mut impatient.rank(1, "join close"));
    let end = stage.end(member);
    assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
    let told = told_at_once(&mut stage, rank0);
    let who = format!(
        "; {} has waited for so long and given up",
        name_of(1, stage.pid(member))
    );
    assert_eq!(
        (told.code, told.error()),
        (end.code, &*format!("{}{who}", end.error()))
    );
    assert_nothing_left(place.path());
}

#[test]
fn the_next_attempt_of_a_job_whose_meeting_has_failed_succeeds() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_JOB", "again");
    let (stage, _) = a_failed_meeting(&world);
    // Its members see only what was left before.
    succeeds_with_rank_0_last(&world);
    assert_nothing_left(place.path());
    assert_eq!(refusals_in(place.path()).len(), 0);
    drop(stage);
}

/// Starts ranks of several jobs without an id one after the other, in this order; how many ranks have ended
/// well, and whether any of those has got what is another job's.
#[expect(
    clippy::expect_used,
    reason = "the tests that share it fail in the same way"
)]
fn jobs_without_an_id(order: &[(char, u32)], pause: Duration) -> (usize, Vec<String>) {
    let place = place();
    let own = crate::common::place();
    let mut stage = Stage::new();
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "8s");
    for &(job, rank) in order {
        let part = own.path().join(format!("{job}{rank}"));
        std::fs::write(&part, format!("{job}\n")).expect("a file");
        let out = format!("--concat={}/out-{job}-{{rank}}", own.path().display());
        let part = part.to_str().expect("text");
        stage.start(&mut world.tool(rank, &["gather", "--all", &out, part]));
        stage.let_pass(pause);
    }
    let ends = stage.end_all(0..order.len());
    let mut well = 0;
    let mut mixed = Vec::new();
    for (&(job, rank), end) in order.iter().zip(&ends) {
        if end.code == 0 {
            well += 1;
            let got = own.path().join(format!("out-{job}-{rank}"));
            let got = std::fs::read_to_string(got).expect("what was gathered");
            if got.chars().any(|from| from.is_alphabetic() && from != job) {
                mixed.push(format!("{job}{rank} got {got:?}"));
            }
        }
    }
    (well, mixed)
}

#[test]
fn jobs_without_an_id_that_one_process_starts_never_exchange_ranks() {
    let two = [
        [('a', 0), ('b', 1), ('a', 1), ('b', 0)],
        [('b', 1), ('a', 0), ('b', 0), ('a', 1)],
        [('a', 0), ('b', 0), ('b', 1), ('a', 1)],
    ];
    for order in two {
        let (_, mixed) = jobs_without_an_id(&order, Duration::from_millis(100));
        assert!(mixed.is_empty(), "{order:?}: {mixed:?}");
    }
    let three = [('a', 0), ('b', 1), ('c', 0), ('a', 1), ('b', 0), ('c', 1)];
    let (_, mixed) = jobs_without_an_id(&three, Duration::from_millis(50));
    assert!(mixed.is_empty(), "{three:?}: {mixed:?}");
}

#[test]
fn one_job_without_an_id_meets() {
    let (well, mixed) = jobs_without_an_id(&[('a', 1), ('a', 0)], Duration::from_millis(10));
    assert_eq!((well, mixed), (2, Vec::new()));
}

/// Two jobs without an id that one shell starts in the background, the second one so many seconds after the first: exit code, what
/// was gathered and what was said, for each of the four ranks.
#[expect(
    clippy::expect_used,
    reason = "the tests that share it fail in the same way"
)]
fn started_by_one_shell(stagger: u32) -> Vec<(char, i32, String, String)> {
    const SCRIPT: &str = r#"
        for job in a b; do
            [ $job = a ] || sleep "$STAGGER"
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
        std::fs::write(own.path().join(job), job).expect("a file");
    }
    let world = World::new(2, place.path()).with("FSGATHER_JOIN_TIMEOUT", "60s");
    let mut shell = world.set_up(Command::new("sh"), 0, "");
    shell
        .args(["-c", SCRIPT])
        .env_remove("FSGATHER_RANK")
        .env("STAGGER", stagger.to_string())
        .env("TOOL", crate::common::build::command_line_tool())
        .env("OUT", own.path());
    let mut stage = Stage::new();
    stage.start(&mut shell);
    stage.succeed([0]);
    let read = |name: String| std::fs::read_to_string(own.path().join(name)).unwrap_or_default();
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
fn jobs_without_an_id_that_one_shell_starts_at_once_are_all_told_to_take_names() {
    for _ in 0..5 {
        for (job, code, got, said) in started_by_one_shell(0) {
            // Whoever is quick enough not to see the other job has what is its own.
            let is_own = code == 0 && got == format!("{job}{job}");
            let is_told = code == RENDEZVOUS && said.contains("FSGATHER_JOB to a different name");
            assert!(is_own || is_told, "{job}: {code} {got:?} {said}");
        }
    }
}

#[test]
fn jobs_without_an_id_that_one_shell_starts_one_after_the_other_both_succeed() {
    for (job, code, got, said) in started_by_one_shell(5) {
        assert_eq!((code, got), (0, format!("{job}{job}")), "{said}");
    }
}
