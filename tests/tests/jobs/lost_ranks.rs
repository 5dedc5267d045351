//! Ranks that are killed or panic: everybody else is told who, and the place can be used again at once.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{
    End, NOTICED, PEER_FAILED, Stage, World, assert_nothing_left,
    build::{command_line_tool, rank_program},
    everybody, left_in, name_of, others, payloads, place,
};
use fsgather_testkit::pace::allowed;

const RANKS: u32 = 8;

/// Asserts that the survivors of a kill have ended in time, naming the dead rank.
fn told_of(stage: &mut Stage, survivors: &[usize], rank: u32, killed: Instant) -> Vec<End> {
    let name = name_of(rank, stage.pid(rank as usize));
    let ends = stage.end_all(survivors.iter().copied());
    for end in &ends {
        assert_eq!(end.code, PEER_FAILED, "{}", stage.transcript());
        let late = end.at.saturating_duration_since(killed);
        assert!(
            late < allowed(NOTICED),
            "after {late:?}\n{}",
            stage.transcript()
        );
        let error = end.error();
        assert!(
            error.starts_with(&name) && error.contains("was lost"),
            "{error}, rather than {name} was lost"
        );
    }
    ends
}

/// Asserts that all survivors say the same, with one of these phases.
fn agree_on_phase(stage: &Stage, ends: &[End], phases: &[&str]) {
    let error = ends[0].error();
    for end in ends {
        assert_eq!(end.error(), error, "{}", stage.transcript());
    }
    assert!(phases.iter().any(|phase| error.contains(phase)), "{error}");
}

/// A new run in the same directory works at once, and leaves nothing of its own.
fn works_again(directory: &Path) {
    let before = left_in(directory);
    let started = Instant::now();
    let mut stage = Stage::new();
    stage.start_all(&World::new(RANKS, directory), |_| {
        "join all_gather_bytes:100000 close".into()
    });
    stage.succeed(everybody(RANKS));
    let took = started.elapsed();
    assert!(took < allowed(Duration::from_secs(5)), "took {took:?}");
    for left in left_in(directory) {
        assert!(before.contains(&left), "{} is new", left.display());
    }
}

/// A way to the point at which a rank is killed.
struct Way<'a> {
    script: &'a dyn Fn(u32) -> String,
    /// Waits until the victim is there.
    is_there: &'a dyn Fn(&mut Stage, &Path),
    /// A rank that stands at a place of its own, and goes on when all others know.
    late: Option<usize>,
    /// What the victim may be said to have been doing.
    phases: &'a [&'a str],
}

impl Way<'_> {
    fn kill(&self, victim: u32) {
        let place = place();
        let world = World::new(RANKS, place.path());
        let mut stage = Stage::new();
        stage.start_all(&world, self.script);
        (self.is_there)(&mut stage, place.path());
        let killed = stage.kill(victim as usize);
        let mut survivors = others(RANKS, victim as usize);
        survivors.retain(|rank| Some(*rank) != self.late);
        let mut ends = told_of(&mut stage, &survivors, victim, killed);
        if let Some(late) = self.late {
            let since = Instant::now();
            stage.go(late);
            ends.extend(told_of(&mut stage, &[late], victim, since));
        }
        if victim != 0 {
            agree_on_phase(&stage, &ends, self.phases);
            assert_nothing_left(place.path());
        }
        works_again(place.path());
    }
}

fn killed_while_joining(victim: u32) {
    let place = place();
    // One rank is not started, so that the world cannot form.
    let world = World::new(RANKS, place.path());
    let mut stage = Stage::new();
    for rank in 0..RANKS - 1 {
        stage.start(&mut world.rank(rank, "join close"));
    }
    for rank in 1..RANKS as usize - 1 {
        stage.wait_until_taken_in(rank);
    }
    let killed = stage.kill(victim as usize);
    let survivors = others(RANKS - 1, victim as usize);
    let ends = told_of(&mut stage, &survivors, victim, killed);
    if victim != 0 {
        agree_on_phase(&stage, &ends, &["while joining"]);
        assert_nothing_left(place.path());
    }
    works_again(place.path());
}

#[test]
fn a_rank_killed_while_others_still_join_is_named_by_all() {
    killed_while_joining(3);
}

#[test]
fn rank_0_killed_while_others_still_join_is_named_by_all() {
    killed_while_joining(0);
}

fn killed_while_computing(victim: u32) {
    let computes = |rank| if rank == victim { "at:computing" } else { "" };
    let way = Way {
        script: &|rank| format!("join barrier {} barrier close", computes(rank)),
        is_there: &|stage, _| {
            stage.wait_at([victim as usize], "computing");
            for rank in others(RANKS, victim as usize) {
                stage.wait_for(rank, "done barrier");
            }
        },
        late: None,
        phases: &["while computing after barrier #"],
    };
    way.kill(victim);
}

#[test]
fn a_rank_killed_while_it_computes_is_named_by_all() {
    killed_while_computing(3);
}

#[test]
fn rank_0_killed_while_it_computes_is_named_by_all() {
    killed_while_computing(0);
}

