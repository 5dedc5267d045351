//! Finds a member's world: [`seek`].
//!
//! All records that can be seen and all their addresses are tried at the same time, again and again,
//! until the deadline. No failed record ends the search: a stale one may point at somebody else's
//! port, or at a host that swallows packets. Worlds over TCP are asked by `attempt`, worlds over marker
//! files by `markers::search`.

use std::{
    collections::{HashMap, HashSet},
    net::ToSocketAddrs as _,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Activity, Backoff, Error, Peer, PeerFailure, Phase, Rank};
use tokio::{sync::mpsc, task::JoinSet};
use uuid::Uuid;

use crate::{
    addresses::{self, Network},
    aside::{Aside, without_a_thread},
    attempt::{Candidate, Ending, Outcome, attempt, await_welcome},
    config,
    expecting::{Expecting, GOODBYE_LIMIT, Way},
    findings::{self, Findings, Fruitless},
    found::{Found, FoundTcp, Unmet},
    markers::{self, Event, Searching},
    message::Welcome,
    objecting::{Objecting, Obstacle},
    random::fresh,
    record::{MarkerPlace, Objection, Record},
    search::{Search, Whereabouts},
    transport::{Connection, Reader},
    waiting::AwakeDeadline,
    wire::{Purpose, VERSION},
};

/// How much longer than the time-out a member that was taken in waits for rank 0's verdict.
const COORDINATOR_GRACE: Duration = Duration::from_secs(10);

/// Looks for the world until it is in, refused, or out of time.
///
/// Other worlds that count on this rank are told that it will not come, and why. `interrupted` ends the search.
pub(crate) async fn seek(
    search: Search,
    interrupted: impl Future<Output = Error>,
) -> Result<Found, Unmet> {
    let (events, marker_events) = mpsc::unbounded_channel();
    let mut seeker = Seeker::new(search, events);
    let found = tokio::select! {
        found = seek_with(&mut seeker, marker_events) => found,
        failure = interrupted => Err(Unmet::Own(failure)),
    };
    let cause = match &found {
        Ok(_) => Error::rendezvous(format!(
            "rank {} has found another rank 0 of a job with the same name. Set FSGATHER_JOB to a different name for each job",
            seeker.search.join.rank
        )),
        Err(Unmet::Own(error) | Unmet::Known(error)) => {
            let problem = seeker.search.config.problem.as_ref();
            problem.unwrap_or(error).clone()
        }
    };
    // Those that have been asked through files and have not answered yet, too.
    for searching in seeker.searches.values() {
        searching.will_not_come(cause.clone());
    }
    let goodbye = async move {
        seeker.hear_answers().await;
        seeker.expecting.say_goodbye(&cause).await;
    };
    if matches!(found, Ok(Found::Tcp(_))) {
        // This world goes on meanwhile.
        tokio::spawn(goodbye);
    } else {
        goodbye.await;
    }
    found
}

