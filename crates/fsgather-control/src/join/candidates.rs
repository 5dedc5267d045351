//! Reads records, and selects the worlds that a member may ask to be accepted.

use std::{net::ToSocketAddrs as _, sync::Arc};

use fsgather_core::{Error, RendezvousBackend, sys::clock};

use crate::{
    files,
    join::{
        addresses::{self, Network},
        config,
        event::{JoinEvent, JoinFailure},
        failures,
        job_credentials::JobCredentials,
        record::{MarkerPlace, RendezvousRecord},
        search::{Search, Whereabouts},
        seeker::Seeker,
        unreachable::Obstacle,
    },
    message::RefusalReason,
    tcp::attempt::Candidate,
    thread_call::{ThreadCall, without_a_thread},
    wire::ConnectionPurpose,
};

impl Seeker {
    /// All visible worlds over TCP. Worlds over files are asked at once.
    pub(super) async fn candidates(&mut self) -> Result<Vec<Candidate>, JoinFailure> {
        match &self.search.whereabouts {
            Whereabouts::Address {
                host,
                port,
                credentials,
            } => {
                let name = format!("{host}:{port}");
                let asked = (host.clone(), *port);
                // For the case that the time for meeting is over first: the name server may not answer.
                let failures = &mut self.failures.by_world;
                let is_first = !failures.contains_key(&name);
                if is_first {
                    failures.insert(name.clone(), "its name has not been resolved yet".into());
                }
                let found =
                    ThreadCall::start(move || asked.to_socket_addrs().map(Iterator::collect));
                match found.finish().await.and_then(|resolved| resolved) {
                    Ok(addresses) => {
                        if is_first {
                            self.failures.by_world.remove(&name);
                        }
                        Ok(vec![Candidate {
                            name,
                            communicator: None,
                            addresses,
                            credentials: credentials.clone(),
                            purpose: ConnectionPurpose::Control,
                        }])
                    }
                    Err(error) => {
                        self.failures
                            .by_world
                            .insert(name, format!("its name does not resolve ({error})"));
                        Ok(Vec::new())
                    }
                }
            }
            Whereabouts::Board(board) => {
                let board = Arc::clone(board);
                let listing = Arc::clone(&board);
                let listed = ThreadCall::start(move || listing.records())
                    .finish()
                    .await
                    .unwrap_or_else(|error| Err(without_a_thread(&error)));
                let records = match listed {
                    Ok(records) => records,
                    // Only a second rank 0 might be missed.
                    Err(error) if !self.forming.is_empty() => {
                        tracing::debug!("cannot look for another rank 0: {error}");
                        return Ok(Vec::new());
                    }
                    Err(error) => return Err(JoinFailure::Own(error)),
                };
                let mut candidates = Vec::new();
                for bytes in records {
                    candidates.extend(self.candidate(&bytes)?);
                }
                candidates.extend(self.worlds_of_other_sizes(&board).await);
                Ok(candidates)
            }
        }
    }

