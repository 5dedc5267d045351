//! Calls of ranks that share memory, and the arenas that they map.

use std::fs;

/// Length of payloads that would be in files without shared memory.
pub(crate) const LEN: u32 = 300_000;

/// Number of mappings of arenas in a process.
pub(crate) fn arenas_of(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.matches("memfd:fsgather payloads").count()
}

/// Steps of as many all-gathers, each with other bytes.
pub(crate) fn calls(count: u32, len: u32) -> String {
    let each = |job| format!("job:{job} all_gather_bytes:{len}");
    (1..=count).map(each).collect::<Vec<_>>().join(" ")
}

/// Steps of five ranks: every kind of call, with payloads of several lengths, four times with other bytes, and in groups.
pub(crate) fn every_kind_of_call() -> String {
    let every = |job: u32, len: &str| {
        format!(
            "job:{job} all_gather_bytes:{len} all_gather:{len} all_gather_from:{len} gather:0:{len} gather_bytes:3:{len} \
             gather_from:4:{len} broadcast:2:{len} all_gather_pieces:{len} gather_pieces:1:{len} broadcast_pieces:3:{len} "
        )
    };
    let lens = ["5000*", "70000*", "300000*", "0"];
    let all: String = (1..=4)
        .flat_map(|job| lens.map(|len| every(job, len)))
        .collect();
    let few = calls(3, LEN);
    format!(
        "{all} split:2 {few} gather_bytes:0:{LEN} gather_bytes:1:{LEN} close_group {few} storm:40:7"
    )
}
