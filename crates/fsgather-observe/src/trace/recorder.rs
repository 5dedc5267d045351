//! Writes the calls of a rank: [`Recorder`].

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_arena::Words;
use fsgather_core::{ChannelId, Epoch, Error, Rank, Ticket, lock};
use fsgather_store::{FileSystem, calls};

use crate::trace::{
    cause::Cause,
    record::{CallRecord, Field, Outcome, RecordWords, Way},
};

/// Number of calls that are kept.
pub const KEPT: u64 = 1000;

/// Minimum time between two records of the bytes of a call.
const MOVED_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of open calls that are followed; more than any program has.
const MAX_OPEN_CALLS: usize = 4096;

/// The storage of the records.
#[derive(Debug)]
enum RecordStorage {
    /// Memory that the kernel writes to the file.
    Mapped(Words),
    /// The file, if mapped memory could end the process: see [`FileSystem::is_written_in_place`].
    File(File),
}

impl RecordStorage {
    /// Writes the number of calls that have begun, unless that takes a system call; then readers look at all records.
    fn write_count(&self, count: u64) {
        if let Self::Mapped(all) = self {
            let _ = all.store(calls::COUNT_AT / size_of::<u64>(), &[count]);
        }
    }

    /// Writes one record, from this word of the file on.
    fn write(&self, first: usize, words: &[u64; CallRecord::WORDS]) {
        match self {
            // Readers verify the checksum.
            Self::Mapped(all) => drop(all.store(first, words)),
            // Without space an older record stays, or a torn one, which has a wrong checksum.
            Self::File(file) => {
                let at = (first * size_of::<u64>()) as u64;
                drop(file.write_all_at(bytemuck::cast_slice(words), at));
            }
        }
    }
}

