use std::{os::unix::fs::symlink, time::Duration};

use crate::{
    GatherDir, check_writable,
    directory::owner::tests::record,
    lifecycle::{
        judgement::GatherState,
        place_for_tests::{elsewhere, ended, publish_empty},
    },
    make_rendezvous,
    messages::{detours::DetourName, names::MarkerName},
    payload::collect::tests::gather_dir,
};

use super::*;

const OLD: Rules = Rules {
    older_than: Duration::ZERO,
    watch: Duration::ZERO,
    readers: Duration::ZERO,
};

fn surveyor() -> Surveyor {
    Surveyor::new(Rules::default()).unwrap()
}

/// A rendezvous directory in a place, and a gather directory in it whose owner is `process`.
fn made_by(place: &Path, salt: u32, process: ProcessId) -> GatherDir {
    let rendezvous = make_rendezvous(place).unwrap();
    let own = check_writable(&rendezvous).unwrap();
    let mut owner = record(salt);
    owner.ranks = vec![process.clone(); 4];
    owner.process = process;
    GatherDir::create(&rendezvous, 0o700, &owner, own).unwrap()
}

#[test]
fn any_of_the_three_directories_may_be_named() {
    let place = tempfile::tempdir().unwrap();
    let one = made_by(place.path(), 1, this_process().unwrap());
    made_by(place.path(), 2, ended());
    let rendezvous = layout::rendezvous_path(place.path());
    let gathers = |path: &Path| surveyor().survey(path).unwrap().gathers.len();
    assert_eq!(gathers(place.path()), 2);
    assert_eq!(gathers(&rendezvous), 2);
    assert_eq!(gathers(one.path()), 1);
    let link = place.path().join("link");
    symlink(&rendezvous, &link).unwrap();
    assert_eq!(gathers(&link), 2);
}

#[test]
fn a_directory_without_any_of_it_is_empty_and_none_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let survey = surveyor().survey(place.path()).unwrap();
    assert!(survey.gathers.is_empty() && survey.leftovers.is_empty());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let missing = place.path().join("missing");
    let text = surveyor().survey(&missing).unwrap_err().to_string();
    assert!(text.contains(missing.to_str().unwrap()), "{text}");
    std::fs::write(&missing, b"").unwrap();
    assert!(surveyor().survey(&missing).is_err());
}

#[test]
fn a_rendezvous_with_no_entry_of_any_kind_is_empty() {
    let place = tempfile::tempdir().unwrap();
    let is_empty = || {
        let survey = surveyor().survey(place.path()).unwrap();
        survey.has_only_an_empty_rendezvous()
    };
    assert!(!is_empty());
    let rendezvous = make_rendezvous(place.path()).unwrap();
    assert!(is_empty());
    let stranger = rendezvous.join("notes.txt");
    std::fs::write(&stranger, b"x").unwrap();
    assert!(!is_empty());
    std::fs::remove_file(&stranger).unwrap();
    assert!(is_empty());
    made_by(place.path(), 1, ended());
    assert!(!is_empty());
}

#[test]
fn owners_are_judged_by_what_is_seen_of_them() {
    let place = tempfile::tempdir().unwrap();
    for (salt, process) in [(1, this_process().unwrap()), (2, ended()), (3, elsewhere())] {
        made_by(place.path(), salt, process);
    }
    let survey = surveyor().survey(place.path()).unwrap();
    let states: Vec<GatherState> = survey
        .gathers
        .iter()
        .map(|gather| gather.judgement.state)
        .collect();
    let expected = [GatherState::Live, GatherState::Stale, GatherState::Unknown];
    assert_eq!(states, expected);
    let me = this_process().unwrap();
    let reason = &survey.gathers[0].judgement.reason;
    assert!(reason.contains(&format!("pid {} on {}", me.pid, me.host)));
}

#[test]
fn an_owner_that_cannot_be_read_is_not_one_that_is_missing() {
    let place = tempfile::tempdir().unwrap();
    let gather = made_by(place.path(), 1, ended());
    let owner = gather.path().join(layout::OWNER);
    let reason = || {
        let survey = surveyor().survey(place.path()).unwrap();
        survey.gathers[0].judgement.reason.clone()
    };
    std::fs::remove_file(&owner).unwrap();
    let missing = reason();
    std::fs::create_dir(&owner).unwrap();
    let closed = reason();
    assert!(closed.contains("it is not a small file of uid"), "{closed}");
    assert!(!missing.contains("it is not a small file"), "{missing}");
}

