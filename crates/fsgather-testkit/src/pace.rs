//! Number of cases that a test tries, and the limit that ends a hang: [`cases`], [`patience`].

use std::{sync::mpsc, thread, time::Duration};

/// Returns `full` if `TEST_TIER=full` is set, as `scripts/test.sh full` does, and `quick` otherwise.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "it is for tests alone")]
pub fn cases<N>(quick: N, full: N) -> N {
    if std::env::var_os("TEST_TIER").is_some_and(|tier| tier == "full") {
        full
    } else {
        quick
    }
}

/// Returns how long a test waits for an event that happens at once unless the code is broken. It only ends a hang, so it is long enough for
/// every busy machine.
#[must_use]
pub fn patience() -> Duration {
    Duration::from_secs(120)
}

/// Yields the processor for a moment, between two checks of a condition that has no notification.
pub fn rest() {
    thread::park_timeout(Duration::from_millis(1));
}

/// Fails the whole test program if `work` takes longer than twice [`patience`]: for work that may hang if the code is broken, and cannot be
/// interrupted.
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
