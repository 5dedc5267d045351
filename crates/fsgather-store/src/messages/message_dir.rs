//! Messages as files: [`MessageDir`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use fsgather_core::{
    Beat, Error, InboundMessage, Mailbox, ProcessId, Progress, Rank, Retirement, StorageCause,
    duration_text, lock, sys::clock,
};

use crate::{
    directory::{
        gather_dir::{self, GatherDir, is_not_seen},
        keep_alive::TouchSchedule,
    },
    layout,
    lifecycle::janitor::Care,
    messages::{
        detours::Detours,
        message_file::{self, Unread},
        names::{HostName, MarkerName},
        reserved_space::ReservedSpace,
        role::Role,
        torn_files::TornFiles,
    },
    os::{directory, file, filesystem::Class, listing, remove, retry_budget::RetryBudget},
};

/// Time for which a listed message may stay unreadable: longer than clients keep their caches.
const VISIBILITY: Duration = Duration::from_secs(90);

/// Time for which a directory may seem to be gone if clients of its file system have caches.
const ABSENCE: Duration = Duration::from_secs(10);

/// Time for which a rank that exits keeps its last message visible: longer than any clock's tick.
const LINGER: Duration = Duration::from_millis(2500);

/// Minimum and maximum pause between two listings.
const LOCAL_PACE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(50));
const NETWORK_PACE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));

/// The messages of one rank in a gather directory.
///
/// Letters go to `in/<host>/`, bulletins to `out/`, heartbeats to `live/<host>/`. Each file is created exclusively under a new
/// name, written once and never changed; it is sealed, so that a partially written file is detected and read again later.
#[derive(Debug)]
pub(crate) struct MessageDir {
    directory: GatherDir,
    role: Role,
    host: HostName,
    /// The process that made it; a forked child must not touch anything.
    process: u32,
    state: Mutex<MessageDirState>,
    reserved_space: ReservedSpace,
    torn: TornFiles,
    detours: Detours,
    care: Mutex<Option<Care>>,
}

#[derive(Debug)]
struct MessageDirState {
    /// Messages that were handed out and are still listed.
    read: BTreeSet<String>,
    /// Times since when listed messages have been unreadable.
    unreadable: HashMap<String, Instant>,
    /// Time since when a directory has seemed to be gone.
    absent: Option<Instant>,
    /// Hosts whose letters are read.
    hosts: BTreeSet<HostName>,
    posted: BTreeMap<u64, PathBuf>,
    beat: Option<(u64, PathBuf)>,
    schedule: TouchSchedule,
    changed: Instant,
}

impl MessageDir {
    pub(crate) fn new(
        directory: GatherDir,
        role: Role,
        process: &ProcessId,
        care: Option<Care>,
    ) -> Self {
        let rendezvous = directory.path().parent().unwrap_or(directory.path());
        let detours = Detours::around(directory.facts().id, rendezvous, directory.own());
        Self {
            detours,
            reserved_space: ReservedSpace::default(),
            torn: TornFiles::default(),
            directory,
            role,
            host: HostName(process.host_label()),
            process: std::process::id(),
            state: Mutex::new(MessageDirState {
                read: BTreeSet::new(),
                unreadable: HashMap::new(),
                absent: None,
                hosts: BTreeSet::new(),
                posted: BTreeMap::new(),
                beat: None,
                schedule: TouchSchedule::default(),
                changed: clock::now(),
            }),
            care: Mutex::new(care),
        }
    }

    /// Makes the directories of this host. It is no error if they exist.
    ///
    /// This happens before other ranks can know of this rank, so that none looks for the directories too early.
    pub(crate) fn make_host_directories(&self) -> Result<(), Error> {
        self.directory.make_directory(&self.outbox())?;
        self.directory.make_directory(&self.live(self.host))?;
        self.set_aside();
        Ok(())
    }

    /// Reserves space, so that this rank can still report a full disk to the others.
    fn set_aside(&self) {
        self.reserved_space
            .fill(&self.directory, &self.outbox(), self.role.rank());
    }

