//! Measures the cost and the gain of compression: writes and reads payloads of three kinds of bytes in a directory, with every compression
//! of this build.
//!
//! ```sh
//! cargo run --release -p fsgather-bench --bin compression -- /tmp 256
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::{
    env,
    io::Write,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use fsgather_core::{
    ChannelId, CompressionSetting, Epoch, Error, GatherId, ProcessId, Rank, Salt, WorldSize,
};
use fsgather_store::{
    CollectPolicy, Encoding, GatherDir, OwnerRecord, PayloadId, check_writable, make_rendezvous,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

/// Number of measurements of each case; the fastest counts, since other load on the machine only slows it down.
const TIMES: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let place = arguments.next().unwrap_or_else(|| "/tmp".into());
    let mib: usize = arguments.next().map_or(Ok(256), |text| text.parse())?;
    println!(
        "{:8} {:8} {:>12} {:>14} {:>14}",
        "bytes", "setting", "left", "write MiB/s", "read MiB/s"
    );
    for (kind, bytes) in kinds(mib << 20)? {
        for setting in [CompressionSetting::None, CompressionSetting::Zstd] {
            if fsgather_store::check_compression(setting).is_err() {
                continue;
            }
            let [mut write, mut read] = [Duration::MAX; 2];
            let mut left = 0;
            for _ in 0..TIMES {
                let measured = measure(Path::new(&place), &bytes, setting)?;
                write = write.min(measured.write);
                read = read.min(measured.read);
                left = measured.stored_len.div_ceil(1024);
            }
            let speed = |time: Duration| (mib as u128 * 1_000_000) / time.as_micros().max(1);
            println!(
                "{kind:8} {:8} {left:>8} KiB {:>14} {:>14}",
                setting.to_string(),
                speed(write),
                speed(read)
            );
        }
    }
    Ok(())
}

/// Three kinds of bytes: incompressible, similar to most results, and most easily compressed.
fn kinds(len: usize) -> Result<[(&'static str, Vec<u8>); 3], std::io::Error> {
    let mut random = StdRng::seed_from_u64(7);
    let mut noise = vec![0; len];
    random.fill_bytes(&mut noise);
    let mut text = Vec::with_capacity(len + 200);
    let mut image = 0;
    while text.len() < len {
        let word = random.next_u64();
        image += word % 7;
        writeln!(
            text,
            "{{\"image_id\": {image}, \"category_id\": {}, \"bbox\": [{}.{:02}, {}.{:02}, {}.{}, {}.{}], \
             \"score\": 0.{:06}}}",
            word % 91,
            word % 640,
            (word >> 10) % 100,
            (word >> 17) % 480,
            (word >> 23) % 100,
            (word >> 30) % 200,
            (word >> 36) % 10,
            (word >> 40) % 200,
            (word >> 46) % 10,
            (word >> 44) % 1_000_000,
        )?;
    }
    text.truncate(len);
    Ok([("random", noise), ("JSON", text), ("zeros", vec![0; len])])
}

struct Measured {
    write: Duration,
    read: Duration,
    stored_len: u64,
}

/// Publishes and collects a payload once.
fn measure(place: &Path, bytes: &[u8], setting: CompressionSetting) -> Result<Measured, Error> {
    let rendezvous = make_rendezvous(place)?;
    let directory = gather_dir(&rendezvous)?;
    let id = PayloadId {
        channel: ChannelId::WORLD,
        epoch: Epoch::FIRST,
        rank: Rank::ZERO,
    };
    let begun = Instant::now();
    let mut writer = directory.create_payload(id, Encoding(0), setting, |_| Ok(()))?;
    // Publishing also returns errors of these writes.
    let _ = writer.write_all(bytes);
    let locator = writer.publish()?;
    let write = begun.elapsed();
    let begun = Instant::now();
    let payload = directory.collect(&locator, &CollectPolicy::default(), &mut |_| Ok(()))?;
    let read = begun.elapsed();
    assert!(*payload == *bytes, "what was read is not what was written");
    drop(payload);
    let removal = directory.remove();
    assert!(removal.is_complete(), "{removal}");
    Ok(Measured {
        write,
        read,
        stored_len: locator.stored_len,
    })
}

fn gather_dir(rendezvous: &Path) -> Result<GatherDir, Error> {
    let gather = GatherId::new(SystemTime::now(), Salt::from_random(1));
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
    GatherDir::create(rendezvous, 0o700, &owner, check_writable(rendezvous)?)
}
