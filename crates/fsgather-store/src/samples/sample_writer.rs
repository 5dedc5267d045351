//! The file of samples of this process, written by a thread: [`SampleWriter`].
//!
//! Entries wait in memory for a second, or until there is 1 MiB of them. Written entries stay in memory until the file
//! has been synced, once a second, because a file system may report an error of a write only then. After an error
//! the thread writes all entries that are not on disk to a new file, and tries again until nothing of them could be
//! written for ten minutes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_core::{
    Error, FIRST_WARNING, StorageCause, bytes_text, duration_text, lock,
    sys::{
        clock,
        condition::Condition,
        thread::{self, Started},
    },
    warning_after,
};

use crate::{
    layout::SampleFileName,
    os::remove,
    samples::{
        attempt_claim::AttemptClaim,
        entry::EntryKind,
        entry_queue::{EntryQueue, PIECE_BYTES},
        file_header::SampleFileHeader,
        part_file::{PartFile, is_too_long},
        sample_id::SampleId,
        writer_progress::WriterProgress,
    },
};

/// Entries are written once they take this many bytes,
const WRITE_BYTES: usize = PIECE_BYTES;
/// or once the first of them has waited for this long; files are synced as often.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that wait in memory at most, except that a single entry always may.
const MAX_HELD_BYTES: usize = 64 << 20;
/// Maximum time for which writing is tried again after an error.
const RETRY_LIMIT: Duration = Duration::from_secs(600);
/// Time between tries.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a waiting caller warns for the first time.
const FIRST_WAIT_WARNING: Duration = Duration::from_secs(5);
/// Interval at which waiting callers check for an interruption.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time that dropping a writer waits for entries that are not on disk.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// Appends entries to the files of one process in a directory of samples.
#[derive(Debug)]
pub struct SampleWriter {
    shared: Arc<Shared>,
    thread: Option<Started>,
    process: u32,
    nonce: u64,
    directory: PathBuf,
    /// Length of the longest entry that a file can take.
    max_entry_bytes: u64,
    /// Whether a caller that waited was interrupted.
    was_interrupted: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The thread has something to do.
    work: Condition,
    /// The thread has done something.
    done: Condition,
    /// Whether writing is not tried again after an error.
    gives_up: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    pending: EntryQueue,
    pending_since: Option<Instant>,
    /// Bytes that were written, and are kept until they are synced.
    unsynced_bytes: usize,
    progress: WriterProgress,
    /// Entries that a caller waits for.
    wanted: u64,
    /// Files of this process, with the lengths that are on disk.
    files: Vec<(SampleFileName, u64)>,
    is_closing: bool,
    has_ended: bool,
    failure: Option<Error>,
    /// Whether the file stays without entries.
    must_stay: bool,
    /// Held until entries are on disk: by then all hosts see the files of this attempt.
    claim: Option<AttemptClaim>,
}

impl SampleWriter {
    /// Creates the first file of this process and starts the thread. Its files state the expected samples, if these are given.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the file cannot be written or the thread not be started, and [`Error::Config`] if
    /// the configuration is too long.
    pub fn create(
        directory: &Path,
        name: SampleFileName,
        header: &SampleFileHeader,
        expectation: &[u8],
    ) -> Result<Self, Error> {
        let mut file = PartFile::create(directory, name, header, expectation)?;
        let max_entry_bytes = file.max_entry_bytes();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condition::default(),
            done: Condition::default(),
            gives_up: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let path = file.path();
        let thread = thread::start("fsgather-samples".into(), move || {
            let _end = EndOfThread(&for_thread);
            for_thread.run(&mut file);
        })
        .map_err(|error| {
            let _ = remove::unlink(&path);
            Error::storage("start a thread that writes samples to", path, &error)
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
            process: std::process::id(),
            nonce: name.nonce,
            directory: directory.to_owned(),
            max_entry_bytes,
            was_interrupted: AtomicBool::new(false),
        })
    }

    /// Holds the claim of the attempt's number until the first entries are on disk.
    pub fn hold(&self, claim: AttemptClaim) {
        lock(&self.shared.state).claim = Some(claim);
    }

    /// Has the first file stay even if it gets no entries, because of the expected samples that it states.
    pub fn keep_file(&self) {
        lock(&self.shared.state).must_stay = true;
    }

    /// Whether an entry of this length can be added without waiting.
    #[must_use]
    pub fn has_room_for(&self, len: usize) -> bool {
        let state = lock(&self.shared.state);
        state.failure.is_some() || state.has_room_for(len)
    }

