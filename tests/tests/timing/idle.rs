//! Watches whether other processes use this machine: [`is_machine_idle`].

use std::{fs, thread, time::Duration};

/// Time for which the machine is watched.
const WATCHED: Duration = Duration::from_secs(2);

/// The share of the processors that may be busy on a quiet machine, in percent.
const MAX_BUSY_PERCENT: u64 = 20;

/// Watches the machine for a while, in which this program starts nothing.
pub(crate) fn is_machine_idle() -> bool {
    let before = processor_times();
    thread::park_timeout(WATCHED);
    let after = processor_times();
    let busy = after.busy - before.busy;
    let all = busy + after.idle - before.idle;
    busy * 100 <= all * MAX_BUSY_PERCENT
}

/// Time of all processors since the machine started, in ticks.
struct ProcessorTimes {
    busy: u64,
    idle: u64,
}

fn processor_times() -> ProcessorTimes {
    let stat = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let line = stat.lines().next().expect("the line of all processors");
    let fields = line.split_whitespace().skip(1);
    let ticks: Vec<u64> = fields
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let idle = ticks[3] + ticks[4];
    ProcessorTimes {
        busy: ticks.iter().sum::<u64>() - idle,
        idle,
    }
}
