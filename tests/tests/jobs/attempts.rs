//! Jobs that torchrun restarts: each of its agents, one on each host, counts restarts on its own.

use std::{iter, path::Path, time::Duration};

use crate::common::{
    End, RENDEZVOUS, Stage,
    agents::{Job, MET, a_newcomer_to_a_running_world},
    assert_nothing_left, everybody, place,
};

/// The end of an attempt before the next one.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Rank 0 is killed while it waits for rank 1.
    Rank0LeavesARecord,
    /// All are killed while the world runs.
    Running,
    /// All end well.
    Well,
}

fn play(job: &Job<'_>, counts: [u32; 2], fate: Fate) {
    let mut stage = Stage::new();
    let script = "join all_gather_bytes:1000 at:running barrier close";
    let rendezvous = job.directory.join("all_gather_via_filesys");
    let known = records(&rendezvous);
    stage.start(&mut job.rank(0, counts[0], script));
    if let Fate::Rank0LeavesARecord = fate {
        stage.wait_until("a record", || records(&rendezvous) > known);
        stage.kill(0);
        stage.end(0);
        return;
    }
    stage.start(&mut job.rank(1, counts[1], script));
    stage.wait_at(everybody(2), "running");
    if let Fate::Running = fate {
        for rank in 0..2 {
            stage.kill(rank);
        }
        stage.end_all(0..2);
        return;
    }
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
}

fn records(rendezvous: &Path) -> usize {
    let entries = std::fs::read_dir(rendezvous).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("rendezvous-")).count()
}

/// All orders in which two agents may count four restarts: the first, the second, or both of them.
fn orders() -> impl Iterator<Item = [[u32; 2]; 4]> {
    (0..3_usize.pow(4)).map(|order| {
        let steps = [0, 1, 2, 3].map(|place| order / 3_usize.pow(place) % 3);
        let mut counts = [0, 0];
        steps.map(|step| {
            let counted = [[1, 0], [0, 1], [1, 1]][step];
            counts = [counts[0] + counted[0], counts[1] + counted[1]];
            counts
        })
    })
}

#[test]
fn agents_meet_whatever_each_has_counted() {
    let place = place();
    let job = Job::patient(place.path());
    // One attempt after the other in one directory, with different leftovers of each.
    let fates = [Fate::Rank0LeavesARecord, Fate::Running, Fate::Well];
    let mut fates = fates.into_iter().cycle();
    let orders: Vec<_> = orders().collect();
    // Every start takes a while, so this tries one in nine.
    for counts in orders.iter().step_by(9) {
        let attempts = iter::once(&[0, 0]).chain(counts);
        for (counts, fate) in attempts.zip(&mut fates) {
            play(&job, *counts, fate);
        }
    }
    play(&job, [4, 4], Fate::Well);
}

/// Number of lines on the standard error of a process that contain `what`.
fn said(end: &End, what: &str) -> usize {
    end.stderr.iter().filter(|line| line.contains(what)).count()
}

#[test]
fn a_later_attempt_waits_while_an_earlier_one_runs() {
    let place = place();
    let job = Job::patient(place.path());
    let (mut stage, newcomer) = a_newcomer_to_a_running_world(&job, 1);
    // Long enough to ask more than once; the message comes only once.
    stage.let_pass(Duration::from_secs(3));
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    let rank0 = stage.start(&mut job.rank(0, 0, "join barrier close"));
    stage.succeed([newcomer, rank0]);
    let end = stage.end(newcomer);
    assert_eq!(said(&end, MET), 1, "{}", stage.transcript());
    let met = format!("pid {} as rank 1", stage.pid(1));
    assert_eq!(said(&end, &met), 1, "{}", stage.transcript());
}

#[test]
fn the_name_of_a_job_begins_no_line_of_a_log() {
    let place = place();
    let job = Job::patient(place.path());
    let rank = |rank, script| {
        let mut command = job.rank(rank, 0, script);
        command
            .env("TORCHELASTIC_RUN_ID", "a\nfsgather: rank 9: all is well")
            .env("FSGATHER_JOIN_TIMEOUT", "2s")
            .env("FSGATHER_LOG", "debug");
        command
    };
    let mut stage = Stage::new();
    for number in 0..2 {
        stage.start(&mut rank(number, "join at:running barrier close"));
    }
    stage.wait_at(everybody(2), "running");
    let newcomer = stage.start(&mut rank(1, "join barrier close"));
    let end = stage.end(newcomer);
    assert_eq!(end.code, RENDEZVOUS, "{}", stage.transcript());
    assert!(end.error().contains("job a?fsgather: rank 9: "), "{end:?}");
    assert_eq!(said(&end, MET), 1, "{end:?}");
    stage.go_all(everybody(2));
    stage.succeed(everybody(2));
    let mut ends = vec![end];
    ends.extend(everybody(2).map(|rank| stage.end(rank)));
    for line in ends.iter().flat_map(|end| &end.stderr) {
        assert!(!line.starts_with("fsgather: rank 9"), "{line}");
    }
}

#[test]
fn a_late_rank_of_an_earlier_attempt_fails_alone_at_once() {
    let place = place();
    let job = Job::patient(place.path());
    let mut stage = Stage::new();
    let late = stage.start(&mut job.rank(1, 0, "at:late join close"));
    stage.wait_at([late], "late");
    let script = "join at:running barrier close";
    let running = [0, 1].map(|rank| stage.start(&mut job.rank(rank, 1, script)));
    stage.wait_at(running, "running");
    stage.go(late);
    let end = stage.end(late);
    assert_eq!(end.code, RENDEZVOUS, "{}", stage.transcript());
    assert!(end.error().contains("after 0 restarts"), "{end:?}");
    let name = format!("pid {} is rank 1", stage.pid(running[1]));
    assert!(end.error().contains(&name), "{name}: {end:?}");
    stage.go_all(running);
    stage.succeed(running);
    assert_nothing_left(place.path());
}

#[test]
fn two_attempts_in_one_forming_world_fail_at_once() {
    let place = place();
    let job = Job {
        ranks: 3,
        ..Job::patient(place.path())
    };
    let mut stage = Stage::new();
    let rank0 = stage.start(&mut job.rank(0, 1, "join close"));
    let early = stage.start(&mut job.rank(1, 0, "join close"));
    stage.wait_until_taken_in(early);
    let later = stage.start(&mut job.rank(1, 1, "join close"));
    let (error, _) = stage.fail_alike([rank0, early, later], RENDEZVOUS);
    for pid in [early, later].map(|rank| stage.pid(rank)) {
        assert!(error.contains(&format!("pid {pid}")), "{error}");
    }
    assert!(error.contains("after 1 restarts"), "{error}");
}
