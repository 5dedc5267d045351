//! This process's direct connections to other ranks: [`Links`].

use std::sync::{Arc, Mutex, OnceLock};

use fsgather_control::{
    fresh,
    mesh::{Mesh, MeshConfig},
};
use fsgather_core::{Error, lock};

use crate::{join::local_context::LinkSettings, world_state::WorldState};

/// This process's direct connections to other ranks: one listener, with the world's rank numbers, for the world
/// and all its groups.
#[derive(Default)]
pub(crate) struct Links {
    /// What the ranks of this world alone know, as its rank 0 has drawn it.
    secret: OnceLock<[u8; 32]>,
    /// Never held while others are waited for.
    mesh: Mutex<Option<Arc<Mesh>>>,
}

impl Links {
    /// The secret that rank 0 tells all ranks.
    pub(crate) fn draw_secret(&self) -> [u8; 32] {
        *self.secret.get_or_init(fresh)
    }

    /// Keeps what rank 0 has told.
    pub(crate) fn keep_secret(&self, told: [u8; 32]) {
        self.secret.get_or_init(|| told);
    }

    /// The listener, which is started if there is none; nothing in a world that has not been told a secret.
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

    /// The listener, if there is one.
    pub(crate) fn mesh(&self) -> Option<Arc<Mesh>> {
        lock(&self.mesh).clone()
    }

    /// Stops listening if no group uses it.
    pub(crate) fn release(&self) {
        let mut mesh = lock(&self.mesh);
        // Whoever has it holds it, and gets it here only.
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
