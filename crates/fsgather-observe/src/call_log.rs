//! Keeps what is known of the calls under way, for [reports](progress) and for the log: [`CallLog`].
//!
//! Nothing is kept of a call that nobody looks at.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_core::{
    ChannelId, Epoch, Error, Phase, ProcessId, Rank, RankNames, Ticket, bytes_text, duration_text,
    lock,
};

use crate::trace::{
    record::{Outcome, Way},
    recorder::Recorder,
};

use crate::progress::{self, CallReport, EVERY, Report};

/// The calls of one process in a world and its groups.
#[derive(Debug, Default)]
pub struct CallLog {
    calls: Mutex<BTreeMap<(ChannelId, Epoch), Entry>>,
    /// How many there are, so that nobody has to look where there are none.
    open: AtomicUsize,
    /// Whether what is known goes to whoever shows it: not what threads of one process do.
    reports: bool,
    /// What writes the last calls down.
    recorder: OnceLock<Arc<Recorder>>,
    /// What people call the ranks of the world.
    names: RankNames,
}

/// One call.
#[derive(Debug)]
struct Entry {
    report: CallReport,
    phase: Phase,
    reported: Instant,
    times: Times,
    /// Who came last.
    last: Option<Rank>,
    /// What all have handed in, on recipients; else what this rank has.
    bytes: u64,
    receives: bool,
}

/// When a call has come how far.
#[derive(Clone, Copy, Debug)]
struct Times {
    begun: Instant,
    handed_in: Option<Instant>,
    decided: Option<Instant>,
}

impl CallLog {
    /// One whose calls are those of the rank that this process is; `names` is what people call ranks.
    #[must_use]
    pub fn of_rank(names: &RankNames) -> Self {
        Self {
            reports: true,
            names: names.clone(),
            ..Self::default()
        }
    }

    /// Has calls written down from now on.
    pub fn record_with(&self, recorder: Arc<Recorder>) {
        self.recorder.get_or_init(|| recorder);
    }

