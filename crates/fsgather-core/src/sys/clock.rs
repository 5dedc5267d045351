//! The time, and letting it pass: [`now`], [`wall`], [`sleep`].

use std::time::{Duration, Instant, SystemTime};

/// Returns the time of the monotonic clock.
#[must_use]
pub fn now() -> Instant {
    crate::sys::ask_model!(model => model.now());
    Instant::now()
}

/// Returns the time of the calendar.
#[must_use]
pub fn wall() -> SystemTime {
    crate::sys::ask_model!(model => model.wall());
    SystemTime::now()
}

/// Lets time pass, if there is no condition to wait for.
#[expect(
    clippy::disallowed_methods,
    reason = "the owner of sleeping; callers have their reasons"
)]
pub fn sleep(duration: Duration) {
    crate::sys::ask_model!(model => model.wait(0, Some(duration)));
    std::thread::sleep(duration);
}

/// Returns the time since `then`.
#[must_use]
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}
