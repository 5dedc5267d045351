//! Records nothing: [`Observer`] without the feature `observe`.

use std::time::SystemTime;

use fsgather_config::settings::Trace;
use fsgather_core::{CallEvent, ProcessId, Rank, RankNames, Ticket};
use fsgather_store::{Rules, sweep_calls};

use crate::{calls_place, group_state::GroupState};

/// No recorder.
#[derive(Debug)]
pub(crate) struct Observer {}

#[expect(clippy::unused_self, reason = "observer.rs has the same functions")]
impl Observer {
    pub(crate) const fn of_rank(_: Rank, _: &RankNames, _: &[ProcessId]) -> Self {
        Self {}
    }

    pub(crate) const fn of_thread(_: Rank, _: &[ProcessId]) -> Self {
        Self {}
    }

    pub(crate) const fn observe(&self, _: &Ticket, _: CallEvent<'_>) {}

    pub(crate) const fn fail(&self, _speaks: bool) {}

    pub(crate) const fn end(&self, _closed: bool, _alone: bool) {}

    pub(crate) const fn last_calls(&self) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// Keeps nothing. As with a record, the first rank of a host removes old calls that other jobs have left there.
    pub(crate) fn keep(inner: &GroupState, keep: Trace, _: SystemTime, _: &RankNames) {
        if keep == Trace::Off || !calls_place::is_first_of_host(inner) {
            return;
        }
        let shared = calls_place::shared(inner);
        let Ok(own) = calls_place::own(shared.as_deref()) else {
            return;
        };
        let threads = inner.world.threads();
        let its = threads.clone();
        let started = threads.start(NAME, move || {
            its.guard(NAME, || sweep_calls(&own, Rules::default()));
        });
        if let Err(error) = started {
            tracing::debug!("no thread removes old calls: {error}");
        }
    }
}

/// The name of the thread that removes old calls.
const NAME: &str = "fsgather-calls";