#[test]
fn watching_tells_a_beat_that_changes_from_one_that_does_not() {
    let place = tempfile::tempdir().unwrap();
    let beating = made_by(place.path(), 1, elsewhere());
    made_by(place.path(), 2, elsewhere());
    let surveyor = surveyor();
    surveyor.survey(place.path()).unwrap();
    let beat = layout::GatherEntry::Beat(1).to_string();
    std::fs::write(beating.path().join(beat), b"").unwrap();
    let survey = surveyor.survey(place.path()).unwrap();
    assert_eq!(survey.gathers[0].judgement.state, GatherState::Live);
    assert_eq!(survey.gathers[0].judgement.reason, "its heartbeat changes");
    assert!(survey.gathers[0].beat_age.is_some());
    assert_eq!(survey.gathers[1].judgement.state, GatherState::Unknown);
}

/// A directory with a payload, of an owner that has ended and of these ranks of a world of four.
fn left_with_a_payload(place: &Path, ranks: Vec<ProcessId>) -> (GatherDir, crate::PayloadName) {
    let rendezvous = make_rendezvous(place).unwrap();
    let own = check_writable(&rendezvous).unwrap();
    let mut owner = record(1);
    owner.process = ended();
    owner.ranks = ranks;
    let made = GatherDir::create(&rendezvous, 0o700, &owner, own).unwrap();
    let name = publish_empty(&made);
    (made, name)
}

#[test]
fn ranks_that_run_keep_what_their_dead_owner_has_left() {
    let place = tempfile::tempdir().unwrap();
    let ranks = vec![ended(), ended(), ended(), this_process().unwrap()];
    let (made, name) = left_with_a_payload(place.path(), ranks);
    let eager = Surveyor::new(OLD).unwrap();
    let look = || eager.survey(place.path()).unwrap().gathers.remove(0);
    let seen = look();
    assert_eq!(seen.judgement.state, GatherState::Stale);
    assert!(!seen.is_removable(), "{:?}", seen.judgement);
    assert_eq!((seen.payload_files, seen.ranks_present), (1, 1));
    made.reclaim(name).unwrap();
    assert!(look().is_removable(), "there is nothing to read");
}

#[test]
fn a_record_about_another_directory_proves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let live = made_by(place.path(), 1, this_process().unwrap());
    let dead = made_by(place.path(), 2, ended());
    let owner = |directory: &GatherDir| directory.path().join(layout::OWNER);
    std::fs::copy(owner(&dead), owner(&live)).unwrap();
    let seen = surveyor().survey(place.path()).unwrap().gathers;
    let states = seen.iter().map(|gather| gather.judgement.state);
    let expected = [GatherState::Unknown, GatherState::Stale];
    assert_eq!(states.collect::<Vec<_>>(), expected);
    assert!(!seen[0].is_removable(), "{:?}", seen[0].judgement);
}

#[test]
fn what_a_group_has_left_goes_when_its_own_ranks_have_ended() {
    let place = tempfile::tempdir().unwrap();
    left_with_a_payload(place.path(), vec![ended(), ended()]);
    let seen = surveyor().survey(place.path()).unwrap().gathers.remove(0);
    assert!(seen.is_removable(), "{:?}", seen.judgement);
    let elsewhere = tempfile::tempdir().unwrap();
    left_with_a_payload(elsewhere.path(), Vec::new());
    let unknown = surveyor().survey(elsewhere.path()).unwrap();
    assert!(!unknown.gathers[0].is_removable(), "{unknown:?}");
}

