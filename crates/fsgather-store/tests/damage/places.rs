//! Directories of ended jobs in which each file and directory is replaced by something else: the replacement must survive
//! surveying and cleaning, and must not lead elsewhere.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use fsgather_core::{MailboxFactory, Rank, RendezvousBackend, Retirement, WorldSize};
use fsgather_store::{
    BackendDirectory, Cleaning, GatherDir, MarkerOwner, MessageDirFactory, ProbeNonce, Rules,
    Surveyor, clean,
    layout::{GatherEntry, RendezvousEntry},
};
use fsgather_testkit::pace::cases;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use uuid::Uuid;

use crate::{
    payloads::publish_one,
    records::{backend, ended, owner, rendezvous},
    specimen::within,
    stand_ins::{Outside, StandIn},
};

const EAGER: Rules = Rules {
    older_than: Duration::ZERO,
    watch: Duration::ZERO,
    readers: Duration::ZERO,
};

/// Makes a rendezvous directory with all kinds of leftovers of ended processes.
fn left_behind() -> (Arc<tempfile::TempDir>, BackendDirectory) {
    let (place, directory) = rendezvous();
    let gone = ended();
    let record = owner(1, gone.clone());
    let gather = GatherDir::create(&directory.directory, 0o700, &record, directory.own).unwrap();
    let published = publish_one(&gather);
    let name = published.file_name().unwrap();
    fs::copy(&published, gather.path().join("staging").join(name)).unwrap();
    for directory in ["staging", "payloads"] {
        let capability = gather.path().join(directory).join("capability-0000beef");
        fs::write(capability, b"").unwrap();
    }
    gather.plant(ProbeNonce::random(), &gone).unwrap();
    gather
        .mark_aborted("its host does not answer any more")
        .unwrap();
    gather.mark_finished().unwrap();
    let beat = GatherEntry::Beat(1).to_string();
    fs::write(gather.path().join(beat), b"").unwrap();
    leave_messages(&directory);
    let backend = backend(&directory, "one", &gone);
    backend.post(b"a word").unwrap();
    backend.report_unreachable(b"a word").unwrap();
    backend.refuse(b"a word").unwrap();
    // The process was killed, so nothing is taken down.
    std::mem::forget(backend);
    let id = record.gather;
    for (entry, text) in [
        (RendezvousEntry::Probe(7), String::new()),
        (
            RendezvousEntry::Condemned { id, nonce: 7 },
            format!("somebody\n{id}\n"),
        ),
    ] {
        fs::write(directory.directory.join(entry.to_string()), text).unwrap();
    }
    (place, directory)
}

fn leave_messages(directory: &BackendDirectory) {
    let owner = MarkerOwner {
        process: ended(),
        uid: directory.own.0,
        user: "ada".into(),
        job: None,
        mode: 0o700,
    };
    let factory = MessageDirFactory::new(vec![directory.clone()], owner);
    let world_size = WorldSize::new(2).unwrap();
    let (facts, root) = factory.open(Uuid::from_u128(1), world_size).unwrap();
    let member = factory.enter(&facts, Rank::new(1), 7).unwrap().unwrap();
    root.send(1, None, b"a word").unwrap();
    member.send(1, None, b"a word").unwrap();
    member.beat(b"a word").unwrap();
    let path = PathBuf::from(root.place());
    // The background thread has ended then, perhaps before its first heartbeat.
    root.retire(Retirement::InUse);
    fs::write(path.join(GatherEntry::Beat(0).to_string()), b"").unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let detour =
        name.replacen("gather", "detour", 1) + &format!("-bulletin-n{:020}-all-0000beef", 9);
    fs::write(directory.directory.join(detour), b"a word").unwrap();
}

/// Returns all relative paths below a directory.
fn all_below(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut to_do = vec![PathBuf::new()];
    while let Some(below) = to_do.pop() {
        for entry in fs::read_dir(directory.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                to_do.push(path.clone());
            }
            all.push(path);
        }
    }
    all.sort();
    all
}

/// Surveys a rendezvous directory, plans to clean it, and cleans it.
fn look_and_clean(directory: &Path, what: &dyn std::fmt::Display) -> Cleaning {
    let directory = directory.to_owned();
    within(what, move || {
        let on = &mut |_: fsgather_store::CleaningStep<'_>| ControlFlow::Continue(());
        Surveyor::new(EAGER).unwrap().survey(&directory).unwrap();
        let all = [directory];
        clean(&all, EAGER, false, on).unwrap();
        clean(&all, EAGER, true, on).unwrap()
    })
}

/// Makes everything look as if it had not changed for a while.
fn age(directory: &Path) {
    let ago = SystemTime::now() - Duration::from_secs(60);
    let seconds = ago
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let then = Timespec {
        tv_sec: i64::try_from(seconds).unwrap(),
        tv_nsec: 0,
    };
    let then = Timestamps {
        last_access: then,
        last_modification: then,
    };
    for below in all_below(directory).iter().rev() {
        // Opening an entry may block, or lead elsewhere.
        rustix::fs::utimensat(CWD, directory.join(below), &then, AtFlags::SYMLINK_NOFOLLOW)
            .unwrap();
    }
}

#[test]
fn what_is_in_the_place_of_a_file_stays_and_leads_nowhere() {
    let (_place, whole) = left_behind();
    age(&whole.directory);
    let places = all_below(&whole.directory);
    let done = look_and_clean(&whole.directory, &"all as it was");
    assert!(!whole.directory.exists(), "{done:?}");
    let mut count = 0;
    for number in 0..places.len() {
        // In quick runs, a third of them in each place.
        let first = cases(number % 3, 0);
        for stand_in in StandIn::ALL.into_iter().skip(first).step_by(cases(3, 1)) {
            // Ids differ each time; the order of names does not.
            let (place, directory) = left_behind();
            let all = all_below(&directory.directory);
            let path = directory.directory.join(&all[number]);
            let outside = Outside::with(b"precious");
            let was_directory = path.is_dir();
            fs::rename(&path, place.path().join("aside")).unwrap();
            if was_directory && stand_in == StandIn::Directory || !stand_in.put(&path, &outside) {
                continue;
            }
            age(&directory.directory);
            let what = format!("{stand_in:?} at {}", all[number].display());
            let done = look_and_clean(&directory.directory, &what);
            assert!(stand_in.is_there(&path), "{what}: {done:?}");
            outside.is_untouched(stand_in);
            count += 1;
        }
    }
    println!("{} places, {count} cases", places.len());
}
