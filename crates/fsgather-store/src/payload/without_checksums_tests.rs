use std::io::Write;

use fsgather_core::{CompressionSetting, bytes_text};
use proptest::prelude::*;

use super::{
    tests::{as_if_on_nfs, at_once, gather_dir, id, path_of},
    *,
};
use crate::payload::{
    compression::supported,
    format::{CHUNK_LEN, Encoding, FOOTER_LEN, HEADER_LEN},
};

/// Bytes that differ everywhere.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 11 + i / 253 + i / 65_539) % 256).unwrap())
        .collect()
}

fn publish(directory: &GatherDir, rank: u32, setting: CompressionSetting, bytes: &[u8]) -> Locator {
    let mut writer = directory
        .create_payload(id(rank), Encoding(3), setting, |_| Ok(()))
        .unwrap()
        .without_checksums();
    writer.write_all(bytes).unwrap();
    writer.publish().unwrap()
}

/// A policy that accepts payloads without checksums.
fn trusting() -> CollectPolicy {
    CollectPolicy {
        needs_checksums: false,
        ..at_once()
    }
}

fn collect(directory: &GatherDir, locator: &Locator) -> Result<Payload, Error> {
    directory.collect(locator, &trusting(), &mut |_| Ok(()))
}

fn stream(directory: &GatherDir, locator: &Locator) -> Result<Vec<u8>, Error> {
    let mut streamed = Vec::new();
    let mut reader = directory.open_payload(locator, &trusting(), |_| Ok(()))?;
    match reader.read_to_end(&mut streamed) {
        Ok(_) => Ok(streamed),
        Err(_) => Err(reader.take_error().unwrap()),
    }
}

