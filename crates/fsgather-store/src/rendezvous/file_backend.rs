//! Rendezvous through files: [`FileBackend`].

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use fsgather_core::{
    Error, GatherId, KeyHash, ProcessId, RendezvousBackend, Salt, StorageCause, lock, sys::clock,
};

use crate::{
    directory::{gather_dir::is_not_seen, keep_alive::TouchSchedule, rendezvous_directory},
    layout::{RecordName, RendezvousEntry},
    os::{
        directory::{self, OwnUid},
        file,
        filesystem::{Class, FileSystem},
        listing,
        process::{self, liveness},
        remove, retry_budget,
    },
    rendezvous::{
        foreign_names::ForeignNames,
        left::{Left, REFUSAL_TIME},
        record::Record,
        record_file::read_record,
        server_clock::ServerClock,
    },
};

/// A rendezvous directory in which records are posted and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendDirectory {
    /// The directory, as [`make_rendezvous`](crate::make_rendezvous) returns it.
    pub directory: PathBuf,
    /// The uid that owns this process's files there, as [`check_writable`](crate::check_writable) returns it. Records of other
    /// users are ignored.
    pub own: OwnUid,
}

/// Records as files in one or several rendezvous directories.
///
/// A record is one file, created exclusively with mode 0600, written once and never changed. It is removed when the backend is
/// dropped, unless that happens in a forked child.
///
/// ```
/// # use fsgather_core::{JobKey, WorldSize};
/// use fsgather_core::RendezvousBackend;
/// use fsgather_store::{BackendDirectory, FileBackend, check_writable, make_rendezvous, this_process};
/// # let place = tempfile::tempdir()?;
/// # let key = JobKey {
/// #     uid: 1, family: "none".into(), job: None, launch: None, attempt: None, world_size: WorldSize::ONE,
/// #     number: 0, master: None,
/// # };
///
/// let directory = make_rendezvous(place.path())?;
/// let own = check_writable(&directory)?;
/// let places = vec![BackendDirectory { directory, own }];
/// let backend = FileBackend::new(places, key.hash(), this_process()?);
/// backend.post(b"I listen on port 4711")?;
/// assert_eq!(backend.records()?, [b"I listen on port 4711"]);
/// backend.take_down();
/// assert!(backend.records()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileBackend {
    places: Vec<BackendDirectory>,
    key: KeyHash,
    /// The key as it appears in names.
    key_text: String,
    me: ProcessId,
    clock: ServerClock,
    state: Mutex<BackendState>,
}

#[derive(Debug, Default)]
struct BackendState {
    posted: Vec<PathBuf>,
    schedule: TouchSchedule,
    left_at: Option<Instant>,
    /// Complete records, which never change, and whose names are never used twice.
    read: BTreeMap<PathBuf, Record>,
    /// The record of this key that could not be read in the last attempt, with the reason.
    unread: Option<String>,
    /// The time at which each remaining refusal was written.
    refusals: BTreeMap<PathBuf, Left>,
    /// Names of other users, so that any number of them is examined only once in a while.
    foreign: ForeignNames,
}

/// The kind of a file in a rendezvous directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordKind {
    Record,
    Unreachable,
    Refusal,
}

impl RecordKind {
    /// Beginning of its names, before the key.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Record => "rendezvous-",
            Self::Unreachable => "unreachable-",
            Self::Refusal => "refusal-",
        }
    }
}

/// Pauses between attempts to list a directory, after which an error counts.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

