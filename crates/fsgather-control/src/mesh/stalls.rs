//! Transfers in which nothing moves: [`Stalls`].

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use fsgather_core::{CallId, Error, Rank, lock};

use super::idle::Idle;

/// Shortest time without movement that counts as a stall.
const MIN_STALL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct TransferStall {
    waits_for: Vec<Rank>,
    idle: Duration,
}

/// Ranks that this rank waits for, by call.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    calls: Mutex<HashMap<CallId, TransferStall>>,
}

impl Stalls {
    fn change<R>(&self, change: impl FnOnce(&mut HashMap<CallId, TransferStall>) -> R) -> R {
        change(&mut lock(&self.calls))
    }

    /// Ranks that the transfer of a call waits for, and the time for which nothing has moved in it.
    pub(super) fn of(&self, call: CallId) -> Option<(Vec<Rank>, Duration)> {
        self.change(|calls| {
            let stall = calls.get(&call)?;
            Some((stall.waits_for.clone(), stall.idle))
        })
    }
}

/// Watches one transfer, for as long as it takes.
pub(super) struct Eye<'a> {
    stalls: &'a Stalls,
    call: CallId,
    timeout: Duration,
    clock: Idle,
    idle: Duration,
    is_noted: bool,
}

impl<'a> Eye<'a> {
    pub(super) fn new(stalls: &'a Stalls, call: CallId, timeout: Duration) -> Self {
        Self {
            stalls,
            call,
            timeout,
            clock: Idle::since(Instant::now()),
            idle: Duration::ZERO,
            is_noted: false,
        }
    }

    /// Notes that `moved` bytes have moved, and the ranks that the transfer waits for if none have.
    pub(super) fn saw(&mut self, moved: u64, waits_for: impl FnOnce() -> Vec<Rank>) {
        self.saw_at(Instant::now(), moved, waits_for);
    }

    fn saw_at(&mut self, now: Instant, moved: u64, waits_for: impl FnOnce() -> Vec<Rank>) {
        self.idle = self.clock.record(moved, now);
        if moved > 0 {
            self.forget();
        } else if self.idle >= MIN_STALL {
            let (waits_for, idle) = (waits_for(), self.idle);
            self.is_noted = true;
            self.stalls.change(|calls| {
                calls.insert(self.call, TransferStall { waits_for, idle });
            });
        }
    }

    /// Returns the error `late` if nothing has moved for too long.
    pub(super) fn check(&self, late: impl FnOnce() -> Error) -> Result<(), Error> {
        if self.idle < self.timeout {
            return Ok(());
        }
        Err(late())
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.is_noted) {
            self.stalls.change(|calls| calls.remove(&self.call));
        }
    }
}

impl Drop for Eye<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{ChannelId, Epoch};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3);

    fn call() -> CallId {
        CallId {
            channel: ChannelId::WORLD,
            epoch: Epoch::new(4),
        }
    }

    /// An eye on that call, and the moment some tenths of a second after it was opened.
    fn opened(stalls: &Stalls) -> (Eye<'_>, impl Fn(u32) -> Instant + use<>) {
        let eye = Eye::new(stalls, call(), TIMEOUT);
        let start = Instant::now();
        (eye, move |tenths| {
            start + Duration::from_millis(100) * tenths
        })
    }

    /// Checks a transfer that waits for rank 2 each tenth of a second, as a rank that moves bytes does.
    fn rest(eye: &mut Eye<'_>, at: &impl Fn(u32) -> Instant, tenths: std::ops::Range<u32>) {
        for tenth in tenths {
            eye.saw_at(at(tenth), 0, || vec![Rank::new(2)]);
        }
    }

    fn waits_for(stalls: &Stalls) -> Option<Vec<Rank>> {
        stalls.of(call()).map(|(waits_for, _)| waits_for)
    }

    #[test]
    fn stalled_transfer_reports_its_peer_after_one_second() {
        let stalls = Stalls::default();
        let (mut eye, at) = opened(&stalls);
        eye.saw_at(at(0), 7, Vec::new);
        rest(&mut eye, &at, 1..10);
        assert_eq!(waits_for(&stalls), None, "a pause is no stall");
        rest(&mut eye, &at, 10..21);
        let (ranks, idle) = stalls.of(call()).unwrap();
        assert_eq!(ranks, [Rank::new(2)]);
        assert_eq!(idle, Duration::from_secs(2));
        eye.saw_at(at(21), 1, Vec::new);
        assert_eq!(waits_for(&stalls), None);
    }

    #[test]
    fn of_a_transfer_that_is_over_nothing_is_told() {
        let stalls = Stalls::default();
        let (mut eye, at) = opened(&stalls);
        rest(&mut eye, &at, 0..21);
        assert!(waits_for(&stalls).is_some());
        drop(eye);
        assert_eq!(waits_for(&stalls), None);
    }

    #[test]
    fn a_transfer_without_progress_is_late_at_the_time_out() {
        let stalls = Stalls::default();
        let (mut eye, at) = opened(&stalls);
        let late = || Error::config("late");
        eye.saw_at(at(0), 1, Vec::new);
        rest(&mut eye, &at, 1..30);
        assert_eq!(eye.check(late), Ok(()));
        rest(&mut eye, &at, 30..31);
        assert_eq!(eye.check(late), Err(Error::config("late")));
    }
}
