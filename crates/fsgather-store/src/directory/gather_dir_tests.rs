use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::{
    directory::{
        owner::{job_tag, tests::record},
        rendezvous_directory::check_writable,
    },
    layout::PayloadName,
    lifecycle::removal::Removal,
};

/// A rendezvous directory for tests, and the uid its files have.
fn rendezvous() -> (tempfile::TempDir, OwnUid) {
    let place = tempfile::tempdir().unwrap();
    let own = check_writable(place.path()).unwrap();
    (place, own)
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn everything_is_private_unless_sharing_was_asked_for() {
    let (place, own) = rendezvous();
    for (salt, mode, file_mode) in [(1, 0o700, 0o600), (2, 0o770, 0o640)] {
        let made = GatherDir::create(place.path(), mode, &record(salt), own).unwrap();
        assert_eq!(mode_of(made.path()), mode);
        assert_eq!(mode_of(&made.payloads()), mode);
        assert_eq!(mode_of(&made.staging()), mode);
        assert_eq!(mode_of(&made.path().join("owner")), file_mode);
    }
}

#[test]
fn only_an_empty_directory_of_this_user_is_taken_over() {
    let (place, own) = rendezvous();
    let path = |salt| {
        let name = RendezvousEntry::Gather(record(salt).gather).to_string();
        place.path().join(name)
    };
    let create = |salt, own| GatherDir::create(place.path(), 0o700, &record(salt), own);
    let refused = |salt, own| {
        let error = create(salt, own).unwrap_err().to_string();
        assert!(error.contains("make directory"), "{error}");
    };
    std::fs::create_dir(path(1)).unwrap();
    let made = create(1, own).unwrap();
    refused(1, own);
    assert_eq!(made.owner().unwrap(), record(1));
    std::fs::create_dir(path(2)).unwrap();
    refused(2, OwnUid(own.0 + 1));
    assert_eq!(std::fs::read_dir(path(2)).unwrap().count(), 0);
    std::fs::write(path(3), b"kept").unwrap();
    refused(3, own);
    assert_eq!(std::fs::read(path(3)).unwrap(), b"kept");
}

#[test]
fn sharing_uses_the_parents_group_unless_owned_by_others() {
    let (place, own) = rendezvous();
    let above = place.path().join("above");
    std::fs::create_dir(&above).unwrap();
    let mut made = GatherDir::create(&above, 0o700, &record(1), own).unwrap();
    let give = |path: &Path, uid, gid| std::os::unix::fs::chown(path, Some(uid), Some(gid)).is_ok();
    let group_of = |path: &Path| std::fs::metadata(path).unwrap().gid();
    assert_eq!(made.sharing_group(made.path()).unwrap(), group_of(&above));
    if !give(made.path(), own.0, 78) || !give(&above, own.0, 77) {
        eprintln!("only root can give files to other groups");
        return;
    }
    assert_eq!(made.sharing_group(made.path()).unwrap(), 77);
    assert_eq!(made.sharing_group(&made.payloads()).unwrap(), 78);
    // Directories of root are trusted.
    assert_eq!(own.0, 0);
    made.own = OwnUid(5);
    assert_eq!(made.sharing_group(made.path()).unwrap(), 77);
    assert!(give(&above, 6, 77));
    assert_eq!(
        made.sharing_group(made.path()).unwrap(),
        group_of(place.path())
    );
    assert_eq!(made.sharing_group(&made.payloads()).unwrap(), 78);
}

#[test]
fn a_gather_directory_costs_at_most_eight_inodes() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    made.mark_finished().unwrap();
    let inside = std::fs::read_dir(made.path()).unwrap().count();
    // The directory, its entries, two heartbeats at a time and the directory of nonces.
    assert_eq!(1 + inside + 2 + 1, 8);
}

#[test]
fn others_open_what_rank_0_has_made() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let facts = made.facts().clone();
    let opened = GatherDir::open(
        place.path(),
        facts,
        Rank::ZERO,
        own,
        Duration::ZERO,
        &mut |_| Ok(()),
    )
    .unwrap();
    assert_eq!(opened.path(), made.path());
    assert_eq!(opened.owner().unwrap(), record(1));
}

#[test]
fn a_directory_that_appears_late_is_waited_for() {
    let (place, own) = rendezvous();
    let model = tempfile::tempdir().unwrap();
    let facts = GatherDir::create(model.path(), 0o700, &record(1), own)
        .unwrap()
        .facts()
        .clone();
    let mut asked = 0;
    let opened = GatherDir::open(
        place.path(),
        facts,
        Rank::ZERO,
        own,
        Duration::from_secs(60),
        &mut |_| {
            asked += 1;
            if asked == 3 {
                GatherDir::create(place.path(), 0o700, &record(1), own)?;
            }
            Ok(())
        },
    );
    assert!(opened.is_ok() && asked >= 3, "{opened:?} {asked}");
}