async fn seek_with(
    seeker: &mut Seeker,
    mut marker_events: mpsc::UnboundedReceiver<(String, Event)>,
) -> Result<Found, Unmet> {
    let started = Instant::now();
    let mut deadline = AwakeDeadline::after(started, seeker.search.config.join_timeout);
    let (endings, mut ended) = mpsc::channel::<(String, Ending)>(8);
    let mut listings = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut look_at = started;
    let mut earlier = pin!(seeker.search.look_back());
    loop {
        let mut is_in = false;
        tokio::select! {
            () = deadline.passed() => return Err(seeker.out_of_time()),
            () = tokio::time::sleep_until(look_at.into()) => {
                let looked = tokio::select! {
                    looked = seeker.look() => Some(looked),
                    () = deadline.passed() => None,
                };
                match looked {
                    Some(looked) => looked?,
                    None => return Err(seeker.out_of_time()),
                }
                look_at = Instant::now() + listings.next_jittered(fresh());
            }
            failure = &mut earlier, if seeker.findings.earlier.is_none() => {
                tracing::warn!("{failure}; rank 0 is still looked for");
                seeker.findings.earlier = Some(failure);
            }
            Some(tried) = seeker.tries.join_next() => {
                let Ok((candidate, outcome)) = tried else { continue };
                if let Some(reader) = seeker.note(&candidate, outcome)? {
                    is_in = true;
                    let endings = endings.clone();
                    tokio::spawn(async move {
                        let ending = await_welcome(reader).await;
                        let _ = endings.send((candidate.name, ending)).await;
                    });
                }
            }
            Some((name, event)) = marker_events.recv() => {
                if let Some(found) = seeker.hear(name, event, &mut is_in)? {
                    return Ok(found);
                }
            }
            Some((name, ending)) = ended.recv() => match ending {
                Ending::Welcome(welcome, reader) => {
                    return Ok(seeker.settle(&name, welcome, reader)?);
                }
                Ending::Aborted(cause) => {
                    seeker.expecting.remove(&name);
                    return Err(Unmet::Known(cause));
                }
                Ending::Lost(how) => return Err(Unmet::Own(seeker.lost(&name, how))),
                Ending::Moved => {
                    seeker.expecting.remove(&name);
                    listings.reset();
                    look_at = Instant::now();
                }
            },
        }
        if is_in {
            // From here on rank 0 keeps the time; this is for the case that it stops.
            let timeout = seeker
                .search
                .config
                .join_timeout
                .saturating_add(COORDINATOR_GRACE);
            deadline = AwakeDeadline::after(Instant::now(), timeout);
            seeker.expecting.tell_rivals().await;
        }
    }
}

struct Seeker {
    search: Search,
    tries: JoinSet<(Candidate, Outcome)>,
    /// When a candidate may be tried again; absent while a try is under way.
    pauses: HashMap<String, (Backoff, Option<Instant>)>,
    /// Worlds over marker files that are being asked.
    searches: HashMap<String, Arc<Searching>>,
    /// Those of them that were given another secret.
    unlike: HashSet<String>,
    events: mpsc::UnboundedSender<(String, Event)>,
    expecting: Expecting,
    findings: Findings,
    objecting: Objecting,
}

impl Seeker {
    fn new(search: Search, events: mpsc::UnboundedSender<(String, Event)>) -> Self {
        Self {
            search,
            tries: JoinSet::new(),
            pauses: HashMap::new(),
            searches: HashMap::new(),
            unlike: HashSet::new(),
            events,
            expecting: Expecting::default(),
            findings: Findings::default(),
            objecting: Objecting::default(),
        }
    }

    /// Starts a try of every candidate that is due for one.
    async fn look(&mut self) -> Result<(), Unmet> {
        for candidate in self.candidates().await? {
            let now = Instant::now();
            let (_, due) = self
                .pauses
                .entry(candidate.name.clone())
                .or_insert_with(|| {
                    let pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
                    (pauses, Some(now))
                });
            if due.is_some_and(|due| now >= due) {
                *due = None;
                let join = self.search.join.clone();
                self.tries.spawn(attempt(candidate, join));
            }
        }
        Ok(())
    }

    /// Notes that a world cannot be reached; tells its rank 0 so, once that is clear.
    fn cannot_reach(&mut self, world: Option<Uuid>, obstacle: Obstacle, tried: String) {
        let Whereabouts::Board(board) = &self.search.whereabouts else {
            return;
        };
        let Some(communicator) = world else { return };
        if !self.objecting.note(communicator, obstacle, Instant::now()) {
            return;
        }
        let join = &self.search.join;
        let objection = Objection {
            communicator,
            peer: Peer {
                rank: join.rank,
                host: join.process.host.clone(),
                pid: join.process.pid,
            },
            tried,
        };
        let board = Arc::clone(board);
        drop(Aside::start(move || {
            if let Err(error) = board.object(&objection.to_bytes()) {
                tracing::debug!("rank 0 cannot be told that it cannot be reached: {error}");
            }
        }));
    }

