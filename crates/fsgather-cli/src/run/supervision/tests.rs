//! Tests the promises of a run without processes.

use fsgather_core::last_error::LastError;

use super::*;
use crate::{
    heeded::ECHO,
    run::rank_ends::{MAX_ERROR_AGE, MAX_REPORT_LEAD},
};

const GRACE: Duration = Duration::from_secs(5);
const KILL_AFTER: Duration = Duration::from_secs(3);

struct Script {
    supervision: Supervision,
    now: Instant,
    errors: Vec<ReportedError>,
}

impl Script {
    fn new(ranks: u32) -> Self {
        let policy = Policy {
            grace: GRACE,
            kill_after: KILL_AFTER,
        };
        Self {
            supervision: Supervision::new(policy, (1000..1000 + ranks).collect()),
            now: Instant::now(),
            errors: Vec::new(),
        }
    }

    fn ended(&mut self, ended: &[(u32, RankOutcome)]) -> Vec<Action> {
        let ended = ended
            .iter()
            .map(|(rank, outcome)| (Rank::new(*rank), *outcome));
        let errors = self.errors.clone();
        self.supervision.on_ends(self.now, ended.collect(), errors);
        self.supervision.take_actions()
    }

    fn signal(&mut self, signal: Signal) -> Vec<Action> {
        self.supervision.on_signal(self.now, signal);
        self.supervision.take_actions()
    }

    fn output_fails(&mut self, kind: io::ErrorKind) -> Vec<Action> {
        self.supervision.on_output_failure(self.now, &kind.into());
        self.supervision.take_actions()
    }

    fn drained(&mut self) -> Vec<Action> {
        self.supervision.on_drained(self.now);
        self.supervision.take_actions()
    }

    fn due(&mut self) -> Vec<Action> {
        self.supervision.on_deadline(self.now);
        self.supervision.take_actions()
    }

    fn due_after(&mut self, timeout: Duration) -> Vec<Action> {
        let deadline = self.supervision.deadline().expect("a deadline").at();
        assert_eq!(deadline, self.now + timeout);
        self.now = deadline;
        self.due()
    }

    /// Plays the end when all ranks have ended, and returns the exit code.
    fn close(&mut self) -> u8 {
        self.drained();
        self.supervision.on_relay_end();
        assert!(self.supervision.is_finished());
        self.supervision.exit_code()
    }
}

fn sent(actions: &[Action]) -> Vec<Signal> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::SignalRunning(signal) => Some(*signal),
            _ => None,
        })
        .collect()
}

fn said(actions: &[Action]) -> String {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Say(line) => Some(format!("{line}\n")),
            _ => None,
        })
        .collect()
}

const KILLED: RankOutcome = RankOutcome::Signal(9);

#[test]
fn all_is_well_when_every_rank_exits_with_0() {
    let mut run = Script::new(2);
    assert_eq!(run.ended(&[(0, RankOutcome::Code(0))]), []);
    assert_eq!(
        run.ended(&[(1, RankOutcome::Code(0))]),
        [Action::SignalAll(Signal::TERM)]
    );
    assert_eq!(
        run.drained(),
        [Action::SignalAll(Signal::KILL), Action::StopRelay]
    );
    run.supervision.on_relay_end();
    assert_eq!(run.supervision.exit_code(), 0);
    assert_eq!(run.supervision.reason(), None);
}

#[test]
fn after_a_failure_come_grace_then_sigterm_then_sigkill() {
    let mut run = Script::new(3);
    let actions = run.ended(&[(1, RankOutcome::Code(7))]);
    assert_eq!(sent(&actions), []);
    assert_eq!(
        said(&actions),
        "rank 1 (pid 1001) exited with code 7; the others have 5 s to end\n"
    );
    let actions = run.due_after(GRACE);
    assert_eq!(sent(&actions), [Signal::TERM]);
    assert_eq!(said(&actions), "ending ranks 0 2 with SIGTERM\n");
    run.ended(&[(0, RankOutcome::Signal(15))]);
    let actions = run.due_after(KILL_AFTER);
    assert_eq!(sent(&actions), [Signal::KILL]);
    assert_eq!(
        said(&actions),
        "killing rank 2, still there 3 s after SIGTERM\n"
    );
    run.ended(&[(2, KILLED)]);
    assert_eq!(run.close(), 7);
    assert_eq!(run.supervision.also_failed(), []);
}

