//! Keeps the results of one group's set-ups: [`KnownPaths`].

use fsgather_core::lock;
use std::sync::Mutex;

use crate::payload::{mesh::MeshPath, path::PayloadPath, path_request::PathRequest};
use fsgather_config::settings::Transport;

/// The paths that the set-ups of one group, or of the world, have found.
///
/// A group's known paths depend only on its own calls, so all its members agree on whether a path must be set up. From
/// the beginning a group knows the path with which the world was made, if that is older than any group; paths that the
/// world finds later reach its ranks at different times.
#[derive(Default)]
pub(crate) struct KnownPaths {
    /// Never locked during a call of the exchange.
    known: Mutex<Vec<(PathRequest, PayloadPath)>>,
}

impl KnownPaths {
    /// Returns the paths of a group that has just been made.
    pub(crate) fn beginning_with(known: Option<(PathRequest, PayloadPath)>) -> Self {
        Self {
            known: Mutex::new(known.into_iter().collect()),
        }
    }

    /// Returns the path of a request, if it has been found.
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

    /// Records the path of a request.
    pub(crate) fn keep(&self, request: PathRequest, payload_path: PayloadPath) {
        lock(&self.known).push((request, payload_path));
    }

    /// Returns the connections between the members, if they have been made for another request.
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

/// Returns true if a path that was found for another request is also the path of this one.
const fn serves(transport: Transport, payload_path: &PayloadPath) -> bool {
    match transport {
        Transport::Auto => false,
        // A communicator whose own directory is shared does not set it up twice.
        Transport::Filesys => matches!(payload_path, PayloadPath::Files(_)),
        // Payloads that cannot go directly go through rank 0.
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