    /// Returns a new name for a message; every attempt has its own.
    fn new_name(&self, number: u64, to: Option<Rank>) -> MarkerName {
        let nonce = fsgather_core::sys::random::fresh();
        match self.role {
            Role::Coordinator => MarkerName::Bulletin { number, to, nonce },
            Role::Member { rank, sender } => MarkerName::Letter {
                from: rank,
                sender,
                number,
                nonce,
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, MessageDirState> {
        lock(&self.state)
    }

    /// The directory to which this rank writes its messages.
    fn outbox(&self) -> PathBuf {
        let path = self.directory.path();
        match self.role {
            Role::Coordinator => path.join(layout::OUT),
            Role::Member { .. } => path.join(layout::IN).join(self.host.to_string()),
        }
    }

    fn live(&self, host: HostName) -> PathBuf {
        self.directory
            .path()
            .join(layout::LIVE)
            .join(host.to_string())
    }

    fn is_local(&self) -> bool {
        self.directory.file_system().class() == Class::Local
    }

    fn write(&self, path: &Path, body: &[u8]) -> Result<(), Error> {
        message_file::write_in(&self.directory, path, body).inspect_err(|_| self.torn.note(path))
    }

    /// Returns true if members of a group may create files among the messages.
    fn is_shared(&self) -> bool {
        self.directory.facts().mode & 0o020 != 0
    }

    /// Lists a directory of messages. Returns `None` if it cannot be seen now, and an error if it is gone for good.
    fn list(&self, path: &Path) -> Result<Option<Vec<String>>, Error> {
        match listing::names(path) {
            Ok(names) => {
                self.lock().absent = None;
                Ok(Some(names))
            }
            Err(error) if is_not_seen(&error) => {
                let since = *self.lock().absent.get_or_insert_with(clock::now);
                if !self.is_local() && clock::since(since) < ABSENCE {
                    return Ok(None);
                }
                Err(Error::storage(
                    "read messages in",
                    path,
                    gather_dir::is_gone("it", &error),
                ))
            }
            Err(error) => Err(Error::storage("list", path, &error)),
        }
    }

    /// Receives the messages in a directory that were not received before.
    fn receive_in(&self, path: &Path, listed: &mut Listed) -> Result<(), Error> {
        let names = self.list(path)?;
        listed.is_partial |= names.is_none();
        for name in names.unwrap_or_default() {
            let Some((mut message, is_for_us)) = self.incoming(&name) else {
                continue;
            };
            if self.lock().read.contains(&name) {
                listed.seen.insert(name);
                continue;
            }
            if is_for_us {
                let file = path.join(&name);
                if self.lock().unreadable.contains_key(&name) {
                    // The client may have cached the length that the file had when it was first opened.
                    listing::refresh(&file);
                }
                match message_file::read_in(&self.directory, &file) {
                    Ok(body) => message.body = Some(body),
                    Err(Unread::NotOurs(_)) if self.is_shared() => continue,
                    Err(why) => {
                        self.not_readable(&name, &file, &why.to_string())?;
                        continue;
                    }
                }
            } else if self.is_shared() && !message_file::is_own(&self.directory, &path.join(&name))
            {
                continue;
            }
            self.lock().unreadable.remove(&name);
            listed.seen.insert(name);
            listed.messages.push(message);
        }
        Ok(())
    }

    /// Receives the messages in the gather directory that were not received before.
    fn receive_here(&self, newcomers: bool) -> Result<Vec<InboundMessage>, Error> {
        let mut listed = Listed::default();
        match self.role {
            Role::Member { .. } => {
                let path = self.directory.path().join(layout::OUT);
                self.receive_in(&path, &mut listed)?;
            }
            Role::Coordinator => {
                let path = self.directory.path().join(layout::IN);
                if newcomers {
                    let names = self.list(&path)?.unwrap_or_default();
                    let hosts = names.iter().filter_map(|name| HostName::parse(name));
                    self.lock().hosts.extend(hosts);
                }
                let hosts = self.lock().hosts.clone();
                for host in hosts {
                    self.receive_in(&path.join(host.to_string()), &mut listed)?;
                }
            }
        }
        let mut state = self.lock();
        if !listed.is_partial {
            state.read.clear();
        }
        state.read.extend(listed.seen);
        Ok(listed.messages)
    }

    /// Receives messages that were written elsewhere, if it is time to look for them.
    fn receive_around(&self) -> Vec<InboundMessage> {
        let is_for_us = |name: &MarkerName| self.incoming(&name.to_string()).is_some();
        let found = self.detours.messages(is_for_us).into_iter();
        found
            .filter_map(|(name, body)| {
                let (mut message, is_to_be_read) = self.incoming(&name.to_string())?;
                message.body = is_to_be_read.then_some(body);
                Some(message)
            })
            .collect()
    }

    /// Returns the message that a name describes, if it is for this rank, and true if the file must be read.
    fn incoming(&self, name: &str) -> Option<(InboundMessage, bool)> {
        let message = |from, sender, number| InboundMessage {
            from,
            sender,
            number,
            body: None,
        };
        match (MarkerName::parse(name)?, self.role) {
            (
                MarkerName::Letter {
                    from,
                    sender,
                    number,
                    ..
                },
                Role::Coordinator,
            ) => Some((message(from, sender, number), true)),
            (MarkerName::Bulletin { number, to, .. }, Role::Member { rank, .. }) => Some((
                message(Rank::ZERO, 0, number),
                to.is_none_or(|to| to == rank),
            )),
            _ => None,
        }
    }

    fn not_readable(&self, name: &str, path: &Path, why: &str) -> Result<(), Error> {
        let now = clock::now();
        let since = *self.lock().unreadable.entry(name.to_owned()).or_insert(now);
        if now.saturating_duration_since(since) < VISIBILITY {
            tracing::trace!(path = %path.display(), why, "not readable yet");
            return Ok(());
        }
        Err(Error::storage(
            "read",
            path,
            StorageCause::described(format!(
                "it is listed, but has not been readable for {}: {why}",
                duration_text(VISIBILITY)
            )),
        ))
    }

    /// Removes the messages that this rank has written. Its heartbeat stays: others may have to learn from it that this rank
    /// has ended.
    fn take_back_all(&self) {
        self.torn.remove();
        let posted = std::mem::take(&mut self.lock().posted);
        for path in posted.into_values().chain(self.reserved_space.take_all()) {
            remove::or_leave(&path);
        }
    }

    /// Returns true if messages of other members are still there, or may be.
    fn has_others(&self) -> bool {
        let path = self.directory.path().join(layout::IN);
        let Ok(hosts) = listing::names(&path) else {
            return true;
        };
        hosts
            .iter()
            .filter(|host| HostName::parse(host).is_some())
            .any(|host| match listing::names(&path.join(host)) {
                Ok(names) => names.iter().any(|name| MarkerName::parse(name).is_some()),
                Err(error) => !is_not_seen(&error),
            })
    }

    /// Keeps the last message visible until rank 0 has removed everything, or all clients must have seen it. Once the directory
    /// is gone, messages beside it have no readers any more.
    ///
    /// If clients rely on time stamps, a message that was written within a tick of another change may stay invisible until its
    /// writer touches the directory again. After this call, no rank would do that.
    fn linger(&self) {
        let is_local = self.is_local();
        self.linger_for(if is_local { Duration::ZERO } else { LINGER });
    }

    fn linger_for(&self, wait: Duration) {
        self.torn.remove();
        let mut retries = RetryBudget::new(wait);
        let nobody: &mut Progress<'_> = &mut |_| Ok(());
        while !listing::names(self.directory.path()).is_err_and(|error| is_not_seen(&error)) {
            self.tend();
            match retries.pause(nobody) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
        self.detours.take_back();
    }

    /// Leaves a directory whose rank 0 is gone: the last rank removes it, the others mark it as aborted.
    fn abandon(&self) {
        if !self.has_others() {
            let removal = self.directory.remove();
            if removal.is_complete() {
                return self.detours.remove_all();
            }
            tracing::debug!("{removal}");
        }
        if let Err(error) = self.directory.mark_aborted("rank 0 was lost or has left")
            && self.directory.path().exists()
        {
            fsgather_core::warn!("the directory for messages stays: {error}");
        }
    }
}

/// Result of a round of listings.
#[derive(Default)]
struct Listed {
    seen: BTreeSet<String>,
    messages: Vec<InboundMessage>,
    /// True if a directory could not be seen. Then messages that were read there may be listed again.
    is_partial: bool,
}

impl Mailbox for MessageDir {
    fn send(&self, number: u64, to: Option<Rank>, body: &[u8]) -> Result<(), Error> {
        let new_path = || self.outbox().join(self.new_name(number, to).to_string());
        let mut path = new_path();
        match self.write(&path, body) {
            Err(error) if file::is_for_lack_of_room(&error) => {
                path = new_path();
                self.reserved_space
                    .write(
                        &self.directory,
                        &path,
                        &message_file::sealed_for(&self.directory, &path, body),
                    )
                    .map_err(|_| error)?;
            }
            done => done?,
        }
        let mut state = self.lock();
        state.posted.insert(number, path);
        state.schedule = TouchSchedule::default();
        state.changed = clock::now();
        Ok(())
    }

    fn detour(&self, number: u64, to: Option<Rank>, body: &[u8]) {
        let name = self.new_name(number, to);
        self.detours.leave(name, body);
    }

    fn look_around(&self) {
        self.detours.look_around();
    }

    fn receive(&self, newcomers: bool) -> Result<Vec<InboundMessage>, Error> {
        let around = self.receive_around();
        match self.receive_here(newcomers) {
            Ok(messages) => Ok([messages, around].concat()),
            // A message from elsewhere may explain the error; if it persists, the error occurs again.
            Err(_) if !around.is_empty() => Ok(around),
            Err(error) => {
                self.detours.look_around();
                Err(error)
            }
        }
    }
    fn tend(&self) {
        if self.is_local() {
            return;
        }
        let mut state = self.lock();
        let elapsed = clock::since(state.changed);
        if !state.schedule.is_due(elapsed) {
            return;
        }
        let has_beaten = state.beat.is_some();
        drop(state);
        let (outbox, live) = (self.outbox(), self.live(self.host));
        let mut paths = vec![outbox.as_path()];
        // The rank that removes the directory must see the heartbeat too.
        paths.extend(has_beaten.then_some(live.as_path()));
        if let Role::Member { .. } = self.role {
            // This host's directory may be as new as the message.
            paths.extend(outbox.parent());
        }
        for path in paths {
            if let Err(error) = directory::touch(path) {
                tracing::debug!(path = %path.display(), %error, "cannot touch");
            }
        }
    }

    fn discard(&self, up_to: u64, keep: &[u64]) {
        self.torn.remove();
        let gone: Vec<PathBuf> = {
            let mut state = self.lock();
            let numbers: Vec<u64> = state
                .posted
                .range(..=up_to)
                .map(|(number, _)| *number)
                .filter(|number| !keep.contains(number))
                .collect();
            let posted = &mut state.posted;
            numbers
                .iter()
                .filter_map(|number| posted.remove(number))
                .collect()
        };
        let has_room = !gone.is_empty();
        for path in gone {
            remove::or_leave(&path);
        }
        // The space of removed messages is reserved again before another process takes it.
        if has_room {
            self.set_aside();
        }
    }

    fn beat(&self, body: &[u8]) -> Result<(), Error> {
        let number = self.lock().beat.as_ref().map_or(1, |(last, _)| last + 1);
        let name = MarkerName::Beat {
            from: self.role.rank(),
            number,
            nonce: fsgather_core::sys::random::fresh(),
        };
        let path = self.live(self.host).join(name.to_string());
        let before = self.lock().beat.as_ref().map(|(_, path)| path.clone());
        match self.write(&path, body) {
            Err(error) if file::is_for_lack_of_room(&error) => {
                // The previous heartbeat makes room for the next.
                before.as_deref().ok_or(error).map(remove::or_leave)?;
                self.write(&path, body)?;
            }
            done => {
                done?;
                if let Some(before) = &before {
                    remove::or_leave(before);
                }
            }
        }
        self.lock().beat = Some((number, path));
        Ok(())
    }

    fn beats(&self, host: u64) -> Result<Vec<Beat>, Error> {
        let path = self.live(HostName(host));
        let names = match listing::names(&path) {
            Ok(names) => names,
            // No heartbeat was ever written.
            Err(error) if is_not_seen(&error) => return Ok(Vec::new()),
            Err(error) => return Err(Error::storage("list", path, &error)),
        };
        let beats = names.iter().filter_map(|name| {
            let MarkerName::Beat { from, number, .. } = MarkerName::parse(name)? else {
                return None;
            };
            let body = match message_file::read_in(&self.directory, &path.join(name)) {
                Ok(body) => body,
                Err(Unread::NotOurs(_)) => return None,
                // A heartbeat that is being replaced may already be gone, but it was there.
                Err(Unread::NotYet(_)) => Vec::new(),
            };
            Some(Beat { from, number, body })
        });
        Ok(beats.collect())
    }

    fn retire(&self, how: Retirement) {
        if std::process::id() != self.process {
            return;
        }
        let care = lock(&self.care).take();
        if let Some(care) = care
            && !care.finish()
        {
            fsgather_core::warn!("some files of {} may stay", self.directory.path().display());
        }
        match how {
            Retirement::Over if self.role == Role::Coordinator => {
                let removal = self.directory.remove();
                if !removal.is_complete() {
                    fsgather_core::warn!("{removal}");
                }
                self.detours.remove_all();
            }
            // Rank 0 still has to read the last message of this rank.
            Retirement::Over => self.linger(),
            Retirement::InUse => {
                if let Err(error) = self.directory.mark_finished() {
                    fsgather_core::warn!("the directory for messages stays: {error}");
                }
            }
            Retirement::Deserted => {
                self.detours.take_back();
                self.take_back_all();
                self.abandon();
            }
            Retirement::Withdrawn => {
                self.detours.take_back();
                self.take_back_all();
            }
        }
    }

    fn pace(&self) -> (Duration, Duration) {
        if self.is_local() {
            LOCAL_PACE
        } else {
            NETWORK_PACE
        }
    }

    fn place(&self) -> String {
        self.directory.path().display().to_string()
    }
}

#[cfg(test)]
#[path = "message_dir_tests.rs"]
mod tests;
