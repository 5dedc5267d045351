//! How ranks connect to each other, for payloads that go from memory to memory.
//!
//! Every rank listens and tells where; then each connects to its neighbour. If any cannot, all go through
//! rank 0 instead, with one warning: that works wherever a communicator could be made, but is slow.

use std::sync::Arc;

use fsgather_control::mesh::{Mesh, MeshAddress, MeshConfig};
use fsgather_core::{Error, Rank};

use super::SetUp;
use crate::{place::Place, sharing::Talk};

impl SetUp<'_> {
    /// Connects all ranks to each other, or finds out together that it cannot be.
    pub(super) fn connect(&self, secret: [u8; 32]) -> Result<Place, Error> {
        let world = &self.inner.world;
        if let Some(known) = world.known_mesh() {
            return Ok(known);
        }
        let Some(links) = &world.ground.links else {
            return Ok(Place::Relay);
        };
        let rank = self.inner.exchange.rank();
        let mesh = Mesh::listen(&MeshConfig {
            rank,
            communicator: world.communicator,
            secret,
            ports: links.ports.clone(),
            interfaces: Arc::clone(&links.interfaces),
            encrypt: links.encrypt,
            patience: links.patience,
            processes: world.processes.clone(),
            network_namespace: links.network_namespace,
        });
        let own = mesh
            .as_ref()
            .map(|mesh| mesh.address().clone())
            .map_err(Error::to_string);
        let told: Vec<Result<MeshAddress, String>> = self.tell_all(&own)?;
        let addresses: Result<Vec<MeshAddress>, String> = told.into_iter().collect();
        let (mesh, addresses) = match (mesh, addresses) {
            (Ok(mesh), Ok(addresses)) => (mesh, addresses),
            (_, addresses) => return Ok(self.relay(addresses.err())),
        };
        mesh.know(addresses)?;
        let members = &self.inner.members;
        let next = members.get((rank.index() + 1) % members.len());
        let reached: Result<(), String> = next.map_or(Ok(()), |next| {
            mesh.prepare(*next, &mut |_| Ok(()))
                .map_err(|error| error.to_string())
        });
        let reached: Vec<Result<(), String>> = self.tell_all(&reached)?;
        match reached.into_iter().find_map(Result::err) {
            None => Ok(Place::Mesh(Arc::new(mesh))),
            Some(why) => Ok(self.relay(Some(why))),
        }
    }

    fn relay(&self, why: Option<String>) -> Place {
        if self.inner.exchange.rank() == Rank::ZERO {
            let why = why.unwrap_or_else(|| "ranks cannot connect to each other".into());
            tracing::warn!("{why}; large payloads go through rank 0 instead, which is slower");
        }
        Place::Relay
    }
}