#[test]
fn every_way_reads_back_payloads_without_checksums() {
    let (_place, directory) = gather_dir();
    let network = as_if_on_nfs(&directory);
    let spilling = CollectPolicy {
        memory_bound: 0,
        spill_directory: directory.path().to_owned(),
        ..trusting()
    };
    for len in [0, 1, CHUNK_LEN, 3 * CHUNK_LEN + 17] {
        let bytes = pattern(len);
        let locator = publish(&directory, 2, CompressionSetting::None, &bytes);
        let mut moved = 0;
        let mapped = directory
            .collect(&locator, &trusting(), &mut |more| {
                moved += more;
                Ok(())
            })
            .unwrap();
        assert_eq!(moved, len as u64);
        let held = collect(&network, &locator).unwrap();
        let spilled = network
            .collect(&locator, &spilling, &mut |_| Ok(()))
            .unwrap();
        let streamed = stream(&directory, &locator).unwrap();
        for way in [&*mapped, &*held, &*spilled, &*streamed] {
            assert!(way == bytes, "{}", bytes_text(len as u64));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn without_checksums_damage_outside_the_payload_is_noticed(
        len in 1_usize..3_000_000, at: prop::sample::Index, bit in 0..8, cut: prop::sample::Index,
    ) {
        let (_place, directory) = gather_dir();
        let locator = publish(&directory, 1, CompressionSetting::None, &pattern(len));
        let path = path_of(&directory, &locator);
        let whole = std::fs::read(&path).unwrap();
        let mut file = whole.clone();
        // Somewhere before the payload or after it.
        let at = at.index(file.len() - len);
        let at = if at < HEADER_LEN { at } else { at + len };
        file[at] ^= 1_u8 << bit;
        std::fs::write(&path, &file).unwrap();
        prop_assert!(collect(&directory, &locator).is_err());
        prop_assert!(stream(&directory, &locator).is_err());
        std::fs::write(&path, &whole[..cut.index(whole.len())]).unwrap();
        prop_assert!(collect(&directory, &locator).is_err());
    }
}

#[test]
fn the_last_piece_may_be_announced_wherever_it_begins() {
    let (_place, directory) = gather_dir();
    for setting in supported() {
        for (before, len) in [
            (0, 0),
            (0, 9),
            (9, 0),
            (9, CHUNK_LEN),
            (CHUNK_LEN, CHUNK_LEN - 1),
            (CHUNK_LEN - 1, 2 * CHUNK_LEN + 9),
            (0, 5 * CHUNK_LEN),
        ] {
            for has_checksums in [true, false] {
                let bytes = pattern(before + len);
                let mut writer = directory
                    .create_payload(id(0), Encoding(0), setting, |_| Ok(()))
                    .unwrap();
                if !has_checksums {
                    writer = writer.without_checksums();
                }
                writer.write_all(&bytes[..before]).unwrap();
                writer.write_last(&bytes[before..]).unwrap();
                assert_eq!(writer.written(), bytes.len() as u64);
                let locator = writer.publish().unwrap();
                let collected = collect(&directory, &locator).unwrap();
                assert!(
                    *collected == *bytes,
                    "{setting:?} {before} {len} {has_checksums}"
                );
            }
        }
    }
}

#[test]
fn nothing_is_written_after_the_end_of_a_payload() {
    let (_place, directory) = gather_dir();
    for setting in supported() {
        for (end, has_checksums) in [
            (&b"all"[..], false),
            (b"all", true),
            (b"", false),
            (b"", true),
        ] {
            let mut writer = directory
                .create_payload(id(0), Encoding(0), setting, |_| Ok(()))
                .unwrap();
            if !has_checksums {
                writer = writer.without_checksums();
            }
            writer.write_last(end).unwrap();
            assert!(writer.write_all(b"more").is_err());
            assert!(writer.write_last(b"more").is_err());
            let locator = writer.publish().unwrap();
            assert_eq!(&*collect(&directory, &locator).unwrap(), end);
        }
    }
}

#[test]
fn another_payload_is_refused_without_checksums_as_well() {
    let (_place, directory) = gather_dir();
    let bytes = pattern(CHUNK_LEN + 9);
    let [right, of_another_rank, of_the_same] =
        [1, 2, 1].map(|rank| publish(&directory, rank, CompressionSetting::None, &bytes));
    let path = path_of(&directory, &right);
    for (other, expected) in [
        (of_another_rank, "its name is"),
        (of_the_same, "its name is"),
    ] {
        std::fs::copy(path_of(&directory, &other), &path).unwrap();
        let text = collect(&directory, &right).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn who_needs_checksums_does_not_take_a_payload_without_them() {
    let (_place, directory) = gather_dir();
    let locator = publish(&directory, 1, CompressionSetting::None, b"abc");
    let refused = directory.collect(&locator, &at_once(), &mut |_| Ok(()));
    let streamed = directory.open_payload(&locator, &at_once(), |_| Ok(()));
    for error in [refused.unwrap_err(), streamed.map(drop).unwrap_err()] {
        assert!(matches!(error, Error::Config { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("rank 1 has written") && text.contains("FSGATHER_VERIFY"),
            "{text}"
        );
    }
}

#[test]
fn a_compressed_payload_keeps_its_checksums() {
    let (_place, directory) = gather_dir();
    for setting in supported() {
        let locator = publish(&directory, 1, setting, &vec![7; 3 * CHUNK_LEN]);
        let has_checksums = directory
            .collect(&locator, &at_once(), &mut |_| Ok(()))
            .is_ok();
        assert_eq!(
            has_checksums,
            setting != CompressionSetting::None,
            "{setting}"
        );
        let file = std::fs::read(path_of(&directory, &locator)).unwrap();
        assert_eq!(file[60], u8::from(!has_checksums));
    }
}

#[test]
fn unpublished_bytes_without_checksums_can_be_taken_back() {
    let (_place, directory) = gather_dir();
    let bytes = pattern(2 * CHUNK_LEN + 100);
    let mut writer = directory
        .create_payload(id(1), Encoding(3), CompressionSetting::None, |_| Ok(()))
        .unwrap()
        .without_checksums();
    // A piece that is not a whole chunk, and one that goes directly to the file.
    writer.write_all(&bytes[..CHUNK_LEN / 2]).unwrap();
    writer.write_all(&bytes[CHUNK_LEN / 2..]).unwrap();
    assert_eq!(writer.take_back(), Some(bytes));
}

#[test]
fn the_file_is_the_documented_one() {
    let (_place, directory) = gather_dir();
    let bytes = pattern(CHUNK_LEN + 5);
    let locator = publish(&directory, 1, CompressionSetting::None, &bytes);
    let file = std::fs::read(path_of(&directory, &locator)).unwrap();
    assert_eq!(file[60..120], [&[1][..], &[0; 59]].concat());
    assert!(file[HEADER_LEN..HEADER_LEN + bytes.len()] == bytes);
    let table = &file[HEADER_LEN + bytes.len()..file.len() - FOOTER_LEN];
    let entry = |len: u32| [&len.to_le_bytes()[..], &[0; 12]].concat();
    assert_eq!(table, [entry(1 << 20), entry(5)].concat());
}
