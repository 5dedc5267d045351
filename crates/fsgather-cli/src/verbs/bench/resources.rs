//! Measures the resources of this process: its peak memory, and whether its threads are working.

use std::{
    fs, io, thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use crate::failure::Failure;

/// Makes the system restart its count of this process's peak memory.
///
/// If the system refuses, the figures are those since the process began.
pub(super) fn forget_peak() {
    // Only the figure of this process changes; see proc(5).
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Peak memory of this process, in bytes: `VmHWM`.
///
/// # Errors
///
/// Returns an error if the system does not report it.
pub(super) fn peak() -> Result<u64, Failure> {
    const OPERATION: &str = "find out how much memory this process has held";
    let status = fs::read_to_string("/proc/self/status").map_err(Failure::system(OPERATION))?;
    peak_in(&status).ok_or_else(|| {
        Failure::system(OPERATION)(io::Error::other("no VmHWM in /proc/self/status"))
    })
}

fn peak_in(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Duration of each check for working threads.
const LOOK: Duration = Duration::from_millis(3);

/// Processor time in that duration that counts as none.
const NOTHING: Duration = Duration::from_micros(300);

/// Maximum time of the wait.
const TIME_LIMIT: Duration = Duration::from_millis(500);

/// Waits until no thread of this process is working.
pub(super) fn come_to_rest() {
    let started = Instant::now();
    let mut before = processor_time();
    while started.elapsed() < TIME_LIMIT {
        pause();
        let now = processor_time();
        if now.saturating_sub(before) < NOTHING {
            return;
        }
        before = now;
    }
}

/// The processor time that all threads of this process have used.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when threads of the library have nothing more to do"
)]
fn pause() {
    thread::sleep(LOOK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status() {
        let status = "Name:\tx\nVmPeak:\t  999 kB\nVmHWM:\t   12 kB\nVmRSS:\t 10 kB\n";
        assert_eq!(peak_in(status), Some(12 * 1024));
        assert_eq!(peak_in("Name:\tx\n"), None);
    }

    #[test]
    fn memory_that_is_used_counts() {
        let before = peak().unwrap();
        let held = vec![1_u8; 32 << 20];
        assert!(peak().unwrap() >= before.min(32 << 20));
        drop(held);
    }

    #[test]
    fn the_processor_time_grows_with_work() {
        let before = processor_time();
        while processor_time() == before {}
    }
}
