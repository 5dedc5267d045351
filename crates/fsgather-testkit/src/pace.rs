//! Number of cases that a test tries, and the limit that ends a hang: [`cases`], [`patience`].

use std::{fs, sync::mpsc, thread, time::Duration};

/// Returns `full` if `FSGATHER_TESTS=full` is set, as `scripts/test.sh full` does, and `quick` otherwise.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "it is for tests alone")]
pub fn cases<N>(quick: N, full: N) -> N {
    if std::env::var_os("FSGATHER_TESTS").is_some_and(|tier| tier == "full") {
        full
    } else {
        quick
    }
}

/// Returns how long a test waits for an event that comes at once unless the code is broken. It only ends a hang, so it is long enough for
/// every busy machine.
#[must_use]
pub fn patience() -> Duration {
    Duration::from_mins(2)
}

/// Leaves the processor to others for a moment, between two looks at something that nobody announces.
pub fn rest() {
    thread::park_timeout(Duration::from_millis(1));
}

/// Ends the whole test program as failed if `work` takes longer than twice [`patience`]: for what may wait for ever where the code is
/// broken, and cannot be asked to end.
#[expect(
    clippy::exit,
    reason = "threads that wait for ever can be ended only so"
)]
pub fn within_patience<R>(work: impl FnOnce() -> R) -> R {
    let limit = 2 * patience();
    let name = thread::current().name().unwrap_or_default().to_owned();
    let (ends, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} has not ended within {limit:?}");
            std::process::exit(1);
        }
    });
    let result = work();
    drop(ends);
    result
}

/// What a promise about time allows here and now.
///
/// A promise holds where a program gets the processor when it needs it. With several programs for each processor everything takes
/// that many times longer, and twice that, since what is measured has several steps that wait for each other. Where nothing else
/// runs this is the promise itself, or a little more.
#[must_use]
pub fn allowed(promise: Duration) -> Duration {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    promise.mul_f64(slowdown(&load, processors))
}

/// How much longer things take, by the text of `/proc/loadavg`: never less than 1.
#[expect(
    clippy::cast_precision_loss,
    reason = "no machine has so many processors"
)]
fn slowdown(load: &str, processors: usize) -> f64 {
    let mut words = load.split_whitespace();
    let last_minute: f64 = words.next().map_or(0.0, |word| word.parse().unwrap_or(0.0));
    let now = words.nth(2).and_then(|word| word.split('/').next());
    let now: f64 = now.map_or(0.0, |word| word.parse().unwrap_or(0.0));
    let each = last_minute.max(now) / processors as f64;
    (2.0 * each).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_machine_allows_what_is_promised_and_a_busy_one_more() {
        let of = |load, processors| (slowdown(load, processors) * 10.0).round() / 10.0;
        let cases = [
            ("0.00 0.00 0.00 1/150 4711", 2, 1.0),
            ("0.90 0.00 0.00 1/150 4711", 2, 1.0),
            ("25.00 3.00 1.00 3/150 4711", 2, 25.0),
            ("0.10 3.00 1.00 26/150 4711", 2, 26.0),
            ("25.00 3.00 1.00 26/150 4711", 64, 1.0),
            ("", 2, 1.0),
        ];
        for (load, processors, right) in cases {
            assert!((of(load, processors) - right).abs() < 0.05, "{load}");
        }
        assert!(allowed(Duration::from_secs(1)) >= Duration::from_secs(1));
    }
}
