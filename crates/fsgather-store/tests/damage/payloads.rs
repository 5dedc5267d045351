//! Payload files of each kind, published and collected by the real code.

use std::{
    fs,
    io::{Read, Write},
    sync::Arc,
    time::Duration,
};

use fsgather_core::{ChannelId, CompressionSetting, Epoch, Error, Rank};
use fsgather_store::{
    CollectPolicy, Encoding, GatherDir, Locator, PayloadId,
    format::{CHUNK_LEN, HEADER_LEN},
};

use crate::{
    records::{gather_dir, this},
    specimen::{Answer, Reading, Specimen},
};

fn publish(directory: &GatherDir, rank: u32, setting: CompressionSetting, bytes: &[u8]) -> Locator {
    let id = PayloadId {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(5),
        rank: Rank::new(rank),
    };
    let mut writer = directory
        .create_payload(id, Encoding(0), setting, |_| Ok(()))
        .unwrap();
    writer.write_all(bytes).unwrap();
    writer.publish().unwrap()
}

/// Bytes that differ everywhere, and can be compressed a little.
fn pattern(len: usize) -> Vec<u8> {
    let lines = (0_u32..)
        .flat_map(|line| format!("{line} {}\n", line.wrapping_mul(2_654_435_761)).into_bytes());
    lines.take(len).collect()
}

fn at_once() -> CollectPolicy {
    CollectPolicy {
        visibility: Duration::ZERO,
        ..CollectPolicy::default()
    }
}

/// Reads a payload as a whole and as a stream.
fn read(directory: &GatherDir, locator: &Locator, expected: &[u8]) -> Reading {
    let streamed = || -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let mut reader = directory.open_payload(locator, &at_once(), |_| Ok(()))?;
        let Err(error) = reader.read_to_end(&mut bytes) else {
            return Ok(bytes);
        };
        assert!(expected.starts_with(&bytes), "wrong bytes before {error}");
        Err(reader.take_error().unwrap())
    };
    let collected = directory.collect(locator, &at_once(), &mut |_| Ok(()));
    match (collected, streamed()) {
        (Ok(whole), Ok(stream)) if *whole == *expected && stream == expected => Reading::Right,
        (Err(error), Err(also)) if error.to_string() == also.to_string() => Reading::Refused(error),
        (whole, stream) => Reading::Wrong(format!(
            "{:?}, {:?}",
            whole.map(|bytes| bytes.len()),
            stream.map(|bytes| bytes.len())
        )),
    }
}

fn specimen(len: usize, setting: CompressionSetting) -> Specimen {
    let (place, directory) = gather_dir(1, this());
    let (_elsewhere, stranger) = gather_dir(2, this());
    let expected = pattern(len);
    let locator = publish(&directory, 1, setting, &expected);
    let path_in = |directory: &GatherDir, locator: &Locator| {
        directory
            .path()
            .join("payloads")
            .join(locator.name.to_string())
    };
    let path = path_in(&directory, &locator);
    // Two payloads of the same length: of another rank, and of the same rank in another job.
    let mut other = expected.clone();
    if let Some(last) = other.last_mut() {
        *last ^= 1;
    }
    let others = [
        path_in(&directory, &publish(&directory, 2, setting, &other)),
        path_in(&stranger, &publish(&stranger, 1, setting, &expected)),
    ];
    let others = others.map(|path| fs::read(path).unwrap()).to_vec();
    let file_len = fs::read(&path).unwrap().len();
    let stored = usize::try_from(locator.stored_len).unwrap();
    let table = HEADER_LEN + stored;
    let edges = (0..=stored / CHUNK_LEN).flat_map(|chunk| {
        let edge = HEADER_LEN + chunk * CHUNK_LEN;
        edge.saturating_sub(2)..edge + 3
    });
    let mut lengths: Vec<usize> = (0..=HEADER_LEN)
        .chain(edges)
        .chain(table - 2..file_len)
        .collect();
    lengths.retain(|&cut| cut < file_len);
    lengths.sort_unstable();
    lengths.dedup();
    let name = format!("a payload of {len} bytes, compression {setting}");
    let reading = move || read(&directory, &locator, &expected);
    let specimen = Specimen::small(&name, path, Answer::Error, &place, reading);
    Specimen {
        lengths,
        bytes: (0..HEADER_LEN).chain(table..file_len).collect(),
        ..specimen.with_others(others, false)
    }
}

/// Payloads that are empty, short, and of two and a half chunks; with each compression of this build, and without.
pub(crate) fn all() -> Vec<Specimen> {
    let settings = [CompressionSetting::None, CompressionSetting::Zstd];
    let lengths = [0, 9, 5 * CHUNK_LEN / 2];
    let built = settings
        .iter()
        .filter(|setting| fsgather_store::check_compression(**setting).is_ok());
    let all = built.flat_map(|setting| lengths.map(|len| specimen(len, *setting)));
    all.collect()
}

/// A payload in a directory.
pub(crate) fn publish_one(directory: &GatherDir) -> Arc<std::path::Path> {
    let locator = publish(directory, 1, CompressionSetting::None, b"precious");
    directory
        .path()
        .join("payloads")
        .join(locator.name.to_string())
        .into()
}
