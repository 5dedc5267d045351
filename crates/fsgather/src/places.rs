//! Keeps the results of one group's set-ups: [`Places`].

use fsgather_core::lock;
use std::sync::{Arc, Mutex};

use fsgather_control::mesh::Mesh;

use crate::{place::Place, route::Route};
use fsgather_config::settings::Transport;

/// What the set-ups of one group, or of the world, have come to.
///
/// Whether a group has a place depends on its own calls alone, so that all its members agree on whether one
/// has to be set up. What it has from the beginning is the place that the world was made with, where that is
/// older than any group; what the world comes to later, its ranks know at different times.
#[derive(Default)]
pub(crate) struct Places {
    /// Never held over a call of the exchange.
    known: Mutex<Vec<(Route, Place)>>,
}

impl Places {
    /// Those of a group that has just been made.
    pub(crate) fn beginning_with(known: Option<(Route, Place)>) -> Self {
        Self {
            known: Mutex::new(known.into_iter().collect()),
        }
    }

    /// The place that a route leads to, if that has been found out.
    pub(crate) fn find(&self, route: &Route) -> Option<Place> {
        let known = lock(&self.known);
        let found = known.iter().find(|(other, place)| {
            other == route
                || (other.directory.is_none()
                    && route.directory.is_none()
                    && serves(route.transport, place))
        });
        found.map(|(_, place)| place.clone())
    }

    /// Keeps what was found out about a route.
    pub(crate) fn keep(&self, route: Route, place: Place) {
        lock(&self.known).push((route, place));
    }

    /// The connections between the members, if they have been made for another route.
    pub(crate) fn mesh(&self) -> Option<Arc<Mesh>> {
        let known = lock(&self.known);
        known.iter().find_map(|(_, place)| match place {
            Place::Mesh(mesh) => Some(Arc::clone(mesh)),
            _ => None,
        })
    }
}

/// Whether a place that was found by another way is what this one would lead to.
const fn serves(transport: Transport, place: &Place) -> bool {
    match transport {
        Transport::Auto => false,
        // A communicator that has found its own directory shared does not ask twice.
        Transport::Filesys => matches!(place, Place::Files(_)),
        // Through rank 0 goes what does not go directly.
        Transport::Memory => matches!(place, Place::Mesh(_) | Place::Relay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(transport: Transport, directory: Option<&str>) -> Route {
        Route {
            transport,
            directory: directory.map(Into::into),
        }
    }

    #[test]
    fn a_place_is_known_by_its_route_and_by_what_it_is() {
        let places = Places::beginning_with(Some((route(Transport::Auto, None), Place::Relay)));
        let is_known = |transport, directory| places.find(&route(transport, directory)).is_some();
        assert!(is_known(Transport::Auto, None));
        assert!(is_known(Transport::Memory, None));
        assert!(!is_known(Transport::Filesys, None));
        assert!(!is_known(Transport::Auto, Some("/x")));
        places.keep(route(Transport::Filesys, Some("/x")), Place::Relay);
        assert!(is_known(Transport::Filesys, Some("/x")));
        assert!(!is_known(Transport::Filesys, Some("/y")));
    }
}
