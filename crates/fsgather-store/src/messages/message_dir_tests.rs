use std::{
    fs,
    io::IoSlice,
    time::{Instant, SystemTime},
};

use fsgather_testkit::pace::{patience, within_patience};

use super::*;
use crate::{
    directory::{
        owner::{OwnerRecord, tests::record},
        rendezvous_directory::check_writable,
    },
    os::{file, filesystem::FileSystem},
    payload::writer::tests::SmallDisk,
};

const NETWORK: u32 = 0x6969;

fn host(label: u64) -> ProcessId {
    // The label depends on these two.
    ProcessId {
        boot_id: format!("boot {label}"),
        pid_namespace: 1,
        ..ProcessId::default()
    }
}

/// A new record for each test: messages in the private directory of this host are found by the id.
fn fresh_record() -> OwnerRecord {
    record(fsgather_core::sys::random::fresh())
}

fn made() -> (tempfile::TempDir, GatherDir) {
    let place = tempfile::tempdir().unwrap();
    let own = check_writable(place.path()).unwrap();
    let made = GatherDir::create_for_messages(place.path(), 0o700, fresh_record(), own).unwrap();
    (place, made)
}

fn root(directory: &GatherDir) -> MessageDir {
    let root = MessageDir::new(directory.clone(), Role::Coordinator, &host(0), None);
    root.make_host_directories().unwrap();
    root
}

fn member(directory: &GatherDir, rank: u32) -> MessageDir {
    let role = Role::Member {
        rank: Rank::new(rank),
        sender: rank.into(),
    };
    let member = MessageDir::new(directory.clone(), role, &host(rank.into()), None);
    member.make_host_directories().unwrap();
    member
}

fn bodies(letters: &[InboundMessage]) -> Vec<Option<&[u8]>> {
    letters
        .iter()
        .map(|letter| letter.body.as_deref())
        .collect()
}

fn files(directory: &Path) -> Vec<String> {
    listing::names(directory).unwrap_or_default()
}

#[test]
fn letters_of_all_hosts_reach_rank_0_once() {
    let (_place, directory) = made();
    let (root, members) = (
        root(&directory),
        [member(&directory, 1), member(&directory, 2)],
    );
    for member in &members {
        member.send(1, None, b"first").unwrap();
    }
    let mut letters = root.receive(true).unwrap();
    letters.sort_by_key(|letter| letter.from);
    assert_eq!(bodies(&letters), [Some(&b"first"[..]); 2]);
    assert_eq!(letters[1].from, Rank::new(2));
    assert!(root.receive(true).unwrap().is_empty());
    members[0].send(2, None, b"second").unwrap();
    let letters = root.receive(false).unwrap();
    assert_eq!((letters[0].number, letters[0].sender), (2, 1));
}

#[test]
fn messages_are_not_reread_when_a_directory_reappears() {
    let (_place, directory) = made();
    let network = directory.clone().on(FileSystem::from_magic(NETWORK));
    let (root, member) = (root(&network), member(&network, 1));
    member.send(1, None, b"first").unwrap();
    assert_eq!(root.receive(true).unwrap().len(), 1);
    let aside = directory.path().join("aside");
    fs::rename(member.outbox(), &aside).unwrap();
    assert!(root.receive(false).unwrap().is_empty());
    fs::rename(&aside, member.outbox()).unwrap();
    // A client may list a removed message forever, although it can never be read.
    assert_eq!(bodies(&root.receive(false).unwrap()), [None; 0]);
    member.send(2, None, b"second").unwrap();
    let letters = root.receive(false).unwrap();
    assert_eq!(bodies(&letters), [Some(&b"second"[..])]);
}

#[test]
fn hosts_that_have_never_written_are_looked_for_when_asked_to() {
    let (_place, directory) = made();
    let root = root(&directory);
    assert!(root.receive(true).unwrap().is_empty());
    member(&directory, 1).send(1, None, b"late").unwrap();
    assert!(root.receive(false).unwrap().is_empty());
    assert_eq!(root.receive(true).unwrap().len(), 1);
}