    /// What writes calls down, if anything does.
    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.recorder.get()
    }

    /// Has something done with what writes calls down, where that is done.
    fn record(&self, note: impl FnOnce(&Recorder)) {
        if let Some(recorder) = self.recorder.get() {
            note(recorder);
        }
    }

    /// A call of so many ranks begins.
    pub fn begin(&self, ticket: &Ticket, ranks: u32) {
        self.record(|recorder| recorder.begin(ticket, ranks));
        self.open(ticket, ranks);
    }

    /// The same where this rank hands in nothing, and waits at once.
    pub fn begin_waiting(&self, ticket: &Ticket, ranks: u32) {
        self.record(|recorder| recorder.begin_waiting(ticket, ranks));
        self.open(ticket, ranks);
        self.waits(ticket, 0);
    }

    /// Keeps what reports and the log have to know, if anybody wants that.
    fn open(&self, ticket: &Ticket, ranks: u32) {
        let reports = self.reports && progress::is_asked_for();
        if !reports && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let now = Instant::now();
        let entry = Entry {
            report: CallReport {
                lane: ticket.channel.get(),
                number: ticket.call.number,
                operation: ticket.call.operation.name().into(),
                site: ticket.call.site.to_string(),
                ranks,
                done: 0,
                total: None,
            },
            phase: Phase::Publishing,
            reported: now,
            times: Times {
                begun: now,
                handed_in: None,
                decided: None,
            },
            last: None,
            bytes: 0,
            receives: false,
        };
        self.leave(&entry);
        let mut calls = lock(&self.calls);
        calls.insert((ticket.channel, ticket.epoch), entry);
        self.open.store(calls.len(), Ordering::Relaxed);
    }

    /// Whether nothing is kept of any call.
    pub fn is_empty(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// This rank hands in so many bytes.
    pub fn expect(&self, ticket: &Ticket, bytes: u64) {
        self.change(ticket, |entry, _| {
            entry.report.total = Some(bytes);
            true
        });
    }

    /// So many bytes have moved.
    pub fn moved(&self, ticket: &Ticket, bytes: u64) {
        self.record(|recorder| recorder.moved(ticket, bytes));
        self.change(ticket, |entry, now| {
            let report = &mut entry.report;
            report.done = report.done.saturating_add(bytes);
            if let Some(total) = report.total {
                // What goes through compression, or both ways, is counted as it moves.
                report.done = report.done.min(total);
            }
            now.saturating_duration_since(entry.reported) >= EVERY
        });
    }

    /// This rank has handed in its part, of so many bytes if that is known, which go this way.
    pub fn handed_in(&self, ticket: &Ticket, bytes: u64, way: Way) {
        self.record(|recorder| recorder.handed_in(ticket, bytes, way));
        self.waits(ticket, bytes);
    }

    fn waits(&self, ticket: &Ticket, bytes: u64) {
        self.change(ticket, |entry, now| {
            entry.times.handed_in = Some(now);
            entry.bytes = bytes.max(entry.report.done);
            entry.enter(Phase::Waiting, None);
            true
        });
    }

    /// All have, `last` of the world's ranks the last of them.
    pub fn all_in(&self, ticket: &Ticket, last: Option<Rank>) {
        let last = last.map(|last| self.names.of(last));
        self.record(|recorder| recorder.decided(ticket, last));
    }

    /// The same, for reports: this rank receives so many bytes in all, of which some have still
    /// to be moved.
    pub fn decided(&self, ticket: &Ticket, last: Option<Rank>, brought: Option<Brought>) {
        self.change(ticket, |entry, now| {
            entry.times.decided = Some(now);
            entry.last = last;
            if let Some(brought) = brought {
                entry.receives = true;
                entry.bytes = brought.bytes;
                entry.enter(Phase::Reading, Some(brought.to_move));
            }
            brought.is_some()
        });
    }

    /// A thread of the program waits from now on for a call that was started before, or does so no more.
    pub fn awaited(&self, ticket: &Ticket, is_awaited: bool) {
        self.record(|recorder| recorder.awaited(ticket, is_awaited));
    }

    /// The call has ended well, where all is read that it brings.
    pub fn end(&self, ticket: &Ticket, me: Rank, processes: &[ProcessId]) {
        self.record(|recorder| recorder.end(ticket, Outcome::Done));
        self.say(ticket, me, processes);
    }

    /// All have come, `last` of the world's ranks the last of them, and with that the call has ended well.
    pub fn all_in_and_done(
        &self,
        ticket: &Ticket,
        last: Option<Rank>,
        me: Rank,
        processes: &[ProcessId],
    ) {
        let called = last.map(|last| self.names.of(last));
        self.record(|recorder| recorder.decided_and_done(ticket, called));
        self.decided(ticket, last, None);
        self.say(ticket, me, processes);
    }

    fn say(&self, ticket: &Ticket, me: Rank, processes: &[ProcessId]) {
        let Some(mut entry) = self.remove(ticket) else {
            return;
        };
        let now = Instant::now();
        let who = |rank: Rank| {
            let host = processes.get(rank.index());
            (
                self.names.of(rank),
                host.map(|process| process.host.as_str()),
            )
        };
        tracing::debug!("{}", entry.line(ticket, me, who, now));
        entry.enter(Phase::Computing, None);
        self.leave(&entry);
    }

    /// The program does not want the result of a call any more.
    pub fn give_up(&self, ticket: &Ticket) {
        self.record(|recorder| recorder.end(ticket, Outcome::GivenUp));
        self.forget(ticket);
    }

    /// The call has ended with this error.
    pub fn fail(&self, ticket: &Ticket, failure: &Error) {
        self.record(|recorder| recorder.failed(ticket, failure));
        self.forget(ticket);
    }

    fn forget(&self, ticket: &Ticket) {
        if let Some(mut entry) = self.remove(ticket) {
            entry.enter(Phase::Computing, None);
            self.leave(&entry);
        }
    }

    fn remove(&self, ticket: &Ticket) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let mut calls = lock(&self.calls);
        let entry = calls.remove(&(ticket.channel, ticket.epoch));
        self.open.store(calls.len(), Ordering::Relaxed);
        entry
    }

    /// Changes what is known of a call, and reports it if that says so.
    fn change(&self, ticket: &Ticket, change: impl FnOnce(&mut Entry, Instant) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut calls = lock(&self.calls);
        let Some(entry) = calls.get_mut(&(ticket.channel, ticket.epoch)) else {
            return;
        };
        let now = Instant::now();
        if change(entry, now) {
            entry.reported = now;
            self.leave(entry);
        }
    }

    fn leave(&self, entry: &Entry) {
        if self.reports {
            progress::leave(&Report {
                phase: entry.phase,
                call: entry.report.clone(),
            });
        }
    }
}

/// What a call brings to a recipient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// All payloads together, in bytes.
    pub bytes: u64,
    /// What of it has still to be moved.
    pub to_move: u64,
}

