//! Measures the memory for writing and reading a large compressed payload as a stream. Alone in its process,
//! because it reads the peak memory of the whole process.
#![expect(clippy::unwrap_used, reason = "helpers of a test fail it by panicking")]

use std::{
    io::{Read, Write},
    time::SystemTime,
};

use fsgather_core::{
    ChannelId, CompressionSetting, Epoch, Error, GatherId, ProcessId, Rank, Salt, WorldSize,
};
use fsgather_store::{CollectPolicy, Encoding, GatherDir, OwnerRecord, PayloadId, check_writable};
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const PAYLOAD: u64 = 192 * MIB;

/// Makes a gather directory for the test.
fn gather_dir(place: &std::path::Path) -> GatherDir {
    let gather = GatherId::new(SystemTime::now(), Salt::from_random(7));
    let owner = OwnerRecord {
        process: ProcessId::default(),
        uid: 0,
        user: String::new(),
        job: None,
        world_size: WorldSize::ONE,
        gather,
        communicator: Uuid::nil(),
        created: gather.time(),
        ranks: Vec::new(),
    };
    let own = check_writable(place).unwrap();
    GatherDir::create(place, 0o700, &owner, own).unwrap()
}

/// Returns the peak memory of this process in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let kib = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

#[test]
fn a_large_compressed_payload_is_streamed_in_little_memory() {
    let place = tempfile::tempdir().unwrap();
    let directory = gather_dir(place.path());
    let lines = (0..20_000).map(|line| format!("{{\"id\": {}}}\n", line * 7919));
    let piece = lines.collect::<String>().into_bytes();
    let settings = [CompressionSetting::None, CompressionSetting::Zstd];
    // Only settings that this build supports.
    for setting in settings
        .into_iter()
        .filter(|its| fsgather_store::check_compression(*its).is_ok())
    {
        let id = PayloadId {
            channel: ChannelId::WORLD,
            epoch: Epoch::FIRST,
            rank: Rank::ZERO,
        };
        let hook = |_| Ok::<_, Error>(());
        let mut writer = directory
            .create_payload(id, Encoding(0), setting, hook)
            .unwrap();
        while writer.written() < PAYLOAD {
            writer.write_all(&piece).unwrap();
        }
        let locator = writer.publish().unwrap();
        let is_shorter = locator.stored_len < locator.raw_len / 2;
        assert_eq!(is_shorter, setting != CompressionSetting::None);
        let policy = CollectPolicy::default();
        let mut reader = directory.open_payload(&locator, &policy, hook).unwrap();
        let mut buffer = vec![0; piece.len()];
        for _ in 0..locator.raw_len / piece.len() as u64 {
            reader.read_exact(&mut buffer).unwrap();
            assert!(buffer == piece);
        }
        assert_eq!(reader.read(&mut buffer).unwrap(), 0);
        directory.reclaim(locator.name).unwrap();
        let peak = peak();
        println!("{setting}: at most {} MiB", peak / MIB);
        assert!(peak < 32 * MIB, "{setting}: {peak} bytes");
    }
    assert!(directory.remove().is_complete());
}
