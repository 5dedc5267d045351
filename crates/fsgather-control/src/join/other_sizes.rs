//! Looks for worlds of this job that were told another world size, to say so where rank 0 is not found: [`OtherSizes`].
//!
//! Ranks look for each other by a key that has the world size in it, so that a rank that was told another one would wait for a
//! rank 0 that does not exist, and the others for that rank, without anybody knowing why. Who has looked for a while therefore asks
//! those rank 0s as well. None takes it in, and none fails by it: one job may have worlds of several sizes at a time.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Error, RendezvousBackend, sys::clock};

use crate::{
    join::{
        candidates::name_of, event::JoinEvent, record::RendezvousRecord, refusal, seeker::Seeker,
    },
    message::RefusalReason,
    tcp::attempt::Candidate,
    thread_call::ThreadCall,
};

/// How often they are looked for.
const EVERY: Duration = Duration::from_secs(5);

/// What is known of worlds of this job that have another size.
#[derive(Debug)]
pub(super) struct OtherSizes {
    look_at: Instant,
    /// Those that have been found, by name, and whether they have answered.
    found: HashMap<String, bool>,
}

impl OtherSizes {
    /// Such worlds are looked for once meeting takes long.
    pub(super) fn new(join_timeout: Duration) -> Self {
        Self {
            look_at: clock::now() + refusal::looking_back_after(join_timeout),
            found: HashMap::new(),
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }
}

impl Seeker {
    /// The worlds of other sizes that are still to be asked, if it is time to look. Those over files are asked at once.
    pub(super) async fn worlds_of_other_sizes(
        &mut self,
        board: &Arc<dyn RendezvousBackend>,
    ) -> Vec<Candidate> {
        let now = clock::now();
        if !self.forming.is_empty() || now < self.other_sizes.look_at {
            return Vec::new();
        }
        self.other_sizes.look_at = now + EVERY;
        let board = Arc::clone(board);
        let listed = ThreadCall::start(move || Ok::<_, Error>(board.records_of_other_sizes()));
        let records = listed.finish().await.ok().and_then(Result::ok);
        let mut candidates = Vec::new();
        for record in records.into_iter().flatten() {
            candidates.extend(self.world_of_other_size(&record));
        }
        candidates
    }

    fn world_of_other_size(&mut self, bytes: &[u8]) -> Option<Candidate> {
        let record = RendezvousRecord::from_bytes(bytes).ok()?;
        let (ours, theirs) = (self.search.join.fingerprint, record.fingerprint);
        // Who was given another secret has another job in mind, and would take the question for a mistake.
        let is_like_ours = theirs.differs_in_size(&ours) && theirs.secret == ours.secret;
        if !is_like_ours || record.refusal.is_some() {
            return None;
        }
        let name = name_of(&record);
        if *self.other_sizes.found.entry(name.clone()).or_default() {
            return None;
        }
        match record.markers {
            Some(place) if self.search.config.mailboxes.is_some() => {
                self.ask_through_markers(name, place);
                None
            }
            Some(_) => None,
            None => self.over_tcp(name, &record),
        }
    }

    /// Takes note of what has become of asking such a world. None is this rank's, whatever it answers.
    pub(super) fn heard_of_other_size(&mut self, name: &str, event: JoinEvent) {
        self.searches.remove(name);
        // It is tried again once it is found again.
        self.tried.remove(name);
        let has_answered = match event {
            JoinEvent::Refused(RefusalReason::OtherSize(why)) => {
                if self.failures.other_size.is_none() {
                    fsgather_core::warn!("{why}; another rank 0 is still looked for");
                }
                self.failures.other_size = Some(why);
                true
            }
            // It is known to be of another start, or has failed.
            JoinEvent::Refused(_) => true,
            _ => false,
        };
        if let Some(known) = self.other_sizes.found.get_mut(name) {
            *known |= has_answered;
        }
    }
}