fn killed_while_publishing(victim: u32) {
    let half = |rank| if rank == victim { ":half" } else { "" };
    let way = Way {
        script: &|rank| format!("join all_gather_from:4000000{} close", half(rank)),
        is_there: &|stage, _| {
            stage.wait_at([victim as usize], "publishing");
            // What a rank does is known to rank 0 a moment later.
            stage.let_pass(Duration::from_millis(200));
        },
        late: None,
        phases: &["while publishing its payload in all_gather #"],
    };
    way.kill(victim);
}

#[test]
fn a_rank_killed_while_it_publishes_is_named_by_all() {
    killed_while_publishing(3);
}

#[test]
fn rank_0_killed_while_it_publishes_is_named_by_all() {
    killed_while_publishing(0);
}

#[test]
fn what_a_rank_reads_when_it_is_killed_is_known_although_it_has_just_begun() {
    let is_known = |_| {
        let place = place();
        let mut stage = Stage::new();
        stage.start_all(&World::new(2, place.path()), |rank| {
            let half = if rank == 1 { ":half" } else { "" };
            format!("join barrier gather_from:0:100000{half} close")
        });
        stage.wait_at([1], "publishing");
        let killed = stage.kill(1);
        let ends = told_of(&mut stage, &[0], 1, killed);
        ends[0]
            .error()
            .contains("while publishing its payload in gather #")
    };
    // Word of it is as fast as that of its death, most of the time where processors are free, and now and then where they are not.
    assert!((0..25).any(is_known), "it is never known");
}

fn killed_after_contributing(victim: u32) {
    const LATE: u32 = RANKS - 1;
    let late = |rank| if rank == LATE { "at:late" } else { "" };
    let way = Way {
        script: &|rank| format!("join {} all_gather_bytes:100000 close", late(rank)),
        is_there: &|stage, directory| {
            stage.wait_at([LATE as usize], "late");
            // All others have published, so they wait for the last one, or will in a moment.
            stage.wait_until("seven payloads", || payloads(directory) == LATE as usize);
        },
        late: Some(LATE as usize),
        phases: &[
            "while waiting for the others in all_gather #",
            "while publishing its payload in all_gather #",
            // Over marker files its end may be heard of before its last letter.
            "while computing after set-up of call #",
        ],
    };
    way.kill(victim);
}

#[test]
fn a_rank_killed_after_it_has_contributed_is_named_by_all() {
    killed_after_contributing(3);
}

#[test]
fn rank_0_killed_after_it_has_contributed_is_named_by_all() {
    killed_after_contributing(0);
}

/// Four ranks of which rank 0 is reading what the others have handed over, and they have returned.
fn while_the_root_reads(directory: &Path) -> Stage {
    let mut stage = Stage::new();
    stage.start_all(&World::new(4, directory), |_| {
        "join gather_bytes:0:1000000:read at:returned close".into()
    });
    stage.wait_at([0], "reading");
    stage.wait_at([1, 2, 3], "returned");
    stage
}

#[test]
fn a_rank_killed_after_the_verdict_does_not_disturb_reading() {
    let place = place();
    let mut stage = while_the_root_reads(place.path());
    let victim = 2;
    stage.kill(victim);
    stage.end(victim);
    stage.go(0);
    stage.wait_for(0, "done gather_bytes:0:1000000:read");
    stage.wait_at([0], "returned");
    stage.go_all([0, 1, 3]);
    let (error, _) = stage.fail_alike([0, 1, 3], PEER_FAILED);
    assert!(error.starts_with(&name_of(2, stage.pid(victim))), "{error}");
    assert_nothing_left(place.path());
    works_again(place.path());
}

#[test]
fn a_root_killed_while_it_reads_is_named_by_those_that_close() {
    let place = place();
    let mut stage = while_the_root_reads(place.path());
    let killed = stage.kill(0);
    stage.go_all([1, 2, 3]);
    told_of(&mut stage, &[1, 2, 3], 0, killed);
    works_again(place.path());
}

/// Rank 3 fails in this way in its second call or before, and says so itself unless it panics.
fn fails_by_itself(step: &str, message: &str, code: i32) {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(4, place.path()), |rank| {
        let step = if rank == 3 {
            step
        } else {
            "all_gather_bytes:10"
        };
        let close = if step == "drop" { "" } else { "close" };
        format!("join all_gather_bytes:10 at:here {step} {close}")
    });
    stage.wait_at(everybody(4), "here");
    let started = Instant::now();
    stage.go_all(everybody(4));
    let (error, ends) = stage.fail_alike([0, 1, 2], PEER_FAILED);
    assert!(error.starts_with(&name_of(3, stage.pid(3))), "{error}");
    assert!(error.contains(message), "{error}");
    for end in &ends {
        let took = end.at.saturating_duration_since(started);
        assert!(took < allowed(NOTICED), "after {took:?}");
    }
    let own = stage.end(3);
    assert_eq!(own.code, code, "{}", stage.transcript());
    assert!(own.error() == error || code != PEER_FAILED, "{own:?}");
    assert_nothing_left(place.path());
}

const PANICKED: i32 = 101;