#[test]
fn the_first_failure_counts_and_later_ones_are_remembered() {
    let mut run = Script::new(3);
    run.ended(&[(1, RankOutcome::Code(12))]);
    run.ended(&[(0, RankOutcome::Code(3)), (2, KILLED)]);
    assert_eq!(run.close(), 12);
    let later: Vec<u32> = run
        .supervision
        .also_failed()
        .iter()
        .map(|(rank, _)| rank.get())
        .collect();
    assert_eq!(later, [2, 0]);
}

#[test]
fn of_ranks_found_together_the_killed_one_is_first() {
    let mut run = Script::new(3);
    run.ended(&[
        (0, RankOutcome::Code(11)),
        (1, RankOutcome::Code(1)),
        (2, KILLED),
    ]);
    assert_eq!(run.close(), 137);
}

#[test]
fn a_killed_rank_comes_before_one_that_blames_another() {
    let mut run = Script::new(3);
    run.ended(&[(0, RankOutcome::Code(11))]);
    run.ended(&[(1, RankOutcome::Code(11))]);
    let actions = run.ended(&[(2, KILLED)]);
    assert_eq!(
        said(&actions),
        "rank 2 (pid 1002) was killed by signal 9 (SIGKILL)\n"
    );
    assert_eq!(run.close(), 137);
}

#[test]
fn what_we_kill_ourselves_is_not_the_cause() {
    let mut run = Script::new(2);
    run.ended(&[(0, RankOutcome::Code(11))]);
    run.due_after(GRACE);
    run.ended(&[(1, RankOutcome::Signal(15))]);
    assert_eq!(run.close(), 11);
}

#[test]
fn ranks_that_were_signalled_take_the_time_they_need() {
    let mut run = Script::new(2);
    assert_eq!(sent(&run.signal(Signal::TERM)), [Signal::TERM]);
    assert_eq!(run.ended(&[(1, RankOutcome::Signal(15))]), []);
    assert_eq!(run.supervision.deadline(), None);
    run.ended(&[(0, RankOutcome::Code(0))]);
    assert_eq!(run.close(), 143);
}

#[test]
fn a_signalled_rank_that_fails_otherwise_ends_the_waiting() {
    let mut run = Script::new(2);
    run.signal(Signal::TERM);
    run.ended(&[(1, KILLED)]);
    assert_eq!(sent(&run.due_after(GRACE)), [Signal::TERM]);
}

#[test]
fn a_signal_that_ranks_handle_well_is_no_failure() {
    let mut run = Script::new(1);
    run.signal(Signal::INT);
    run.ended(&[(0, RankOutcome::Code(0))]);
    assert_eq!(run.close(), 0);
}

#[test]
fn a_second_signal_kills_and_a_third_one_gives_up() {
    let mut run = Script::new(1);
    run.signal(Signal::INT);
    assert_eq!(run.signal(Signal::INT), [], "an echo");
    run.now += ECHO;
    assert_eq!(sent(&run.signal(Signal::INT)), [Signal::KILL]);
    assert_eq!(run.supervision.exit_code(), 130);
    run.now += ECHO;
    assert!(run.signal(Signal::INT).contains(&Action::Abandon));
    assert!(run.supervision.is_finished());
    assert_eq!(run.supervision.exit_code(), 130);
}

#[test]
fn another_signal_is_never_an_echo() {
    let mut run = Script::new(1);
    run.signal(Signal::INT);
    assert_eq!(sent(&run.signal(Signal::TERM)), [Signal::KILL]);
    run.ended(&[(0, KILLED)]);
    assert_eq!(run.close(), 130);
}