#[test]
fn a_file_that_is_seen_half_written_is_looked_at_again() {
    let (_place, directory) = made();
    let (root, member) = (root(&directory), member(&directory, 1));
    let name = MarkerName::Letter {
        from: Rank::new(1),
        sender: 1,
        number: 1,
        nonce: 9,
    };
    let path = member.outbox().join(name.to_string());
    let whole = message_file::sealed_for(&directory, &path, b"all of it");
    for part in [0, 5, whole.len() - 1] {
        fs::write(&path, &whole[..part]).unwrap();
        assert!(root.receive(true).unwrap().is_empty(), "{part} bytes");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(
        bodies(&root.receive(true).unwrap()),
        [Some(&b"all of it"[..])]
    );
}

#[test]
fn messages_moved_from_another_world_are_not_accepted() {
    let (place, directory) = made();
    let another = GatherDir::create_for_messages(place.path(), 0o770, record(2), directory.own());
    let another = another.unwrap();
    let (here, there) = (root(&directory), root(&another));
    let reader = member(&directory, 1);
    let (my_writer, its_writer) = (member(&directory, 2), member(&another, 2));
    // Bulletin 1 is missing here, and the reader waits for that number.
    here.send(2, None, b"a verdict of here").unwrap();
    there.send(1, None, b"a verdict of there").unwrap();
    its_writer.send(1, None, b"a letter of there").unwrap();
    for (from, to) in [(&there, &here), (&its_writer, &my_writer)] {
        for name in files(&from.outbox()) {
            if MarkerName::parse(&name).is_some() {
                fs::rename(from.outbox().join(&name), to.outbox().join(&name)).unwrap();
            }
        }
    }
    let read = reader.receive(false).unwrap();
    assert_eq!(bodies(&read), [Some(&b"a verdict of here"[..])]);
    assert!(here.receive(true).unwrap().is_empty());
    // A bulletin of this world under another number is rejected too.
    let renamed = |name: &str| match MarkerName::parse(name) {
        Some(MarkerName::Bulletin { to, nonce, .. }) => {
            let number = 3;
            Some(MarkerName::Bulletin { number, to, nonce }.to_string())
        }
        _ => None,
    };
    for name in files(&here.outbox()) {
        if let Some(new) = renamed(&name) {
            fs::rename(here.outbox().join(&name), here.outbox().join(new)).unwrap();
        }
    }
    assert!(reader.receive(false).unwrap().is_empty());
}

#[test]
fn names_made_by_others_in_a_group_are_silently_ignored() {
    let place = tempfile::tempdir().unwrap();
    let own = check_writable(place.path()).unwrap();
    let made = GatherDir::create_for_messages(place.path(), 0o770, fresh_record(), own).unwrap();
    // For this member, all files there belong to another user.
    let member = MessageDir::new(
        made.clone().owned_by(own.0 + 1),
        Role::Member {
            rank: Rank::new(1),
            sender: 1,
        },
        &host(1),
        None,
    );
    let root = root(&made);
    root.send(1, None, b"a name of the group").unwrap();
    root.send(2, Some(Rank::new(7)), b"one that is not opened")
        .unwrap();
    root.beat(b"all well").unwrap();
    // A link is never a message, even of the right user.
    let name = MarkerName::Bulletin {
        number: 3,
        to: None,
        nonce: 1,
    };
    let link = root.outbox().join(name.to_string());
    std::os::unix::fs::symlink("/etc/hostname", link).unwrap();
    assert!(member.receive(false).unwrap().is_empty());
    assert!(member.beats(host(0).host_label()).unwrap().is_empty());
    assert!(
        member.lock().unreadable.is_empty(),
        "it would end the job in the end"
    );
}

#[test]
fn unlistable_heartbeats_are_an_error_but_none_is_not() {
    let (_place, directory) = made();
    let root = root(&directory);
    assert!(!root.is_shared(), "it is private");
    assert_eq!(root.beats(5).unwrap().len(), 0);
    let place = root.live(HostName(6));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, b"").unwrap();
    root.beats(6).unwrap_err();
}