impl FileBackend {
    /// Makes a backend for the world with this key. No file is touched until it is used.
    #[must_use]
    pub fn new(places: Vec<BackendDirectory>, key: KeyHash, me: ProcessId) -> Self {
        Self {
            places,
            key,
            key_text: format!("{:016x}-", key.get()),
            me,
            clock: ServerClock::default(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BackendState> {
        lock(&self.state)
    }

    /// Lists all places and reads the complete records of these kinds and this key.
    fn read_all(&self, kinds: &[RecordKind]) -> Result<Vec<(PathBuf, Record)>, Error> {
        let mut found = Vec::new();
        let mut failure = None;
        let mut is_readable = false;
        for place in &self.places {
            match self.own(place, |name| self.is_meant(name, kinds)) {
                Ok(names) => {
                    is_readable = true;
                    let current = names.iter().filter(|name| self.is_current(place, name));
                    found.extend(current.filter_map(|name| self.read(place, name)));
                }
                // The first rank that needs the directory makes it.
                Err(error) if is_not_seen(&error) => is_readable = true,
                Err(error) => {
                    tracing::debug!(path = %place.directory.display(), %error, "cannot list");
                    failure.get_or_insert_with(|| Error::storage("list", &place.directory, &error));
                }
            }
        }
        match failure {
            Some(failure) if !is_readable => Err(failure),
            _ => Ok(found),
        }
    }

    /// Reads records that this backend has not posted.
    fn read_of_others(&self, kinds: &[RecordKind]) -> Result<Vec<Record>, Error> {
        let mut found = self.read_all(kinds)?;
        let own = &self.lock().posted;
        found.retain(|(path, _)| !own.contains(path));
        Ok(found.into_iter().map(|(_, record)| record).collect())
    }

    fn is_meant(&self, name: &str, kinds: &[RecordKind]) -> bool {
        // Most names are unrelated, and there may be thousands: only names with the right beginning are parsed.
        let is_of = |kind: &RecordKind| {
            let rest = name.strip_prefix(kind.prefix());
            rest.is_some_and(|rest| rest.starts_with(&self.key_text))
        };
        kinds.iter().any(is_of) && RendezvousEntry::parse(name).is_some()
    }

    /// Returns true if this is the name of a record for a key that differs only in the world size.
    fn is_of_other_size(&self, name: &str) -> bool {
        // Most names are unrelated, as above.
        name.starts_with(RecordKind::Record.prefix())
            && matches!(
                RendezvousEntry::parse(name),
                Some(RendezvousEntry::Record(parsed)) if parsed.key().differs_in_size(self.key)
            )
    }

    /// Returns true if a file is meant for this process: all files except refusals of earlier attempts.
    fn is_current(&self, place: &BackendDirectory, name: &str) -> bool {
        !matches!(
            RendezvousEntry::parse(name),
            Some(RendezvousEntry::Refusal(_))
        ) || self.time_of(&place.directory, name) == Some(Left::SinceStart)
    }

    /// Lists wanted names of this user. Files of other users are examined only once in a while, however many there are.
    fn own(
        &self,
        place: &BackendDirectory,
        is_wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Vec<String>> {
        let now = clock::now();
        // If another thread lists at the same time, names are examined twice.
        let mut foreign = self.lock().foreign.take(&place.directory, now);
        let listed = list(&place.directory, &|name| {
            !foreign.contains(name) && is_wanted(name)
        });
        let held = listing::hold(&place.directory);
        let is_foreign = |name: &str| {
            held.as_ref().is_ok_and(|held| {
                listing::glance_in(held, Path::new(name))
                    .is_ok_and(|found| found.uid != place.own.0)
            })
        };
        let own = listed.map(|names| {
            let (others, own) = names.into_iter().partition(|name| is_foreign(name));
            foreign.extend::<Vec<String>>(others);
            own
        });
        let directory = place.directory.clone();
        self.lock().foreign.put(directory, foreign);
        own
    }

    /// Returns the time at which a refusal was written; `None` if unknown.
    fn time_of(&self, directory: &Path, name: &str) -> Option<Left> {
        let path = directory.join(name);
        if let Some(known) = self.lock().refusals.get(&path) {
            return Some(*known);
        }
        let left = match self.time_left(directory, &path) {
            Ok(left) => left?,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "cannot tell when this was left");
                return None;
            }
        };
        self.lock().refusals.insert(path, left);
        Some(left)
    }

    /// Returns the time at which a file was written, by the server's clock; `None` if this process's own age is unknown.
    fn time_left(&self, directory: &Path, path: &Path) -> io::Result<Option<Left>> {
        let left = listing::examine_path(path)?.changed;
        // The age is read before the server's time, so that the process seems younger rather than older.
        let Some(age) = process::age(&self.me) else {
            return Ok(None);
        };
        let now = self.clock.now(directory)?;
        Ok(Some(Left::at(left, now, age)))
    }

    fn read(&self, place: &BackendDirectory, name: &str) -> Option<(PathBuf, Record)> {
        let path = place.directory.join(name);
        if let Some(record) = self.lock().read.get(&path) {
            return Some((path, record.clone()));
        }
        match read_record(&path, place.own) {
            Ok(record) => {
                let mut state = self.lock();
                state.read.insert(path.clone(), record.clone());
                state.unread = None;
                Some((path, record))
            }
            Err(reason) => {
                tracing::debug!(path = %path.display(), %reason, "passing over a record");
                let is_awaited = matches!(
                    RendezvousEntry::parse(name),
                    Some(RendezvousEntry::Record(parsed)) if parsed.is_for(self.key)
                );
                if is_awaited && reason.is_of_the_file_system() {
                    self.lock().unread = Some(format!("{name} cannot be read: {reason}"));
                }
                None
            }
        }
    }

    /// Posts in every place. The files are tended and later removed.
    fn leave(&self, kind: RecordKind, body: &[u8]) -> Result<(), Error> {
        self.clock.begin();
        let posted = self.post_everywhere(kind, body)?;
        let mut state = self.lock();
        state.posted.extend(posted);
        state.schedule = TouchSchedule::default();
        state.left_at = Some(clock::now());
        Ok(())
    }

    /// Posts in every place; fails only if that is possible in none.
    fn post_everywhere(&self, kind: RecordKind, body: &[u8]) -> Result<Vec<PathBuf>, Error> {
        let record = Record {
            poster: self.me.clone(),
            body: body.to_vec(),
        };
        let contents = record
            .to_bytes()
            .map_err(|error| Error::rendezvous(format!("the record cannot be posted: {error}")))?;
        let mut failure = None;
        let mut posted = Vec::new();
        for place in &self.places {
            match self.post_in(place, kind, &contents) {
                Ok(path) => posted.push(path),
                Err(error) => {
                    tracing::debug!(%error, "not posted in one of the places");
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            _ if !posted.is_empty() => Ok(posted),
            Some(failure) => Err(failure),
            None => Err(Error::rendezvous(
                "there is no directory in which to post a record",
            )),
        }
    }

    /// Makes clients with a cached listing list the directories again, if it is time to.
    fn touch(&self, elapsed: Duration) {
        let posted = {
            let mut state = self.lock();
            if state.schedule.is_due(elapsed) {
                state.posted.clone()
            } else {
                Vec::new()
            }
        };
        for directory in posted.iter().filter_map(|path| path.parent()) {
            if let Err(error) = directory::touch(directory) {
                tracing::debug!(path = %directory.display(), %error, "cannot touch");
            }
        }
    }

    /// Removes refusals that no rank can be waiting for any more: those of this key, whose world has formed now, and those of
    /// other jobs of this user that are old by the server's clock. A refusal is only a notification, and owns nothing.
    fn sweep_refusals(&self, place: &BackendDirectory, refusals: &[(PathBuf, RecordName)]) {
        if refusals.is_empty() {
            return;
        }
        let now = self.clock.now(&place.directory);
        for (path, parsed) in refusals {
            let Ok(found) = listing::examine_path(path) else {
                continue;
            };
            let is_old = now.as_ref().is_ok_and(|now| {
                now.duration_since(found.changed)
                    .is_ok_and(|ago| ago >= REFUSAL_TIME)
            });
            if found.uid != place.own.0 || !(parsed.is_for(self.key) || is_old) {
                continue;
            }
            if let Err(error) = remove::unlink(path) {
                tracing::debug!(path = %path.display(), %error, "cannot remove a refusal");
            }
        }
    }

    /// Removes a record of this key, or a report about one, whose poster is proved to be gone.
    fn sweep_record(&self, place: &BackendDirectory, name: &str) {
        let Some((path, record)) = self.read(place, name) else {
            return;
        };
        // A record proves no life, so only the state of the poster's pid counts.
        if self.lock().posted.contains(&path) || !liveness(&record.poster, &self.me).has_ended() {
            return;
        }
        match remove::unlink(&path) {
            Ok(()) => tracing::debug!(path = %path.display(), "removed a stale record"),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "cannot remove a stale record");
            }
        }
    }

    fn post_in(
        &self,
        place: &BackendDirectory,
        kind: RecordKind,
        contents: &[u8],
    ) -> Result<PathBuf, Error> {
        let stamp = GatherId::new(
            clock::wall(),
            Salt::from_random(fsgather_core::sys::random::fresh()),
        );
        let name = RecordName::new(self.key, stamp);
        let entry = match kind {
            RecordKind::Record => RendezvousEntry::Record(name),
            RecordKind::Unreachable => RendezvousEntry::Unreachable(name),
            RecordKind::Refusal => RendezvousEntry::Refusal(name),
        };
        let name = entry.to_string();
        let is_local =
            FileSystem::of(&place.directory).is_ok_and(|system| system.class() == Class::Local);
        rendezvous_directory::in_rendezvous(&place.directory, || {
            // The file is never created through a link, which another user may have put in place of the directory.
            let held = listing::hold(&place.directory)?;
            file::write_new_in(held, Path::new(&name), 0o600, contents, !is_local)
        })
        .map_err(|error| {
            Error::storage(
                "post a record in",
                &place.directory,
                directory::explain(&place.directory, &error),
            )
        })?;
        Ok(place.directory.join(name))
    }
}

/// Lists a directory. An error counts only if it persists: servers have transient errors.
fn list(directory: &Path, is_wanted: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
    for pause in PAUSES {
        match listing::names_if(directory, is_wanted) {
            Err(error) if !is_not_seen(&error) => {
                tracing::debug!(path = %directory.display(), %error, "listing again");
                // This pause cannot be interrupted.
                let _ = retry_budget::sleep(pause, &mut |_| Ok(()));
            }
            listed => return listed,
        }
    }
    listing::names_if(directory, is_wanted)
}

impl RendezvousBackend for FileBackend {
    fn post(&self, record: &[u8]) -> Result<(), Error> {
        self.leave(RecordKind::Record, record)
    }

    fn refuse(&self, record: &[u8]) -> Result<(), Error> {
        let left = self.post_everywhere(RecordKind::Refusal, record);
        // It is the final message: this process may end at once.
        self.clock.end();
        left.map(drop)
    }

    fn report_unreachable(&self, report: &[u8]) -> Result<(), Error> {
        self.leave(RecordKind::Unreachable, report)
    }

    fn unreachable_reports(&self) -> Result<Vec<Vec<u8>>, Error> {
        let found = self.read_all(&[RecordKind::Unreachable])?;
        Ok(found.into_iter().map(|(_, record)| record.body).collect())
    }

    fn tend(&self, elapsed: Duration) -> Result<Vec<Vec<u8>>, Error> {
        self.touch(elapsed);
        let found = self.read_of_others(&[RecordKind::Record, RecordKind::Refusal])?;
        Ok(found.into_iter().map(|record| record.body).collect())
    }

    fn posted_by_others(&self) -> Vec<(ProcessId, Vec<u8>)> {
        let found = self.read_of_others(&[RecordKind::Record]);
        let found = found.unwrap_or_default().into_iter();
        found.map(|record| (record.poster, record.body)).collect()
    }

    fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
        // A member's report is not tended; it looks for records as long as that matters.
        let left_at = self.lock().left_at;
        if let Some(left_at) = left_at {
            self.touch(clock::since(left_at));
        }
        let found = self.read_all(&[RecordKind::Record, RecordKind::Refusal])?;
        Ok(found.into_iter().map(|(_, record)| record.body).collect())
    }

    fn earlier_refusals(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for place in &self.places {
            let names = self.own(place, |name| self.is_meant(name, &[RecordKind::Refusal]));
            for name in names.unwrap_or_default() {
                let Some(RendezvousEntry::Refusal(parsed)) = RendezvousEntry::parse(&name) else {
                    continue;
                };
                let is_earlier = self.time_of(&place.directory, &name) == Some(Left::Before);
                let read = is_earlier.then(|| self.read(place, &name)).flatten();
                found.extend(read.map(|(_, record)| (parsed.stamp(), record.body)));
            }
        }
        found.sort_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, body)| body).collect()
    }

    fn records_of_other_sizes(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for place in &self.places {
            let names = self.own(place, |name| self.is_of_other_size(name));
            let names = names.unwrap_or_default();
            found.extend(names.iter().filter_map(|name| self.read(place, name)));
        }
        found.into_iter().map(|(_, record)| record.body).collect()
    }

    /// Removes records of the same job, of any size, and reports about them, if their poster is proved to be gone; also
    /// removes refusals.
    fn sweep(&self) {
        let kinds = [RecordKind::Record, RecordKind::Unreachable];
        for place in &self.places {
            // One listing for all kinds: its time grows with the number of files of other users.
            let is_wanted = |name: &str| {
                name.starts_with("refusal-")
                    || self.is_meant(name, &kinds)
                    || self.is_of_other_size(name)
            };
            let names = self.own(place, is_wanted).unwrap_or_else(|error| {
                tracing::debug!(%error, "cannot sweep");
                Vec::new()
            });
            let mut refusals = Vec::new();
            for name in names {
                match RendezvousEntry::parse(&name) {
                    Some(RendezvousEntry::Refusal(parsed)) => {
                        refusals.push((place.directory.join(name), parsed));
                    }
                    Some(_) => self.sweep_record(place, &name),
                    None => {}
                }
            }
            self.sweep_refusals(place, &refusals);
        }
    }

    fn take_down(&self) {
        let posted = {
            let mut state = self.lock();
            state.left_at = None;
            std::mem::take(&mut state.posted)
        };
        for path in posted {
            // This process has just checked that the directory is still its own.
            if let Some(Ok(file_system)) = path.parent().map(FileSystem::of) {
                remove::wait_until_closed(&file_system, Duration::ZERO);
            }
            if let Err(error) = remove::unlink(&path) {
                let cause = StorageCause::from(&error);
                fsgather_core::warn!("{}", Error::storage("remove", path, cause));
            }
        }
        self.clock.end();
    }

    fn place(&self) -> String {
        let places: Vec<String> = self
            .places
            .iter()
            .map(|place| place.directory.display().to_string())
            .collect();
        let places = places.join(" and ");
        match &self.lock().unread {
            Some(unread) => format!("{places}, where {unread},"),
            None => places,
        }
    }
}

impl Drop for FileBackend {
    fn drop(&mut self) {
        // A forked child inherits the backend, but the record is its parent's.
        if std::process::id() == self.me.pid {
            self.take_down();
        }
    }
}

#[cfg(test)]
#[path = "file_backend_tests.rs"]
mod tests;
