//! Tests whole payloads, from the writer through the file to the reader, by every compression of this build.

use std::{
    io::{Read, Write},
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fsgather_testkit::pace::cases;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    CollectPolicy, Encoding, GatherDir, Locator, Payload,
    layout::PayloadName,
    payload::{
        collect::tests::{as_if_on_nfs, at_once, collect, gather_dir, id, path_of},
        format::{
            self, CHUNK_LEN, ChunkEntry, ENTRY_LEN, FOOTER_LEN, Footer, HEADER_LEN, Header,
            chunk_count,
        },
    },
};

/// Content of a chunk.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Incompressible bytes.
    Noise,
    /// Bytes that every library can compress.
    Text,
    /// One byte, over and over.
    Zeros,
}

impl Kind {
    /// Returns a chunk of this kind.
    fn chunk(self) -> &'static [u8] {
        static CHUNKS: [OnceLock<Vec<u8>>; 3] = [const { OnceLock::new() }; 3];
        CHUNKS[self as usize].get_or_init(|| {
            let mut bytes = vec![0; CHUNK_LEN];
            let mut noise = StdRng::seed_from_u64(7);
            match self {
                Self::Noise => noise.fill_bytes(&mut bytes),
                Self::Text => {
                    bytes.clear();
                    while bytes.len() < CHUNK_LEN {
                        let score = noise.next_u32() % 1000;
                        bytes.extend(format!("{{\"score\": 0.{score:03}}}\n").bytes());
                    }
                    bytes.truncate(CHUNK_LEN);
                }
                Self::Zeros => {}
            }
            bytes
        })
    }
}

/// Returns `len` bytes in chunks of alternating kinds; no two chunks are the same.
fn data(kinds: &[Kind], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let chunks = bytes.chunks_mut(CHUNK_LEN).zip(kinds.iter().cycle());
    for (number, (chunk, kind)) in (0_u8..).zip(chunks) {
        chunk.copy_from_slice(&kind.chunk()[..chunk.len()]);
        chunk[0] = number;
    }
    bytes
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let kind = prop_oneof![Just(Kind::Noise), Just(Kind::Text), Just(Kind::Zeros)];
    prop::collection::vec(kind, 1..4)
}

/// Lengths around the borders of chunks.
fn lengths() -> impl Strategy<Value = usize> {
    let chunks = prop_oneof![Just(0_usize), Just(1), Just(4), 0_usize..6];
    let more = prop_oneof![Just(-1_isize), Just(0), Just(1), -2000_isize..2000];
    (chunks, more).prop_map(|(chunks, more)| (chunks * CHUNK_LEN).saturating_add_signed(more))
}

/// All settings that this build supports.
pub(crate) fn supported() -> Vec<CompressionSetting> {
    let all = [CompressionSetting::None, CompressionSetting::Zstd];
    all.into_iter()
        .filter(|setting| check_compression(*setting).is_ok())
        .collect()
}

fn settings() -> impl Strategy<Value = CompressionSetting> {
    prop::sample::select(supported())
}

/// All settings except `None`; none in a build without libraries.
fn compressing() -> impl Iterator<Item = CompressionSetting> {
    let settings = supported().into_iter();
    settings.filter(|setting| *setting != CompressionSetting::None)
}

fn publish(directory: &GatherDir, setting: CompressionSetting, pieces: &[&[u8]]) -> Locator {
    let mut writer = directory
        .create_payload(id(1), Encoding(3), setting, |_| Ok(()))
        .unwrap();
    for piece in pieces {
        writer.write_all(piece).unwrap();
    }
    writer.publish().unwrap()
}

fn stream(directory: &GatherDir, locator: &Locator) -> (Vec<u8>, Result<(), Error>) {
    let mut bytes = Vec::new();
    let mut reader = match directory.open_payload(locator, &at_once(), |_| Ok(())) {
        Ok(reader) => reader,
        Err(error) => return (bytes, Err(error)),
    };
    let read = reader.read_to_end(&mut bytes);
    let outcome = read.map(|_| ()).map_err(|_| reader.take_error().unwrap());
    (bytes, outcome)
}