#[test]
fn a_directory_that_is_not_there_is_told_with_a_question() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let error = GatherDir::open(
        elsewhere.path(),
        made.facts().clone(),
        Rank::new(2),
        own,
        Duration::ZERO,
        &mut |_| Ok(()),
    )
    .unwrap_err()
    .to_string();
    assert!(error.contains("rank 2 has made"), "{error}");
    assert!(error.contains("the same directory on all hosts"), "{error}");
}

#[test]
fn links_and_directories_of_others_are_refused() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let facts = made.facts().clone();
    let stranger = OwnUid(own.0 + 1);
    let nobody: &mut Progress<'_> = &mut |_| Ok(());
    let open = |own, progress: &mut Progress<'_>| {
        GatherDir::open(
            place.path(),
            facts.clone(),
            Rank::ZERO,
            own,
            Duration::ZERO,
            progress,
        )
    };
    let text = open(stranger, nobody).unwrap_err().to_string();
    assert!(text.contains("belongs to uid"), "{text}");
    let moved = place.path().join("moved");
    std::fs::rename(made.path(), &moved).unwrap();
    symlink(&moved, made.path()).unwrap();
    let text = open(own, nobody).unwrap_err().to_string();
    assert!(text.contains("not a directory"), "{text}");
}

#[test]
fn an_id_is_used_once() {
    let (place, own) = rendezvous();
    GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let error = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error}");
}

#[test]
fn an_id_that_is_taken_is_drawn_again() {
    let (place, own) = rendezvous();
    let owner = record(1);
    let tag = job_tag(owner.job.as_deref(), &owner.process.host);
    let make = || GatherDir::create_anew(place.path(), 0o700, owner.clone(), own).unwrap();
    assert_eq!(make().facts().id, owner.gather);
    let other = make();
    assert_ne!(other.facts().id, owner.gather);
    assert_eq!(other.facts().id.salt().tag(), tag);
    assert_eq!(other.owner().unwrap().gather, other.facts().id);
}

#[test]
fn an_empty_directory_of_our_own_is_a_lost_reply() {
    let (place, own) = rendezvous();
    let id = RendezvousEntry::Gather(record(1).gather).to_string();
    std::fs::create_dir(place.path().join(id)).unwrap();
    GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
}

#[test]
fn removal_leaves_nothing_that_is_ours() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    made.mark_aborted("rank 0 was lost").unwrap();
    made.mark_finished().unwrap();
    made.mark_finished().unwrap();
    std::fs::write(made.path().join(GatherEntry::Beat(3).to_string()), b"").unwrap();
    std::fs::create_dir(made.probes()).unwrap();
    std::fs::write(made.probes().join(layout::nonce_name(7)), b"").unwrap();
    let name = PayloadName::new(
        fsgather_core::ChannelId::WORLD,
        fsgather_core::Epoch::FIRST,
        Rank::ZERO,
        9,
    );
    for directory in [made.staging(), made.payloads()] {
        std::fs::write(directory.join(name.to_string()), b"torn").unwrap();
        std::fs::write(directory.join(layout::capability_name(1)), b"").unwrap();
    }
    assert_eq!(made.remove(), Removal::default());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    assert!(made.remove().is_complete(), "removing twice is success");
}

#[test]
fn removal_spares_what_is_not_ours_and_says_so() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let stranger = made.payloads().join("thesis\x1b[2J.tex");
    std::fs::write(&stranger, b"precious").unwrap();
    let removal = made.remove();
    assert!(!removal.is_complete());
    let text = removal.to_string();
    assert!(
        text.contains(r#""thesis\u{1b}[2J.tex" is not ours"#),
        "{text}"
    );
    assert_eq!(std::fs::read(&stranger).unwrap(), b"precious");
    assert_eq!(
        made.owner().unwrap(),
        record(1),
        "what is left still says whose it is"
    );
}

#[test]
fn removal_follows_no_links() {
    let (place, own) = rendezvous();
    let elsewhere = tempfile::tempdir().unwrap();
    let victim = elsewhere.path().join(layout::capability_name(1));
    std::fs::write(&victim, b"").unwrap();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    std::fs::remove_dir(made.payloads()).unwrap();
    symlink(elsewhere.path(), made.payloads()).unwrap();
    assert!(!made.remove().is_complete());
    assert!(victim.exists());
}