    async fn candidates(&mut self) -> Result<Vec<Candidate>, Unmet> {
        match &self.search.whereabouts {
            Whereabouts::Address {
                host,
                port,
                credentials,
            } => {
                let name = format!("{host}:{port}");
                let asked = (host.clone(), *port);
                let found = Aside::start(move || asked.to_socket_addrs().map(Iterator::collect));
                match found.finish().await.flatten() {
                    Ok(addresses) => Ok(vec![Candidate {
                        name,
                        communicator: None,
                        addresses,
                        credentials: credentials.clone(),
                        purpose: Purpose::Control,
                    }]),
                    Err(error) => {
                        self.findings
                            .failures
                            .insert(name, format!("its name does not resolve ({error})"));
                        Ok(Vec::new())
                    }
                }
            }
            Whereabouts::Board(board) => {
                let board = Arc::clone(board);
                let listed = Aside::start(move || board.records())
                    .finish()
                    .await
                    .unwrap_or_else(|error| Err(without_a_thread(&error)));
                let records = match listed {
                    Ok(records) => records,
                    // It is only a second rank 0 that might be missed.
                    Err(error) if !self.expecting.is_empty() => {
                        tracing::debug!("cannot look for another rank 0: {error}");
                        return Ok(Vec::new());
                    }
                    Err(error) => return Err(Unmet::Own(error)),
                };
                let mut candidates = Vec::new();
                for bytes in records {
                    candidates.extend(self.candidate(&bytes)?);
                }
                Ok(candidates)
            }
        }
    }

    /// What a record leads to: a world over TCP that can be tried, or nothing that has to be done here.
    fn candidate(&mut self, bytes: &[u8]) -> Result<Option<Candidate>, Unmet> {
        let record = match Record::from_bytes(bytes) {
            Ok(record) => record,
            Err(error) => {
                self.findings
                    .failures
                    .insert("a record".into(), error.to_string());
                if matches!(error, Error::Incompatible { .. }) {
                    self.findings.foreign = Some(error);
                }
                return Ok(None);
            }
        };
        let (join, config) = (&self.search.join, &self.search.config);
        if record.belonging.key != join.belonging.key {
            let moved =
                "belongs to the rank 0 of another job, from whose place somebody has moved it";
            self.findings
                .failures
                .insert("a record".into(), moved.into());
            return Ok(None);
        }
        if record.refuser.is_some() {
            let refusal = record.refusal_to(&config::hearer(config));
            // Who is in hears it from rank 0, which would take an earlier end for the cause.
            let refusal = refusal.filter(|_| self.expecting.is_empty());
            return refusal.cloned().map_or(Ok(None), |cause| Err(cause.into()));
        }
        if let Some(cause) = record.refusal {
            // It may be left over from another run; then we have not heard of that world.
            return if self.objecting.has_tried(record.communicator) {
                Err(cause.into())
            } else {
                Ok(None)
            };
        }
        let name = format!("{} ({})", record.host, short(&record));
        let is_like_ours = record.belonging.secret == join.belonging.secret;
        if let Some(place) = record.markers {
            if config.encrypt && config.office.is_none() {
                return Err(Unmet::Own(findings::in_plain_text(&record.host)));
            }
            if !is_like_ours {
                self.unlike.insert(name.clone());
            }
            self.ask_through_markers(name, place);
            return Ok(None);
        }
        let process = &self.search.join.process;
        let there = Network {
            boot_id: &record.boot_id,
            namespace: record.network_namespace,
        };
        let here = Network {
            boot_id: &process.boot_id,
            namespace: self.search.config.network_namespace,
        };
        let addresses = addresses::usable(&record.addresses, there, here);
        if addresses.is_empty() {
            let only = "published no address that can be reached from this host";
            self.findings.failures.insert(name, only.into());
            let world = Some(record.communicator);
            let tried = format!(
                "none of {:?}, which mean this host itself",
                record.addresses
            );
            self.cannot_reach(world, Obstacle::Unaddressed, tried);
            return Ok(None);
        }
        Ok(Some(Candidate {
            name,
            communicator: Some(record.communicator),
            addresses,
            credentials: record.credentials(&self.search.config.bond),
            purpose: if is_like_ours {
                Purpose::Control
            } else {
                Purpose::Mismatch
            },
        }))
    }

