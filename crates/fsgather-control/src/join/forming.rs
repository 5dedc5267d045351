//! The worlds that are forming and expect this rank: [`FormingWorlds`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_core::{AwakeClock, Error, WaitEnd, duration_text};

use crate::{
    files::Searching,
    join::event::Joining,
    member::silence::{Due, Silence},
    message::{EndRequest, JoinRequest, Probe, ToCoordinator},
    tcp::connection::TransportError,
};

/// Maximum time to wait for answers of worlds that were just asked, and to notify each that this rank will not come.
pub(crate) const GOODBYE_LIMIT: Duration = Duration::from_millis(500);

/// A world that is forming and has accepted us.
struct FormingWorld {
    /// Name that tells it from others.
    name: String,
    coordinator: String,
    route: JoinRoute,
}

/// Way of messages to a world that is forming.
pub(crate) enum JoinRoute {
    Tcp(Box<Joining>, Listening),
    Files(Arc<Searching>),
}

/// Watches whether rank 0 of a world is still there: it sends nothing to ranks that wait with it, and would warn itself
/// unless it is stopped.
pub(crate) struct Listening {
    /// Number of its messages.
    words: Arc<AtomicUsize>,
    heard: usize,
    clock: AwakeClock,
    since: Instant,
    heard_at: Instant,
    silence: Silence,
}

impl Listening {
    /// Listens from `now` on; `words` counts the messages of rank 0.
    pub(crate) fn new(words: Arc<AtomicUsize>, now: Instant) -> Self {
        Self {
            words,
            heard: 0,
            clock: AwakeClock::new(now),
            since: now,
            heard_at: now,
            silence: Silence::new(now),
        }
    }

    /// Returns the action that is due now.
    fn look(&mut self, now: Instant) -> Option<Due> {
        let now = self.clock.look(now);
        let words = self.words.load(Ordering::Relaxed);
        if words != self.heard {
            (self.heard, self.heard_at) = (words, now);
        }
        self.silence.look(self.since, self.heard_at, now)
    }
}

/// Worlds that have accepted this rank; normally one.
#[derive(Default)]
pub(crate) struct FormingWorlds {
    worlds: Vec<FormingWorld>,
    /// A world that has formed with another process as this rank, and continues.
    formed: Option<String>,
}

impl FormingWorlds {
    /// Returns true if there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.worlds.is_empty()
    }

    /// Adds a world by its name and its rank 0.
    pub(crate) fn add(&mut self, name: String, coordinator: String, route: JoinRoute) {
        self.worlds.push(FormingWorld {
            name,
            coordinator,
            route,
        });
    }

    /// Removes a world.
    pub(crate) fn remove(&mut self, name: &str) -> Option<JoinRoute> {
        let index = self
            .worlds
            .iter()
            .position(|forming| forming.name == name)?;
        Some(self.worlds.swap_remove(index).route)
    }

    /// Rank 0 of the world of this name: host and pid.
    pub(crate) fn coordinator_of(&self, name: &str) -> Option<&str> {
        let found = self.worlds.iter().find(|forming| forming.name == name)?;
        Some(&found.coordinator)
    }

    /// Rank 0 of the first world.
    pub(crate) fn first_coordinator(&self) -> Option<&str> {
        self.worlds
            .first()
            .map(|forming| forming.coordinator.as_str())
    }

    /// Notes that another world of this key has formed and continues.
    pub(crate) fn add_formed(&mut self, running: &str) {
        self.formed = Some(format!(
            "that of another world, which has formed: {running}"
        ));
    }

    /// Reports two worlds of one key to those that are still forming, which will fail.
    pub(crate) async fn report_rivals(&mut self) {
        let forming = self
            .worlds
            .iter()
            .map(|forming| forming.coordinator.clone());
        let names: Vec<String> = forming.chain(self.formed.clone()).collect();
        if names.len() < 2 {
            return;
        }
        for (index, forming) in self.worlds.iter_mut().enumerate() {
            let other = names[(index + 1) % names.len()].clone();
            match &mut forming.route {
                JoinRoute::Tcp(joining, _) => {
                    let _ = joining
                        .writer
                        .send(&ToCoordinator::Join(JoinRequest::Rival { other }))
                        .await;
                }
                JoinRoute::Files(searching) => searching.report_rival(other),
            }
        }
    }

    /// Asks each rank 0 that has said nothing for long whether it is there, and warns if it does not answer; the meeting
    /// times out when `left` has passed. Over files the silence of a host is noticed by other means.
    pub(crate) async fn look_at_silence(&mut self, now: Instant, left: Duration) {
        for forming in &mut self.worlds {
            let JoinRoute::Tcp(joining, listening) = &mut forming.route else {
                continue;
            };
            match listening.look(now) {
                None => {}
                Some(Due::Ask) => {
                    let asked = joining.writer.send(&ToCoordinator::Probe(Probe::Ask));
                    let _ = tokio::time::timeout(GOODBYE_LIMIT, asked).await;
                }
                Some(Due::Warning(silent)) => fsgather_core::warn!(
                    "rank 0 ({}) has accepted this rank, and has not said for {} that it is there; see whether it is stopped \
                     or its host unreachable; {}",
                    forming.coordinator,
                    duration_text(silent),
                    WaitEnd::After(left)
                ),
            }
        }
    }

    /// Notifies all of them that this rank will not come, and why.
    pub(crate) async fn say_goodbye(self, cause: &Error) {
        for forming in self.worlds {
            match forming.route {
                JoinRoute::Tcp(mut joining, _) => {
                    let cause = Some(cause.clone());
                    let told = async {
                        joining
                            .writer
                            .send(&ToCoordinator::End(EndRequest::Leave { cause }))
                            .await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_rank_0_is_asked_and_reported_unless_it_answers() {
        let (words, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let mut listening = Listening::new(Arc::clone(&words), start);
        let mut due = Vec::new();
        for second in 0..=70 {
            if second == 21 {
                // It has answered the first time.
                words.fetch_add(1, Ordering::Relaxed);
            }
            let now = start + Duration::from_secs(second);
            due.extend(listening.look(now).map(|what| (second, what)));
        }
        let silent = Due::Warning(Duration::from_secs(30));
        assert_eq!(due, [(20, Due::Ask), (41, Due::Ask), (51, silent)]);
        // A stop of this process is no silence of the other.
        let mut listening = Listening::new(words, start);
        assert_eq!(listening.look(start + Duration::from_secs(3600)), None);
    }
}
