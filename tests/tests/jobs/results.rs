//! Calls that succeed: everybody gets what everybody handed in, by every path, and nothing stays.

use crate::common::{Stage, World, assert_nothing_left, everybody, payload_files, place};

/// Eight ranks take the same steps, and find everything right.
fn eight_ranks(steps: &str, variables: &[(&str, &str)]) {
    let place = place();
    let mut world = World::new(8, place.path());
    for (name, value) in variables {
        world = world.with(name, value);
    }
    let mut stage = Stage::new();
    stage.start_all(&world, |_| format!("join {steps} close"));
    stage.succeed(everybody(8));
    assert_nothing_left(place.path());
}

/// Every call that hands payloads of this length to somebody.
fn every_call(len: &str) -> String {
    format!(
        "all_gather_bytes:{len} all_gather:{len} all_gather_from:{len} \
         gather:0:{len} gather_bytes:5:{len} gather_from:7:{len} broadcast:3:{len}"
    )
}

#[test]
fn large_payloads_arrive_byte_for_byte_through_files_and_nothing_stays() {
    let four_mib = 4 << 20;
    let steps = format!("all_gather_bytes:{four_mib} all_gather:{four_mib} gather:0:{four_mib}");
    eight_ranks(&steps, &[("FSGATHER_TRANSPORT", "filesys")]);
}

#[test]
fn large_payloads_arrive_byte_for_byte_through_memory_and_nothing_stays() {
    let four_mib = 4 << 20;
    let steps = format!("all_gather_bytes:{four_mib} gather:0:{four_mib}");
    eight_ranks(&steps, &[("FSGATHER_TRANSPORT", "memory")]);
}

#[test]
fn uneven_and_empty_payloads_arrive_through_files() {
    eight_ranks(&every_call("100000*"), &[("FSGATHER_TRANSPORT", "filesys")]);
}

#[test]
fn uneven_and_empty_payloads_arrive_through_memory() {
    eight_ranks(&every_call("300000*"), &[("FSGATHER_TRANSPORT", "memory")]);
}

#[test]
fn small_and_empty_payloads_arrive_with_the_control_messages() {
    let steps = [every_call("1000*"), every_call("0"), every_call("1")].join(" ");
    eight_ranks(&steps, &[]);
}

#[test]
fn payloads_of_one_call_may_take_different_ways() {
    // With this limit ranks 1 and 5 send theirs along, 2, 3, 6 and 7 write files.
    eight_ranks(&every_call("30000*"), &[("FSGATHER_INLINE_LIMIT", "32KiB")]);
}

#[test]
fn hundreds_of_calls_in_a_row_leave_nothing() {
    let steps = "all_gather_bytes:100 barrier gather_bytes:1:70000 ".repeat(100);
    eight_ranks(&steps, &[]);
}

#[test]
fn compressed_payloads_arrive_by_every_call_and_nothing_stays() {
    for compression in ["lz4", "zstd:1"] {
        let variables = [
            ("FSGATHER_TRANSPORT", "filesys"),
            ("FSGATHER_COMPRESS", compression),
        ];
        eight_ranks(&every_call("400000*"), &variables);
    }
}

#[test]
fn the_setting_for_compression_reaches_the_payload_files() {
    let place = place();
    let world = World::new(4, place.path()).with("FSGATHER_COMPRESS", "zstd");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join gather_bytes:0:1000000:read close".into());
    stage.wait_at([0], "reading");
    let files = payload_files(place.path());
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let header = std::fs::read(&file).expect("a payload");
        // The compression, as docs/design/on-disk-format.md has it.
        assert_eq!(header[11], 2, "{}", file.display());
    }
    stage.go(0);
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}

#[test]
fn others_return_from_a_gather_before_the_root_has_read() {
    let place = place();
    let world = World::new(4, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        "join gather_bytes:0:1000000:read at:returned barrier close".into()
    });
    stage.wait_at([0], "reading");
    // The root stands still, with three payloads not read yet.
    stage.wait_at([1, 2, 3], "returned");
    stage.go_all([1, 2, 3]);
    stage.go(0);
    stage.wait_at([0], "returned");
    stage.go(0);
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}

#[test]
fn the_root_of_a_gather_holds_one_payload_at_a_time() {
    const MIB: u64 = 1 << 20;
    const PAYLOAD: u64 = 64 * MIB;
    let place = place();
    // Rank 0 hands nothing over, and eight others do.
    let world = World::new(9, place.path());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        format!("join gather_from:0:{PAYLOAD}- peak close")
    });
    let ends = stage.end_all(everybody(9));
    stage.succeed(everybody(9));
    let peaks = ends.iter().map(|end| {
        let mut lines = end.stdout.iter();
        let peak = lines.find_map(|line| line.strip_prefix("peak "));
        peak.and_then(|kib| kib.parse::<u64>().ok())
            .expect("a peak")
            * 1024
    });
    let peaks: Vec<u64> = peaks.collect();
    let bound = PAYLOAD + 32 * MIB;
    assert!(peaks[0] < bound, "the root had {} bytes", peaks[0]);
    // Those that only hand over hold much less than their payload.
    for peak in &peaks[1..] {
        assert!(*peak < 32 * MIB, "a rank had {peak} bytes");
    }
    assert_nothing_left(place.path());
}
