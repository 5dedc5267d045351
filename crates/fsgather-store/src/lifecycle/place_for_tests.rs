//! A directory to clean, with leftovers in it, for the tests of this module.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use fsgather_core::{GatherId, ProcessId, Salt};

use crate::{
    GatherDir, check_writable,
    directory::owner::{job_tag, tests::record},
    lifecycle::judgement::Rules,
    make_rendezvous,
    os::{directory::OwnUid, listing, process::this_process},
};

/// Rules by which any silence is long enough.
pub(crate) const EAGER: Rules = Rules {
    older_than: Duration::ZERO,
    watch: Duration::from_millis(50),
    readers: Duration::ZERO,
};

pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) rendezvous: PathBuf,
    pub(crate) own: OwnUid,
}

pub(crate) fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let rendezvous = make_rendezvous(directory.path()).unwrap();
    let own = check_writable(&rendezvous).unwrap();
    Place {
        directory,
        rendezvous,
        own,
    }
}

impl Place {
    pub(crate) fn gather(&self, salt: u32, process: ProcessId, job: Option<&str>) -> GatherDir {
        let mut owner = record(salt);
        owner.gather = id(salt, job);
        owner.ranks = vec![process.clone(); 4];
        owner.process = process;
        owner.job = job.map(str::to_owned);
        GatherDir::create(&self.rendezvous, 0o700, &owner, self.own).unwrap()
    }

    pub(crate) fn left(&self) -> Vec<String> {
        let mut names = listing::names(&self.rendezvous).unwrap_or_default();
        names.sort();
        names
    }
}

/// The id of a gather directory of a job, as an owner on this host draws it.
pub(crate) fn id(salt: u32, job: Option<&str>) -> GatherId {
    let tag = job_tag(job, &this_process().unwrap().host);
    GatherId::new(record(salt).gather.time(), Salt::tagged(tag, salt))
}

/// Makes everything in a directory look an hour old.
pub(crate) fn age(path: &Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let found = std::fs::symlink_metadata(path).unwrap();
    if found.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            age(&entry.unwrap().path());
        }
    }
    // Opening a pipe would wait for a writer.
    if found.is_dir() || found.is_file() {
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(hour_ago).unwrap();
    }
}

/// A process that has ended, as this process can prove.
pub(crate) fn ended() -> ProcessId {
    let mut command = std::process::Command::new("true");
    let mut child = fsgather_testkit::process::spawn(&mut command).unwrap();
    child.wait().unwrap();
    ProcessId {
        pid: child.id(),
        ..this_process().unwrap()
    }
}

pub(crate) fn elsewhere() -> ProcessId {
    ProcessId {
        host: "n7".into(),
        boot_id: "another".into(),
        ..this_process().unwrap()
    }
}

/// Leaves a payload of rank 0 that no rank has read.
pub(crate) fn publish_empty(directory: &GatherDir) -> crate::PayloadName {
    let id = crate::PayloadId {
        channel: fsgather_core::ChannelId::WORLD,
        epoch: fsgather_core::Epoch::FIRST,
        rank: fsgather_core::Rank::ZERO,
    };
    let writer = directory.create_payload(
        id,
        crate::Encoding(0),
        fsgather_core::CompressionSetting::None,
        |_| Ok(()),
    );
    writer.unwrap().publish().unwrap().name
}
