//! A world of bare machines that has formed: [`formed`].

use std::time::{Duration, Instant};

use fsgather_control::{
    coordinator::{Coordinator, World},
    member::Member,
    message::Join,
};
use fsgather_core::{Peer, ProcessId, Rank, WorldSize};
use uuid::Uuid;

/// Time within which a rank answers what it is doing.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) const LEAD: Duration = Duration::from_secs(2);

/// The coordinator and the members of a world that has just formed, with nothing between them.
pub(crate) fn formed(ranks: u32, timeout: Duration, now: Instant) -> (Coordinator, Vec<Member>) {
    form(world(ranks, timeout), now)
}

/// A world that is yet to form.
pub(crate) fn world(ranks: u32, timeout: Duration) -> World {
    World {
        world_size: WorldSize::new(ranks).unwrap(),
        communicator: Uuid::nil(),
        job: "a test".into(),
        timeout,
        join_timeout: timeout,
        idle_limit: None,
        fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
        lead: Some(LEAD),
        is_introduced: false,
        is_named: false,
        is_patient: false,
    }
}

/// The coordinator and the members of this world once it has formed.
pub(crate) fn form(world: World, now: Instant) -> (Coordinator, Vec<Member>) {
    let (world_size, timeout) = (world.world_size, world.timeout);
    let mut coordinator = Coordinator::new(world, now);
    for rank in world_size.ranks() {
        let join = Join {
            rank,
            world_size,
            nonce: rank.get().into(),
            process: ProcessId::default(),
            timeout,
            start: None,
            attempt: None,
            fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
        };
        coordinator.join(join, now).unwrap();
    }
    coordinator.take_actions();
    let peer = || Peer {
        rank: Rank::ZERO,
        host: "here".into(),
        pid: 1,
    };
    let members = world_size.ranks();
    let members = members.map(|_| Member::new(peer(), timeout, now));
    (coordinator, members.collect())
}
