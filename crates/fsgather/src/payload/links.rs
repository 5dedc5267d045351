//! This process's direct connections to other ranks: [`Links`].

use std::sync::{Arc, Mutex, OnceLock};

use fsgather_control::{
    fresh,
    mesh::{Mesh, MeshConfig},
};
use fsgather_core::{Error, lock};

use crate::{join::local_context::LinkSettings, world_state::WorldState};

/// This process's direct connections to other ranks: one listener, with the world's rank numbers, for the world and all
/// its groups.
#[derive(Default)]
pub(crate) struct Links {
    /// The secret that only the ranks of this world know, drawn by its rank 0.
    secret: OnceLock<[u8; 32]>,
    /// Never locked while waiting for other ranks.
    mesh: Mutex<Option<Arc<Mesh>>>,
}

impl Links {
    /// Returns the secret that rank 0 sends to all ranks.
    pub(crate) fn draw_secret(&self) -> [u8; 32] {
        *self.secret.get_or_init(fresh)
    }

    /// Keeps the secret that rank 0 has sent.
    pub(crate) fn keep_secret(&self, told: [u8; 32]) {
        self.secret.get_or_init(|| told);
    }

    /// Returns the listener, and starts it if there is none; `None` in a world without a secret.
    pub(crate) fn listen(
        &self,
        world: &WorldState,
        settings: &LinkSettings,
    ) -> Option<Result<Arc<Mesh>, Error>> {
        let secret = *self.secret.get()?;
        let mut mesh = lock(&self.mesh);
        if let Some(known) = &*mesh {
            return Some(Ok(Arc::clone(known)));
        }
        let listening = Mesh::listen(&MeshConfig {
            rank: world.rank,
            communicator: world.communicator,
            secret,
            ports: settings.ports.clone(),
            interfaces: Arc::clone(&settings.interfaces),
            timeout: settings.timeout,
            processes: world.processes.clone(),
            network_namespace: settings.network_namespace,
            threads: world.threads(),
        });
        Some(listening.map(|listening| Arc::clone(mesh.insert(Arc::new(listening)))))
    }

    /// Returns the listener, if there is one.
    pub(crate) fn mesh(&self) -> Option<Arc<Mesh>> {
        lock(&self.mesh).clone()
    }

    /// Stops listening if no group uses it.
    pub(crate) fn release(&self) {
        let mut mesh = lock(&self.mesh);
        // All users of it hold a reference, and get it only here.
        let unused = mesh.take_if(|mesh| Arc::strong_count(mesh) == 1);
        drop(mesh);
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_drawn_once_and_no_two_worlds_have_the_same() {
        let (one, other) = (Links::default(), Links::default());
        let drawn = one.draw_secret();
        assert_eq!(one.draw_secret(), drawn);
        assert_ne!(other.draw_secret(), drawn);
        assert_ne!(drawn, [0; 32]);
        let told = Links::default();
        told.keep_secret(drawn);
        assert_eq!(told.draw_secret(), drawn);
    }
}
