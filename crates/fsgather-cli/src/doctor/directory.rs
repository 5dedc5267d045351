//! Examines a directory from one rank: [`examine`].
//!
//! File calls may hang if a server does not answer. So a thread makes them and records what it finds, and its caller waits
//! for a limited time.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use fsgather_core::{ChannelId, CompressionSetting, Epoch, Error, Rank, WorldSize, lock};
use fsgather_store::{
    Access, Capacity, Class, CollectPolicy, Encoding, FileSystem, GatherDir, Mount, OwnUid,
    PayloadId, PublishMode, check_writing, has_rendezvous, make_rendezvous,
    remove_empty_rendezvous,
};
use uuid::Uuid;

use super::facts::{AccessFacts, DirectoryFacts, MountFacts, PayloadFacts, ReadFacts};
use fsgather::bindings::LocalContext;

/// Maximum time that the file system may take to answer.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Length of the trial payload in bytes: more than one chunk, but no burden.
const TRIAL_BYTES: usize = 3 << 19;

/// The extent of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Reads attributes, and writes a small file.
    Brief,
    /// Also publishes a payload.
    Thorough,
    /// The same, and removes `all_gather_via_filesys/` again if it was not there before.
    Alone,
}

/// Collects the facts about a directory, as this rank sees it.
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
            // The receiver is gone if this took too long.
            let _ = done.send(());
        });
    if let Err(error) = started {
        lock(&noted).problem = Some(format!("cannot start a thread to look at it: {error}"));
    }
    let _ = waiting.recv_timeout(TIME_LIMIT);
    lock(&noted).clone()
}

/// An examination in progress.
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

        Ok(())
    }

    fn write(&self, rendezvous: &Path, depth: Depth) -> Result<(), Error> {
        self.begin("writing a file in it");
        let since = Instant::now();
        let (own, _) = check_writing(rendezvous, self.context.mode)?;
        let took = since.elapsed();
        self.record(|facts| {
            facts.own_uid = Some(own.0);
            facts.write_seconds = Some(took.as_secs_f64());
        });
        if depth != Depth::Brief {
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
    let owner = context.owner(&[me], WorldSize::ONE, Uuid::new_v4());
    let directory = GatherDir::create_anew(rendezvous, context.mode, owner, own)?;
    let tried = publish_and_read(&directory);
    let removal = directory.remove();
    if !removal.is_complete() {
        fsgather_core::warn!("{removal}");
    }
    tried
}

fn publish_and_read(directory: &GatherDir) -> Result<PayloadFacts, Error> {
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
    let mut facts = PayloadFacts {
        publish: publish.into(),
        has_links,
        bytes: TRIAL_BYTES as u64,
        write_seconds: since.elapsed().as_secs_f64(),
        read: None,
        problem: None,
    };
    let policy = CollectPolicy {
        single_host: true,
        ..CollectPolicy::default()
    };
    let since = Instant::now();
    match directory.collect(&locator, &policy, &mut |_| Ok(())) {
        Ok(payload) => {
            facts.read = Some(ReadFacts {
                seconds: since.elapsed().as_secs_f64(),
                mapped: payload.is_mapped(),
            });
        }
        Err(problem) => facts.problem = Some(problem.to_string()),
    }
    Ok(facts)
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
    fn a_good_directory_is_examined_and_left_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let facts = examine(place.path(), "argument".into(), &context(), Depth::Alone);
        assert_eq!((&facts.problem, &facts.stuck_at), (&None, &None));
        assert!(facts.file_system.is_some() && facts.mount.is_some() && facts.class.is_some());
        assert!(facts.own_uid.is_some() && facts.write_seconds.is_some_and(|took| took > 0.0));
        let payload = facts.payload.unwrap();
        assert_eq!(
            (payload.publish.as_str(), payload.problem),
            ("rename", None)
        );
        assert!(payload.has_links && payload.read.is_some());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_of_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let rendezvous = make_rendezvous(place.path()).unwrap();
        std::fs::write(rendezvous.join("data_to_gather_1_2_3.pkl"), b"12345").unwrap();
        examine(place.path(), "argument".into(), &context(), Depth::Alone);
        assert_eq!(std::fs::read_dir(rendezvous).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_directory_is_one_problem() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("nowhere");
        let facts = examine(&path, "argument".into(), &context(), Depth::Brief);
        let problem = facts.problem.unwrap();
        assert!(problem.contains(path.to_str().unwrap()), "{problem}");
        assert_eq!((facts.file_system, facts.stuck_at), (None, None));
    }
}