#[test]
fn a_reader_that_went_away_ends_the_ranks() {
    let mut run = Script::new(1);
    let actions = run.output_fails(io::ErrorKind::BrokenPipe);
    assert_eq!(sent(&actions), [Signal::TERM]);
    run.ended(&[(0, RankOutcome::Signal(15))]);
    assert_eq!(run.close(), 141);
}

#[test]
fn failed_output_is_reported_and_gives_ranks_time_to_end() {
    let mut run = Script::new(1);
    let actions = run.output_fails(io::ErrorKind::StorageFull);
    assert_eq!(sent(&actions), []);
    assert!(
        format!("{actions:?}").contains("standard output failed: no storage space"),
        "{actions:?}"
    );
    run.ended(&[(0, RankOutcome::Code(0))]);
    assert_eq!(run.close(), 1);
}

#[test]
fn handlers_of_a_signal_are_not_cut_short_by_failed_output() {
    // A closed terminal fails the output and sends a signal, in either order.
    for is_output_first in [true, false] {
        let mut run = Script::new(1);
        let mut actions = Vec::new();
        for is_output in [is_output_first, !is_output_first] {
            actions.extend(if is_output {
                run.output_fails(io::ErrorKind::Other)
            } else {
                run.signal(Signal::HUP)
            });
        }
        assert_eq!(sent(&actions), [Signal::HUP]);
        run.now += Duration::from_secs(3600);
        assert_eq!(sent(&run.due()), []);
        run.ended(&[(0, RankOutcome::Code(0))]);
    }
}

#[test]
fn ranks_already_started_end_when_one_cannot_be() {
    let mut run = Script::new(2);
    let reason = "cannot start `x`: Permission denied";
    run.supervision
        .on_start_failure(run.now, 126, reason.to_owned());
    let actions = run.supervision.take_actions();
    assert_eq!(sent(&actions), [Signal::TERM]);
    assert!(said(&actions).starts_with(reason));
    assert_eq!(run.supervision.reason().as_deref(), Some(reason));
    run.ended(&[(0, RankOutcome::Signal(15)), (1, RankOutcome::Signal(15))]);
    assert_eq!(run.close(), 126);

    let mut none = Script::new(0);
    none.supervision
        .on_start_failure(none.now, 127, reason.to_owned());
    assert_eq!(none.close(), 127);
}

#[test]
fn leftovers_that_hold_output_are_reported_and_then_killed() {
    let mut run = Script::new(1);
    run.ended(&[(0, RankOutcome::Code(0))]);
    assert_eq!(
        said(&run.due_after(NOTICE_DELAY)),
        "all ranks have ended, but their output has not: it is not being read, or processes that they started hold it open; \
         waiting for 2 s more\n"
    );
    assert_eq!(
        run.due_after(Duration::from_secs(2)),
        [Action::SignalAll(Signal::KILL), Action::StopRelay]
    );
}

#[test]
fn a_reader_that_takes_nothing_is_reported_and_waited_for() {
    let mut run = Script::new(1);
    run.ended(&[(0, RankOutcome::Code(0))]);
    run.drained();
    let actions = run.due_after(NOTICE_DELAY);
    assert!(said(&actions).contains("waiting for the reader of their output"));
    // Slow readers get all the time they need.
    assert_eq!(run.supervision.deadline(), None);
    assert!(run.signal(Signal::INT).contains(&Action::Abandon));
    assert!(run.supervision.is_finished());
}

#[test]
fn output_closed_before_the_end_is_not_waited_for_again() {
    let mut run = Script::new(1);
    assert_eq!(run.drained(), []);
    let actions = run.ended(&[(0, RankOutcome::Code(0))]);
    assert!(actions.contains(&Action::StopRelay));
}

