use std::os::unix::fs::symlink;

use fsgather_core::ProcessId;

use crate::{
    GatherDir, check_writable,
    directory::owner::tests::record,
    layout::{self, RendezvousEntry},
    lifecycle::{
        judgement::GatherState,
        place_for_tests::{EAGER, Place, age, elsewhere, ended, id, place},
        removal_mark::{Mark, condemned_by, tests::marks_of},
    },
    make_rendezvous,
    os::{listing::tests::entries_read, process::this_process},
};

use super::*;

impl Place {
    fn clean(&self, rules: Rules, execute: bool) -> Cleaning {
        let directories = [self.directory.path().to_owned()];
        clean(&directories, rules, execute, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap()
    }
}

fn paths(items: &[Planned]) -> Vec<&Path> {
    items.iter().map(|item| item.path.as_path()).collect()
}

#[test]
fn nothing_is_removed_unless_that_is_asked_for() {
    let place = place();
    let stale = place.gather(1, ended(), None);
    let before = place.left();
    let plan = place.clean(EAGER, false);
    assert_eq!(
        paths(&plan.planned),
        [stale.path(), place.rendezvous.as_path()]
    );
    let what: Vec<&str> = plan.planned.iter().map(|item| item.what.as_str()).collect();
    assert_eq!(what, ["stale gather directory", "rendezvous directory"]);
    assert!(plan.removed.is_empty());
    assert_eq!(place.left(), before);
    // A foreign file stays, and so does its directory.
    std::fs::write(place.rendezvous.join("notes.txt"), b"x").unwrap();
    assert_eq!(paths(&place.clean(EAGER, false).planned), [stale.path()]);
}

#[test]
fn leftovers_of_the_dead_go_with_the_rendezvous_directory() {
    let place = place();
    place.gather(1, ended(), None);
    let done = place.clean(Rules::default(), true);
    assert_eq!(done.removed, done.planned);
    assert_eq!(done.removed.len(), 2);
    assert!(done.failed.is_empty() && done.kept.is_empty(), "{done:?}");
    assert!(!place.rendezvous.exists());
    assert!(place.directory.path().exists());
}

#[test]
fn live_ones_are_kept_with_the_reason() {
    let place = place();
    let live = place.gather(1, this_process().unwrap(), None);
    age(live.path());
    let done = place.clean(EAGER, true);
    assert!(done.planned.is_empty() && done.removed.is_empty());
    assert!(done.kept[0].reason.ends_with("runs"), "{done:?}");
    assert!(live.owner().is_ok());
}

#[test]
fn a_silent_directory_goes_by_age_and_leaves_a_mark() {
    let place = place();
    let silent = place.gather(1, elsewhere(), None);
    let done = place.clean(EAGER, true);
    assert_eq!(
        done.kept.len(),
        1,
        "a time stamp may be off by 2 s: {done:?}"
    );
    age(silent.path());
    assert_eq!(place.clean(Rules::default(), true).kept.len(), 1);
    let done = place.clean(EAGER, true);
    assert_eq!(paths(&done.removed), [silent.path()]);
    let id = id(1, None);
    let (_, by) = condemned_by(
        &place.rendezvous,
        &marks_of(&place.rendezvous, id),
        id,
        place.own,
    )
    .unwrap();
    assert!(by.contains("fsgather clean"), "{by}");
    // The mark goes once it is old itself.
    let mark = place.rendezvous.join(&place.left()[0]);
    age(&mark);
    place.clean(EAGER, true);
    assert!(!place.rendezvous.exists());
}

#[test]
fn a_directory_that_revives_is_kept_and_its_mark_removed() {
    let place = place();
    let silent = place.gather(1, elsewhere(), None);
    age(silent.path());
    let directories = [place.directory.path().to_owned()];
    let beat = silent.path().join(layout::GatherEntry::Beat(1).to_string());
    let done = clean(&directories, EAGER, true, &mut |_| {
        std::fs::write(&beat, b"").unwrap();
        ControlFlow::Continue(())
    });
    let done = done.unwrap();
    assert!(done.removed.is_empty(), "{done:?}");
    assert_eq!(done.kept[0].path, silent.path());
    assert_eq!(done.kept[0].gist, done.kept[0].reason);
    assert_eq!(place.left().len(), 1, "the mark was taken back");
    assert!(silent.owner().is_ok());
}

#[test]
fn what_could_not_be_removed_is_told_with_the_reason() {
    let place = place();
    let gather = place.gather(1, ended(), None);
    std::fs::write(gather.payloads().join("thesis"), b"").unwrap();
    let told = gather.remove().reasons();
    assert!(told.contains("payloads: \"thesis\" is not ours"), "{told}");
}

#[test]
fn directories_in_the_making_are_never_mistaken() {
    let place = place();
    let id = RendezvousEntry::Gather(id(1, None)).to_string();
    let making = place.rendezvous.join(id);
    std::fs::create_dir(&making).unwrap();
    assert!(place.clean(EAGER, true).removed.is_empty());
    // A directory that its maker has never finished goes by age, and leaves no mark.
    age(&making);
    let done = place.clean(Rules::default(), true);
    assert_eq!(
        paths(&done.removed),
        [making.as_path(), place.rendezvous.as_path()]
    );
}

#[test]
fn what_names_nobody_does_not_stay_for_a_day() {
    let place = place();
    let job = || place.gather(1, this_process().unwrap(), Some("4711"));
    let live = job();
    let probe = RendezvousEntry::Probe(7).to_string();
    let record = format!("rendezvous-{:016x}-{}", 7, record(3).gather);
    let making = RendezvousEntry::Gather(id(2, Some("other"))).to_string();
    let leave = || {
        std::fs::write(place.rendezvous.join(&probe), b"ff").unwrap();
        std::fs::write(place.rendezvous.join(&record), b"").unwrap();
        let making = place.rendezvous.join(&making);
        std::fs::create_dir_all(making.join("staging")).unwrap();
        std::fs::write(making.join("owner"), b"fsgather ow").unwrap();
    };
    let age_all = || {
        for name in [&probe, &record, &making] {
            age(&place.rendezvous.join(name));
        }
    };
    leave();
    let done = place.clean(Rules::default(), true);
    assert!(done.removed.is_empty(), "they are young: {done:?}");
    age_all();
    let done = place.clean(Rules::default(), true);
    assert_eq!(done.removed.len(), 3, "{done:?}");
    assert_eq!(place.left().len(), 1, "{:?}", place.left());
    assert!(live.owner().is_ok());
    // Any later run removes files that cannot belong to a world that is forming.
    leave();
    age_all();
    crate::lifecycle::sweeping::tests::sweep(&place.rendezvous, Some("other"), Rules::default());
    let left = place.left();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&record) && live.owner().is_ok());
}