/// Reads the payload in every possible way.
fn all_ways(directory: &GatherDir, locator: &Locator) -> Vec<Result<Payload, Error>> {
    let network = as_if_on_nfs(directory);
    let spilling = CollectPolicy {
        memory_bound: 0,
        spill_directory: directory.path().to_owned(),
        ..at_once()
    };
    let (streamed, outcome) = stream(directory, locator);
    vec![
        collect(directory, locator),
        collect(&network, locator),
        network.collect(locator, &spilling, &mut |_| Ok(())),
        outcome.map(|()| streamed.into()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn what_was_compressed_is_what_is_collected_whatever_the_way(
        setting in settings(), kinds in kinds(), len in lengths(), cut: prop::sample::Index,
    ) {
        let (_place, directory) = gather_dir();
        let bytes = data(&kinds, len);
        let (one, other) = bytes.split_at(cut.index(len + 1));
        let locator = publish(&directory, setting, &[one, other]);
        prop_assert_eq!(locator.compression, Compression::from(setting));
        prop_assert_eq!(locator.raw_len, len as u64);
        let file_len = std::fs::metadata(path_of(&directory, &locator)).unwrap().len();
        prop_assert_eq!(locator.check(), Ok(file_len));
        for payload in all_ways(&directory, &locator) {
            prop_assert!(*payload.unwrap() == bytes);
        }
    }

    #[test]
    fn pieces_of_any_size_are_compressed_to_the_same_bytes(
        setting in settings(), kinds in kinds(), sizes in prop::collection::vec(1_usize..2_000_000, 1..8),
    ) {
        let (_place, directory) = gather_dir();
        let bytes = data(&kinds, sizes.iter().sum());
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        for size in sizes {
            let (piece, after) = rest.split_at(size);
            pieces.push(piece);
            rest = after;
        }
        let files = [&pieces[..], &[&bytes[..]]].map(|pieces| {
            let locator = publish(&directory, setting, pieces);
            let file = std::fs::read(path_of(&directory, &locator)).unwrap();
            // Names and the digests over them differ.
            file[HEADER_LEN..file.len() - 24].to_vec()
        });
        prop_assert!(files[0] == files[1]);
    }

    #[test]
    fn no_damage_in_a_compressed_payload_gives_wrong_data(
        setting in settings(), kinds in kinds(), len in 1_usize..3_000_000,
        at: prop::sample::Index, bit in 0..8,
    ) {
        let (_place, directory) = gather_dir();
        let bytes = data(&kinds, len);
        let locator = publish(&directory, setting, &[&bytes]);
        damage(&path_of(&directory, &locator), |len| at.index(len), 1_u8 << bit);
        for payload in all_ways(&directory, &locator) {
            let is_found = matches!(payload, Err(Error::Corrupt { .. } | Error::Incompatible { .. }));
            prop_assert!(is_found);
        }
        let (streamed, _) = stream(&directory, &locator);
        prop_assert!(bytes.starts_with(&streamed));
    }
}

fn damage(path: &Path, at: impl FnOnce(usize) -> usize, bits: u8) {
    let mut file = std::fs::read(path).unwrap();
    let at = at(file.len());
    file[at] ^= bits;
    std::fs::write(path, &file).unwrap();
}

#[test]
fn damage_of_any_byte_of_a_compressed_payload_is_found() {
    let (_place, directory) = gather_dir();
    for setting in compressing() {
        let locator = publish(&directory, setting, &[&data(&[Kind::Text], 2000)]);
        assert!(locator.stored_len < 2000, "{setting}");
        let path = path_of(&directory, &locator);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(cases(3, 1)) {
            damage(&path, |_| at, 0x10);
            let error = collect(&directory, &locator).unwrap_err().to_string();
            let is_stored = (HEADER_LEN..HEADER_LEN + usize::try_from(locator.stored_len).unwrap())
                .contains(&at);
            // The stored bytes are verified before they are decompressed.
            assert_eq!(
                error.contains("chunk 0 of 1 (at byte 0) has checksum"),
                is_stored,
                "{at}: {error}"
            );
            std::fs::write(&path, &whole).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_compressed_costs_no_bytes_and_is_mapped() {
    let (_place, directory) = gather_dir();
    let bytes = data(&[Kind::Noise], 3 * CHUNK_LEN + 17);
    let plain = publish(&directory, CompressionSetting::None, &[&bytes]);
    for setting in compressing() {
        let locator = publish(&directory, setting, &[&bytes]);
        // The overhead is not just below 2 %, but zero.
        assert_eq!(locator.check(), plain.check(), "{setting}");
        let payload = collect(&directory, &locator).unwrap();
        assert_eq!(payload.is_mapped(), directory.file_system().is_mappable());
        assert!(*payload == bytes);
    }
}

#[test]
fn each_chunk_is_compressed_only_where_that_makes_it_shorter() {
    let (_place, directory) = gather_dir();
    let bytes = data(&[Kind::Text, Kind::Noise, Kind::Zeros], 6 * CHUNK_LEN - 9);
    for setting in compressing() {
        let locator = publish(&directory, setting, &[&bytes]);
        let file = std::fs::read(path_of(&directory, &locator)).unwrap();
        let table = &file[file.len() - FOOTER_LEN - 6 * ENTRY_LEN..file.len() - FOOTER_LEN];
        let (entries, _) = table.as_chunks::<ENTRY_LEN>();
        let entries = entries
            .iter()
            .map(|entry| ChunkEntry::from_bytes(entry).unwrap());
        for (index, entry) in (0..).zip(entries) {
            let len = format::chunk_len(locator.raw_len, index);
            assert_eq!(entry.is_raw, index % 3 == 1, "{setting} {index}");
            assert_eq!(entry.is_raw, entry.stored_len as usize == len);
        }
        assert!(*collect(&directory, &locator).unwrap() == bytes);
    }
}

/// Makes a file with arbitrary chunks and correct checksums.
fn forge(
    directory: &GatherDir,
    compression: Compression,
    raw_len: u64,
    chunks: &[(&[u8], bool)],
) -> Locator {
    let header = Header {
        encoding: Encoding(3),
        compression,
        has_checksums: true,
        communicator: directory.facts().communicator,
        world_size: directory.facts().world_size,
        name: PayloadName::new(
            id(1).channel,
            id(1).epoch,
            id(1).rank,
            fsgather_core::sys::random::fresh(),
        ),
    };
    let table: Vec<u8> = chunks
        .iter()
        .flat_map(|(stored, is_raw)| ChunkEntry::of(stored, *is_raw).to_bytes())
        .collect();
    let stored: Vec<u8> = chunks
        .iter()
        .flat_map(|(stored, _)| stored.to_vec())
        .collect();
    let bytes = header.to_bytes();
    let footer = Footer::seal(&bytes, &table, raw_len, stored.len() as u64);
    let locator = Locator::new(&header, &footer);
    let file = [&bytes[..], &stored, &table, &footer.to_bytes()].concat();
    std::fs::write(path_of(directory, &locator), file).unwrap();
    locator
}

/// Compresses `raw`, which must become shorter.
fn compressed(setting: CompressionSetting, raw: &[u8]) -> Vec<u8> {
    let mut room = Vec::new();
    let len = Compression::from(setting).compress(raw, &mut room).unwrap();
    room.truncate(len);
    room
}

#[test]
fn chunks_that_decompress_to_a_wrong_length_are_named() {
    let (_place, directory) = gather_dir();
    let zeros = |len| vec![0; len];
    let (chunk, last) = (CHUNK_LEN, 5000);
    for setting in compressing() {
        let right = compressed(setting, &zeros(chunk));
        let long = compressed(setting, &zeros(chunk + 1));
        let bomb = compressed(setting, &zeros(20 * chunk));
        let short = compressed(setting, &zeros(chunk - 1));
        let garbage = data(&[Kind::Noise], 3000);
        let tail = compressed(setting, &zeros(last));
        let raw_len = (2 * chunk + last) as u64;
        for middle in [
            &long,
            &short,
            &garbage,
            &bomb[..bomb.len().min(chunk - 1)].to_vec(),
        ] {
            let chunks = [(&right[..], false), (middle, false), (&tail, false)];
            let locator = forge(&directory, Compression::from(setting), raw_len, &chunks);
            for payload in all_ways(&directory, &locator) {
                let error = payload.unwrap_err();
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                let text = error.to_string();
                for part in [
                    "chunk 1 of 3 (at byte 1048576) does not decompress to 1048576 bytes",
                    "rank 1",
                ] {
                    assert!(text.contains(part), "{setting}: {text}");
                }
            }
        }
        let chunks = [(&right[..], false), (&right[..], false), (&tail, false)];
        let locator = forge(&directory, Compression::from(setting), raw_len, &chunks);
        assert!(*collect(&directory, &locator).unwrap() == zeros(2 * chunk + last));
    }
}

#[test]
fn a_bomb_writes_no_further_than_the_announced_length() {
    for setting in compressing() {
        let bomb = compressed(setting, &vec![7; 20 * CHUNK_LEN]);
        let mut raw = vec![1; 1000];
        let unpacked = Compression::from(setting).decompress(&bomb, &mut raw[..600]);
        assert!(unpacked.is_err(), "{setting}");
        assert_eq!(raw[600..], [1; 400]);
    }
}

#[test]
fn lengths_in_the_table_that_no_writer_writes_are_refused() {
    let (_place, directory) = gather_dir();
    for setting in compressing() {
        let compression = Compression::from(setting);
        let raw = vec![0; 3000];
        let packed = compressed(setting, &raw);
        let longer = [&packed[..], &[0; 3000]].concat();
        // Compressed, but as long as its content; empty; raw, but shorter; longer than its content.
        let wrong: [(&[u8], bool); 4] = [
            (&longer[..3000], false),
            (&[], false),
            (&raw[..2999], true),
            (&longer[..3001], false),
        ];
        for chunk in wrong {
            let locator = forge(&directory, compression, 4000, &[chunk]);
            let announced = Locator {
                raw_len: 3000,
                ..forge(&directory, compression, 3000, &[chunk])
            };
            for locator in [locator, announced] {
                let error = collect(&directory, &locator).unwrap_err();
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            }
        }
    }
    let locator = forge(&directory, Compression::NONE, 5, &[(b"plain", true)]);
    let text = collect(&directory, &locator).unwrap_err().to_string();
    assert!(text.contains("chunk flags"), "{text}");
}

#[test]
fn a_compressed_length_is_believed_up_to_the_file_size() {
    let (_place, directory) = gather_dir();
    for setting in compressing() {
        let small = publish(&directory, setting, &[&data(&[Kind::Text], 5000)]);
        for (raw_len, stored_len) in [(1 << 50, 1 << 30), (1 << 40, small.stored_len)] {
            let huge = Locator {
                raw_len,
                stored_len,
                chunk_count: chunk_count(raw_len),
                ..small.clone()
            };
            let error = collect(&as_if_on_nfs(&directory), &huge).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
    }
}

#[test]
fn progress_counts_each_raw_byte_once_despite_rereading() {
    let (_place, directory) = gather_dir();
    let directory = as_if_on_nfs(&directory);
    let bytes = data(&[Kind::Text, Kind::Noise], 5 * CHUNK_LEN + 3);
    for setting in compressing() {
        let counted = AtomicU64::new(0);
        let count = |bytes| {
            counted.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        };
        let mut writer = directory
            .create_payload(id(1), Encoding(3), setting, count)
            .unwrap();
        writer.write_all(&bytes).unwrap();
        assert_eq!(writer.written(), bytes.len() as u64);
        let locator = writer.publish().unwrap();
        assert_eq!(counted.swap(0, Ordering::Relaxed), bytes.len() as u64);
        // The first or the last chunk has old contents until the reader has waited once.
        let path = path_of(&directory, &locator);
        let whole = std::fs::read(&path).unwrap();
        for at in [HEADER_LEN + 7, whole.len() - FOOTER_LEN - 6 * ENTRY_LEN - 1] {
            damage(&path, |_| at, 1);
            let payload = directory
                .collect(&locator, &CollectPolicy::default(), &mut |moved| {
                    if moved == 0 {
                        std::fs::write(&path, &whole).unwrap();
                    }
                    count(moved)
                })
                .unwrap();
            assert!(*payload == bytes);
            assert_eq!(counted.swap(0, Ordering::Relaxed), bytes.len() as u64);
        }
    }
}

#[test]
fn the_progress_hook_ends_reading_of_compressed_payloads() {
    let (_place, directory) = gather_dir();
    let ended = Error::config("the call has failed elsewhere");
    for setting in compressing() {
        let locator = publish(&directory, setting, &[&data(&[Kind::Text], 9 * CHUNK_LEN)]);
        let mut calls = 0;
        let policy = CollectPolicy {
            visibility: Duration::from_secs(90),
            ..at_once()
        };
        let outcome = as_if_on_nfs(&directory).collect(&locator, &policy, &mut |_| {
            calls += 1;
            if calls == 3 {
                Err(ended.clone())
            } else {
                Ok(())
            }
        });
        assert_eq!((outcome.unwrap_err(), calls), (ended.clone(), 3));
    }
}

#[test]
fn unsupported_compression_is_refused_with_the_cargo_feature() {
    let (_place, directory) = gather_dir();
    let setting = CompressionSetting::Zstd;
    if check_compression(setting).is_ok() {
        return;
    }
    let feature = "cargo feature `zstd`";
    let refusal = directory.create_payload(id(1), Encoding(3), setting, |_| Ok(()));
    let refusal = refusal.unwrap_err();
    assert!(matches!(refusal, Error::Config { .. }), "{refusal}");
    assert!(refusal.to_string().contains(feature), "{refusal}");
    assert_eq!(std::fs::read_dir(directory.staging()).unwrap().count(), 0);
    let chunks = [(&b"squeezed"[..], false)];
    let locator = forge(&directory, Compression::from(setting), 100, &chunks);
    for payload in all_ways(&directory, &locator) {
        let refusal = payload.unwrap_err();
        assert!(matches!(refusal, Error::Incompatible { .. }), "{refusal}");
        assert!(refusal.to_string().contains(feature), "{refusal}");
    }
}