#[test]
fn a_bulletin_for_another_rank_is_counted_and_not_opened() {
    let (_place, directory) = made();
    let (root, member) = (root(&directory), member(&directory, 1));
    root.send(1, Some(Rank::new(7)), b"a large table").unwrap();
    root.send(2, Some(Rank::new(1)), b"for you").unwrap();
    root.send(3, None, b"for all").unwrap();
    // A reader of this file would find nonsense.
    let first = files(&root.outbox())
        .into_iter()
        .find(|name| name.contains("-r00007-"))
        .unwrap();
    fs::write(root.outbox().join(first), b"nonsense").unwrap();
    let mut letters = member.receive(false).unwrap();
    letters.sort_by_key(|letter| letter.number);
    assert_eq!(
        bodies(&letters),
        [None, Some(&b"for you"[..]), Some(&b"for all"[..])]
    );
}

#[test]
fn files_of_others_and_unknown_names_are_passed_over() {
    let (_place, directory) = made();
    let (root, member) = (root(&directory), member(&directory, 1));
    member.send(1, None, b"own").unwrap();
    let stranger = MessageDir::new(
        directory.clone().owned_by(directory.own().0 + 1),
        Role::Coordinator,
        &host(0),
        None,
    );
    assert!(stranger.receive(true).unwrap().is_empty());
    let outbox = member.outbox();
    fs::write(outbox.join(".nfs0000000000a1"), b"").unwrap();
    fs::create_dir(outbox.join("letter-of-mine")).unwrap();
    let link = MarkerName::Letter {
        from: Rank::new(1),
        sender: 1,
        number: 2,
        nonce: 1,
    };
    std::os::unix::fs::symlink("/etc/hostname", outbox.join(link.to_string())).unwrap();
    assert_eq!(bodies(&root.receive(true).unwrap()), [Some(&b"own"[..])]);
}

#[test]
#[ignore = "needs root to mount a tmpfs: scripts/prove mounts"]
fn on_a_full_disk_the_last_messages_still_find_room() {
    let disk = SmallDisk::new("size=1m");
    let own = check_writable(disk.0.path()).unwrap();
    let made = GatherDir::create_for_messages(disk.0.path(), 0o700, fresh_record(), own).unwrap();
    let (root, member) = (root(&made), member(&made, 1));
    let filler = fs::File::create(disk.0.path().join("filler")).unwrap();
    let block = [1; 4096];
    while file::write_all(&filler, &mut [IoSlice::new(&block)]).is_ok() {}
    member.send(1, None, b"no room").unwrap();
    assert_eq!(
        bodies(&root.receive(true).unwrap()),
        [Some(&b"no room"[..])]
    );
}

#[test]
fn what_was_read_by_all_is_taken_back_but_for_what_is_kept() {
    let (_place, directory) = made();
    let root = root(&directory);
    for number in 1..=5 {
        root.send(number, None, b"").unwrap();
    }
    root.discard(4, &[2]);
    let mut numbers: Vec<u64> = files(&root.outbox())
        .iter()
        .filter_map(|name| match MarkerName::parse(name) {
            Some(MarkerName::Bulletin { number, .. }) => Some(number),
            _ => None,
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 5]);
}

#[test]
fn a_place_that_was_removed_is_an_error_at_once() {
    let (_place, directory) = made();
    let (root, member) = (root(&directory), member(&directory, 1));
    assert!(directory.remove().is_complete());
    for gone in [member.receive(false), root.receive(true)] {
        let text = gone.unwrap_err().to_string();
        assert!(text.contains("somebody has removed it"), "{text}");
    }
    for gone in [member.send(1, None, b""), root.send(1, None, b"")] {
        let text = gone.unwrap_err().to_string();
        let why = "its directory is gone: somebody has removed it while the job was running";
        assert!(text.ends_with(why), "{text}");
    }
}

#[test]
fn a_latecomer_leaves_nothing_beside_a_removed_place() {
    for how in [Retirement::Over, Retirement::Deserted] {
        let (place, directory) = made();
        let (root, late) = (root(&directory), member(&directory, 1));
        root.retire(Retirement::Over);
        late.detour(2, None, b"farewell");
        assert_eq!(files(place.path()).len(), 1);
        late.retire(how);
        assert!(files(place.path()).is_empty(), "{how:?}");
    }
}

#[test]
fn the_last_deserted_rank_removes_messages_left_beside() {
    let (place, directory) = made();
    let (root, last) = (root(&directory), member(&directory, 1));
    root.detour(2, None, b"farewell");
    last.detour(2, None, b"farewell");
    last.retire(Retirement::Deserted);
    assert!(files(place.path()).is_empty());
}

