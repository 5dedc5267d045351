//! Tests that what was decided can be read until its readers are done or dead, whatever the others do meanwhile: they fail,
//! die, or end without `close`.

use std::time::{Duration, Instant};

use crate::common::{
    End, NOTICED, OVER_MARKERS, PEER_FAILED, Stage, World, assert_nothing_left, everybody, in_step,
    name_of, place,
};
use fsgather_testkit::pace::allowed;
use rustix::process::Signal;

/// How payloads travel for which somebody may have to stay. Over marker files those in memory go through rank 0, and
/// nobody keeps any.
const BY_FILES_OR_MEMORY: &[&str] = if OVER_MARKERS {
    &["filesys"]
} else {
    &["filesys", "memory"]
};

/// The one for which most ranks have to.
const BY_MEMORY: &str = if OVER_MARKERS { "filesys" } else { "memory" };

/// Longer than anybody stays for nothing.
const A_WHILE: Duration = Duration::from_secs(7);

#[test]
fn a_loss_after_the_verdict_does_not_disturb_those_who_still_read() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join start_all_gather:300000 wait:0 barrier".into(),
        1 => "join start_all_gather:300000 at:late wait:0 at:read barrier".into(),
        _ => "join start_all_gather:300000 wait:0 at:done barrier".into(),
    });
    stage.wait_at([1], "late");
    stage.wait_at([2], "done");
    stage.kill(2);
    let lost = name_of(2, stage.pid(2));
    // Rank 1 knows by now, or will while it reads; what rank 2 has published is there.
    stage.let_pass(Duration::from_secs(1));
    stage.go(1);
    stage.wait_at([1], "read");
    stage.go(1);
    let (error, _) = stage.fail_alike([0, 1], PEER_FAILED);
    assert!(error.starts_with(&lost), "{error}");
    assert_nothing_left(place.path());
}

/// Three ranks of which rank 1 reads late what all have handed in; the others end without a close.
fn with_a_late_reader(transport: &str, timeout: &str, directory: &std::path::Path) -> Stage {
    let world = World::new(3, directory)
        .with("FSGATHER_TRANSPORT", transport)
        .with("FSGATHER_TIMEOUT", timeout);
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join start_gather:1:300000 start_all_gather:300000 barrier abandon:0 wait:1 drop"
            .into(),
        1 => {
            "join start_gather:1:300000 start_all_gather:300000 barrier at:late wait:1 wait:0 drop"
                .into()
        }
        _ => "join start_gather:1:300000 start_all_gather:300000 barrier wait:0 wait:1 drop".into(),
    });
    stage.wait_at([1], "late");
    for rank in [0, 2] {
        stage.wait_for(rank, "done wait:1");
    }
    stage
}

#[test]
fn a_rank_that_ends_without_close_stays_until_others_have_read() {
    for transport in BY_FILES_OR_MEMORY {
        let place = place();
        let mut stage = with_a_late_reader(transport, "60s", place.path());
        stage.let_pass(A_WHILE);
        assert!(stage.runs(0), "{}", stage.transcript());
        stage.go(1);
        let ends = stage.end_all(everybody(3));
        for end in &ends {
            assert_eq!(end.code, 0, "{}", stage.transcript());
        }
        assert!(says_for_whom(&stage, &ends[0]), "{}", stage.transcript());
        // With files the others need not stay; rank 0 does so for all.
        assert_eq!(says_for_whom(&stage, &ends[2]), *transport == "memory");
        assert_nothing_left(place.path());
    }
}

/// Whether a rank has said that it stays for rank 1.
fn says_for_whom(stage: &Stage, end: &End) -> bool {
    let stays = format!(
        "until {} has read what was handed over",
        name_of(1, stage.pid(1))
    );
    end.stderr
        .iter()
        .any(|line| line.contains("this process stays, for") && line.contains(&stays))
}

