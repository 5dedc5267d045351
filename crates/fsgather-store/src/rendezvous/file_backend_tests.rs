use std::{
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    time::SystemTime,
};

use fsgather_core::{JobKey, WorldSize};

use super::*;
use crate::{
    directory::rendezvous_directory::check_writable, os::process::this_process,
    rendezvous::foreign_names,
};

fn key(number: u32) -> KeyHash {
    job_key(number).hash()
}

fn job_key(number: u32) -> JobKey {
    JobKey {
        uid: 1,
        family: "none".into(),
        job: None,
        launch: None,
        attempt: None,
        world_size: WorldSize::ONE,
        number,
        master: None,
    }
}

fn place() -> (tempfile::TempDir, BackendDirectory) {
    let place = tempfile::tempdir().unwrap();
    let board_place = BackendDirectory {
        own: check_writable(place.path()).unwrap(),
        directory: place.path().to_owned(),
    };
    (place, board_place)
}

fn backend(place: &BackendDirectory) -> FileBackend {
    FileBackend::new(vec![place.clone()], key(0), this_process().unwrap())
}

fn only_file(place: &BackendDirectory) -> PathBuf {
    let mut files = std::fs::read_dir(&place.directory).unwrap();
    let path = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    path
}

#[test]
fn a_posted_record_is_found_by_others_of_the_same_key_only() {
    let (_dir, place) = place();
    let (poster, finder) = (backend(&place), backend(&place));
    let stranger = FileBackend::new(vec![place], key(1), this_process().unwrap());
    assert!(finder.records().unwrap().is_empty());
    poster.post(b"word").unwrap();
    assert_eq!(finder.records().unwrap(), [b"word"]);
    assert!(stranger.records().unwrap().is_empty());
    poster.take_down();
    assert!(finder.records().unwrap().is_empty());
}

#[test]
fn records_of_other_sizes_are_separate_from_other_jobs() {
    let (_dir, place) = place();
    let sized = |number, size| {
        let key = JobKey {
            world_size: WorldSize::new(size).unwrap(),
            ..job_key(number)
        };
        FileBackend::new(vec![place.clone()], key.hash(), this_process().unwrap())
    };
    let (two, three, other_job) = (sized(0, 2), sized(0, 3), sized(1, 3));
    for (backend, word) in [(&two, b"2"), (&three, b"3"), (&other_job, b"o")] {
        backend.post(word).unwrap();
    }
    three.refuse(b"refused").unwrap();
    assert_eq!(two.records_of_other_sizes(), [b"3"]);
    assert_eq!(three.records_of_other_sizes(), [b"2"]);
    assert!(other_job.records_of_other_sizes().is_empty());
    assert_eq!(two.records().unwrap(), [b"2"]);
}

#[test]
fn records_are_private() {
    let (_dir, place) = place();
    let poster = backend(&place);
    poster.post(b"secret").unwrap();
    let mode = std::fs::metadata(only_file(&place)).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
}

#[test]
fn tending_shows_a_second_rank_0_but_not_the_own_record() {
    let (_dir, place) = place();
    let (one, other) = (backend(&place), backend(&place));
    one.post(b"one").unwrap();
    assert!(one.tend(Duration::ZERO).unwrap().is_empty());
    other.post(b"other").unwrap();
    assert_eq!(one.tend(Duration::ZERO).unwrap(), [b"other"]);
    assert_eq!(other.tend(Duration::ZERO).unwrap(), [b"one"]);
}

#[test]
fn tending_touches_the_directory_when_due() {
    let (dir, place) = place();
    let poster = backend(&place);
    poster.post(b"word").unwrap();
    let long_ago = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    let open = std::fs::File::open(dir.path()).unwrap();
    let modified = || std::fs::metadata(dir.path()).unwrap().mtime();
    open.set_times(long_ago).unwrap();
    poster.tend(Duration::from_millis(24)).unwrap();
    assert_eq!(modified(), 0);
    poster.tend(Duration::from_millis(25)).unwrap();
    assert!(modified() > 0);
    open.set_times(long_ago).unwrap();
    poster.tend(Duration::from_millis(26)).unwrap();
    assert_eq!(modified(), 0);
    poster.tend(Duration::from_millis(1100)).unwrap();
    assert!(modified() > 0);
}

#[test]
fn one_place_that_works_is_enough_and_a_missing_one_is_no_error() {
    let (dir, good) = place();
    let missing = BackendDirectory {
        directory: dir.path().join("missing"),
        own: good.own,
    };
    let places = vec![missing.clone(), good];
    let both = FileBackend::new(places, key(0), this_process().unwrap());
    assert!(both.records().unwrap().is_empty());
    both.post(b"word").unwrap();
    assert_eq!(both.records().unwrap(), [b"word"]);
    assert!(both.place().contains(" and "));
    let neither = backend(&missing);
    assert!(neither.records().unwrap().is_empty());
    let error = neither.post(b"word").unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error}");
}

