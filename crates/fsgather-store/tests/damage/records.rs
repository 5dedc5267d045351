//! The small files of gather and rendezvous directories: owner record, records, reports, refusals, nonces, marks of removal.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use fsgather_core::{GatherId, JobKey, KeyHash, ProcessId, RendezvousBackend, Salt, WorldSize};
use fsgather_store::{
    BackendDirectory, FileBackend, GatherDir, OwnerRecord, ProbeNonce, Rules, Surveyor,
    check_writable, layout::RendezvousEntry, make_rendezvous, this_process,
};
use uuid::Uuid;

use crate::specimen::{Answer, Reading, Specimen};

type Place = Arc<tempfile::TempDir>;

/// Makes a rendezvous directory.
pub(crate) fn rendezvous() -> (Place, BackendDirectory) {
    let place = Arc::new(tempfile::tempdir().unwrap());
    let directory = make_rendezvous(place.path()).unwrap();
    let own = check_writable(&directory).unwrap();
    (place, BackendDirectory { directory, own })
}

pub(crate) fn this() -> ProcessId {
    this_process().unwrap()
}

/// A process that has ended.
pub(crate) fn ended() -> ProcessId {
    let mut child =
        fsgather_testkit::process::spawn(&mut std::process::Command::new("true")).unwrap();
    child.wait().unwrap();
    ProcessId {
        pid: child.id(),
        ..this()
    }
}

/// An owner record that differs from the others of `salt`.
pub(crate) fn owner(salt: u32, process: ProcessId) -> OwnerRecord {
    OwnerRecord {
        uid: rustix::process::geteuid().as_raw(),
        user: "ada".into(),
        job: Some(format!("job {salt}")),
        world_size: WorldSize::new(4).unwrap(),
        gather: GatherId::new(SystemTime::UNIX_EPOCH, Salt::from_random(salt)),
        communicator: Uuid::from_u128(u128::from(salt)),
        created: SystemTime::UNIX_EPOCH,
        ranks: vec![process.clone(); 4],
        process,
    }
}

/// A gather directory of a process.
pub(crate) fn gather_dir(salt: u32, process: ProcessId) -> (Place, GatherDir) {
    let (place, rendezvous) = rendezvous();
    let owner = owner(salt, process);
    let made = GatherDir::create(&rendezvous.directory, 0o700, &owner, rendezvous.own).unwrap();
    (place, made)
}

/// The only file in a directory.
pub(crate) fn only_file(directory: &Path) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap();
    let path = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "{}", directory.display());
    path
}

fn owner_record() -> Specimen {
    let (place, directory) = gather_dir(1, this());
    let (_elsewhere, stranger) = gather_dir(2, ended());
    let path = |directory: &GatherDir| directory.path().join("owner");
    let other = fs::read(path(&stranger)).unwrap();
    let at = path(&directory);
    Specimen::small(
        "an owner record",
        at,
        Answer::Error,
        &place,
        move || match directory.owner() {
            Ok(record) if record == owner(1, this()) => Reading::Right,
            Ok(record) => Reading::Wrong(format!("{record:?}")),
            Err(error) => Reading::Refused(error),
        },
    )
    .with_others(vec![other], false)
}

fn key(job: &str) -> KeyHash {
    let key = JobKey {
        uid: 1,
        family: "none".into(),
        job: Some(job.into()),
        launch: None,
        attempt: None,
        world_size: WorldSize::ONE,
        number: 0,
        master: None,
    };
    key.hash()
}

/// The backend of a process that has run for a while.
pub(crate) fn backend(directory: &BackendDirectory, job: &str, process: &ProcessId) -> FileBackend {
    let me = ProcessId {
        start_time: process.start_time.saturating_sub(500),
        ..process.clone()
    };
    FileBackend::new(vec![directory.clone()], key(job), me)
}

const WORD: &[u8] = b"I listen on port 4711";
const OTHER_WORD: &[u8] = b"I listen on port 4712";

