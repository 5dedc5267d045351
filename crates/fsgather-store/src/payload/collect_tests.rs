use std::{
    fs::File,
    io::Write,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use fsgather_core::{ChannelId, CompressionSetting, Epoch, Rank};
use proptest::prelude::*;

use super::*;
use crate::payload::format::{CHUNK_LEN, HEADER_LEN};
use crate::{
    directory::{owner::tests::record, rendezvous_directory::check_writable},
    os::filesystem::Class,
    payload::{format::Encoding, writer::PayloadId},
};

/// A gather directory for tests.
pub(crate) fn gather_dir() -> (tempfile::TempDir, GatherDir) {
    gather_dir_in(tempfile::tempdir().unwrap())
}

fn gather_dir_in(place: tempfile::TempDir) -> (tempfile::TempDir, GatherDir) {
    let own = check_writable(place.path()).unwrap();
    let made = GatherDir::create(place.path(), 0o700, &record(1), own).unwrap();
    (place, made)
}

pub(crate) fn id(rank: u32) -> PayloadId {
    PayloadId {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(5),
        rank: Rank::new(rank),
    }
}

/// Bytes that differ everywhere.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 7 + i / 251 + i / 65_537) % 256).unwrap())
        .collect()
}

fn publish(directory: &GatherDir, rank: u32, bytes: &[u8]) -> Locator {
    let mut writer = directory
        .create_payload(id(rank), Encoding(3), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    writer.write_all(bytes).unwrap();
    writer.publish().unwrap()
}

pub(crate) fn at_once() -> CollectPolicy {
    CollectPolicy {
        visibility: Duration::ZERO,
        ..CollectPolicy::default()
    }
}

/// The same directory, as if it were on a network file system.
pub(crate) fn as_if_on_nfs(directory: &GatherDir) -> GatherDir {
    directory
        .clone()
        .on(crate::os::filesystem::FileSystem::from_magic(0x6969))
}

pub(crate) fn collect(directory: &GatherDir, locator: &Locator) -> Result<Payload, Error> {
    directory.collect(locator, &at_once(), &mut |_| Ok(()))
}

pub(crate) fn path_of(directory: &GatherDir, locator: &Locator) -> PathBuf {
    directory.payloads().join(locator.name.to_string())
}

/// Lengths around the borders of chunks.
const LENGTHS: [usize; 8] = [
    0,
    1,
    4095,
    CHUNK_LEN - 1,
    CHUNK_LEN,
    CHUNK_LEN + 1,
    2 * CHUNK_LEN,
    3 * CHUNK_LEN + 17,
];

#[test]
fn what_was_published_is_what_is_collected_whatever_the_way() {
    let (_place, directory) = gather_dir();
    let network = as_if_on_nfs(&directory);
    let spilling = CollectPolicy {
        memory_bound: 0,
        spill_directory: directory.path().to_owned(),
        ..at_once()
    };
    for len in LENGTHS {
        let bytes = pattern(len);
        let locator = publish(&directory, 2, &bytes);
        assert_eq!(locator.raw_len, len as u64);
        let mapped = collect(&directory, &locator).unwrap();
        assert_eq!(
            mapped.is_mapped(),
            len > 0 && directory.file_system().is_mappable()
        );
        let own =
            |directory: &GatherDir| directory.collect_own(&locator, &at_once(), &mut |_| Ok(()));
        let (own, own_held) = (own(&directory).unwrap(), own(&network).unwrap());
        assert_eq!(own.is_mapped(), mapped.is_mapped());
        let held = collect(&network, &locator).unwrap();
        assert!(!held.is_mapped());
        let spilled = network
            .collect(&locator, &spilling, &mut |_| Ok(()))
            .unwrap();
        let mut streamed = Vec::new();
        directory
            .open_payload(&locator, &at_once(), |_| Ok(()))
            .unwrap()
            .read_to_end(&mut streamed)
            .unwrap();
        for way in [&*mapped, &*own, &*own_held, &*held, &*spilled, &*streamed] {
            assert!(way == bytes, "{len}");
        }
    }
}

#[test]
fn mapped_payloads_are_aligned_and_outlive_their_file() {
    let (_place, directory) = gather_dir();
    let bytes = pattern(CHUNK_LEN + 5);
    let locator = publish(&directory, 0, &bytes);
    let payload = collect(&directory, &locator).unwrap();
    directory.reclaim(locator.name).unwrap();
    assert!(directory.remove().is_complete());
    assert!(*payload == bytes);
    if payload.is_mapped() {
        assert_eq!(payload.as_ptr().addr() % 64, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn pieces_of_any_size_make_the_same_file(
        sizes in prop::collection::vec(1_usize..700_000, 1..8),
    ) {
        let (_place, directory) = gather_dir();
        let bytes = pattern(sizes.iter().sum());
        let mut writer = directory.create_payload(id(1), Encoding(3), CompressionSetting::None, |_| Ok(())).unwrap();
        let mut rest = &bytes[..];
        for size in sizes {
            let (piece, after) = rest.split_at(size);
            writer.write_all(piece).unwrap();
            rest = after;
        }
        let locator = writer.publish().unwrap();
        let payload = collect(&directory, &locator).unwrap();
        prop_assert!(*payload == bytes);
        let file = std::fs::read(path_of(&directory, &locator)).unwrap();
        prop_assert!(file[HEADER_LEN..HEADER_LEN + bytes.len()] == bytes, "contiguous");
        prop_assert_eq!(file.len() as u64, locator.check().unwrap());
    }

    #[test]
    fn no_damage_anywhere_gives_wrong_data(
        len in 1_usize..3_000_000, at: prop::sample::Index, bit in 0..8, mapped: bool,
    ) {
        let (_place, directory) = gather_dir();
        let directory = if mapped { directory } else { as_if_on_nfs(&directory) };
        let locator = publish(&directory, 1, &pattern(len));
        let path = path_of(&directory, &locator);
        let mut file = std::fs::read(&path).unwrap();
        let at = at.index(file.len());
        file[at] ^= 1_u8 << bit;
        std::fs::write(&path, &file).unwrap();
        prop_assert!(collect(&directory, &locator).is_err());
        let mut streamed = Vec::new();
        let outcome = directory
            .open_payload(&locator, &at_once(), |_| Ok(()))
            .map(|mut reader| reader.read_to_end(&mut streamed));
        prop_assert!(!matches!(outcome, Ok(Ok(_))));
        prop_assert!(streamed == pattern(len)[..streamed.len()]);
    }
}

/// Damages one byte of a published payload of two and a half chunks and collects it.
fn after_damage(at: impl Fn(u64) -> u64) -> String {
    let (_place, directory) = gather_dir();
    let locator = publish(&directory, 1, &pattern(5 * CHUNK_LEN / 2));
    let file = File::options()
        .read(true)
        .write(true)
        .open(path_of(&directory, &locator))
        .unwrap();
    let at = at(locator.check().unwrap());
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    collect(&directory, &locator).unwrap_err().to_string()
}

#[test]
fn each_region_of_the_file_has_its_own_precise_error() {
    let chunk = CHUNK_LEN as u64;
    let matrix: [(&str, &dyn Fn(u64) -> u64); 11] = [
        ("does not begin like a payload file", &|_| 0),
        ("is of version 17", &|_| 8),
        ("its header has checksum", &|_| 10),
        ("its header has checksum", &|_| 20),
        ("its header has checksum", &|_| 127),
        ("chunk 0 of 3 (at byte 0)", &|_| 128),
        ("chunk 2 of 3 (at byte 2097152)", &|_| 128 + 2 * chunk),
        ("its digest is", &|len| len - 48 - 1),
        ("its payload length is", &|len| len - 48),
        ("its digest is", &|len| len - 48 + 24),
        ("does not end like a payload file", &|len| len - 1),
    ];
    for (expected, at) in matrix {
        let text = after_damage(at);
        assert!(text.contains(expected), "{expected}: {text}");
        assert!(text.contains("of rank 1"), "{text}");
    }
}

#[test]
fn a_file_cut_or_grown_anywhere_is_told_with_both_lengths() {
    let (_place, directory) = gather_dir();
    let locator = publish(&directory, 1, &pattern(CHUNK_LEN + 9));
    let path = path_of(&directory, &locator);
    let whole = std::fs::read(&path).unwrap();
    let len = whole.len();
    for cut in [0, 1, 127, 128, 129, CHUNK_LEN, len - 49, len - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let text = collect(&directory, &locator).unwrap_err().to_string();
        let expected = format!("its length is {cut}, expected {len}");
        assert!(text.contains(&expected), "{text}");
    }
    std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert!(collect(&directory, &locator).is_err());
    std::fs::write(&path, &whole).unwrap();
    assert!(collect(&directory, &locator).is_ok());
}

#[test]
fn a_payload_of_another_call_or_world_is_not_taken_for_this_one() {
    let (_place, directory) = gather_dir();
    let (_other_place, other) = gather_dir();
    let locator = publish(&directory, 1, b"right");
    let elsewhere = publish(&directory, 2, b"wrong");
    let path = path_of(&directory, &locator);
    std::fs::copy(path_of(&directory, &elsewhere), &path).unwrap();
    let text = collect(&directory, &locator).unwrap_err().to_string();
    assert!(text.contains("its name is payload-"), "{text}");
    let mut stranger = other.clone();
    let foreign = {
        let mut facts = other.facts().clone();
        facts.communicator = uuid::Uuid::from_u128(99);
        stranger = stranger.with_facts(facts);
        publish(&stranger, 1, b"wrong")
    };
    std::fs::copy(
        path_of(&stranger, &foreign),
        directory.payloads().join(foreign.name.to_string()),
    )
    .unwrap();
    let text = collect(&directory, &foreign).unwrap_err().to_string();
    assert!(text.contains("its communicator is"), "{text}");
}

#[test]
fn every_field_of_the_locator_counts() {
    let (_place, directory) = gather_dir();
    let locator = publish(&directory, 1, b"abc");
    let wrong = [
        Locator {
            encoding: Encoding(4),
            ..locator.clone()
        },
        Locator {
            digest: locator.digest ^ 1,
            ..locator.clone()
        },
        Locator {
            raw_len: 4,
            stored_len: 4,
            ..locator.clone()
        },
    ];
    for wrong in wrong {
        let error = collect(&directory, &wrong).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}

#[test]
fn links_are_not_followed_and_files_of_others_not_read() {
    let (_place, directory) = gather_dir();
    let locator = publish(&directory, 1, b"abc");
    let path = path_of(&directory, &locator);
    let stranger = directory.clone().owned_by(directory.own().0 + 1);
    let text = collect(&stranger, &locator).unwrap_err().to_string();
    assert!(text.contains("not a file of uid"), "{text}");
    let moved = directory.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &path).unwrap();
    let refused = || collect(&directory, &locator).unwrap_err().to_string();
    assert!(refused().contains("but a link or socket"), "{}", refused());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(refused().contains("but a directory"), "{}", refused());
}

#[test]
fn a_missing_payload_on_one_host_is_an_error_at_once() {
    // The temporary directory may be on a network file system.
    let (_place, directory) = gather_dir_in(tempfile::tempdir_in("/dev/shm").unwrap());
    assert_eq!(directory.file_system().class(), Class::Local);
    let locator = publish(&directory, 1, b"abc");
    directory.reclaim(locator.name).unwrap();
    let policy = CollectPolicy {
        single_host: true,
        ..CollectPolicy::default()
    };
    let mut pauses = 0;
    let error = directory
        .collect(&locator, &policy, &mut |_| {
            pauses += 1;
            Ok(())
        })
        .unwrap_err();
    assert_eq!(pauses, 0);
    assert!(error.to_string().contains("is not there"), "{error}");
}

#[test]
fn a_payload_that_appears_late_is_waited_for() {
    let (_place, directory) = gather_dir();
    let directory = as_if_on_nfs(&directory);
    let bytes = pattern(CHUNK_LEN + 1);
    let locator = publish(&directory, 1, &bytes);
    let (path, hidden) = (
        path_of(&directory, &locator),
        directory.path().join("hidden"),
    );
    std::fs::rename(&path, &hidden).unwrap();
    let mut waited = 0;
    let payload = directory
        .collect(&locator, &CollectPolicy::default(), &mut |moved| {
            waited += u32::from(moved == 0);
            if waited == 3 && hidden.exists() {
                std::fs::rename(&hidden, &path).unwrap();
            }
            Ok(())
        })
        .unwrap();
    assert!(*payload == bytes);
    assert!(waited >= 3, "{waited}");
}

#[test]
fn old_contents_are_read_again_until_they_are_new() {
    let (_place, directory) = gather_dir();
    let directory = as_if_on_nfs(&directory);
    let bytes = pattern(3 * CHUNK_LEN);
    let locator = publish(&directory, 1, &bytes);
    let path = path_of(&directory, &locator);
    let file = File::options().write(true).open(&path).unwrap();
    let stale = HEADER_LEN as u64 + CHUNK_LEN as u64 + 5;
    file.write_all_at(b"stale", stale).unwrap();
    let fresh = &bytes[CHUNK_LEN + 5..][..5];
    for streaming in [false, true] {
        file.write_all_at(b"stale", stale).unwrap();
        let heal = |moved| {
            if moved == 0 {
                file.write_all_at(fresh, stale).unwrap();
            }
            Ok(())
        };
        let policy = CollectPolicy::default();
        if streaming {
            let mut streamed = Vec::new();
            let mut reader = directory.open_payload(&locator, &policy, heal).unwrap();
            reader.read_to_end(&mut streamed).unwrap();
            assert!(streamed == bytes);
        } else {
            let payload = directory.collect(&locator, &policy, &mut { heal }).unwrap();
            assert!(*payload == bytes);
        }
    }
}

#[test]
fn what_stays_invisible_is_told_with_the_likely_cause() {
    let (_place, directory) = gather_dir();
    let directory = as_if_on_nfs(&directory);
    let locator = publish(&directory, 3, b"abc");
    directory.reclaim(locator.name).unwrap();
    let policy = CollectPolicy {
        visibility: Duration::from_millis(60),
        ..CollectPolicy::default()
    };
    let text = directory
        .collect(&locator, &policy, &mut |_| Ok(()))
        .unwrap_err()
        .to_string();
    for part in [
        "rank 3",
        "lookupcache",
        "file system nfs",
        "not visible here after",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn waiting_is_ended_by_the_progress_hook() {
    let (_place, directory) = gather_dir();
    let directory = as_if_on_nfs(&directory);
    let locator = publish(&directory, 1, b"abc");
    directory.reclaim(locator.name).unwrap();
    let ended = Error::config("the call has failed elsewhere");
    let error = directory
        .collect(&locator, &CollectPolicy::default(), &mut |_| {
            Err(ended.clone())
        })
        .unwrap_err();
    assert_eq!(error, ended);
}

#[test]
fn progress_counts_every_byte_once() {
    let (_place, directory) = gather_dir();
    let len = 2 * CHUNK_LEN + 3;
    let counted = AtomicU64::new(0);
    let count = |bytes| {
        counted.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    };
    let mut writer = directory
        .create_payload(id(1), Encoding(3), CompressionSetting::None, count)
        .unwrap();
    writer.write_all(&pattern(len)).unwrap();
    let locator = writer.publish().unwrap();
    assert_eq!(counted.swap(0, Ordering::Relaxed), len as u64);
    for directory in [as_if_on_nfs(&directory), directory] {
        directory
            .collect(&locator, &at_once(), &mut { count })
            .unwrap();
        assert_eq!(counted.swap(0, Ordering::Relaxed), len as u64);
    }
}

#[test]
fn many_ranks_publish_and_collect_at_once() {
    let (_place, directory) = gather_dir();
    let locators: Vec<Locator> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|rank| {
                let directory = &directory;
                scope.spawn(move || publish(directory, rank, &pattern(300_000 * rank as usize)))
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (rank, locator) in locators.iter().enumerate() {
                    let payload = collect(&directory, locator).unwrap();
                    assert!(*payload == pattern(300_000 * rank));
                }
            });
        }
    });
    assert!(directory.remove().is_complete());
}

#[test]
fn an_announced_length_is_checked_before_allocation() {
    let (_place, directory) = gather_dir();
    let small = publish(&directory, 1, b"abc");
    let raw_len = 1 << 50;
    let huge = Locator {
        raw_len,
        stored_len: raw_len,
        chunk_count: crate::payload::format::chunk_count(raw_len),
        ..small
    };
    let text = collect(&as_if_on_nfs(&directory), &huge)
        .unwrap_err()
        .to_string();
    assert!(text.contains("its length is"), "{text}");
}

#[test]
fn a_reader_knows_the_length_before_it_reads() {
    let (_place, directory) = gather_dir();
    let bytes = pattern(70_001);
    let locator = publish(&directory, 1, &bytes);
    let reader = directory
        .open_payload(&locator, &at_once(), |_| Ok(()))
        .unwrap();
    assert_eq!(reader.total_len(), 70_001);
}