    /// Asks a world over marker files, unless that is being done already.
    fn ask_through_markers(&mut self, name: String, place: MarkerPlace) {
        if self.searches.contains_key(&name) || self.findings.failures.contains_key(&name) {
            return;
        }
        let Some(office) = &self.search.config.office else {
            let none = "meets through marker files, for which this rank has no directory";
            self.findings.failures.insert(name, none.into());
            return;
        };
        let search = markers::Search {
            office: Arc::clone(office),
            place,
            join: self.search.join.clone(),
            is_running: Arc::clone(&self.search.config.is_running),
        };
        let (events, its) = (self.events.clone(), name.clone());
        let tell = move |event| {
            // Nobody listens once the search is over.
            let _ = events.send((its.clone(), event));
        };
        match markers::search(search, tell) {
            Ok(searching) => {
                self.searches.insert(name, Arc::new(searching));
            }
            Err(error) => {
                self.findings
                    .failures
                    .insert(name, format!("no thread can be started: {error}"));
            }
        }
    }

    /// Takes note of what a search through marker files has come to.
    fn hear(
        &mut self,
        name: String,
        event: Event,
        is_in: &mut bool,
    ) -> Result<Option<Found>, Unmet> {
        match event {
            // Whoever has taken us in there cannot be our rank 0, which would have refused us.
            Event::Forming(coordinator) if self.unlike.contains(&name) => {
                let rank = self.search.join.rank;
                return Err(Unmet::Own(findings::another_secret(rank, &coordinator)));
            }
            Event::Forming(coordinator) => {
                if let Some(searching) = self.searches.get(&name) {
                    let way = Way::Markers(Arc::clone(searching));
                    self.take_in(name, coordinator, way);
                    *is_in = true;
                }
            }
            Event::Formed(running) => self.has_formed(running),
            Event::Elsewhere(why) => self.belongs_elsewhere(why),
            Event::Refused(cause) => return Err(Unmet::Known(cause)),
            Event::Broken(cause) => return Err(Unmet::Own(cause)),
            Event::Welcome(entered) => return Ok(Some(Found::Markers(entered))),
            Event::Lost(how) => return Err(Unmet::Own(self.lost(&name, how))),
            Event::Failed(why) => {
                self.searches.remove(&name);
                self.findings.failures.insert(name, why);
            }
        }
        Ok(None)
    }

    /// Notes that a world of our key has formed without us: the job of another time, or of another attempt.
    fn has_formed(&mut self, running: String) {
        if self.findings.formed.as_ref() != Some(&running) {
            tracing::warn!(
                "found a world that has formed without this rank: {running}; looking for another rank 0"
            );
        }
        self.findings.formed = Some(running);
    }

    /// Notes that a world is not ours, although it has our key.
    fn belongs_elsewhere(&mut self, why: String) {
        if self.findings.elsewhere.is_none() {
            tracing::info!("{why}; looking for another rank 0");
        }
        self.findings.elsewhere = Some(why);
    }

    fn take_in(&mut self, name: String, coordinator: String, way: Way) {
        tracing::info!("rank 0 ({coordinator}) has accepted this rank and waits for the others");
        self.expecting.add(name, coordinator, way);
    }