    /// Adds an entry, whose value comes in pieces. It is on disk about a second later.
    ///
    /// Waits while 64 MiB wait to be written, says so after 5 s, and calls `check` ten times a second meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `check`, [`Error::Storage`] if results could not be written for ten minutes or this one is larger than a file
    /// of this process may be, and [`Error::Config`] if there is no memory for it, for a too long id, in a child process, and after [`close`](Self::close).
    pub fn add(
        &self,
        kind: EntryKind,
        id: &SampleId,
        value: &[&[u8]],
        check: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check_process()?;
        let len: usize = value.iter().map(|piece| piece.len()).sum();
        let waits = |state: &State| state.failure.is_none() && !state.has_room_for(len);
        let mut state = self.wait_while(waits, check)?;
        state.check()?;
        if state.is_closing {
            return Err(Error::config("these samples are closed"));
        }
        let before = state.pending.len();
        let sequence = state.progress.added;
        let entry_len = state.pending.push(self.nonce, sequence, kind, id, value)?;
        if entry_len as u64 > self.max_entry_bytes {
            state.pending.pop(entry_len);
            return Err(self.too_large(id, len as u64, state.progress));
        }
        state.progress.added += 1;
        state.progress.results += u64::from(kind == EntryKind::Result);
        if state.pending_since.is_none() {
            state.pending_since = Some(clock::now());
            self.shared.work.wake_one();
        } else if before < WRITE_BYTES && state.pending.len() >= WRITE_BYTES {
            self.shared.work.wake_one();
        }
        Ok(())
    }

    /// Waits until everything that was added before is on disk, and calls `check` ten times a second meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `check`, [`Error::Storage`] if results could not be written for ten minutes, and [`Error::Config`] in
    /// a child process.
    pub fn flush(&self, check: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        self.check_process()?;
        let wanted = {
            let mut state = lock(&self.shared.state);
            state.wanted = state.progress.added;
            self.shared.work.wake_one();
            state.wanted
        };
        let waits = |state: &State| {
            state.failure.is_none() && !state.has_ended && state.progress.synced < wanted
        };
        self.wait_while(waits, check)?.check()
    }

    /// Writes what is left, and ends the thread. A file without entries is removed, unless it [must stay](Self::keep_file).
    ///
    /// # Errors
    ///
    /// Those of [`flush`](Self::flush).
    pub fn close(&self, check: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        self.check_process()?;
        self.begin_closing();
        self.wait_while(|state| !state.has_ended, check)?.check()
    }

    /// Returns the progress of this writer.
    #[must_use]
    pub fn progress(&self) -> WriterProgress {
        lock(&self.shared.state).progress
    }

    /// Names of the files that this writer has written, with their lengths at the last sync.
    #[must_use]
    pub fn files(&self) -> Vec<(SampleFileName, u64)> {
        lock(&self.shared.state).files.clone()
    }

    /// Returns the error of a result for which a file of this process has no room, however empty it is.
    fn too_large(&self, id: &SampleId, len: u64, progress: WriterProgress) -> Error {
        let mut cause = StorageCause::from(&io::ErrorKind::FileTooLarge.into());
        cause.message = format!(
            "the result of sample {id} takes {}, and files of this process may have {} (`ulimit -f`); raise that limit, or add the \
             result in parts with ids of their own",
            bytes_text(len),
            bytes_text(self.max_entry_bytes),
        );
        progress.unwritten(self.directory.clone(), cause)
    }

    fn begin_closing(&self) {
        lock(&self.shared.state).is_closing = true;
        self.shared.work.wake_one();
    }

    fn check_process(&self) -> Result<(), Error> {
        let own = std::process::id();
        if own == self.process {
            return Ok(());
        }
        Err(Error::config(format!(
            "samples were opened by process {}, and this is process {own}, forked from it; add results where they were opened, \
             or open them in each process",
            self.process
        )))
    }

    /// Waits as long as `waits` says so, and tells after a while.
    fn wait_while(
        &self,
        waits: impl Fn(&State) -> bool,
        check: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = lock(&self.shared.state);
        let began = clock::now();
        let mut warning = FIRST_WAIT_WARNING;
        while waits(&state) {
            state = self
                .shared
                .done
                .wait(&self.shared.state, state, Some(CHECK_INTERVAL));
            if !waits(&state) {
                break;
            }
            drop(state);
            if let Err(error) = check() {
                self.was_interrupted.store(true, Ordering::Relaxed);
                return Err(error);
            }
            let waited = clock::since(began);
            if waited >= warning {
                warning = warning_after(waited.max(FIRST_WARNING));
                fsgather_core::warn!(
                    "samples wait for their file system, for {} now; results stay in memory meanwhile",
                    duration_text(waited)
                );
            }
            state = lock(&self.shared.state);
        }
        Ok(state)
    }
}

impl Drop for SampleWriter {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        let gives_up = self.was_interrupted.load(Ordering::Relaxed);
        self.shared.gives_up.store(gives_up, Ordering::Relaxed);
        self.begin_closing();
        let deadline = clock::now() + DROP_LIMIT;
        let mut in_time = || {
            if clock::now() < deadline {
                return Ok(());
            }
            Err(Error::config("their file system does not answer"))
        };
        let ended = self.wait_while(|state| !state.has_ended, &mut in_time);
        let ended = ended.and_then(|state| if gives_up { state.check() } else { Ok(()) });
        if let Err(error) = ended {
            let progress = self.progress();
            let left = progress.added - progress.synced;
            fsgather_core::warn!("{left} results are not on disk: {error}");
        } else if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    /// Whether a caller waits for the entries that are not on disk.
    const fn is_wanted(&self) -> bool {
        self.is_closing || self.wanted > self.progress.synced
    }