#[test]
fn client_hidden_files_go_once_no_process_can_hold_them() {
    let place = place();
    let gone = place.gather(1, ended(), None);
    let hidden = gone.payloads().join(".fuse_hidden0000015f00000001");
    std::fs::write(&hidden, b"xyz").unwrap();
    // An orderly exit cannot know if a process still has the file open.
    let removal = removal::remove_gather_directory(gone.path(), place.own, false);
    assert!(!removal.is_complete() && hidden.exists());
    // Files that a FUSE client keeps without need are removed after a while; files that NFS keeps are not.
    let left = place.gather(3, ended(), None);
    std::fs::write(left.payloads().join(".fuse_hidden0000015f00000002"), b"xyz").unwrap();
    assert!(left.remove().is_complete() && !left.path().exists());
    let read = place.gather(4, ended(), None);
    let silly = read.payloads().join(".nfs0000000000a2");
    std::fs::write(&silly, b"x").unwrap();
    assert!(!read.remove().is_complete() && silly.exists());
    std::fs::remove_file(&silly).unwrap();
    assert!(read.remove().is_complete());
    let mut owner = record(2);
    owner.process = ended();
    owner.ranks = vec![this_process().unwrap(); 4];
    let read = GatherDir::create(&place.rendezvous, 0o700, &owner, place.own).unwrap();
    std::fs::write(read.payloads().join(".nfs0000000000a1"), b"x").unwrap();
    let done = place.clean(Rules::default(), true);
    assert_eq!(paths(&done.removed), [gone.path()], "{done:?}");
    assert!(
        done.kept[0].reason.contains("a rank of it still runs"),
        "{done:?}"
    );
}