    /// Evaluates a record: a world over TCP that can be tried, or nothing that has to be done here.
    fn candidate(&mut self, bytes: &[u8]) -> Result<Option<Candidate>, JoinFailure> {
        let record = match RendezvousRecord::from_bytes(bytes) {
            Ok(record) => record,
            Err(error) => {
                self.failures
                    .by_world
                    .insert("a record".into(), error.to_string());
                if matches!(error, Error::Incompatible { .. }) {
                    self.failures.foreign = Some(error);
                }
                return Ok(None);
            }
        };
        let (join, config) = (&self.search.join, &self.search.config);
        if record.fingerprint.key != join.fingerprint.key {
            let moved =
                "belongs to the rank 0 of another job, from whose place somebody has moved it";
            self.failures
                .by_world
                .insert("a record".into(), moved.into());
            return Ok(None);
        }
        if record.refuser.is_some() {
            let refusal = record.refusal_to(&config::addressee(config));
            // A rank that has been accepted learns of it from rank 0, which would take an earlier end for the cause.
            let refusal = refusal.filter(|_| self.forming.is_empty());
            return refusal.cloned().map_or(Ok(None), |cause| Err(cause.into()));
        }
        if let Some(cause) = record.refusal {
            // It may be left over from another run; then this rank has not tried that world.
            return if self.unreachable.has_tried(record.communicator) {
                Err(cause.into())
            } else {
                Ok(None)
            };
        }
        let name = record.world_name();
        let is_like_ours = record.fingerprint.secret == join.fingerprint.secret;
        if let Some(place) = record.markers.clone() {
            if config.encrypt && config.mailboxes.is_none() {
                return Err(JoinFailure::Own(failures::in_plain_text(&record.host)));
            }
            if !is_like_ours {
                self.unlike.insert(name.clone());
            }
            self.ask_through_markers(name, place);
            return Ok(None);
        }
        let candidate = self.over_tcp(name.clone(), &record);
        if candidate.is_none() {
            let only = "published no address that can be reached from this host";
            self.failures.by_world.insert(name, only.into());
            let world = Some(record.communicator);
            let tried = format!(
                "none of {:?}, which mean this host itself",
                record.addresses
            );
            self.cannot_reach(world, Obstacle::Unaddressed, &tried);
        }
        Ok(candidate)
    }

    /// A world over TCP, if its record has an address that can be reached from here.
    pub(super) fn over_tcp(&self, name: String, record: &RendezvousRecord) -> Option<Candidate> {
        let Search { join, config, .. } = &self.search;
        let here = Network {
            boot_id: &join.process.boot_id,
            namespace: config.network_namespace,
        };
        let addresses = addresses::usable(&record.addresses, record.network(), here);
        // Its own key, which differs from ours if it was given another size.
        let job_credentials = JobCredentials {
            key: record.fingerprint.key,
            secret: config.job_credentials.secret,
        };
        (!addresses.is_empty()).then(|| Candidate {
            name,
            communicator: Some(record.communicator),
            addresses,
            credentials: record.credentials(&job_credentials),
            purpose: if record.fingerprint.secret == join.fingerprint.secret {
                ConnectionPurpose::Control
            } else {
                ConnectionPurpose::Mismatch
            },
        })
    }

    /// Asks a world over marker files, unless that is under way already.
    pub(super) fn ask_through_markers(&mut self, name: String, place: MarkerPlace) {
        if self.searches.contains_key(&name) || self.failures.by_world.contains_key(&name) {
            return;
        }
        let Some(mailboxes) = &self.search.config.mailboxes else {
            let none = "meets through marker files, for which this rank has no directory";
            self.failures.by_world.insert(name, none.into());
            return;
        };
        let search = files::Search {
            mailboxes: Arc::clone(mailboxes),
            place,
            join: self.search.join.clone(),
            is_running: Arc::clone(&self.search.config.is_running),
            threads: self.search.config.threads(),
        };
        let (events, its) = (self.events.clone(), name.clone());
        let tell = move |event| {
            // The result is not needed once the search is over.
            let _ = events.send((its.clone(), event));
        };
        match files::search(search, tell) {
            Ok(searching) => {
                self.searches.insert(name, Arc::new(searching));
            }
            Err(error) => {
                self.failures
                    .by_world
                    .insert(name, format!("no thread can be started: {error}"));
            }
        }
    }

    /// The worlds of other sizes that are still to be asked, if it is time to look. Worlds over files are asked at once.
    pub(super) async fn worlds_of_other_sizes(
        &mut self,
        board: &Arc<dyn RendezvousBackend>,
    ) -> Vec<Candidate> {
        let now = clock::now();
        if !self.forming.is_empty() || !self.other_sizes.is_due(now) {
            return Vec::new();
        }
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
        // A world with another secret belongs to another job, and would take the question for a mistake.
        let is_like_ours = theirs.differs_in_size(&ours) && theirs.secret == ours.secret;
        if !is_like_ours || record.refusal.is_some() {
            return None;
        }
        let name = record.world_name();
        if self.other_sizes.has_answered(&name) {
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

    /// Handles an event of such a world. None is this rank's, whichever answer it gives.
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
        if has_answered {
            self.other_sizes.heard_of(name);
        }
    }
}
