//! Announces payloads in memory that ranks share.

use bytes::Bytes;
use fsgather_arena::Location;
use fsgather_core::{CallEvent, Contribution, Error};

use crate::{
    call::guard::CallGuard,
    payload::{
        header::PayloadHeader,
        input::HeldInput,
        shared_memory::{Reach, SMALLEST, Share},
        writer::{Ready, body},
    },
};

/// Returns the minimum length of payloads that go there, in bytes; payloads of up to `inline_limit` can travel with
/// announcements.
pub(super) const fn least(reach: Reach, inline_limit: usize) -> u64 {
    match reach {
        // Payloads that go to other hosts arrive sooner with the announcement.
        Reach::Host if inline_limit as u64 >= SMALLEST => inline_limit as u64 + 1,
        Reach::Host | Reach::Recipients => SMALLEST,
    }
}

/// Announces a payload in shared memory; `kept` are its bytes if this rank also has a copy of them.
pub(super) fn placed<'b>(
    guard: &CallGuard,
    share: &Share,
    location: Location,
    kept: Option<Bytes>,
) -> Result<Ready<'b>, Error> {
    let len = location.len();
    match (share.reach(), kept) {
        (Reach::Recipients, kept) => {
            let own = kept.map_or(HeldInput::Gone, HeldInput::Shared);
            announced(guard, PayloadHeader::Shared(location), len, own)
        }
        (Reach::Host, Some(kept)) => {
            let own = HeldInput::Held(kept);
            announced(guard, PayloadHeader::Placed(location), len, own)
        }
        (Reach::Host, None) => {
            let own = share.lease(guard.inner.world.rank, &location);
            let own = own.ok_or_else(|| {
                guard.raised("its own payload has gone from memory that ranks share")
            })?;
            let own = HeldInput::Placed(own);
            announced(guard, PayloadHeader::Placed(location), len, own)
        }
    }
}

/// Announces a payload that has been handed over; `own` is this rank's part of the result.
pub(super) fn announced<'b>(
    guard: &CallGuard,
    announcement: PayloadHeader,
    len: u64,
    own: HeldInput<'b>,
) -> Result<Ready<'b>, Error> {
    guard.observe(CallEvent::Expected { bytes: len });
    Ok(Ready {
        contribution: Contribution::inline(body(guard, announcement)?),
        own,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_payloads_skip_shared_memory() {
        for (reach, inline_limit, from) in [
            (Reach::Host, 65_536, 65_537),
            (Reach::Host, 4096, 4097),
            (Reach::Host, 4095, SMALLEST),
            (Reach::Host, 0, SMALLEST),
            (Reach::Recipients, 65_536, SMALLEST),
            (Reach::Recipients, 0, SMALLEST),
        ] {
            assert_eq!(least(reach, inline_limit), from, "{reach:?} {inline_limit}");
        }
    }
}