#[test]
fn each_heartbeat_has_a_new_name_and_replaces_the_last() {
    let (_place, directory) = made();
    let (root, member) = (root(&directory), member(&directory, 1));
    let label = host(1).host_label();
    assert!(root.beats(label).unwrap().is_empty());
    for number in 1..=3 {
        member.beat(b"all well").unwrap();
        let beats = root.beats(label).unwrap();
        assert_eq!(beats.len(), 1);
        assert_eq!((beats[0].from, beats[0].number), (Rank::new(1), number));
        assert_eq!(beats[0].body, b"all well");
    }
    assert!(root.beats(host(9).host_label()).unwrap().is_empty());
}

#[test]
fn with_coarse_time_stamps_the_directory_is_touched_again() {
    let (_place, directory) = made();
    let network = directory.clone().on(FileSystem::from_magic(NETWORK));
    let member = member(&network, 1);
    member.send(1, None, b"").unwrap();
    member.beat(b"").unwrap();
    // That of its heartbeat too: the rank that removes the directory must see it.
    let both = [member.outbox(), member.live(member.host)];
    let old = SystemTime::now() - Duration::from_secs(3600);
    let set_back = || {
        for path in &both {
            fs::File::open(path).unwrap().set_modified(old).unwrap();
        }
    };
    let is_new = |path| fs::metadata(path).unwrap().modified().unwrap() > old;
    let was_touched = || both.iter().all(is_new);
    for moment in [25, 100, 400, 1100, 2200] {
        set_back();
        let changed = Instant::now().checked_sub(Duration::from_millis(moment));
        member.lock().changed = changed.unwrap();
        member.tend();
        assert!(was_touched(), "after {moment} ms");
    }
    set_back();
    member.tend();
    assert!(!was_touched(), "not more often than it helps");
}

#[test]
fn a_last_message_stays_visible_until_rank_0_removes_all() {
    let (_place, directory) = made();
    let network = directory.clone().on(FileSystem::from_magic(NETWORK));
    let member = member(&network, 1);
    let letters = member.outbox();
    member.send(1, None, b"goodbye").unwrap();
    let old = SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(&letters).unwrap().set_modified(old).unwrap();
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| member.retire(Retirement::Over));
        let mut retries = RetryBudget::new(patience());
        while fs::metadata(&letters).unwrap().modified().unwrap() == old {
            assert!(retries.pause(&mut |_| Ok(())).unwrap(), "nobody touches it");
        }
        assert!(directory.remove().is_complete());
        leaving.join().unwrap();
    });
}

#[test]
fn lingering_ends_once_the_directory_is_removed() {
    let (_place, directory) = made();
    let network = directory.clone().on(FileSystem::from_magic(NETWORK));
    let member = member(&network, 1);
    assert!(directory.remove().is_complete());
    within_patience(|| member.linger_for(Duration::from_secs(3600)));
}

#[test]
fn rank_0_removes_everything_or_says_that_it_is_done() {
    let (place, directory) = made();
    root(&directory).retire(Retirement::Over);
    assert!(files(place.path()).is_empty());
    let (_place, directory) = made();
    root(&directory).retire(Retirement::InUse);
    assert!(directory.path().join(layout::FINISHED).exists());
}

#[test]
fn of_those_whom_rank_0_has_left_the_last_removes_everything() {
    let (place, directory) = made();
    let members = [member(&directory, 1), member(&directory, 2)];
    for member in &members {
        member.send(1, None, b"here").unwrap();
    }
    members[0].beat(b"rank 0 has ended").unwrap();
    members[0].retire(Retirement::Deserted);
    assert!(directory.path().join(layout::ABORTED).exists());
    let beats = members[1].beats(members[0].host.0).unwrap();
    assert_eq!(beats[0].body, b"rank 0 has ended");
    members[1].retire(Retirement::Deserted);
    assert!(files(place.path()).is_empty());
}

#[test]
fn a_process_never_admitted_takes_back_only_its_own() {
    let (_place, directory) = made();
    let (root, member, other) = (
        root(&directory),
        member(&directory, 1),
        member(&directory, 2),
    );
    member.send(1, None, b"a member").unwrap();
    other.send(1, None, b"no member").unwrap();
    other.retire(Retirement::Withdrawn);
    assert_eq!(
        bodies(&root.receive(true).unwrap()),
        [Some(&b"a member"[..])]
    );
    assert!(!directory.path().join(layout::ABORTED).exists());
}

