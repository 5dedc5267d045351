//! Examining a directory from one rank: [`examine`].
//!
//! Any file call may hang for minutes where a server is away. So all are made by a thread of their own,
//! which notes what it finds as it goes; whoever waits for it gives up after a while and tells how far it came.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant, SystemTime},
};

use fsgather_core::{ChannelId, Epoch, Error, ProcessId, Rank, WorldSize, lock};
use fsgather_store::{
    Access, Capacity, Class, CollectPolicy, CompressionSetting, Encoding, FileSystem, GatherDir,
    Locator, Mount, OwnUid, PayloadId, PublishMode, Rules, Surveyor, check_writing, has_rendezvous,
    make_rendezvous, remove_empty_rendezvous,
};
use uuid::Uuid;

use crate::facts::{
    AccessFacts, ClockFact, DirectoryFacts, LeftoverFacts, MountFacts, PayloadFacts, ReadFacts,
    SURVEYING,
};
use fsgather_rendezvous::local_context::LocalContext;

/// How long the file system may take to answer.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// How long a payload is that is published for trial, in bytes: more than one chunk, and no burden.
const TRIAL_BYTES: usize = 3 << 19;

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// As every rank does before it meets the others.
    Brief,
    /// And at what earlier runs have left.
    Surveyed,
    /// And a payload is published and read, by this rank alone.
    Alone,
}

/// What a directory is like and can do, as this rank sees it.
pub(super) fn examine(
    path: &Path,
    origin: String,
    context: &LocalContext,
    depth: Depth,
) -> DirectoryFacts {
    let noted = Arc::new(Mutex::new(DirectoryFacts {
        path: path.display().to_string(),
        origin,
        effective_uid: context.uid,
        ..DirectoryFacts::default()
    }));
    let (done, waiting) = mpsc::channel();
    let look = DirectoryLook {
        path: path.to_owned(),
        context: context.clone(),
        noted: Arc::clone(&noted),
    };
    let started = thread::Builder::new()
        .name("fsgather-diagnosis".into())
        .spawn(move || {
            if let Err(error) = look.run(depth) {
                look.record(|facts| facts.problem = Some(error.to_string()));
            }
            look.record(|facts| facts.stuck_at = None);
            // Nobody waits any more where this took too long.
            let _ = done.send(());
        });
    if let Err(error) = started {
        lock(&noted).problem = Some(format!("cannot start a thread to look at it: {error}"));
    }
    let _ = waiting.recv_timeout(TIME_LIMIT);
    lock(&noted).clone()
}

/// A look at a directory that is under way.
struct DirectoryLook {
    path: PathBuf,
    context: LocalContext,
    noted: Arc<Mutex<DirectoryFacts>>,
}

impl DirectoryLook {
    fn record(&self, change: impl FnOnce(&mut DirectoryFacts)) {
        change(&mut lock(&self.noted));
    }

    fn begin(&self, step: &str) {
        self.record(|facts| facts.stuck_at = Some(step.to_owned()));
    }

    fn run(&self, depth: Depth) -> Result<(), Error> {
        let path = self.path.as_path();
        self.begin("looking at it");
        let access = Access::of(path)?;
        self.record(|facts| facts.access = Some(access_facts(access)));

        self.begin("asking for its type");
        let file_system = FileSystem::of(path)?;
        let mount = Mount::of(path);
        self.record(|facts| {
            facts.file_system = Some(file_system.name().to_owned());
            facts.class = Some(class_word(file_system.class()).to_owned());
            facts.mount = mount.map(mount_facts);
        });

        self.begin("asking how much room it has");
        let capacity = Capacity::of(path);
        self.record(|facts| facts.capacity = capacity);

        self.begin("making all_gather_via_filesys in it");
        let was_there = has_rendezvous(path);
        let rendezvous = make_rendezvous(path)?;
        let tried = self.write(&rendezvous, depth);
        if !was_there && depth == Depth::Alone {
            remove_empty_rendezvous(path);
        }
        tried?;

        if depth != Depth::Brief {
            self.begin(SURVEYING);
            let survey = Surveyor::new(Rules::default())?.survey(path)?;
            let mut found = LeftoverFacts::default();
            for gather in &survey.gathers {
                match gather.judgement.state.word() {
                    "live" => found.live += 1,
                    "unknown" => found.unknown += 1,
                    _ => {}
                }
                if gather.is_removable() {
                    found.removable += 1;
                    found.removable_bytes += gather.bytes;
                }
            }
            for leftover in survey.leftovers.iter().filter(|found| found.removable) {
                found.removable += 1;
                found.removable_bytes += leftover.bytes;
            }
            self.record(|facts| facts.leftovers = Some(found));
        }
        Ok(())
    }