#[test]
fn an_unreadable_record_is_named_to_waiting_processes() {
    let (_dir, place) = place();
    let (poster, finder) = (backend(&place), backend(&place));
    poster.post(b"word").unwrap();
    let path = only_file(&place);
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    // The system refuses to follow the link, which is an error of opening like others.
    std::fs::remove_file(&path).unwrap();
    symlink("elsewhere", &path).unwrap();
    assert!(finder.records().unwrap().is_empty());
    let told = finder.place();
    assert!(
        told.contains(&format!("where {name} cannot be read: ")),
        "{told}"
    );
    // A backend of another key does not report it. A torn record, like one that is being written, is not reported at all.
    let stranger = FileBackend::new(vec![place.clone()], key(1), this_process().unwrap());
    assert!(stranger.records().unwrap().is_empty());
    assert!(!stranger.place().contains("cannot be read"));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"torn").unwrap();
    let later = backend(&place);
    assert!(later.records().unwrap().is_empty());
    assert!(!later.place().contains("cannot be read"));
    std::fs::remove_file(&path).unwrap();
    poster.post(b"word").unwrap();
    assert_eq!(finder.records().unwrap(), [b"word"]);
    assert!(!finder.place().contains("cannot be read"));
}

#[test]
fn a_place_that_cannot_be_listed_is_an_error() {
    let (dir, good) = place();
    let path = dir.path().join("file");
    std::fs::write(&path, b"").unwrap();
    let file = BackendDirectory {
        directory: path,
        own: good.own,
    };
    assert!(backend(&file).records().is_err());
    // It is no error if another place can be listed.
    let both = FileBackend::new(vec![file, good], key(0), this_process().unwrap());
    assert!(both.records().unwrap().is_empty());
}

#[test]
fn torn_foreign_linked_and_oversized_records_are_passed_over() {
    let (_dir, place) = place();
    let poster = backend(&place);
    poster.post(b"word").unwrap();
    let good = only_file(&place);
    let bytes = std::fs::read(&good).unwrap();
    let sibling = |salt: u32| {
        let stamp = GatherId::new(SystemTime::UNIX_EPOCH, Salt::from_random(salt));
        let name = RendezvousEntry::Record(RecordName::new(key(0), stamp));
        place.directory.join(name.to_string())
    };
    std::fs::write(sibling(1), &bytes[..bytes.len() - 1]).unwrap();
    std::fs::write(sibling(2), b"").unwrap();
    std::fs::write(sibling(3), b"something else").unwrap();
    std::fs::write(sibling(4), vec![0; 100_000]).unwrap();
    symlink(&good, sibling(5)).unwrap();
    std::fs::create_dir(sibling(6)).unwrap();
    assert_eq!(backend(&place).records().unwrap(), [b"word"]);
    // A write that was in progress is read once it is complete.
    let finder = backend(&place);
    assert_eq!(finder.records().unwrap().len(), 1);
    std::fs::write(sibling(1), &bytes).unwrap();
    assert_eq!(finder.records().unwrap().len(), 2);
}

#[test]
fn records_of_other_users_are_passed_over() {
    let (_dir, place) = place();
    let poster = backend(&place);
    poster.post(b"word").unwrap();
    let stranger = BackendDirectory {
        own: OwnUid(place.own.0 + 1),
        ..place
    };
    assert!(backend(&stranger).records().unwrap().is_empty());
}

#[test]
fn names_of_other_users_are_looked_at_once() {
    let (_dir, place) = place();
    let poster = backend(&place);
    poster.post(b"word").unwrap();
    let stranger = BackendDirectory {
        own: OwnUid(place.own.0 + 1),
        ..place.clone()
    };
    let mut finder = backend(&stranger);
    assert!(finder.records().unwrap().is_empty());
    assert_eq!(
        finder.lock().foreign.names[&finder.places[0].directory].len(),
        1
    );
    // Now the record would count, but it is not examined again.
    finder.places = vec![place];
    assert!(finder.records().unwrap().is_empty());
    // After a while it is examined again: servers have transient errors.
    finder.lock().foreign.since = Instant::now().checked_sub(foreign_names::KNOWN_OWNER_TIME);
    assert_eq!(finder.records().unwrap(), [b"word"]);
}