impl Entry {
    fn enter(&mut self, phase: Phase, total: Option<u64>) {
        self.phase = phase;
        self.report.done = 0;
        self.report.total = total;
    }

    /// The call in one line, such as `all_gather #2 eval.py:42  4 ranks  48.0 MiB  1.83 s (waited 1.71 s for rank 2 on n7,
    /// moved for 0.12 s)`.
    fn line<'a>(
        &self,
        ticket: &Ticket,
        me: Rank,
        who: impl FnOnce(Rank) -> (Rank, Option<&'a str>),
        now: Instant,
    ) -> String {
        let Times {
            begun,
            handed_in,
            decided,
        } = self.times;
        let took = now.saturating_duration_since(begun);
        let waited = match (handed_in, decided) {
            (Some(handed_in), Some(decided)) => decided.saturating_duration_since(handed_in),
            _ => Duration::ZERO,
        };
        let ranks = self.report.ranks;
        let whom = match self.last {
            None => String::new(),
            Some(last) if last == me || ranks == 1 => ", came last".into(),
            Some(last) => match who(last) {
                (called, Some(host)) => format!(" for rank {called} on {host}"),
                (called, None) => format!(" for rank {called}"),
            },
        };
        let bytes = bytes_text(self.bytes);
        let bytes = match (self.receives, self.bytes) {
            (true, _) => format!("  {bytes}"),
            (false, 0) => String::new(),
            (false, _) => format!("  {bytes} handed in"),
        };
        format!(
            "{ticket} {}  {ranks} rank{}{bytes}  {} (waited {}{whom}, moved for {})",
            ticket.call.site,
            if ranks == 1 { "" } else { "s" },
            seconds_text(took),
            seconds_text(waited),
            seconds_text(took.saturating_sub(waited)),
        )
    }
}

/// A time that is compared with others: in seconds, as long as that reads well.
fn seconds_text(time: Duration) -> String {
    if time < Duration::from_secs(600) {
        format!("{:.2} s", time.as_secs_f64())
    } else {
        duration_text(Duration::from_secs(time.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fsgather_core::{Call, Operation, Site};

    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            channel: ChannelId::WORLD,
            epoch: Epoch::new(2),
            call: Arc::new(Call {
                number: 2,
                ..Call::new(Operation::AllGather, Site::named("eval.py:42"))
            }),
        }
    }

    fn entry(begun: Instant, last: u32) -> Entry {
        Entry {
            report: CallReport {
                lane: 0,
                number: 2,
                operation: "all_gather".into(),
                site: "eval.py:42".into(),
                ranks: 4,
                done: 0,
                total: None,
            },
            phase: Phase::Reading,
            reported: begun,
            times: Times {
                begun,
                handed_in: Some(begun + Duration::from_millis(50)),
                decided: Some(begun + Duration::from_millis(1760)),
            },
            last: Some(Rank::new(last)),
            bytes: 48 << 20,
            receives: true,
        }
    }

    #[test]
    fn a_call_is_one_line_with_who_came_last() {
        let begun = Instant::now();
        let end = begun + Duration::from_millis(1830);
        let line =
            |me| entry(begun, 2).line(&ticket(), Rank::new(me), |rank| (rank, Some("n7")), end);
        assert_eq!(
            line(0),
            "all_gather #2 eval.py:42  4 ranks  48.0 MiB  1.83 s (waited 1.71 s for rank 2 on n7, moved for 0.12 s)"
        );
        assert!(
            line(2).ends_with("1.83 s (waited 1.71 s, came last, moved for 0.12 s)"),
            "{}",
            line(2)
        );
        let mut barrier = entry(begun, 2);
        (barrier.receives, barrier.bytes) = (false, 0);
        let text = barrier.line(&ticket(), Rank::ZERO, |rank| (rank, None), end);
        assert!(
            text.contains("  4 ranks  1.83 s (waited 1.71 s for rank 2, moved"),
            "{text}"
        );
        barrier.bytes = 12 << 20;
        let text = barrier.line(&ticket(), Rank::ZERO, |rank| (rank, None), end);
        assert!(
            text.contains("  4 ranks  12.0 MiB handed in  1.83 s "),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_kept_of_calls_that_nobody_looks_at() {
        let call_log = CallLog::default();
        tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || {
            call_log.begin(&ticket(), 4);
        });
        assert!(call_log.is_empty());
        call_log.moved(&ticket(), 1);
        call_log.end(&ticket(), Rank::ZERO, &[]);
    }
}
