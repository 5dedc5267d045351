//! The worlds that are forming and count on this rank: [`FormingWorlds`].

use std::{sync::Arc, time::Duration};

use fsgather_core::Error;

use crate::{
    files::Searching,
    message::ToCoordinator,
    tcp::{attempt::Joining, connection::TransportError},
};

/// How long it may take to hear of those who have just been asked, and to tell each that this rank will not come.
pub(crate) const GOODBYE_LIMIT: Duration = Duration::from_millis(500);

/// A world that is forming and has noted us.
struct FormingWorld {
    /// Tells it from others.
    name: String,
    coordinator: String,
    route: JoinRoute,
}

/// How to talk to a world that is forming.
pub(crate) enum JoinRoute {
    Tcp(Box<Joining>),
    Files(Arc<Searching>),
}

/// Worlds that have taken this rank in; one, where all is well.
#[derive(Default)]
pub(crate) struct FormingWorlds(Vec<FormingWorld>);

impl FormingWorlds {
    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes one by its name and its rank 0.
    pub(crate) fn add(&mut self, name: String, coordinator: String, route: JoinRoute) {
        self.0.push(FormingWorld {
            name,
            coordinator,
            route,
        });
    }

    /// Takes one off the list.
    pub(crate) fn remove(&mut self, name: &str) -> Option<JoinRoute> {
        let index = self.0.iter().position(|forming| forming.name == name)?;
        Some(self.0.swap_remove(index).route)
    }

    /// Rank 0 of the world of this name: host and pid.
    pub(crate) fn coordinator_of(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|forming| forming.name == name)?;
        Some(&found.coordinator)
    }

    /// Rank 0 of the first one.
    pub(crate) fn first_coordinator(&self) -> Option<&str> {
        self.0.first().map(|forming| forming.coordinator.as_str())
    }

    /// Two worlds of one key are forming: both are told, and both will fail.
    pub(crate) async fn report_rivals(&mut self) {
        if self.0.len() < 2 {
            return;
        }
        let names: Vec<String> = self
            .0
            .iter()
            .map(|forming| forming.coordinator.clone())
            .collect();
        for (index, forming) in self.0.iter_mut().enumerate() {
            let other = names[(index + 1) % names.len()].clone();
            match &mut forming.route {
                JoinRoute::Tcp(joining) => {
                    let _ = joining.writer.send(&ToCoordinator::Rival { other }).await;
                }
                JoinRoute::Files(searching) => searching.report_rival(other),
            }
        }
    }

    /// Tells all of them that this rank will not come, and why.
    pub(crate) async fn say_goodbye(self, cause: &Error) {
        for forming in self.0 {
            match forming.route {
                JoinRoute::Tcp(mut joining) => {
                    let cause = Some(cause.clone());
                    let told = async {
                        joining.writer.send(&ToCoordinator::Leave { cause }).await?;
                        joining.writer.shut().await;
                        Ok::<(), TransportError>(())
                    };
                    // Otherwise it notices the end of the connection.
                    let _ = tokio::time::timeout(GOODBYE_LIMIT, told).await;
                }
                JoinRoute::Files(searching) => searching.will_not_come(cause.clone()),
            }
        }
    }
}
