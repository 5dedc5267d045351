//! Records the calls of a rank: [`Recorder`].

use std::{
    fs::File,
    io,
    path::Path,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fsgather_core::{
    CallEvent, ChannelId, Epoch, ProcessId, Rank, RankNames, Received, Ticket, lock,
};
use fsgather_store::calls;

use crate::{
    progress,
    trace::{
        cause::Cause,
        log_line::{LastRank, log_line},
        record::{Field, Outcome, RecordWords},
        record_file::{KEPT_RECORDS, RecordFile, used_len_of_records},
    },
};

/// Minimum time between two records of the bytes of a call.
const MOVED_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of open calls that are followed; more than any program has.
const MAX_OPEN_CALLS: usize = 4096;

/// The calls of a rank, in its world and the groups of that world.
///
/// It is the one record of them, which progress, log, `ps` and `trace` show. It keeps the calls that are open, and writes
/// all calls to a file once it [has one](Self::write_to).
#[derive(Debug)]
pub struct Recorder {
    rank: Rank,
    /// True if the rank is this process, whose progress is shown, and not one of several threads.
    is_process: bool,
    names: RankNames,
    processes: Vec<ProcessId>,
    origin: Instant,
    began: SystemTime,
    file: OnceLock<RecordFile>,
    state: Mutex<State>,
    /// Grows with each change, so that the thread that copies the file knows if there is anything to copy.
    changes: AtomicU64,
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    moved: u64,
    open: Vec<Open>,
    has_ended: bool,
}

/// A call that has not ended.
#[derive(Debug)]
struct Open {
    key: (ChannelId, Epoch),
    words: RecordWords,
    written: Instant,
    /// The number of bytes that had moved when the current phase began.
    moved_before_phase: u64,
    /// The number of bytes that move in the current phase, if it is known.
    phase_bytes: Option<u64>,
    last: Option<Rank>,
    received: Option<Received>,
}

impl Recorder {
    /// Returns the recorder of a rank that is a process. `names` has the names of ranks in the job, `processes` the
    /// processes of the ranks, by rank.
    #[must_use]
    pub fn new(rank: Rank, names: &RankNames, processes: &[ProcessId]) -> Self {
        Self {
            is_process: true,
            names: names.clone(),
            ..Self::of_thread(rank, processes)
        }
    }

    /// Returns the recorder of a rank that is a thread: it only writes the log.
    #[must_use]
    pub fn of_thread(rank: Rank, processes: &[ProcessId]) -> Self {
        Self {
            rank,
            is_process: false,
            names: RankNames::default(),
            processes: processes.to_vec(),
            origin: Instant::now(),
            began: SystemTime::now(),
            file: OnceLock::new(),
            state: Mutex::default(),
            changes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Returns the time from which records count, in nanoseconds since 1970.
    #[must_use]
    pub fn began(&self) -> u64 {
        let began = self.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(began.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Writes the calls that begin from now on to a file that [`calls::create`] has made at `path`. Only the first file counts.
    ///
    /// # Errors
    ///
    /// If there is no space for it, or if it cannot be mapped.
    pub fn write_to(&self, file: &File, path: &Path) -> io::Result<()> {
        let file = RecordFile::new(file, path)?;
        let mut state = lock(&self.state);
        if self.file.set(file).is_ok() {
            *state = State::default();
        }
        Ok(())
    }

    /// Returns the path of the file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.get().map(|file| file.path.as_path())
    }

    /// Records that a call has failed, so that the file is worth keeping.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns true if a call has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that have begun.
    #[must_use]
    pub fn count(&self) -> u64 {
        lock(&self.state).count
    }

    /// Returns the number of changes of the file.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Records an event of a call.
    pub fn observe(&self, ticket: &Ticket, event: CallEvent<'_>) {
        match event {
            CallEvent::Begun { ranks, waits } => self.begin(ticket, ranks, waits),
            CallEvent::Moved { bytes } => self.moved(ticket, bytes),
            CallEvent::Expected { bytes } => {
                self.change(ticket, |open, _| open.phase_bytes = Some(bytes));
            }
            CallEvent::HandedIn { bytes, route } => {
                self.change(ticket, |open, now| {
                    let words = &mut open.words;
                    words.set(Field::HandedIn, now);
                    words.set(Field::Bytes, bytes);
                    words.set_route(route);
                    // Small payloads move with the message alone.
                    let moved = words.get(Field::Moved).max(bytes);
                    words.set(Field::Moved, moved);
                    open.begin_phase(None);
                });
            }
            CallEvent::Awaited { is_awaited } => self.change(ticket, |open, now| {
                if !open.words.is_decided() {
                    open.words.set_awaited(is_awaited.then_some(now));
                }
            }),
            CallEvent::Decided { last, received } => {
                // To compute it takes time in proportion to the ranks, and the file does not have it.
                let received = received.filter(|_| self.is_watched());
                let received = received.map(|compute| compute());
                self.change(ticket, |open, now| {
                    open.words.set_decided(now);
                    open.words.set_rank(last.map(|last| self.names.of(last)));
                    (open.last, open.received) = (last, received);
                    open.begin_phase(received.map(|received| received.to_move));
                });
            }
            CallEvent::Done => self.end(ticket, |words| words.set_outcome(Outcome::Done)),
            CallEvent::GivenUp => self.end(ticket, |words| words.set_outcome(Outcome::GivenUp)),
            CallEvent::Failed(failure) => self.end(ticket, |words| {
                words.set_outcome(Outcome::Failed);
                words.set_cause(Cause::of(failure));
                if !words.is_decided() {
                    words.set_rank(Cause::culprit(failure));
                }
            }),
        }
    }

    /// Returns true if the progress line or the log shows calls.
    fn is_watched(&self) -> bool {
        let has_progress = self.is_process && progress::is_shown();
        has_progress || tracing::enabled!(tracing::Level::DEBUG)
    }

    fn begin(&self, ticket: &Ticket, ranks: u32, waits: bool) {
        if self.file.get().is_none() && !self.is_watched() {
            return;
        }
        let call = &ticket.call;
        let now = Instant::now();
        let begun = self.time(now);
        let mut words = RecordWords::new(call.operation.name(), call.site.as_str(), ranks);
        words.set(Field::Channel, ticket.channel.get());
        words.set(Field::Epoch, ticket.epoch.get());
        words.set(Field::Number, call.number);
        words.set(Field::Begun, begun);
        if waits {
            words.set(Field::HandedIn, begun);
        }
        let mut state = lock(&self.state);
        if state.has_ended {
            return;
        }
        state.count += 1;
        words.set(Field::Count, state.count);
        words.set(Field::MovedBefore, state.moved);
        let mut open = Open {
            key: (ticket.channel, ticket.epoch),
            words,
            written: now,
            moved_before_phase: 0,
            phase_bytes: None,
            last: None,
            received: None,
        };
        self.write(&mut open, state.count);
        if let Some(file) = self.file.get() {
            file.write_count(state.count);
        }
        if state.open.len() < MAX_OPEN_CALLS {
            state.open.push(open);
        }
    }

    fn moved(&self, ticket: &Ticket, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = lock(&self.state);
        state.moved = state.moved.saturating_add(bytes);
        let count = state.count;
        if let Some(place) = place(&state, ticket)
            && let Some(open) = state.open.get_mut(place)
        {
            let moved = open.words.get(Field::Moved).saturating_add(bytes);
            open.words.set(Field::Moved, moved);
            let now = Instant::now();
            if now.saturating_duration_since(open.written) >= MOVED_INTERVAL {
                open.written = now;
                self.write(open, count);
            }
        }
    }

    /// Changes the record of a call, and writes it. The bytes that the change adds also count for the rank.
    fn change(&self, ticket: &Ticket, change: impl FnOnce(&mut Open, u64)) {
        let mut state = lock(&self.state);
        let count = state.count;
        if let Some(place) = place(&state, ticket)
            && let Some(open) = state.open.get_mut(place)
        {
            let before = open.words.get(Field::Moved);
            change(open, self.time(Instant::now()));
            self.write(open, count);
            let more = open.words.get(Field::Moved).saturating_sub(before);
            state.moved = state.moved.saturating_add(more);
        }
    }

    fn end(&self, ticket: &Ticket, change: impl FnOnce(&mut RecordWords)) {
        let mut state = lock(&self.state);
        let count = state.count;
        let Some(place) = place(&state, ticket) else {
            return;
        };
        let mut open = state.open.swap_remove(place);
        open.words.set(Field::Ended, self.time(Instant::now()));
        change(&mut open.words);
        self.write(&mut open, count);
        drop(state);
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log(&open);
        }
    }

    /// Logs a call that has ended with its result.
    fn log(&self, open: &Open) {
        let record = open.words.to_record();
        if record.outcome != Outcome::Done {
            return;
        }
        let last = match open.last {
            None => LastRank::Unknown,
            Some(last) if last == self.rank || record.ranks == 1 => LastRank::Own,
            Some(last) => {
                let process = self.processes.get(last.index());
                let host = process.map(|process| process.host.as_str());
                LastRank::Other(self.names.of(last), host)
            }
        };
        let received = open.received.map(|received| received.bytes);
        tracing::debug!("{}", log_line(&record, received, last));
    }

    /// Returns a time since the origin, in nanoseconds. No time is 0, which means none.
    fn time(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX).max(1)
    }

    /// Ends the recording: nothing is written any more, so that the file can be cut to the length that this returns.
    pub fn seal(&self) -> u64 {
        let mut state = lock(&self.state);
        state.has_ended = true;
        state.open.clear();
        (calls::HEADER_LEN + used_len_of_records(state.count)) as u64
    }

    /// Writes a record for all its readers. The caller holds the lock of the state, so there is one writer at a time.
    /// `count` calls have begun by now.
    fn write(&self, open: &mut Open, count: u64) {
        let number = open.words.get(Field::Count);
        let moved = open.words.get(Field::Moved);
        let words = open.words.sealed();
        let done = moved.saturating_sub(open.moved_before_phase);
        // Compressed data, and data that moves both ways, is counted as it moves.
        let done = open.phase_bytes.map_or(done, |bytes| done.min(bytes));
        if self.is_process {
            progress::write(words, done, open.phase_bytes);
        }
        // A later call replaces a call that takes long.
        if number + KEPT_RECORDS > count
            && let Some(file) = self.file.get()
        {
            file.write(number, words);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

impl Open {
    fn begin_phase(&mut self, bytes: Option<u64>) {
        self.moved_before_phase = self.words.get(Field::Moved);
        self.phase_bytes = bytes;
    }
}

/// Returns the index of the last open call with this ticket.
fn place(state: &State, ticket: &Ticket) -> Option<usize> {
    let key = (ticket.channel, ticket.epoch);
    state.open.iter().rposition(|open| open.key == key)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fsgather_core::{Call, Operation, Site};

    use super::*;

    #[test]
    fn sizes_are_computed_only_for_the_log_and_the_progress_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("calls");
        let file = File::create_new(&path).unwrap();
        let kept = Recorder::new(Rank::ZERO, &RankNames::default(), &[]);
        kept.write_to(&file, &path).unwrap();
        let unseen = Recorder::of_thread(Rank::ZERO, &[]);
        let ticket = Ticket {
            channel: ChannelId::WORLD,
            epoch: Epoch::new(2),
            call: Arc::new(Call::new(Operation::AllGather, Site::named("eval.py:42"))),
        };
        let compute = || -> Received { unreachable!("nobody sees it") };
        tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || {
            for recorder in [&kept, &unseen] {
                let (ranks, waits) = (4, false);
                recorder.observe(&ticket, CallEvent::Begun { ranks, waits });
                let (last, received) = (None, Some(&compute as &dyn Fn() -> Received));
                recorder.observe(&ticket, CallEvent::Decided { last, received });
                recorder.observe(&ticket, CallEvent::Done);
            }
        });
        assert_eq!((kept.count(), unseen.count()), (1, 0));
    }
}