#[test]
fn damaged_owner_records_are_told_apart_from_other_versions() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let path = made.path().join(layout::OWNER);
    std::fs::write(&path, "fsgather owner record 9\n").unwrap();
    assert!(matches!(made.owner(), Err(Error::Incompatible { .. })));
    std::fs::write(&path, "something else").unwrap();
    assert!(matches!(made.owner(), Err(Error::Corrupt { .. })));
    assert_eq!(
        std::fs::metadata(&path).unwrap().uid(),
        own.0,
        "the owner is checked on the opened file"
    );
    assert!(read_owner(made.path(), OwnUid(own.0 + 1)).is_err());
}

#[test]
fn a_directory_whose_owner_record_fails_does_not_stay() {
    let (place, own) = rendezvous();
    let mut owner = record(1);
    // The record of another process shows that a race was lost: it is left alone.
    let id = RendezvousEntry::Gather(owner.gather).to_string();
    std::fs::create_dir(place.path().join(&id)).unwrap();
    std::fs::write(place.path().join(&id).join(layout::OWNER), b"theirs").unwrap();
    assert!(GatherDir::create(place.path(), 0o700, &owner, own).is_err());
    assert!(place.path().join(&id).join(layout::OWNER).exists());
    // No file can be made in a directory without write permission, except by root.
    owner.gather = record(2).gather;
    let made = GatherDir::create(place.path(), 0o500, &owner, own);
    let left = place
        .path()
        .join(RendezvousEntry::Gather(owner.gather).to_string());
    assert_eq!(made.is_ok(), left.exists());
}

#[test]
fn the_last_one_to_leave_removes_what_rank_0_cannot() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let payload = |rank| crate::PayloadId {
        channel: fsgather_core::ChannelId::WORLD,
        epoch: fsgather_core::Epoch::FIRST,
        rank: Rank::new(rank),
    };
    let encoding = crate::Encoding(0);
    let begin = |rank| {
        made.create_payload(
            payload(rank),
            encoding,
            fsgather_core::CompressionSetting::None,
            |_| Ok(()),
        )
        .unwrap()
    };
    // Rank 0 was writing this payload when it was lost: no rank will ever read it.
    std::mem::forget(begin(0));
    let writing = begin(1);
    assert!(!made.remove_if_unused(Rank::ZERO), "rank 1 still writes");
    drop(writing);
    let published = begin(1).publish().unwrap();
    assert!(
        !made.remove_if_unused(Rank::ZERO),
        "somebody may still read"
    );
    made.discard_undecided(|_, epoch| epoch > fsgather_core::Epoch::FIRST);
    assert!(!made.remove_if_unused(Rank::ZERO), "that call was decided");
    made.discard_undecided(|_, _| true);
    assert!(made.reclaim(published.name).is_ok(), "gone is gone");
    assert!(made.remove_if_unused(Rank::ZERO));
    assert!(!made.path().exists());
    assert!(made.remove_if_unused(Rank::ZERO), "gone is gone");
}

#[test]
fn a_replaced_directory_is_noticed_and_nothing_left_in_it() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let other = GatherDir::create(place.path(), 0o700, &record(2), own).unwrap();
    let opened = GatherDir::open(
        place.path(),
        made.facts().clone(),
        Rank::ZERO,
        own,
        Duration::ZERO,
        &mut |_| Ok(()),
    )
    .unwrap();
    for directory in [&made, &opened] {
        directory.check_place().unwrap();
    }
    // A similar directory of this user, with other inode numbers.
    let moved = place.path().join("moved");
    std::fs::rename(made.path(), &moved).unwrap();
    made.check_place().unwrap();
    std::fs::rename(other.path(), made.path()).unwrap();
    let id = crate::PayloadId {
        channel: fsgather_core::ChannelId::WORLD,
        epoch: fsgather_core::Epoch::FIRST,
        rank: Rank::ZERO,
    };
    let none = fsgather_core::CompressionSetting::None;
    for directory in [&made, &opened] {
        let text = directory.check_place().unwrap_err().to_string();
        assert!(text.contains("another directory is in its place"), "{text}");
        assert!(text.contains("chmod +t"), "{text}");
        let begun = directory.create_payload(id, crate::Encoding(0), none, |_| Ok(()));
        assert_eq!(begun.unwrap_err().to_string(), text);
        for marked in [directory.mark_finished(), directory.mark_aborted("")] {
            assert_eq!(marked.unwrap_err().to_string(), text);
        }
    }
    assert!(!made.is_finished());
    assert_eq!(std::fs::read_dir(made.staging()).unwrap().count(), 0);
    // A file system without stable inode numbers shows the same directory with another number.
    let owner = made.path().join(layout::OWNER);
    std::fs::write(&owner, record(1).to_text()).unwrap();
    made.check_place().unwrap();
    let stranger = made.owned_by(own.0 + 1);
    let text = stranger.check_place().unwrap_err().to_string();
    assert!(
        text.contains(&format!("a directory of uid {}", own.0)),
        "{text}"
    );
}