#[test]
fn what_a_rebooted_host_seems_to_have_left_is_watched_first() {
    let place = place();
    let cloned = || ProcessId {
        boot_id: "another".into(),
        ..this_process().unwrap()
    };
    let gone = place.gather(1, cloned(), None);
    let directories = [place.directory.path().to_owned()];
    let watched = |alive: bool| {
        let mut counter = 0;
        let done = clean(&directories, EAGER, true, &mut |_| {
            if alive {
                counter += 1;
                let beat = layout::GatherEntry::Beat(counter).to_string();
                std::fs::write(gone.path().join(beat), b"").unwrap();
            }
            ControlFlow::Continue(())
        });
        done.unwrap()
    };
    let done = watched(true);
    assert!(done.removed.is_empty() && gone.owner().is_ok(), "{done:?}");
    let reason = &done.kept[0].reason;
    assert!(reason.starts_with("its heartbeat changes"), "{reason}");
    let done = watched(false);
    assert_eq!(done.removed.len(), 2, "{done:?}");
}

#[test]
fn a_removal_that_was_cut_short_is_finished_by_the_next() {
    let place = place();
    let stale = place.gather(1, ended(), None);
    let me = this_process().unwrap();
    Mark::leave(&place.rendezvous, id(1, None), "fsgather clean", &me, true).unwrap();
    for name in ["payloads", "staging"] {
        std::fs::remove_dir(stale.path().join(name)).unwrap();
    }
    let done = place.clean(EAGER, true);
    assert!(done.failed.is_empty(), "{done:?}");
    assert!(!place.rendezvous.exists(), "{:?}", place.left());
}

#[test]
fn strangers_of_every_kind_stay_untouched() {
    let place = place();
    let elsewhere_directory = tempfile::tempdir().unwrap();
    let victim = elsewhere_directory.path().join("precious");
    std::fs::write(&victim, b"precious").unwrap();
    let payload = "payload-c0000000000000000-e00000000000000000012-r00003-0000beef";
    let strangers: [fn(&Path, &Path); 5] = [
        |at, _| std::fs::write(at.join("thesis.tex"), b"x").unwrap(),
        |at, victim| symlink(victim, at.join("payloads/link")).unwrap(),
        |at, victim| {
            let name = "payload-c0000000000000000-e00000000000000000012-r00003-0000beef";
            symlink(victim, at.join("payloads").join(name)).unwrap();
        },
        |at, _| {
            let name = "payload-c0000000000000000-e00000000000000000012-r00003-0000beef";
            let path = at.join("staging").join(name);
            let mode = rustix::fs::Mode::RWXU;
            rustix::fs::mkfifoat(CWD, &path, mode).unwrap();
        },
        |at, victim| {
            std::fs::remove_dir(at.join("payloads")).unwrap();
            symlink(victim.parent().unwrap(), at.join("payloads")).unwrap();
        },
    ];
    for (salt, add) in (1..).zip(strangers) {
        let stale = place.gather(salt, ended(), None);
        add(stale.path(), &victim);
        age(stale.path());
    }
    std::fs::write(place.rendezvous.join("notes.txt"), b"x").unwrap();
    std::fs::create_dir(place.rendezvous.join("gather-results")).unwrap();
    let before = place.left();
    let done = place.clean(EAGER, true);
    assert!(done.removed.is_empty(), "{done:?}");
    assert_eq!(done.kept.len(), 7);
    assert!(done.kept[0].reason.contains("thesis.tex"), "{done:?}");
    for (name, what) in [
        ("notes.txt", "a file of "),
        ("gather-results", "a directory of "),
    ] {
        let path = place.rendezvous.join(name);
        let kept = done.kept.iter().find(|kept| kept.path == path).unwrap();
        assert!(kept.reason.contains(what), "{kept:?}");
    }
    assert_eq!(place.left(), before);
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    // An entry that appears between examining and removing stays as well.
    let stale = place.gather(9, ended(), None);
    let late = stale.payloads().join(payload);
    symlink(&victim, &late).unwrap();
    let removal = removal::remove_gather_directory(stale.path(), place.own, false);
    assert!(!removal.is_complete());
    assert!(late.is_symlink() && stale.owner().is_ok());
}

