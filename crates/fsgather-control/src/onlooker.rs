//! Reports the activity of ranks to callers on rank 0: [`CoordinatorEyes`].

use std::sync::{Arc, Weak};

use fsgather_core::{Onlooker, Rank, RollCall};

use crate::carrier::Carrier;

/// Asks through a carrier, for as long as there is one.
pub(crate) struct CoordinatorEyes<W, D> {
    /// Shared state of the ranks of a world, which this does not own.
    world: Weak<W>,
    carrier: fn(&W) -> Option<&D>,
}

impl<W, D> CoordinatorEyes<W, D> {
    /// `carrier` returns `None` once the world has ended.
    pub(crate) fn new(world: &Arc<W>, carrier: fn(&W) -> Option<&D>) -> Self {
        Self {
            world: Arc::downgrade(world),
            carrier,
        }
    }
}

impl<W: Send + Sync, D: Carrier> Onlooker for CoordinatorEyes<W, D> {
    fn look_at(&self, ranks: &[Rank]) {
        if let Some(world) = self.world.upgrade()
            && let Some(carrier) = (self.carrier)(&world)
        {
            carrier.coordinate(|coordinator, now| coordinator.look_at(ranks, now));
        }
    }

    fn roll_call(&self, ranks: &[Rank]) -> RollCall {
        let world = self.world.upgrade();
        let carrier = world.as_ref().and_then(|world| (self.carrier)(world));
        let told = carrier.and_then(|carrier| {
            carrier.coordinate(|coordinator, now| coordinator.roll_call(ranks, now))
        });
        told.unwrap_or_default()
    }
}