fn record(
    name: &str,
    leave: fn(&FileBackend, &[u8]),
    look: fn(&FileBackend) -> Vec<Vec<u8>>,
) -> Specimen {
    let (place, directory) = rendezvous();
    let (_elsewhere, stranger) = rendezvous();
    let posters = [
        backend(&directory, "one", &this()),
        backend(&stranger, "another", &this()),
    ];
    leave(&posters[0], WORD);
    leave(&posters[1], OTHER_WORD);
    let other = fs::read(only_file(&stranger.directory)).unwrap();
    let path = only_file(&directory.directory);
    Specimen::small(name, path, Answer::Nothing, &place, move || {
        let _kept_up = &posters;
        match &look(&backend(&directory, "one", &this()))[..] {
            [word] if word == OTHER_WORD => Reading::Other,
            words => Reading::of_listed(words, &WORD.to_vec()),
        }
    })
    // Every handshake checks the owner.
    .with_others(vec![other], true)
}

fn nonce() -> Specimen {
    let (place, directory) = gather_dir(1, this());
    let (_elsewhere, stranger) = gather_dir(2, this());
    let right = ProbeNonce::random();
    directory.plant(right, &this()).unwrap();
    stranger.plant(ProbeNonce::random(), &this()).unwrap();
    let probes = |directory: &GatherDir| only_file(&directory.path().join("probes"));
    let other = fs::read(probes(&stranger)).unwrap();
    let path = probes(&directory);
    let specimen = Specimen::small("a nonce", path, Answer::Nothing, &place, move || {
        let seen = directory.visible_nonces(&[right], Duration::ZERO, &mut |_| Ok(()));
        Reading::of_listed(&seen.unwrap().into_iter().collect::<Vec<_>>(), &right)
    });
    Specimen {
        // The bytes after the nonce are for people.
        meaningless_from: 32,
        ..specimen.with_others(vec![other], false)
    }
}

/// The mark of a directory that is about to be removed, as documented: it is short-lived.
fn removal_mark() -> Specimen {
    let (place, directory) = gather_dir(1, this());
    let id = directory.facts().id;
    let entry = RendezvousEntry::Condemned { id, nonce: 7 };
    let path = directory.path().with_file_name(entry.to_string());
    let author = "somebody on n3 (pid 8)";
    fs::write(&path, format!("{author}\n{id}\n")).unwrap();
    let other = format!("{author}\n{}\n", owner(2, this()).gather).into_bytes();
    let len = author.len() + 1;
    let specimen = Specimen::small(
        "a mark of removal",
        path,
        Answer::Nothing,
        &place,
        move || {
            let survey = Surveyor::new(Rules::default())
                .unwrap()
                .survey(directory.path())
                .unwrap();
            let reason = &survey.gathers[0].judgement.reason;
            match reason.split_once("; condemned by ") {
                None => Reading::Nothing,
                Some((_, by)) if by == author => Reading::Right,
                Some(_) => Reading::Wrong(reason.clone()),
            }
        },
    );
    let whole = fs::read(&specimen.path).unwrap().len();
    Specimen {
        // The author is for people; a missing newline after the id does not matter.
        bytes: (len..whole).collect(),
        meaningless_from: whole - 1,
        ..specimen.with_others(vec![other], false)
    }
}

pub(crate) fn all() -> Vec<Specimen> {
    let posted = record(
        "a rendezvous record",
        |backend, word| backend.post(word).unwrap(),
        |backend| backend.records().unwrap(),
    );
    let report = record(
        "an unreachable report",
        |backend, word| backend.report_unreachable(word).unwrap(),
        |backend| backend.unreachable_reports().unwrap(),
    );
    let refusal = record(
        "a refusal",
        |backend, word| backend.refuse(word).unwrap(),
        |backend| backend.records().unwrap(),
    );
    vec![
        owner_record(),
        posted,
        report,
        refusal,
        nonce(),
        removal_mark(),
    ]
}