    fn write(&self, rendezvous: &Path, depth: Depth) -> Result<(), Error> {
        self.begin("writing a file in it");
        let (since, before) = (Instant::now(), SystemTime::now());
        let (own, server) = check_writing(rendezvous, self.context.mode)?;
        let (took, after) = (since.elapsed(), SystemTime::now());
        self.record(|facts| {
            facts.own_uid = Some(own.0);
            facts.write_seconds = Some(took.as_secs_f64());
            let [before, server, after] = [before, server, after].map(epoch_seconds);
            facts.server_clock = Some(difference([server, server], [before, after]));
        });
        if depth == Depth::Alone {
            self.begin("publishing a payload in it");
            let payload = try_alone(&self.context, rendezvous, own)?;
            self.record(|facts| facts.payload = Some(payload));
        }
        Ok(())
    }
}

/// Makes a gather directory, publishes a payload in it, reads it and removes everything.
fn try_alone(
    context: &LocalContext,
    rendezvous: &Path,
    own: OwnUid,
) -> Result<PayloadFacts, Error> {
    let me = fsgather_store::this_process()?;
    let (directory, mut facts, locator) = publish(
        context,
        rendezvous,
        own,
        &[me],
        WorldSize::ONE,
        Uuid::new_v4(),
    )?;
    match read(&directory, &locator, true) {
        Ok(read) => facts.read = Some(read),
        Err(problem) => facts.problem = Some(problem.to_string()),
    }
    drop(directory);
    Ok(facts)
}

/// A gather directory for trial, which is removed with all that is in it when this is dropped.
pub(super) struct TrialDirectory(pub(super) GatherDir);

impl std::ops::Deref for TrialDirectory {
    type Target = GatherDir;

    fn deref(&self) -> &GatherDir {
        &self.0
    }
}

impl Drop for TrialDirectory {
    fn drop(&mut self) {
        let removal = self.0.remove();
        if !removal.is_complete() {
            fsgather_core::warn!("{removal}");
        }
    }
}

/// Makes a gather directory for trial and publishes a payload in it, as rank 0.
pub(super) fn publish(
    context: &LocalContext,
    rendezvous: &Path,
    own: OwnUid,
    processes: &[ProcessId],
    world_size: WorldSize,
    communicator: Uuid,
) -> Result<(TrialDirectory, PayloadFacts, Locator), Error> {
    let owner = context.owner(processes, world_size, communicator);
    let directory = GatherDir::create_anew(rendezvous, context.mode, owner, own)?;
    let directory = TrialDirectory(directory);
    let publish = match directory.facts().publish {
        PublishMode::Rename => "rename",
        PublishMode::Link => "link",
        PublishMode::Direct => "direct",
    };
    let has_links = directory.has_links()?;
    let since = Instant::now();
    let id = PayloadId {
        channel: ChannelId::WORLD,
        epoch: Epoch::FIRST,
        rank: Rank::ZERO,
    };
    let mut writer =
        directory.create_payload(id, Encoding(0), CompressionSetting::None, |_| Ok(()))?;
    let written = writer.write_all(&vec![0x66; TRIAL_BYTES]);
    let path = directory.path().to_owned();
    written.map_err(|error| Error::storage("write a payload in", path, &error))?;
    let locator = writer.publish()?;
    let facts = PayloadFacts {
        publish: publish.into(),
        has_links,
        bytes: TRIAL_BYTES as u64,
        write_seconds: since.elapsed().as_secs_f64(),
        read: None,
        problem: None,
    };
    Ok((directory, facts, locator))
}

