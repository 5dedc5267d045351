//! The worlds that are forming and count on this rank: [`FormingWorlds`].

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

/// Maximum time that it may take to hear of those who have just been asked, and to tell each that this rank will not come.
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
    Tcp(Box<Joining>, Listening),
    Files(Arc<Searching>),
}

/// Whether rank 0 of a world is there still, which says nothing to those that wait with it: it would tell for whom, were it not stopped.
pub(crate) struct Listening {
    /// Number of times that it has said something.
    words: Arc<AtomicUsize>,
    heard: usize,
    clock: AwakeClock,
    since: Instant,
    heard_at: Instant,
    silence: Silence,
}

impl Listening {
    /// Listens from now on to who counts its `words`.
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

    /// What is due now.
    fn look(&mut self, now: Instant) -> Option<Due> {
        let now = self.clock.look(now);
        let words = self.words.load(Ordering::Relaxed);
        if words != self.heard {
            (self.heard, self.heard_at) = (words, now);
        }
        self.silence.look(self.since, self.heard_at, now)
    }
}

/// Worlds that have taken this rank in; one, where all is well.
#[derive(Default)]
pub(crate) struct FormingWorlds {
    worlds: Vec<FormingWorld>,
    /// A world that has formed with another process as this rank, and goes on.
    formed: Option<String>,
}

impl FormingWorlds {
    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.worlds.is_empty()
    }

    /// Notes one by its name and its rank 0.
    pub(crate) fn add(&mut self, name: String, coordinator: String, route: JoinRoute) {
        self.worlds.push(FormingWorld {
            name,
            coordinator,
            route,
        });
    }

    /// Takes one off the list.
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

    /// Rank 0 of the first one.
    pub(crate) fn first_coordinator(&self) -> Option<&str> {
        self.worlds
            .first()
            .map(|forming| forming.coordinator.as_str())
    }

    /// Notes that another world of this key has formed and goes on.
    pub(crate) fn add_formed(&mut self, running: &str) {
        self.formed = Some(format!(
            "that of another world, which has formed: {running}"
        ));
    }

    /// Two worlds of one key are there: those that are still forming are told, and will fail.
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

    /// Asks those that have said nothing for long whether they are there, and warns if they do not answer; the meeting times out when
    /// `left` has passed. Over files the silence of a host is noticed by other means.
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

    /// Tells all of them that this rank will not come, and why.
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
    fn a_rank_0_that_says_nothing_is_asked_and_then_told_of_and_one_that_answers_is_not() {
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
