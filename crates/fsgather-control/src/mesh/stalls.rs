//! Transfers in which nothing moves: [`Stalls`].

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use fsgather_core::{CallId, Error, Rank, lock};

use super::idle::Idle;

/// A shorter rest is none.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct TransferStall {
    waits_for: Vec<Rank>,
    idle: Duration,
}

/// For whom this rank waits, by call.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    calls: Mutex<HashMap<CallId, TransferStall>>,
}

impl Stalls {
    fn change<R>(&self, change: impl FnOnce(&mut HashMap<CallId, TransferStall>) -> R) -> R {
        change(&mut lock(&self.calls))
    }

    /// For whom the transfer of a call waits, and for how long nothing has moved in it.
    pub(super) fn of(&self, call: CallId) -> Option<(Vec<Rank>, Duration)> {
        self.change(|calls| {
            let stall = calls.get(&call)?;
            Some((stall.waits_for.clone(), stall.idle))
        })
    }
}

/// Keeps an eye on one transfer, for as long as it takes.
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

    /// Notes that so many bytes have moved, and for whom the transfer waits where none have.
    pub(super) fn saw(&mut self, moved: u64, waits_for: impl FnOnce() -> Vec<Rank>) {
        self.idle = self.clock.record(moved, Instant::now());
        if moved > 0 {
            self.forget();
        } else if self.idle >= SHORTEST {
            let (waits_for, idle) = (waits_for(), self.idle);
            self.is_noted = true;
            self.stalls.change(|calls| {
                calls.insert(self.call, TransferStall { waits_for, idle });
            });
        }
    }

    /// Whether nothing has moved for too long; then `late` says so.
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