/// Makes files until that fails, and returns their number.
fn use_up_inodes(place: &Path) -> usize {
    (0..100_000)
        .take_while(|n| fs::write(place.join(format!("filler-{n}")), b"").is_ok())
        .count()
}

/// Repeats `act` until there is space for its file. A child that another test has just forked keeps removed files open, and so their
/// inodes, until it runs its program.
fn with_room(mut act: impl FnMut() -> Result<(), Error>) {
    let deadline = Instant::now() + patience();
    while let Err(error) = act() {
        let is_late = Instant::now() > deadline;
        assert!(file::is_for_lack_of_room(&error) && !is_late, "{error}");
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs root to mount a tmpfs: scripts/prove mounts"]
fn messages_and_signs_of_life_go_on_where_no_file_can_be_made() {
    let disk = SmallDisk::new("size=4m,nr_inodes=60");
    let own = check_writable(disk.0.path()).unwrap();
    let directory =
        GatherDir::create_for_messages(disk.0.path(), 0o700, fresh_record(), own).unwrap();
    let (root, member) = (root(&directory), member(&directory, 1));
    member.beat(b"all well").unwrap();
    assert!(use_up_inodes(disk.0.path()) > 0);
    for round in 0..4 {
        let numbers = 3 * round + 1..=3 * round + 3;
        for number in numbers.clone() {
            with_room(|| member.send(number, None, &number.to_le_bytes()));
        }
        let mut letters = root.receive(true).unwrap();
        letters.sort_by_key(|letter| letter.number);
        let read: Vec<u64> = letters.iter().map(|letter| letter.number).collect();
        assert_eq!(read, numbers.clone().collect::<Vec<u64>>());
        for letter in &letters {
            assert_eq!(
                letter.body.as_deref(),
                Some(&letter.number.to_le_bytes()[..])
            );
        }
        // Messages that were read make space for the next ones.
        member.discard(*numbers.end(), &[]);
        with_room(|| member.beat(b"all well"));
    }
    let label = host(1).host_label();
    assert_eq!(root.beats(label).unwrap()[0].number, 5);
    for number in 13..=15 {
        with_room(|| member.send(number, None, b"more"));
    }
    assert!(file::is_for_lack_of_room(
        &member.send(16, None, b"too many").unwrap_err()
    ));
}

#[expect(clippy::disallowed_methods, reason = "what an administrator does")]
#[test]
fn a_detoured_message_is_found_once_and_taken_back() {
    let (place, directory) = made();
    let (root, member) = (root(&directory), member(&directory, 1));
    member.send(1, None, b"all well").unwrap();
    assert_eq!(root.receive(true).unwrap().len(), 1);
    fs::remove_dir_all(directory.path().join(layout::IN)).unwrap();
    assert!(member.send(2, None, b"farewell").is_err());
    member.detour(2, None, b"farewell");
    root.look_around();
    let letters = root.receive(false).unwrap();
    assert_eq!(
        (letters.len(), letters[0].number),
        (1, 2),
        "once, of two places"
    );
    assert_eq!(bodies(&letters), [Some(&b"farewell"[..])]);
    root.look_around();
    assert!(root.receive(false).is_err(), "its place is gone");
    // Neither a member nor another world mistakes it for a bulletin.
    member.look_around();
    assert!(member.receive(false).unwrap().is_empty());
    let detours = || {
        let names = files(place.path()).into_iter();
        names.filter(|name| name.starts_with("detour-")).count()
    };
    assert_eq!(detours(), 1);
    member.retire(Retirement::Withdrawn);
    assert_eq!(detours(), 0);
}

#[test]
fn a_look_costs_more_where_it_goes_over_a_network() {
    let (_place, directory) = made();
    let here = root(&directory).pace();
    let on_network = directory.clone().on(FileSystem::from_magic(NETWORK));
    let there = root(&on_network).pace();
    assert!(here.0 < there.0 && here.1 < there.1, "{here:?} {there:?}");
    assert!(Duration::ZERO < here.0 && here.0 < here.1);
    assert_eq!(
        root(&directory).place(),
        directory.path().display().to_string()
    );
}