#[test]
fn a_deadline_that_has_not_passed_changes_nothing() {
    let mut run = Script::new(2);
    run.ended(&[(1, RankOutcome::Code(7))]);
    run.now += GRACE / 2;
    assert_eq!(run.due(), []);
    run.now += GRACE / 2;
    assert_eq!(sent(&run.due()), [Signal::TERM]);
}

#[test]
fn a_signal_before_all_ranks_were_started_is_never_success() {
    let mut run = Script::new(1);
    run.supervision.on_start_interrupted(Signal::TERM);
    assert_eq!(sent(&run.signal(Signal::TERM)), [Signal::TERM]);
    run.ended(&[(0, RankOutcome::Code(0))]);
    assert_eq!(run.close(), 143);

    let mut none = Script::new(0);
    none.supervision.on_start_interrupted(Signal::INT);
    none.signal(Signal::INT);
    assert_eq!(none.close(), 130);
}

fn left(rank: u32, blames: &[u32], text: &str) -> ReportedError {
    ReportedError {
        error: LastError {
            rank,
            blames: blames.to_vec(),
            told_at: Duration::ZERO,
            text: text.into(),
        },
        at: Instant::now(),
    }
}

#[test]
fn the_blamed_rank_is_first_although_it_ends_later() {
    let mut run = Script::new(3);
    run.errors = vec![
        left(0, &[1], "rank 1 failed (no room)"),
        left(1, &[], "no room"),
    ];
    // An uncaught exception ends a Python program with code 1, whichever rank is to blame.
    let actions = run.ended(&[(0, RankOutcome::Code(1))]);
    assert_eq!(
        said(&actions),
        "rank 0 (pid 1000) exited with code 1; last error: rank 1 failed (no room); the others have 5 s to end\n"
    );
    let actions = run.ended(&[(1, RankOutcome::Code(3)), (2, RankOutcome::Code(11))]);
    assert_eq!(
        said(&actions),
        "rank 1 (pid 1001) exited with code 3; last error: no room\n"
    );
    assert_eq!(run.close(), 3);
    assert_eq!(run.supervision.failed_first(), Some(Rank::new(1)));
    let why = run.supervision.reason().unwrap();
    assert_eq!(
        why,
        "rank 1 (pid 1001) exited with code 3; last error: no room"
    );
    let also: Vec<u32> = run
        .supervision
        .also_failed()
        .iter()
        .map(|(rank, _)| rank.get())
        .collect();
    // Rank 0 was reported when it ended.
    assert_eq!(also, [2]);
}

#[test]
fn of_ranks_ended_together_the_one_that_blames_none_is_first() {
    let mut run = Script::new(3);
    run.errors = vec![
        left(2, &[1], "rank 1 had already left"),
        left(1, &[], "KeyError: 'x'"),
    ];
    run.ended(&[
        (0, RankOutcome::Code(11)),
        (1, RankOutcome::Code(1)),
        (2, RankOutcome::Code(1)),
    ]);
    assert_eq!(run.supervision.failed_first(), Some(Rank::new(1)));
}

#[test]
fn report_adds_exit_code_of_ranks_that_ended_early() {
    let mut run = Script::new(2);
    run.ended(&[(1, RankOutcome::Code(0))]);
    run.errors = vec![left(0, &[1], "rank 1 had already left")];
    let actions = run.ended(&[(0, RankOutcome::Code(1))]);
    let said = said(&actions);
    assert!(
        said.contains("last error: rank 1 had already left; rank 1 (pid 1001) exited with code 0"),
        "{said}"
    );
}

#[test]
fn a_killed_rank_is_reported_in_the_words_of_others() {
    let mut run = Script::new(2);
    run.errors = vec![left(0, &[1], "rank 1 was lost while computing")];
    let actions = run.ended(&[(1, KILLED)]);
    assert_eq!(
        said(&actions),
        "rank 1 (pid 1001) was killed by signal 9 (SIGKILL); rank 0 reports: rank 1 was lost while computing; the others \
         have 5 s to end\n"
    );
}