#[test]
fn a_dead_reader_keeps_nobody() {
    for transport in BY_FILES_OR_MEMORY {
        let place = place();
        let mut stage = with_a_late_reader(transport, "60s", place.path());
        let killed = stage.kill(1);
        for end in stage.end_all([0, 2]) {
            assert_eq!(end.code, 0, "{}", stage.transcript());
            let late = end.at.saturating_duration_since(killed);
            assert!(late < A_WHILE, "after {late:?}\n{}", stage.transcript());
        }
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_stopped_reader_is_waited_for_as_long_as_the_time_out() {
    let place = place();
    let mut stage = with_a_late_reader(BY_MEMORY, "15s", place.path());
    let since = Instant::now();
    stage.signal(1, Signal::STOP);
    // With files rank 0 stays for all.
    let staying: &[usize] = if OVER_MARKERS { &[0] } else { &[0, 2] };
    for end in stage.end_all(staying.iter().copied()) {
        assert_eq!(end.code, 0, "{}", stage.transcript());
        let stayed = end.at.saturating_duration_since(since);
        assert!(stayed > Duration::from_secs(4), "{stayed:?}");
        assert!(says_for_whom(&stage, &end), "{}", stage.transcript());
    }
    stage.kill(1);
}

#[test]
fn a_job_that_is_suspended_while_ranks_stay_goes_on() {
    let place = place();
    let mut stage = with_a_late_reader(BY_MEMORY, "8s", place.path());
    stage.let_pass(Duration::from_secs(1));
    for rank in everybody(3) {
        stage.signal(rank, Signal::STOP);
    }
    stage.let_pass(Duration::from_secs(12));
    for rank in everybody(3) {
        stage.signal(rank, Signal::CONT);
    }
    stage.let_pass(Duration::from_secs(1));
    assert!(stage.runs(0), "{}", stage.transcript());
    stage.go(1);
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}

#[test]
fn a_later_failure_ends_no_stay() {
    for transport in BY_FILES_OR_MEMORY {
        let place = place();
        let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        stage.start_all(&world, |rank| match rank {
            0 => "join start_all_gather:300000 barrier fails:barrier drop".into(),
            1 => "join start_all_gather:300000 barrier at:late wait:0 fails:barrier drop".into(),
            _ => "join start_all_gather:300000 barrier fails:encode_fails drop".into(),
        });
        stage.wait_at([1], "late");
        for (rank, step) in [(0, "fails:barrier"), (2, "fails:encode_fails")] {
            stage.wait_for(rank, &format!("done {step}"));
        }
        stage.let_pass(A_WHILE);
        assert!(stage.runs(0), "{}", stage.transcript());
        stage.go(1);
        stage.succeed(everybody(3));
        assert_nothing_left(place.path());
    }
}

#[test]
fn who_asks_a_rank_to_end_is_told_for_whom_it_has_stayed() {
    let place = place();
    let file = place.path().join("end");
    let world = World::new(2, place.path()).with("FSGATHER_TRANSPORT", BY_MEMORY);
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => format!(
            "join_asking:{} start_all_gather:300000 barrier wait:0 drop",
            in_step(&file)
        ),
        _ => "join start_all_gather:300000 barrier at:late".into(),
    });
    stage.wait_at([1], "late");
    stage.wait_for(0, "done wait:0");
    stage.let_pass(Duration::from_secs(1));
    assert!(stage.runs(0), "{}", stage.transcript());
    let since = Instant::now();
    std::fs::write(&file, "").expect("a file");
    let end = stage.end(0);
    let took = end.at.saturating_duration_since(since);
    assert!(took < allowed(NOTICED), "{took:?}\n{}", stage.transcript());
    let told = format!(
        "this process ends although {} has not read what was handed over; KeyboardInterrupt",
        name_of(1, stage.pid(1))
    );
    let is_told = end.stderr.iter().any(|line| line.contains(&told));
    assert!(is_told, "{}", stage.transcript());
    stage.kill(1);
}

#[test]
fn who_has_to_stay_can_be_ended() {
    let place = place();
    let mut stage = with_a_late_reader("filesys", "60s", place.path());
    stage.let_pass(Duration::from_secs(1));
    stage.signal(0, Signal::TERM);
    stage.end(0);
    // What lies in files is there all the same.
    stage.go(1);
    stage.wait_for(1, "done wait:1");
    stage.wait_for(1, "done wait:0");
}

#[test]
fn results_that_nobody_reads_go_with_the_last_rank_although_rank_0_has_ended_before() {
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| match rank {
        0 => "join hold:300000 fails:barrier leave_with:told".into(),
        1 => "join hold:300000 leave_with:boo".into(),
        _ => "join hold:300000 at:late fails:barrier leave".into(),
    });
    stage.wait_at([2], "late");
    for end in stage.end_all([0, 1]) {
        assert_eq!(end.code, 0, "{}", stage.transcript());
    }
    stage.go(2);
    assert_eq!(stage.end_all([2])[0].code, 0, "{}", stage.transcript());
    assert_nothing_left(place.path());
}