    fn has_room_for(&self, len: usize) -> bool {
        let held = self.pending.len() + self.unsynced_bytes;
        held == 0 || held + len <= MAX_HELD_BYTES
    }

    fn check(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// Wakes all waiting callers when the thread ends, also by a panic.
struct EndOfThread<'a>(&'a Shared);

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.has_ended = true;
        if state.failure.is_none() && state.progress.synced < state.progress.added {
            let cause = StorageCause::described("the thread that writes them has ended");
            state.failure = Some(Error::storage("write samples", "", cause));
        }
        drop(state);
        self.0.done.wake_all();
    }
}

impl Shared {
    fn run(&self, file: &mut PartFile) {
        let mut last_sync = clock::now();
        loop {
            let mut state = lock(&self.state);
            let has_unsynced = state.unsynced_bytes > 0;
            loop {
                let write_at = state.pending_since.map(|since| since + WRITE_INTERVAL);
                let sync_at = has_unsynced.then(|| last_sync + WRITE_INTERVAL);
                let next = write_at.into_iter().chain(sync_at).min();
                let now = clock::now();
                if state.is_wanted()
                    || state.pending.len() >= WRITE_BYTES
                    || next.is_some_and(|next| next <= now)
                {
                    break;
                }
                let limit = next.map(|next| next.saturating_duration_since(now));
                state = self.work.wait(&self.state, state, limit);
            }
            let is_wanted = state.is_wanted();
            file.take(&mut state.pending);
            state.pending_since = None;
            state.unsynced_bytes = file.unsynced_bytes();
            let is_closing = state.is_closing;
            drop(state);
            let syncs = is_wanted || clock::since(last_sync) >= WRITE_INTERVAL;
            let stored = file.store(syncs).or_else(|error| self.retry(file, &error));
            if file.unsynced_bytes() == 0 {
                last_sync = clock::now();
            }
            let checked = stored.and_then(|()| if syncs { file.check_place() } else { Ok(()) });
            let mut state = self.note(file);
            if let Err(failure) = checked {
                state.failure = Some(failure);
                let must_stay = state.must_stay;
                drop(state);
                file.close(must_stay);
                return;
            }
            let ends = is_closing && state.progress.synced == state.progress.added;
            let must_stay = state.must_stay;
            let claim = state.claim.take_if(|_| ends || file.synced() > 0);
            drop(state);
            drop(claim);
            if ends {
                file.close(must_stay);
                return;
            }
        }
    }

    /// Notes which entries are on disk, and wakes callers that wait for it.
    fn note(&self, file: &PartFile) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        state.unsynced_bytes = file.unsynced_bytes();
        state.progress.synced = file.synced();
        state.files.clear();
        state.files.extend_from_slice(file.files());
        self.done.wake_all();
        state
    }

    /// Writes everything that is not on disk to new files until that succeeds.
    fn retry(&self, file: &mut PartFile, first: &io::Error) -> Result<(), Error> {
        let mut began = clock::now();
        let mut cause = StorageCause::from(first);
        let mut is_hopeless = is_too_long(first);
        let mut warning = Duration::ZERO;
        loop {
            let lasts = clock::since(began);
            let gives_up = is_hopeless || self.gives_up.load(Ordering::Relaxed);
            if gives_up || lasts >= RETRY_LIMIT {
                if !gives_up {
                    let tried = duration_text(RETRY_LIMIT);
                    cause.message = format!("{} (tried for {tried})", cause.message);
                }
                return Err(self.note(file).progress.unwritten(file.path(), cause));
            }
            if lasts >= warning {
                warning = warning_after(lasts.max(FIRST_WARNING / 2));
                fsgather_core::warn!(
                    "samples cannot be written to {}: {cause}; results stay in memory, and this is tried again for {}",
                    file.path().display(),
                    duration_text(RETRY_LIMIT.saturating_sub(lasts))
                );
            }
            let state = self.note(file);
            drop(self.work.wait(&self.state, state, Some(RETRY_INTERVAL)));
            let synced = file.synced();
            match file.begin_next_part().and_then(|()| file.store(true)) {
                Ok(()) => {
                    tracing::info!(path = %file.path().display(), "samples can be written again");
                    return Ok(());
                }
                Err(again) => {
                    cause = StorageCause::from(&again);
                    is_hopeless = is_too_long(&again);
                }
            }
            if file.synced() > synced {
                began = clock::now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_writers_give_up_when_they_are_dropped() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("run");
        std::fs::create_dir(&directory).unwrap();
        let name = SampleFileName::first(1, fsgather_core::Rank::ZERO, 7);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condition::default(),
            done: Condition::default(),
            gives_up: AtomicBool::new(false),
        });
        let mut file =
            PartFile::create(&directory, name, &SampleFileHeader::default(), &[]).unwrap();
        // No other part can be created.
        std::fs::rename(&directory, place.path().join("moved")).unwrap();
        shared.gives_up.store(true, Ordering::Relaxed);
        let error = shared.retry(&mut file, &io::ErrorKind::StorageFull.into());
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("0 of the 0 results")
        );
    }
}