#[test]
fn errors_that_a_rank_survived_explain_no_failure() {
    let over = || vec![left(0, &[1], "timed out: waiting for rank 1")];
    // The reporting rank has succeeded.
    let mut run = Script::new(2);
    run.errors = over();
    run.ended(&[(0, RankOutcome::Code(0))]);
    let actions = run.ended(&[(1, RankOutcome::Code(9))]);
    assert_eq!(said(&actions), "rank 1 (pid 1001) exited with code 9\n");
    // The reporting rank has continued.
    let mut run = Script::new(2);
    run.errors = over();
    run.now += MAX_REPORT_LEAD * 2;
    run.ended(&[(1, RankOutcome::Code(9))]);
    let why = "rank 1 (pid 1001) exited with code 9";
    assert_eq!(run.supervision.reason().unwrap(), why);
    run.due_after(GRACE);
    run.ended(&[(0, RankOutcome::Signal(15))]);
    assert_eq!(run.supervision.reason().unwrap(), why);
}

#[test]
fn the_report_of_a_failed_rank_explains_a_later_failure() {
    let mut run = Script::new(2);
    run.errors = vec![left(0, &[1], "timed out: waiting for rank 1")];
    run.ended(&[(0, RankOutcome::Code(13))]);
    run.now += MAX_REPORT_LEAD * 2;
    let actions = run.ended(&[(1, RankOutcome::Code(9))]);
    assert_eq!(
        said(&actions),
        "rank 1 (pid 1001) exited with code 9; rank 0 reports: timed out: waiting for rank 1\n"
    );
}

#[test]
fn an_old_error_does_not_move_the_blame() {
    for (age, first) in [(MAX_REPORT_LEAD, 1), (MAX_ERROR_AGE * 2, 0)] {
        let mut run = Script::new(2);
        run.errors = vec![left(0, &[1], "rank 1 was lost")];
        run.now += age;
        run.ended(&[(0, RankOutcome::Code(9))]);
        run.ended(&[(1, RankOutcome::Code(3))]);
        assert_eq!(run.supervision.failed_first(), Some(Rank::new(first)));
    }
}

#[test]
fn a_rank_that_aborts_because_of_another_is_not_first() {
    let abort = RankOutcome::Signal(Signal::ABORT.as_raw());
    let mut run = Script::new(3);
    let heard = left(1, &[2], "rank 2 failed (KeyError)");
    run.errors = vec![heard, left(2, &[], "KeyError")];
    run.ended(&[(1, abort)]);
    run.ended(&[(2, RankOutcome::Code(1))]);
    assert_eq!(run.supervision.failed_first(), Some(Rank::new(2)));
    // A rank that has reported no error about another one is to blame.
    let mut run = Script::new(2);
    run.ended(&[(1, abort)]);
    run.ended(&[(0, RankOutcome::Code(1))]);
    assert_eq!(run.supervision.failed_first(), Some(Rank::new(1)));
}

#[test]
fn an_old_error_is_reported_with_its_age() {
    let mut run = Script::new(1);
    let reported = ReportedError {
        at: run.now,
        ..left(0, &[], "no room")
    };
    run.errors = vec![reported];
    run.now += Duration::from_secs(3600);
    run.ended(&[(0, RankOutcome::Code(9))]);
    assert_eq!(
        run.supervision.reason().unwrap(),
        "rank 0 (pid 1000) exited with code 9; last error (1 h before): no room"
    );
}

#[test]
fn an_unrelated_later_failure_is_not_first() {
    let mut run = Script::new(3);
    run.errors = vec![left(0, &[], "no room"), left(2, &[1], "rank 1 was lost")];
    run.ended(&[(2, RankOutcome::Code(11))]);
    run.ended(&[(0, RankOutcome::Code(12))]);
    assert_eq!(run.supervision.failed_first(), Some(Rank::new(2)));
    run.ended(&[(1, RankOutcome::Code(0))]);
    assert_eq!(run.close(), 11);
}