#[test]
fn files_of_other_programs_go_by_age_alone() {
    let place = place();
    let original = place.rendezvous.join("data_to_gather_1_2_3.pkl");
    std::fs::write(&original, b"x").unwrap();
    let temporary = place.directory.path().join(".dist_test/tmpab12_xyz");
    std::fs::create_dir_all(&temporary).unwrap();
    std::fs::write(temporary.join("part_0.pkl"), b"x").unwrap();
    let done = place.clean(EAGER, true);
    assert_eq!(done.kept.len(), 2, "{done:?}");
    age(&original);
    age(&place.directory.path().join(".dist_test"));
    let done = place.clean(EAGER, true);
    assert_eq!(done.removed.len(), 3, "{done:?}");
    assert_eq!(
        std::fs::read_dir(place.directory.path()).unwrap().count(),
        0
    );
}

#[test]
fn an_empty_rendezvous_directory_is_remade_when_needed() {
    let place = place();
    std::fs::remove_dir(&place.rendezvous).unwrap();
    assert_eq!(check_writable(&place.rendezvous).unwrap(), place.own);
    std::fs::remove_dir(&place.rendezvous).unwrap();
    let live = place.gather(1, this_process().unwrap(), None);
    let surveyed = Surveyor::new(EAGER).unwrap().survey(live.path()).unwrap();
    assert_eq!(surveyed.gathers[0].judgement.state, GatherState::Live);
}