#[test]
fn what_is_swapped_while_a_payload_is_written_is_not_announced() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let id = crate::PayloadId {
        channel: fsgather_core::ChannelId::WORLD,
        epoch: fsgather_core::Epoch::FIRST,
        rank: Rank::ZERO,
    };
    let none = fsgather_core::CompressionSetting::None;
    let writer = made
        .create_payload(id, crate::Encoding(0), none, |_| Ok(()))
        .unwrap();
    let staged = made.staging().join(writer.name().to_string());
    std::fs::rename(made.path(), place.path().join("moved")).unwrap();
    let other = GatherDir::create(place.path(), 0o700, &record(2), own).unwrap();
    std::fs::rename(other.path(), made.path()).unwrap();
    std::fs::write(&staged, b"another payload").unwrap();
    let text = writer.publish().unwrap_err().to_string();
    assert!(text.contains("in its place"), "{text}");
}

#[test]
fn shared_files_have_the_parents_group_but_no_group_write() {
    let (place, own) = rendezvous();
    let above = std::fs::metadata(place.path()).unwrap().gid();
    for (number, mode, file) in [(1, 0o700, 0o600), (2, 0o750, 0o640), (3, 0o770, 0o640)] {
        let made = GatherDir::create(place.path(), mode, &record(number), own).unwrap();
        let expected = if mode == 0o700 { mode } else { mode | 0o2000 };
        for path in [made.path(), &made.staging(), &made.payloads()] {
            let found = std::fs::metadata(path).unwrap();
            assert_eq!((found.mode() & 0o7777, found.gid()), (expected, above));
        }
        let owner = std::fs::metadata(made.path().join(layout::OWNER)).unwrap();
        assert_eq!(owner.permissions().mode() & 0o777, file);
        assert_eq!(made.file_mode(), file);
        assert!(made.remove().is_complete());
    }
}

#[test]
fn what_somebody_else_has_given_a_group_is_not_shared_with_that() {
    let (named, own) = rendezvous();
    let rendezvous = named.path().join("rendezvous");
    std::fs::create_dir(&rendezvous).unwrap();
    let wanted = std::fs::metadata(named.path()).unwrap().gid();
    // Only root can make a directory of another user.
    if std::os::unix::fs::chown(&rendezvous, Some(54_342), Some(54_399)).is_err() {
        return;
    }
    for (number, mode) in [(1, 0o750), (2, 0o770)] {
        let made = GatherDir::create(&rendezvous, mode, &record(number), own).unwrap();
        for path in [made.path(), &made.staging(), &made.payloads()] {
            assert_eq!(std::fs::metadata(path).unwrap().gid(), wanted);
        }
    }
    // A directory of this user has the group that this user has given it.
    std::os::unix::fs::chown(&rendezvous, Some(own.0), None).unwrap();
    let made = GatherDir::create(&rendezvous, 0o750, &record(3), own).unwrap();
    assert_eq!(std::fs::metadata(made.payloads()).unwrap().gid(), 54_399);
}

#[test]
fn links_are_found_out_by_making_one() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let two_names = std::fs::hard_link(made.path().join("owner"), place.path().join("second"));
    assert_eq!(made.has_links().unwrap(), two_names.is_ok());
    std::fs::remove_dir(made.staging()).unwrap();
    assert!(made.has_links().is_err());
}

#[test]
fn a_payload_of_a_rank_that_has_gone_goes_whatever_is_there() {
    let (place, own) = rendezvous();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    let id = |rank| crate::PayloadId {
        channel: fsgather_core::ChannelId::WORLD,
        epoch: fsgather_core::Epoch::FIRST,
        rank: Rank::new(rank),
    };
    let publish = |rank| {
        let setting = fsgather_core::CompressionSetting::None;
        let writer = made.create_payload(id(rank), crate::Encoding(0), setting, |_| Ok(()));
        writer.unwrap().publish().unwrap().name.to_string()
    };
    let names = [publish(0), publish(1)];
    made.reclaim_of(id(0)).unwrap();
    let left = listing::names(&made.payloads()).unwrap();
    assert_eq!(left, names[1..]);
    std::fs::remove_file(made.payloads().join(&names[1])).unwrap();
    std::fs::remove_dir(made.payloads()).unwrap();
    made.reclaim_of(id(1)).unwrap();
    std::fs::write(made.payloads(), b"").unwrap();
    assert!(made.reclaim_of(id(1)).is_err());
}
