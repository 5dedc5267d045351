//! Keeps the results of one group's set-ups: [`KnownPaths`].

use fsgather_core::lock;
use std::sync::Mutex;

use crate::payload::{mesh::MeshPath, path::PayloadPath, path_request::PathRequest};
use fsgather_config::settings::Transport;

/// What the set-ups of one group, or of the world, have come to.
///
/// Whether a group has a path depends on its own calls alone, so that all its members agree on whether one
/// has to be set up. What it has from the beginning is the path that the world was made with, where that is
/// older than any group; what the world comes to later, its ranks know at different times.
#[derive(Default)]
pub(crate) struct KnownPaths {
    /// Never held over a call of the exchange.
    known: Mutex<Vec<(PathRequest, PayloadPath)>>,
}

impl KnownPaths {
    /// Those of a group that has just been made.
    pub(crate) fn beginning_with(known: Option<(PathRequest, PayloadPath)>) -> Self {
        Self {
            known: Mutex::new(known.into_iter().collect()),
        }
    }

    /// The path that a request leads to, if that has been found out.
    pub(crate) fn find(&self, request: &PathRequest) -> Option<PayloadPath> {
        let known = lock(&self.known);
        let found = known.iter().find(|(other, payload_path)| {
            other == request
                || (other.directory.is_none()
                    && request.directory.is_none()
                    && serves(request.transport, payload_path))
        });
        found.map(|(_, payload_path)| payload_path.clone())
    }

    /// Keeps what was found out about a request.
    pub(crate) fn keep(&self, request: PathRequest, payload_path: PayloadPath) {
        lock(&self.known).push((request, payload_path));
    }

    /// The connections between the members, if they have been made for another request.
    pub(crate) fn mesh(&self) -> Option<MeshPath> {
        let known = lock(&self.known);
        known
            .iter()
            .find_map(|(_, payload_path)| match payload_path {
                PayloadPath::Mesh(mesh) => Some(mesh.clone()),
                _ => None,
            })
    }
}

/// Whether a path that was found by another request is what this one would lead to.
const fn serves(transport: Transport, payload_path: &PayloadPath) -> bool {
    match transport {
        Transport::Auto => false,
        // A communicator that has found its own directory shared does not ask twice.
        Transport::Filesys => matches!(payload_path, PayloadPath::Files(_)),
        // Through rank 0 goes what does not go directly.
        Transport::Memory => matches!(payload_path, PayloadPath::Mesh(_) | PayloadPath::Relay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(transport: Transport, directory: Option<&str>) -> PathRequest {
        PathRequest {
            transport,
            directory: directory.map(Into::into),
        }
    }

    #[test]
    fn a_place_is_known_by_its_route_and_by_what_it_is() {
        let known_paths =
            KnownPaths::beginning_with(Some((request(Transport::Auto, None), PayloadPath::Relay)));
        let is_known =
            |transport, directory| known_paths.find(&request(transport, directory)).is_some();
        assert!(is_known(Transport::Auto, None));
        assert!(is_known(Transport::Memory, None));
        assert!(!is_known(Transport::Filesys, None));
        assert!(!is_known(Transport::Auto, Some("/x")));
        known_paths.keep(request(Transport::Filesys, Some("/x")), PayloadPath::Relay);
        assert!(is_known(Transport::Filesys, Some("/x")));
        assert!(!is_known(Transport::Filesys, Some("/y")));
    }
}