#[test]
fn sweeping_removes_what_the_dead_have_left_and_nothing_else() {
    let (_dir, place) = place();
    let me = this_process().unwrap();
    let dead = ProcessId {
        start_time: me.start_time - 1,
        ..me.clone()
    };
    let unknown = ProcessId {
        boot_id: "elsewhere".into(),
        machine_id: "elsewhere".into(),
        ..me.clone()
    };
    let places = || vec![place.clone()];
    let of_other_size = JobKey {
        world_size: WorldSize::new(5).unwrap(),
        ..job_key(0)
    };
    let boards = [
        FileBackend::new(places(), key(0), dead.clone()),
        FileBackend::new(places(), key(0), unknown.clone()),
        FileBackend::new(places(), key(1), dead.clone()),
        FileBackend::new(places(), of_other_size.hash(), dead),
        FileBackend::new(places(), of_other_size.hash(), unknown),
    ];
    for (number, backend) in (0_u8..).zip(&boards) {
        backend.post(&[number]).unwrap();
    }
    let own = backend(&place);
    own.post(b"own").unwrap();
    own.sweep();
    let mut left = own.records().unwrap();
    left.sort();
    assert_eq!(left, [vec![1], b"own".to_vec()]);
    assert_eq!(boards[2].records().unwrap(), [[2]]);
    assert_eq!(own.records_of_other_sizes(), [[4]]);
}

#[test]
fn a_dropped_board_removes_its_record_unless_forked() {
    let (_dir, place) = place();
    let poster = backend(&place);
    poster.post(b"word").unwrap();
    drop(poster);
    assert!(backend(&place).records().unwrap().is_empty());
    let parent = ProcessId {
        pid: u32::MAX,
        ..this_process().unwrap()
    };
    let inherited = FileBackend::new(vec![place.clone()], key(0), parent);
    inherited.post(b"word").unwrap();
    drop(inherited);
    assert_eq!(backend(&place).records().unwrap(), [b"word"]);
}

#[test]
fn a_refusal_stays_and_speaks_to_processes_that_ran_already() {
    let (_dir, place) = place();
    let me = this_process().unwrap();
    let board_of =
        |process: &ProcessId| FileBackend::new(vec![place.clone()], key(0), process.clone());
    let old = ProcessId {
        start_time: me.start_time.saturating_sub(100),
        ..me.clone()
    };
    let poster = board_of(&me);
    poster.refuse(b"no world").unwrap();
    poster.take_down();
    drop(poster);
    // A process that starts right now, within a tick.
    let age = process::age(&me).unwrap();
    let late = ProcessId {
        start_time: me.start_time + u64::try_from(age.as_millis() / 10).unwrap(),
        ..me.clone()
    };
    assert_eq!(board_of(&old).records().unwrap(), [b"no world"]);
    assert_eq!(board_of(&old).tend(Duration::ZERO).unwrap(), [b"no world"]);
    assert!(board_of(&late).records().unwrap().is_empty());
    assert_eq!(board_of(&late).earlier_refusals(), [b"no world"]);
    assert!(board_of(&old).earlier_refusals().is_empty());
    // Another job leaves it alone; the next world of the same job removes it.
    FileBackend::new(vec![place.clone()], key(1), me.clone()).sweep();
    only_file(&place);
    board_of(&late).sweep();
    assert_eq!(std::fs::read_dir(&place.directory).unwrap().count(), 0);
}

#[test]
fn who_has_taken_down_all_makes_no_file_to_judge_a_refusal() {
    let (_dir, place) = place();
    let me = this_process().unwrap();
    let old = ProcessId {
        start_time: me.start_time.saturating_sub(100),
        ..me.clone()
    };
    let board = |process| FileBackend::new(vec![place.clone()], key(0), process);
    let (ended, gives_up) = (board(old.clone()), board(old));
    ended.take_down();
    gives_up.refuse(b"no world").unwrap();
    assert!(ended.records().unwrap().is_empty());
    assert!(gives_up.records().unwrap().is_empty());
    // A rendezvous begins again.
    ended.post(b"word").unwrap();
    assert_eq!(ended.records().unwrap().len(), 2);
}

#[test]
fn an_old_refusal_of_any_job_is_swept() {
    let (_dir, place) = place();
    let stranger = FileBackend::new(vec![place.clone()], key(1), this_process().unwrap());
    stranger.refuse(b"no world").unwrap();
    let path = only_file(&place);
    let long_ago = SystemTime::now() - REFUSAL_TIME - Duration::from_secs(5);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(long_ago).unwrap();
    backend(&place).sweep();
    assert!(!path.exists());
}

#[test]
fn a_rank_that_does_not_reach_rank_0_leaves_word_of_it() {
    let (_dir, place) = place();
    let (root, member) = (backend(&place), backend(&place));
    assert!(root.unreachable_reports().unwrap().is_empty());
    member.report_unreachable(b"no way").unwrap();
    assert_eq!(root.unreachable_reports().unwrap(), [b"no way"]);
    assert!(root.records().unwrap().is_empty(), "it is no record");
    member.take_down();
    assert!(root.unreachable_reports().unwrap().is_empty());
}

#[test]
fn without_a_place_nothing_is_posted() {
    let nowhere = FileBackend::new(Vec::new(), key(0), this_process().unwrap());
    assert!(nowhere.post(b"word").is_err());
}