/// Reads a payload that was published for trial.
pub(super) fn read(
    directory: &GatherDir,
    locator: &Locator,
    single_host: bool,
) -> Result<ReadFacts, Error> {
    let policy = CollectPolicy {
        single_host,
        ..CollectPolicy::default()
    };
    let since = Instant::now();
    let payload = directory.collect(locator, &policy, &mut |_| Ok(()))?;
    Ok(ReadFacts {
        seconds: since.elapsed().as_secs_f64(),
        mapped: payload.is_mapped(),
    })
}

fn access_facts(access: Access) -> AccessFacts {
    AccessFacts {
        uid: access.uid,
        gid: access.gid,
        mode: format!("{:04o}", access.mode),
        is_open_to_all: access.is_open_to_all(),
    }
}

fn mount_facts(mount: Mount) -> MountFacts {
    MountFacts {
        point: mount.point.display().to_string(),
        source: mount.source,
        kind: mount.kind,
        options: mount.options,
    }
}

fn class_word(class: Class) -> &'static str {
    match class {
        Class::Local => "local",
        Class::Network => "network",
        Class::Unknown => "unknown",
    }
}

/// A time as seconds since 1970, for differences.
pub(super) fn epoch_seconds(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

/// How far one clock is ahead of another, when some moment lay within both intervals, each by its own
/// clock. Pure.
pub(super) fn difference(theirs: [f64; 2], ours: [f64; 2]) -> ClockFact {
    let (least, most) = (theirs[0] - ours[1], theirs[1] - ours[0]);
    ClockFact {
        ahead_seconds: f64::midpoint(least, most),
        uncertainty_seconds: (most - least).abs() / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fsgather_config::settings::Settings;

    fn context() -> LocalContext {
        let settings =
            Settings::resolve(&fsgather_config::environment::Variables::default()).unwrap();
        LocalContext::of(&settings, rustix::process::geteuid().as_raw())
    }

    #[test]
    fn a_good_directory_is_fully_told_and_left_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let facts = examine(place.path(), "argument".into(), &context(), Depth::Alone);
        assert_eq!((&facts.problem, &facts.stuck_at), (&None, &None));
        assert!(facts.file_system.is_some() && facts.mount.is_some() && facts.class.is_some());
        assert!(facts.own_uid.is_some() && facts.write_seconds.is_some_and(|took| took > 0.0));
        let clock = facts.server_clock.unwrap();
        assert!(clock.ahead_seconds.abs() < 5.0, "{clock:?}");
        let payload = facts.payload.unwrap();
        assert_eq!(
            (payload.publish.as_str(), payload.problem),
            ("rename", None)
        );
        assert!(payload.has_links && payload.read.is_some());
        assert_eq!(facts.leftovers, Some(LeftoverFacts::default()));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_there_stays_and_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let rendezvous = make_rendezvous(place.path()).unwrap();
        std::fs::write(rendezvous.join("data_to_gather_1_2_3.pkl"), b"12345").unwrap();
        let facts = examine(place.path(), "argument".into(), &context(), Depth::Alone);
        // Fresh, so that `clean` would leave it.
        assert_eq!(facts.leftovers, Some(LeftoverFacts::default()));
        assert_eq!(std::fs::read_dir(rendezvous).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_is_not_there_is_a_problem_and_no_more() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("nowhere");
        let facts = examine(&path, "argument".into(), &context(), Depth::Brief);
        let problem = facts.problem.unwrap();
        assert!(problem.contains(path.to_str().unwrap()), "{problem}");
        assert_eq!((facts.file_system, facts.stuck_at), (None, None));
    }

    #[test]
    fn clocks_are_compared_by_a_moment_that_both_have_seen() {
        let fact = difference([100.0, 101.0], [98.0, 99.5]);
        assert!((fact.ahead_seconds - 1.75).abs() < 1e-9, "{fact:?}");
        assert!((fact.uncertainty_seconds - 1.25).abs() < 1e-9, "{fact:?}");
    }
}