#[test]
fn a_panic_between_calls_is_told_to_all() {
    fails_by_itself("panic", "failed (it panicked)", PANICKED);
}

#[test]
fn a_panic_while_a_value_is_encoded_is_told_to_all() {
    fails_by_itself("encode_panics", "failed (it panicked)", PANICKED);
}

#[test]
fn a_value_that_cannot_be_encoded_is_told_to_all() {
    fails_by_itself("encode_fails", "Awkward cannot be encoded", PEER_FAILED);
}

#[test]
fn a_source_that_cannot_be_read_is_told_to_all() {
    fails_by_itself("source_fails", "the detector is out of film", PEER_FAILED);
}

#[test]
fn a_rank_that_leaves_early_is_told_apart_from_a_lost_one() {
    fails_by_itself("drop", "had already left", 0);
}

#[test]
fn run_names_a_program_that_ends_by_its_own_error_with_it() {
    let place = place();
    let program = rank_program().display();
    let script = format!(
        "case $FSGATHER_RANK in 1) exec {program} join main_ends:no-such-model;; *) exec {program} join barrier;; esac"
    );
    let mut command = Command::new(command_line_tool());
    command
        .args(["run", "-n", "3", "--dir"])
        .arg(place.path())
        .args(["--", "sh", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let mut stage = Stage::new();
    let index = stage.start(&mut command);
    let end = stage.end(index);
    let said = end.stderr.join("\n");
    assert_eq!(end.code, 1, "{said}");
    assert!(said.contains("exited with code 1: no-such-model"), "{said}");
}

/// Ranks that pass payloads on in a ring, again and again; one of them, which joins like this, has done so twice.
/// Another one would stand at `end` afterwards, so that nobody gets beyond it.
fn in_a_ring(place: &Path, victim: usize, joins: &str, last: usize) -> Stage {
    let rings = ["all_gather_bytes:3000000"; 6].join(" ");
    let world = World::new(RANKS, place).with("FSGATHER_TRANSPORT", "memory");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        let rank = rank as usize;
        let joins = if rank == victim { joins } else { "join" };
        let stop = if rank == last { "at:end" } else { "" };
        format!("{joins} {rings} {stop} barrier close")
    });
    for _ in 0..2 {
        stage.wait_for_where(victim, "a ring", |line| line.starts_with("done"));
    }
    stage
}

#[test]
fn a_rank_killed_in_a_ring_is_named_rather_than_its_neighbours() {
    for victim in [1, 4, 7] {
        let place = place();
        let mut stage = in_a_ring(place.path(), victim as usize, "join", victim as usize);
        let killed = stage.kill(victim as usize);
        let survivors = others(RANKS, victim as usize);
        let ends = told_of(&mut stage, &survivors, victim, killed);
        for end in &ends {
            assert_eq!(end.error(), ends[0].error(), "{}", stage.transcript());
        }
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_rank_interrupted_in_a_ring_is_told_with_its_cause() {
    for victim in [1, 4, 7] {
        let (place, aside) = (place(), place());
        let asked = aside.path().join("asked");
        let joins = format!("join_asking:{}", asked.display());
        let mut stage = in_a_ring(place.path(), victim as usize, &joins, 0);
        std::fs::write(&asked, "").expect("a directory of our own");
        stage.end(victim as usize);
        // If rank 0 has come to its stop, the victim has ended while it stood there.
        stage.go_if_it_is_there(0);
        let (error, _) = stage.fail_alike(others(RANKS, victim as usize), PEER_FAILED);
        let name = name_of(victim, stage.pid(victim as usize));
        assert!(
            error.starts_with(&name) && error.contains("KeyboardInterrupt"),
            "{error}"
        );
        assert_nothing_left(place.path());
    }
}

#[test]
fn a_rank_killed_before_its_part_of_a_decided_ring_keeps_nobody_waiting() {
    const VICTIM: usize = 3;
    let place = place();
    // Longer than any test may take.
    let world = World::new(RANKS, place.path())
        .with("FSGATHER_TRANSPORT", "memory")
        .with("FSGATHER_TIMEOUT", "10m");
    let mut stage = Stage::new();
    stage.start_all(&world, |rank| {
        let stop = if rank == 0 { "at:here" } else { "" };
        format!("join all_gather_bytes:300000 {stop} all_gather_bytes:300000 barrier close")
    });
    stage.wait_at([0], "here");
    stage.wait_for_where(VICTIM, "a ring", |line| line.starts_with("done"));
    // What it hands in takes no longer than that; if it does, the call fails before its verdict, as others do.
    stage.let_pass(Duration::from_secs(1));
    stage.signal(VICTIM, rustix::process::Signal::STOP);
    stage.go(0);
    // The others are in the ring, and wait for a link that will not come.
    stage.let_pass(Duration::from_secs(1));
    let killed = stage.kill(VICTIM);
    let name = name_of(3, stage.pid(VICTIM));
    for end in stage.end_all(others(RANKS, VICTIM)) {
        assert!(end.error().starts_with(&name), "{}", stage.transcript());
        let late = end.at.saturating_duration_since(killed);
        assert!(late < Duration::from_secs(30), "after {late:?}");
    }
}