#[test]
fn the_rendezvous_is_planned_once_if_it_goes_else_never() {
    /// The entries before, the change that another process makes once an entry is gone, and true if the directory goes.
    type Deed = (&'static str, fn(&Path), bool);
    let deeds: [Deed; 3] = [
        ("", |_| {}, true),
        (
            "notes.txt",
            |at| std::fs::remove_file(at.join("notes.txt")).unwrap(),
            true,
        ),
        (
            "",
            |at| std::fs::write(at.join("late.txt"), b"x").unwrap(),
            false,
        ),
    ];
    for (before, deed, goes) in deeds {
        let place = place();
        let stale = place.gather(1, ended(), None);
        if !before.is_empty() {
            std::fs::write(place.rendezvous.join(before), b"x").unwrap();
        }
        let mut is_first = true;
        let done = clean(
            &[place.directory.path().to_owned()],
            EAGER,
            true,
            &mut |step| {
                if matches!(step, CleaningStep::Removed(_)) && std::mem::take(&mut is_first) {
                    deed(&place.rendezvous);
                }
                ControlFlow::Continue(())
            },
        )
        .unwrap();
        assert_eq!(place.rendezvous.exists(), !goes);
        let of = |items: &[Planned]| {
            let paths = paths(items);
            [stale.path(), &place.rendezvous].map(|path| {
                let same = paths.iter().filter(|one| **one == path);
                same.count()
            })
        };
        let once = usize::from(goes);
        assert_eq!(of(&done.planned), [1, once], "{done:?}");
        assert_eq!(of(&done.removed), [1, once], "{done:?}");
        assert!(done.failed.is_empty(), "{done:?}");
    }
}

#[test]
fn a_users_own_directory_exists_and_belongs_to_them() {
    let place = place();
    assert!(is_owned_by(&place.rendezvous, place.own));
    assert!(!is_owned_by(&place.rendezvous, OwnUid(place.own.0 + 1)));
    assert!(!is_owned_by(&place.rendezvous.join("nowhere"), place.own));
}

#[test]
#[ignore = "needs root to mount a tmpfs: scripts/prove mounts"]
fn a_directory_is_freed_where_not_one_file_more_can_be_made() {
    let disk = crate::payload::writer::tests::SmallDisk::new("size=4m,nr_inodes=60");
    let rendezvous = make_rendezvous(disk.0.path()).unwrap();
    let own = check_writable(&rendezvous).unwrap();
    let mut owner = record(1);
    owner.process = ended();
    owner.ranks = vec![owner.process.clone(); 4];
    let gone = GatherDir::create(&rendezvous, 0o700, &owner, own).unwrap();
    let payload = "payload-c0000000000000000-e00000000000000000012-r00003-0000beef";
    std::fs::write(gone.payloads().join(payload), b"payload").unwrap();
    std::fs::write(gone.path().join("beat-00000000000000000004"), b"").unwrap();
    let files = (0..)
        .take_while(|n| std::fs::write(disk.0.path().join(format!("filler-{n}")), b"").is_ok());
    assert!(files.count() > 0);
    let directories = [disk.0.path().to_owned()];
    let done = clean(&directories, Rules::default(), true, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(done.failed.is_empty(), "{done:?}");
    assert_eq!(
        paths(&done.removed),
        [gone.path(), rendezvous.as_path()],
        "{done:?}"
    );
}

#[test]
fn a_stopped_cleaning_reports_removed_and_remaining() {
    let place = place();
    let all = 60;
    for salt in 1..=all {
        place.gather(salt, ended(), None);
    }
    let directories = [place.directory.path().to_owned()];
    let mut told = Vec::new();
    let done = clean(&directories, EAGER, true, &mut |step| {
        if let CleaningStep::Removed(item) = step {
            told.push(item.clone());
        }
        if told.len() >= 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let done = done.unwrap();
    assert!(done.is_stopped && done.failed.is_empty(), "{done:?}");
    assert_eq!(done.removed, told);
    // Directories that were being removed at that time may be gone as well.
    assert!((2..30).contains(&done.removed.len()), "{done:?}");
    let is_left = |item: &&Planned| !done.removed.contains(item);
    // The rendezvous directory was planned too.
    assert!(
        done.untouched
            .iter()
            .eq(done.planned.iter().filter(is_left))
    );
    let left = place.left();
    assert_eq!(left.len(), all as usize - done.removed.len(), "{left:?}");
    let done = clean(&directories, EAGER, true, &mut |_| ControlFlow::Break(())).unwrap();
    assert!(done.is_stopped && done.removed.is_empty());
    assert_eq!(place.left(), left);
}

#[test]
fn what_is_read_grows_with_what_is_left_and_not_faster() {
    let place = place();
    let id = |salt| record(salt).gather;
    let count = 60;
    for salt in 0..count {
        let gather = RendezvousEntry::Gather(id(salt)).to_string();
        std::fs::create_dir(place.rendezvous.join(gather)).unwrap();
        let mark = RendezvousEntry::Condemned {
            id: id(salt + count),
            nonce: salt,
        };
        std::fs::write(place.rendezvous.join(mark.to_string()), b"x").unwrap();
    }
    for name in place.left() {
        age(&place.rendezvous.join(name));
    }
    // Each entry, with `.` and `..` in each directory, a few times over.
    let few_times = |times: u64| times * (u64::from(count) * 4 + 2);
    let seen = entries_read(|| {
        let survey = Surveyor::new(EAGER).unwrap().survey(&place.rendezvous);
        assert_eq!(survey.unwrap().gathers.len(), count as usize);
    });
    assert!(seen <= few_times(1), "{seen}");
    let surveyor = Surveyor::new(EAGER).unwrap();
    let seen = entries_read(|| {
        for gather in surveyor.survey(&place.rendezvous).unwrap().gathers {
            let outcome = abandoned::remove(&surveyor, &gather, "a test", true, &|| false);
            assert!(matches!(outcome, Outcome::Removed));
        }
    });
    assert!(seen <= few_times(4), "{seen}");
    let done = place.clean(EAGER, true);
    assert_eq!(done.removed.len(), count as usize + 1, "{done:?}");
}