#[test]
fn what_only_looks_like_ours_is_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let rendezvous = make_rendezvous(place.path()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let names = [1, 2, 3].map(|salt| RendezvousEntry::Gather(record(salt).gather).to_string());
    symlink(elsewhere.path(), rendezvous.join(&names[0])).unwrap();
    std::fs::write(rendezvous.join(&names[1]), b"no mark").unwrap();
    std::fs::create_dir(rendezvous.join("gather-results")).unwrap();
    rustix::fs::mkfifoat(CWD, rendezvous.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    symlink(
        elsewhere.path(),
        rendezvous.join("data_to_gather_1_2_3.pkl"),
    )
    .unwrap();
    symlink(elsewhere.path(), place.path().join(".dist_test")).unwrap();
    let survey = Surveyor::new(OLD).unwrap().survey(place.path()).unwrap();
    assert!(survey.gathers.is_empty(), "{survey:?}");
    let seen = |path: PathBuf| {
        let mut leftovers = survey.leftovers.iter();
        let found = leftovers.find(|leftover| leftover.path == path).unwrap();
        assert!(!found.removable && found.kind == LeftoverKind::Stranger);
        assert!(!found.is_foreign, "{found:?}");
        (found.reason.clone(), found.bytes)
    };
    assert_eq!(survey.leftovers.len(), 6, "{survey:?}");
    for (path, what, bytes) in [
        (rendezvous.join(&names[0]), "a link of ", 0),
        (rendezvous.join(&names[1]), "a file of ", 7),
        (rendezvous.join("gather-results"), "a directory of ", 0),
        (rendezvous.join("pipe"), "a special file of ", 0),
        (rendezvous.join("data_to_gather_1_2_3.pkl"), "a link of ", 0),
        (place.path().join(".dist_test"), "a link of ", 0),
    ] {
        let (reason, found) = seen(path);
        assert!(reason.contains(what), "{reason}");
        assert_eq!(found, bytes, "{reason}");
    }
    assert_eq!(survey.total_bytes(), 0, "of what is ours");
}

#[test]
fn records_are_read_by_who_knows_them() {
    let reading = surveyor().reading(|_| Some(WorldSize::ONE));
    assert_eq!((reading.world_size)(b"123"), Some(WorldSize::ONE));
    assert_eq!((surveyor().world_size)(b"123"), None);
}

#[test]
fn what_a_world_that_lives_meets_by_was_not_left() {
    let place = tempfile::tempdir().unwrap();
    let rendezvous = make_rendezvous(place.path()).unwrap();
    let own = check_writable(&rendezvous).unwrap();
    let me = this_process().unwrap();
    let board = |poster: ProcessId| {
        let places = vec![crate::BackendDirectory {
            directory: rendezvous.clone(),
            own,
        }];
        let key = fsgather_core::JobKey {
            uid: own.0,
            family: "none".into(),
            job: None,
            launch: None,
            attempt: None,
            world_size: WorldSize::ONE,
            number: 0,
            master: None,
        };
        crate::FileBackend::new(places, key.hash(), poster)
    };
    let (mine, dead) = (board(me.clone()), board(ended()));
    fsgather_core::RendezvousBackend::post(&mine, b"here").unwrap();
    fsgather_core::RendezvousBackend::post(&dead, b"there").unwrap();
    let look = || surveyor().survey(place.path()).unwrap();
    let survey = look();
    assert_eq!((survey.meetings.len(), survey.leftovers.len()), (1, 1));
    assert!(survey.meetings[0].is_forming && survey.leftovers[0].removable);
    made_by(place.path(), 1, me);
    assert!(!look().meetings[0].is_forming, "it has its directory");
    let meetings = surveyor().meetings(place.path()).unwrap();
    assert_eq!(meetings.len(), 1);
    assert_eq!(meetings[0].path, survey.meetings[0].path);
    let empty = tempfile::tempdir().unwrap();
    assert!(surveyor().meetings(empty.path()).unwrap().is_empty());
}

#[test]
fn leftovers_of_others_are_found_where_they_lie() {
    let place = tempfile::tempdir().unwrap();
    let rendezvous = make_rendezvous(place.path()).unwrap();
    let original = "data_to_gather_1795232016_77_3.pkl";
    std::fs::write(rendezvous.join(original), b"12345").unwrap();
    let agents = rendezvous.join("torchrun-0123456789abcdef");
    std::fs::create_dir(&agents).unwrap();
    std::fs::write(agents.join("state-00000000000000000001"), b"12").unwrap();
    let temporary = place.path().join(".dist_test/tmpab12_xyz");
    std::fs::create_dir_all(&temporary).unwrap();
    std::fs::write(temporary.join("part_0.pkl"), b"123").unwrap();
    let survey = surveyor().survey(place.path()).unwrap();
    let mut kinds: Vec<(&str, u64)> = survey
        .leftovers
        .iter()
        .map(|leftover| (leftover.kind.word(), leftover.bytes))
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [("mmengine", 3), ("python-original", 5), ("torchrun", 2)]
    );
    assert!(survey.leftovers.iter().all(|leftover| !leftover.removable));
    assert_eq!(survey.total_bytes(), 10);
}

#[test]
fn counting_leaves_the_directory_as_it_was() {
    let (place, directory) = gather_dir();
    let before = listing::names(place.path()).unwrap();
    surveyor().survey(directory.path()).unwrap();
    assert_eq!(listing::names(place.path()).unwrap(), before);
}

#[test]
fn a_message_beside_a_gone_directory_is_a_leftover() {
    let place = tempfile::tempdir().unwrap();
    let made = made_by(place.path(), 1, this_process().unwrap());
    let rendezvous = made.path().parent().unwrap().to_owned();
    let leave = |id| {
        let message = MarkerName::Bulletin {
            number: 7,
            to: None,
            nonce: 9,
        };
        let path = rendezvous.join(DetourName { id, message }.to_string());
        std::fs::write(&path, b"word").unwrap();
        path
    };
    let (_needed, left) = (leave(made.facts().id), leave(record(2).gather));
    let survey = Surveyor::new(OLD).unwrap().survey(place.path()).unwrap();
    let [found] = &survey.leftovers[..] else {
        panic!("{survey:?}");
    };
    assert_eq!((&found.path, found.kind), (&left, LeftoverKind::Message));
    assert!(
        found.removable && found.reason.contains("is gone"),
        "{found:?}"
    );
}

#[test]
fn a_file_system_without_user_directories_is_refused() {
    let error = make_rendezvous(Path::new("/proc")).unwrap_err().to_string();
    assert!(
        error.contains("/proc (proc) holds no directories of users"),
        "{error}"
    );
}
