//! Joining over marker files without a runtime, for simulations: [`join_over_files`].
//!
//! Rank 0 does the same as in [`join`](crate::join::join). The search of the others waits for TCP and files at the same
//! time, on a runtime that no model can stand in for; this is the same search for files only. All code below it, from the
//! request to join to the last message, is the same.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use fsgather_core::{
    Backoff, Error, MailboxFactory, Rank, RendezvousBackend,
    sys::{
        channel::{Receiver, Sender, channel},
        clock,
    },
};
use uuid::Uuid;

use crate::{
    files::{self, Search, Searching},
    join::{
        Meeting,
        config::{self, Config, Joined},
        event::JoinEvent,
        host_over_markers, leave_word,
        record::RendezvousRecord,
        refusal,
        seeker::COORDINATOR_GRACE,
    },
    message::{Join, RefusalReason},
};

/// Meets the other ranks over marker files.
///
/// # Errors
///
/// As [`join`](crate::join::join).
pub fn join_over_files(config: &Config) -> Result<Joined, Error> {
    let started = clock::now();
    if config.rank == Rank::ZERO {
        return host_over_markers(config, started).map_err(|failure| leave_word(config, failure));
    }
    let (Meeting::Board(board), Some(mailboxes)) = (&config.meeting, &config.mailboxes) else {
        return Err(Error::config("there is no directory to meet in"));
    };
    let (events, heard) = channel();
    let mut seeker = Seeker {
        config,
        board,
        mailboxes,
        join: config::join_request(config),
        events,
        asked: BTreeMap::new(),
    };
    let found = seeker.seek(&heard, started);
    if let Err(cause) = &found {
        for searching in seeker.asked.values() {
            searching.will_not_come(cause.clone());
        }
    }
    drop(seeker);
    board.take_down();
    found
}

struct Seeker<'a> {
    config: &'a Config,
    board: &'a Arc<dyn RendezvousBackend>,
    mailboxes: &'a Arc<dyn MailboxFactory>,
    join: Join,
    events: Sender<(Uuid, JoinEvent)>,
    asked: BTreeMap<Uuid, Searching>,
}

impl Seeker<'_> {
    fn seek(
        &mut self,
        heard: &Receiver<(Uuid, JoinEvent)>,
        started: Instant,
    ) -> Result<Joined, Error> {
        let mut pauses = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let (mut is_in, mut look_at) = (false, started);
        loop {
            let waited = clock::since(started);
            let grace = if is_in {
                COORDINATOR_GRACE
            } else {
                Duration::ZERO
            };
            if waited >= self.config.join_timeout + grace {
                return Err(Error::rendezvous("rank 0 was not found in time"));
            }
            // A world that has failed is not asked again before that, even if events arrive.
            if clock::now() >= look_at {
                match self.board.records() {
                    Ok(records) => self.ask(&records)?,
                    // Only a second rank 0 might be missed.
                    Err(error) if is_in => {
                        tracing::debug!("cannot look for another rank 0: {error}");
                    }
                    Err(error) => return Err(leave_word(self.config, error)),
                }
                look_at = clock::now() + pauses.next_pause();
            }
            match heard.recv_timeout(look_at.saturating_duration_since(clock::now())) {
                Ok((_, JoinEvent::WelcomeOverFiles(entered))) => {
                    return files::enter(self.config, *entered);
                }
                Ok((_, JoinEvent::Refused(RefusalReason::Failed(cause)))) => return Err(cause),
                Ok((_, JoinEvent::Unable(cause))) => return Err(leave_word(self.config, cause)),
                Ok((_, JoinEvent::Lost(how))) => return Err(Error::rendezvous(how)),
                Ok((_, JoinEvent::Forming { .. })) => is_in = true,
                Ok((world, JoinEvent::Failed(_))) => drop(self.asked.remove(&world)),
                Ok(_) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Asks the worlds that have not been asked, and returns the error of one that has refused.
    fn ask(&mut self, records: &[Vec<u8>]) -> Result<(), Error> {
        for bytes in records {
            let record = RendezvousRecord::from_bytes(bytes)?;
            if let Some(refusal) =
                refusal::refusal_in(std::slice::from_ref(bytes), &config::addressee(self.config))
            {
                return Err(refusal);
            }
            let world = record.communicator;
            let (Some(place), false) = (record.markers, self.asked.contains_key(&world)) else {
                continue;
            };
            let search = Search {
                mailboxes: Arc::clone(self.mailboxes),
                place,
                join: self.join.clone(),
                is_running: Arc::clone(&self.config.is_running),
                threads: self.config.threads(),
            };
            let events = self.events.clone();
            let tell = move |event| {
                // The result is not needed once the search is over.
                let _ = events.send((world, event));
            };
            let searching = files::search(search, tell)
                .map_err(|error| Error::config(format!("no thread can be started: {error}")))?;
            self.asked.insert(world, searching);
        }
        Ok(())
    }
}