/// A rank's last calls, in a file that survives the process, no matter how it ends.
///
/// If the file can be mapped, a call costs a few hundred nanoseconds and no system call.
#[derive(Debug)]
pub struct Recorder {
    storage: RecordStorage,
    path: PathBuf,
    origin: Instant,
    state: Mutex<State>,
    /// Grows with each change, so that the thread that copies the file knows whether there is something to copy.
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

#[derive(Debug)]
struct Open {
    key: (ChannelId, Epoch),
    words: RecordWords,
    noted: Instant,
}

impl Recorder {
    /// Begins with a file that [`calls::create`] has made at `path`; times count from `origin`.
    ///
    /// # Errors
    ///
    /// When there is no space for it, or it cannot be mapped.
    pub fn begin_in(file: &File, path: &Path, origin: Instant) -> io::Result<Self> {
        let storage = if FileSystem::of(path).is_ok_and(|of| of.is_written_in_place()) {
            RecordStorage::Mapped(Words::in_file(file, WORDS)?)
        } else {
            file.set_len(LEN)?;
            RecordStorage::File(file.try_clone()?)
        };
        Ok(Self {
            storage,
            path: path.to_owned(),
            origin,
            state: Mutex::default(),
            changes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records that a call has failed, so that the file is worth keeping.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether a call has failed.
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

    /// Records that a call of this number of ranks begins.
    pub fn begin(&self, ticket: &Ticket, ranks: u32) {
        self.add(ticket, ranks, false);
    }

    /// Records that a call begins in which this rank hands in nothing: it waits at once.
    pub fn begin_waiting(&self, ticket: &Ticket, ranks: u32) {
        self.add(ticket, ranks, true);
    }

    fn add(&self, ticket: &Ticket, ranks: u32, waits: bool) {
        let call = &ticket.call;
        let noted = Instant::now();
        let begun = self.time(noted);
        let mut open = Open {
            key: (ticket.channel, ticket.epoch),
            words: RecordWords::new(call.operation.name(), call.site.as_str(), ranks),
            noted,
        };
        let words = &mut open.words;
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
        self.write(words, state.count);
        self.storage.write_count(state.count);
        if state.open.len() < MAX_OPEN_CALLS {
            state.open.push(open);
        }
    }

    /// Records that bytes have moved.
    pub fn moved(&self, ticket: &Ticket, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = lock(&self.state);
        state.moved = state.moved.saturating_add(bytes);
        let count = state.count;
        if let Some(open) = find(&mut state, ticket) {
            let moved = open.words.get(Field::Moved).saturating_add(bytes);
            open.words.set(Field::Moved, moved);
            let now = Instant::now();
            if now.saturating_duration_since(open.noted) >= MOVED_INTERVAL {
                open.noted = now;
                self.write(&mut open.words, count);
            }
        }
    }

    /// Records that this rank has handed in its part, and the path of its payload.
    pub fn handed_in(&self, ticket: &Ticket, bytes: u64, way: Way) {
        let mut state = lock(&self.state);
        let count = state.count;
        let Some(open) = find(&mut state, ticket) else {
            return;
        };
        let words = &mut open.words;
        words.set(Field::HandedIn, self.time(Instant::now()));
        words.set(Field::Bytes, bytes);
        words.set_way(way);
        // Small payloads move with the message alone.
        let moved = words.get(Field::Moved);
        let more = bytes.saturating_sub(moved);
        words.set(Field::Moved, moved.max(bytes));
        self.write(&mut open.words, count);
        state.moved = state.moved.saturating_add(more);
    }

    /// Records that all ranks have handed in their parts, `last` in the job's names as the last.
    pub fn decided(&self, ticket: &Ticket, last: Option<Rank>) {
        self.change(ticket, |words, now| {
            words.set_decided(now);
            words.set_rank(last);
        });
    }

    /// Records that a thread of the program begins or ceases to wait for a call that was started before.
    pub fn awaited(&self, ticket: &Ticket, is_awaited: bool) {
        self.change(ticket, |words, now| {
            if !words.is_decided() {
                words.set_awaited(is_awaited.then_some(now));
            }
        });
    }

    /// Records that all ranks have arrived, `last` in the job's names as the last, and that the call is over with that.
    pub fn decided_and_done(&self, ticket: &Ticket, last: Option<Rank>) {
        self.close(ticket, |words, now| {
            words.set_decided(now);
            words.set_rank(last);
            words.set_outcome(Outcome::Done);
        });
    }

    /// Records that the call is over.
    pub fn end(&self, ticket: &Ticket, outcome: Outcome) {
        self.close(ticket, |words, _| words.set_outcome(outcome));
    }

    /// Records that the call is over with this error.
    pub fn failed(&self, ticket: &Ticket, failure: &Error) {
        self.close(ticket, |words, _| {
            words.set_outcome(Outcome::Failed);
            words.set_cause(Cause::of(failure));
            if !words.is_decided() {
                words.set_rank(Cause::culprit(failure));
            }
        });
    }

    fn close(&self, ticket: &Ticket, change: impl FnOnce(&mut RecordWords, u64)) {
        let mut state = lock(&self.state);
        let count = state.count;
        if let Some(at) = place(&state, ticket) {
            let words = &mut state.open[at].words;
            let now = self.time(Instant::now());
            words.set(Field::Ended, now);
            change(words, now);
            self.write(words, count);
            state.open.swap_remove(at);
        }
    }

    fn change(&self, ticket: &Ticket, change: impl FnOnce(&mut RecordWords, u64)) {
        let mut state = lock(&self.state);
        let count = state.count;
        if let Some(open) = find(&mut state, ticket) {
            change(&mut open.words, self.time(Instant::now()));
            self.write(&mut open.words, count);
        }
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

    /// Writes a record. The caller holds the lock of the state, so there is one writer at a time. `count` calls have begun by now.
    fn write(&self, words: &mut RecordWords, count: u64) {
        let own = words.get(Field::Count);
        if own + KEPT <= count {
            // A later call has taken the place of a call that took this long.
            return;
        }
        let place = own.saturating_sub(1) % KEPT;
        let first = calls::HEADER_LEN / size_of::<u64>()
            + usize::try_from(place).unwrap_or_default() * CallRecord::WORDS;
        self.storage.write(first, words.sealed());
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// Returns the places of the last `most` of `count` calls in the part of a file that holds records. Pure.
#[must_use]
pub fn places_of_last(count: u64, most: u64) -> Vec<Range<usize>> {
    let most = most.min(KEPT).min(count);
    let end = (count - most) % KEPT + most;
    let range = |from: u64, to: u64| {
        let at = |place: u64| usize::try_from(place).unwrap_or_default() * CallRecord::SIZE;
        at(from)..at(to)
    };
    match end.checked_sub(KEPT) {
        None | Some(0) => vec![range(end - most, end)],
        Some(around) => vec![range(end - most, KEPT), range(0, around)],
    }
}

/// Returns the length of the records that `count` calls have used, in bytes.
#[must_use]
pub fn used_len_of_records(count: u64) -> usize {
    usize::try_from(count.min(KEPT)).unwrap_or(KEPT_LEN) * CallRecord::SIZE
}

/// Length of the part of a file that holds records, in bytes.
pub const LEN_OF_RECORDS: usize = KEPT_LEN * CallRecord::SIZE;
/// Length of the file, in bytes.
pub const LEN: u64 = (calls::HEADER_LEN + LEN_OF_RECORDS) as u64;
/// Number of words of the file.
const WORDS: usize = (calls::HEADER_LEN + LEN_OF_RECORDS) / size_of::<u64>();
#[expect(clippy::cast_possible_truncation, reason = "it is a thousand")]
const KEPT_LEN: usize = KEPT as usize;

fn find<'a>(state: &'a mut State, ticket: &Ticket) -> Option<&'a mut Open> {
    let place = place(state, ticket)?;
    state.open.get_mut(place)
}

/// Returns the index of the last open call with this ticket.
fn place(state: &State, ticket: &Ticket) -> Option<usize> {
    let key = (ticket.channel, ticket.epoch);
    state.open.iter().rposition(|open| open.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_calls_are_read_where_they_were_written() {
        let written = |count: u64| usize::try_from((count - 1) % KEPT).unwrap() * CallRecord::SIZE;
        for count in [
            0, 1, 5, 127, 128, 999, 1000, 1001, 1050, 1127, 1128, 2000, 5003,
        ] {
            let ranges = places_of_last(count, 128);
            let places: Vec<usize> = ranges
                .into_iter()
                .flat_map(|range| range.step_by(CallRecord::SIZE))
                .collect();
            let first = count.saturating_sub(128) + 1;
            let expected: Vec<usize> = (first..=count).map(written).collect();
            assert_eq!(places, expected, "{count}");
        }
    }
}
