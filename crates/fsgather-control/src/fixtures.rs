//! Worlds and ranks that tests of this crate begin with.

use std::time::Duration;

use fsgather_core::{ProcessId, Rank, WorldSize};
use uuid::Uuid;

use crate::{coordinator::World, job_credentials::JobFingerprint, message::Join};

/// Longer than any test; the time-outs of all that is made here.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// A world that is yet to form.
pub(crate) fn world(world_size: u32) -> World {
    World {
        world_size: WorldSize::new(world_size).unwrap(),
        communicator: Uuid::nil(),
        job: "a test".into(),
        timeout: LONG_TIMEOUT,
        join_timeout: LONG_TIMEOUT,
        idle_limit: None,
        fingerprint: JobFingerprint::default(),
        lead: None,
        is_introduced: false,
        is_named: false,
        is_patient: false,
    }
}

/// A process that asks to be a rank of such a world.
pub(crate) fn join(rank: u32, world_size: u32, nonce: u128) -> Join {
    Join {
        rank: Rank::new(rank),
        world_size: WorldSize::new(world_size).unwrap(),
        nonce,
        process: ProcessId::default(),
        timeout: LONG_TIMEOUT,
        start: None,
        attempt: None,
        fingerprint: JobFingerprint::default(),
    }
}