    /// Takes note of a try; the reader of a connection on which a welcome is to come.
    fn note(&mut self, candidate: &Candidate, outcome: Outcome) -> Result<Option<Reader>, Unmet> {
        let failure = match outcome {
            Outcome::Forming(coordinator, joining, reader) => {
                self.take_in(candidate.name.clone(), coordinator, Way::Tcp(joining));
                return Ok(Some(reader));
            }
            Outcome::Refused(cause) => return Err(Unmet::Known(cause)),
            Outcome::Unable(own) => return Err(Unmet::Own(own)),
            Outcome::Formed(running) => {
                self.has_formed(running);
                "has formed without this process".into()
            }
            Outcome::Elsewhere(why) => {
                self.belongs_elsewhere(why);
                "was started by somebody else".into()
            }
            Outcome::Unreachable(why) => {
                let world = candidate.communicator;
                self.cannot_reach(world, Obstacle::Unconnected, why.clone());
                if self
                    .search
                    .whereabouts
                    .means_this_host(&candidate.addresses)
                {
                    format!("{why}, which is this host itself")
                } else {
                    why
                }
            }
            Outcome::Foreign(theirs, why) => {
                self.findings.foreign = Some(Error::Incompatible {
                    what: format!("the wire protocol of the process at {}", candidate.name),
                    ours: VERSION.to_string(),
                    theirs: theirs.to_string(),
                });
                let world = candidate.communicator;
                self.cannot_reach(world, Obstacle::Unanswered, why.clone());
                why
            }
            Outcome::Failed(why) => {
                let world = candidate.communicator;
                self.cannot_reach(world, Obstacle::Unanswered, why.clone());
                why
            }
        };
        self.findings
            .failures
            .insert(candidate.name.clone(), failure);
        if let Some((pauses, due)) = self.pauses.get_mut(&candidate.name) {
            *due = Some(Instant::now() + pauses.next_jittered(fresh()));
        }
        Ok(None)
    }

    /// Hears whether those that it has just asked have taken this rank in, to tell them that it will not come.
    async fn hear_answers(&mut self) {
        let answered = async {
            while let Some(tried) = self.tries.join_next().await {
                if let Ok((candidate, Outcome::Forming(coordinator, joining, reader))) = tried {
                    // A connection that is closed with something unread in it is reset.
                    tokio::spawn(await_welcome(reader));
                    let way = Way::Tcp(joining);
                    self.expecting.add(candidate.name, coordinator, way);
                }
            }
        };
        // Who has not answered by then may count on this rank for some seconds longer.
        let _ = tokio::time::timeout(GOODBYE_LIMIT, answered).await;
    }

    fn settle(&mut self, name: &str, welcome: Welcome, reader: Reader) -> Result<Found, Error> {
        let join = &self.search.join;
        if welcome.nonces.get(join.rank.index()) != Some(&join.nonce) {
            return Err(Error::rendezvous(
                "a welcome that was meant for another process",
            ));
        }
        let nonce = join.nonce;
        match self.expecting.remove(name) {
            Some(Way::Tcp(joining)) => Ok(Found::Tcp(Box::new(FoundTcp {
                welcome,
                nonce,
                connection: Connection {
                    reader,
                    writer: joining.writer,
                },
                address: joining.address,
                credentials: joining.credentials,
            }))),
            _ => Err(Error::rendezvous("a welcome that nobody asked for")),
        }
    }

    fn lost(&self, name: &str, how: String) -> Error {
        let (host, pid) = self
            .expecting
            .coordinator_of(name)
            .and_then(|coordinator| coordinator.split_once(", pid "))
            .map_or(("an unknown host", 0), |(host, pid)| {
                (host, pid.parse().unwrap_or(0))
            });
        Error::PeerFailed {
            peer: Peer {
                rank: Rank::ZERO,
                host: host.into(),
                pid,
            },
            activity: Activity::outside(Phase::Joining),
            failure: PeerFailure::Lost { how },
        }
    }

    fn out_of_time(&self) -> Unmet {
        let place = self.search.whereabouts.place();
        let at_address = matches!(self.search.whereabouts, Whereabouts::Address { .. });
        let failure = self.findings.out_of_time(&Fruitless {
            rank: self.search.join.rank,
            timeout: self.search.config.join_timeout,
            place: &place,
            is_address: at_address,
            coordinator: self.expecting.first_coordinator(),
        });
        match failure {
            // A rank 0 that comes yet would wait for this rank in vain.
            Error::Timeout { .. } => Unmet::Own(failure),
            _ => Unmet::Known(failure),
        }
    }
}

fn short(record: &Record) -> String {
    record.communicator.simple().to_string()[..8].to_owned()
}
