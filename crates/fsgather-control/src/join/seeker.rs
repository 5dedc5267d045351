//! Finds a member's world: [`seek`].
//!
//! All visible records and all their addresses are tried at the same time, again and again, until the deadline. No failed
//! record ends the search: a stale one may point at a port of another program, or at a host that swallows packets. Worlds
//! over TCP are asked by `attempt`, worlds over marker files by `files::search`.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, Backoff, Error, Peer, PeerFailure, Phase, Rank, WaitEnd, plain_line,
    sys::{clock, random::fresh},
};
use tokio::{sync::mpsc, task::JoinSet};
use uuid::Uuid;

use crate::{
    files::Searching,
    join::{
        event::{EnteredTcp, JoinEvent, JoinFailure, JoinedWorld, Joining},
        failures::{self, ExpiredSearch, FormedWorld, SearchFailures},
        forming::{FormingWorlds, GOODBYE_LIMIT, JoinRoute, Listening},
        other_sizes::OtherSizes,
        record::UnreachableReport,
        search::{Search, Whereabouts},
        search_warnings::{SearchWarnings, slow_since},
        unreachable::{Obstacle, UnreachableReports},
    },
    message::{RefusalReason, Welcome},
    tcp::{
        attempt::{attempt, await_welcome},
        connection::{Connection, ConnectionReader},
        tasks,
    },
    thread_call::ThreadCall,
    waiting::AwakeDeadline,
    wire::VERSION,
};

/// Time beyond the time-out that an accepted member waits for rank 0's verdict.
pub(super) const COORDINATOR_GRACE: Duration = Duration::from_secs(10);

/// Time for which a world that has formed with another process as this rank may continue. The world of an earlier attempt
/// ends sooner, once it has lost a rank.
const GOES_ON: Duration = Duration::from_secs(5);

/// The same if another world has accepted this rank: by then, rank 0 of the last command of a job has seen the end of that.
const NOT_THE_LAST_ONE: Duration = Duration::from_millis(500);

/// Looks for the world until this rank is accepted, refused, or out of time.
///
/// Other worlds that expect this rank are notified that it will not come, and why. `interrupted` ends the search.
pub(crate) async fn seek(
    search: Search,
    interrupted: impl Future<Output = Error>,
) -> Result<JoinedWorld, JoinFailure> {
    let (events, heard) = mpsc::unbounded_channel();
    let mut seeker = Seeker::new(search, events);
    let found = tokio::select! {
        found = seek_with(&mut seeker, heard) => found,
        failure = interrupted => Err(JoinFailure::Own(failure)),
    };
    let cause = match &found {
        Ok(_) => Error::rendezvous(format!(
            "rank {} has found another rank 0 of a job with the same name. Set FSGATHER_JOB to a different name for each job",
            seeker.search.join.rank
        )),
        Err(JoinFailure::Own(error) | JoinFailure::Known(error)) => {
            let problem = seeker.search.config.problem.as_ref();
            problem.unwrap_or(error).clone()
        }
    };
    // Includes those that have been asked through files and have not answered yet.
    for (name, searching) in &seeker.searches {
        // Worlds of other sizes do not expect this rank.
        if !seeker.other_sizes.contains(name) {
            searching.will_not_come(cause.clone());
        }
    }
    let goodbye = async move {
        seeker.hear_answers().await;
        seeker.forming.say_goodbye(&cause).await;
    };
    if matches!(found, Ok(JoinedWorld::Tcp(_))) {
        // This world continues meanwhile.
        tasks::spawn(goodbye);
    } else {
        goodbye.await;
    }
    found
}

async fn seek_with(
    seeker: &mut Seeker,
    mut events: mpsc::UnboundedReceiver<(String, JoinEvent)>,
) -> Result<JoinedWorld, JoinFailure> {
    let started = clock::now();
    let mut deadline = AwakeDeadline::after(started, seeker.search.config.join_timeout);
    let idle_limit = seeker.search.config.idle_limit();
    let mut warnings = SearchWarnings::new(started);
    let mut earlier = pin!(seeker.search.look_back());
    loop {
        let (name, event) = tokio::select! {
            () = deadline.passed() => return Err(seeker.out_of_time(None)),
            () = tokio::time::sleep_until(seeker.look_at.into()) => {
                let (began, so_far) = (clock::now(), seeker.so_far());
                let is_alone = seeker.forming.is_empty();
                let looked = {
                    let mut look = pin!(seeker.look());
                    loop {
                        tokio::select! {
                            looked = &mut look => break Some(looked),
                            () = deadline.passed() => break None,
                            lasts = warnings.due(), if is_alone => {
                                let end = WaitEnd::of_meeting(deadline.left(), idle_limit);
                                fsgather_core::warn!("{}; {end}", so_far(lasts, slow_since(began)));
                            }
                        }
                    }
                };
                match looked {
                    Some(looked) => looked?,
                    None => return Err(seeker.out_of_time(slow_since(began))),
                }
                let (now, left) = (clock::now(), deadline.left());
                seeker.forming.look_at_silence(now, left).await;
                continue;
            }
            // Once a world has accepted this rank, its rank 0 does the warning.
            lasts = warnings.due(), if seeker.forming.is_empty() => {
                let end = WaitEnd::of_meeting(deadline.left(), idle_limit);
                fsgather_core::warn!("{}; {end}", seeker.so_far()(lasts, None));
                continue;
            }
            failure = &mut earlier, if seeker.failures.earlier.is_none() => {
                fsgather_core::warn!("{failure}; rank 0 is still looked for");
                seeker.failures.earlier = Some(failure);
                continue;
            }
            Some(tried) = seeker.tries.join_next() => {
                let Ok(tried) = tried else { continue };
                tried
            }
            Some(event) = events.recv() => event,
        };
        let has_taken_in = matches!(event, JoinEvent::Forming { .. });
        let is_refused = matches!(event, JoinEvent::Refused(_));
        if let Some(world) = seeker.on_event(name, event)? {
            return Ok(world);
        }
        if has_taken_in {
            // From here on rank 0 keeps the time; this deadline is for a rank 0 that stops.
            let timeout = seeker
                .search
                .config
                .join_timeout
                .saturating_add(COORDINATOR_GRACE);
            deadline = AwakeDeadline::after(clock::now(), timeout);
        }
        if has_taken_in || is_refused {
            seeker.forming.report_rivals().await;
        }
    }
}

/// State of a world over TCP that is tried.
pub(super) struct Tries {
    /// Communicator in its record; none if it left none.
    communicator: Option<Uuid>,
    /// True if its addresses mean this host itself, though they need not.
    is_this_host: bool,
    pauses: Backoff,
    /// Time of the next try; absent while a try is under way.
    due: Option<Instant>,
}

/// A search under way.
pub(super) struct Seeker {
    pub(super) search: Search,
    /// Time of the next search for records.
    look_at: Instant,
    has_rank_0_ended: bool,
    listings: Backoff,
    tries: JoinSet<(String, JoinEvent)>,
    /// Worlds over TCP that are being tried.
    pub(super) tried: HashMap<String, Tries>,
    /// Worlds over marker files that are being asked.
    pub(super) searches: HashMap<String, Arc<Searching>>,
    /// Worlds among them that were given another secret.
    pub(super) unlike: HashSet<String>,
    /// Events of worlds over files, and of worlds over TCP that have accepted this rank.
    pub(super) events: mpsc::UnboundedSender<(String, JoinEvent)>,
    pub(super) forming: FormingWorlds,
    pub(super) failures: SearchFailures,
    pub(super) unreachable: UnreachableReports,
    /// Worlds of this job whose ranks were given another world size.
    pub(super) other_sizes: OtherSizes,
}

impl Seeker {
    fn new(search: Search, events: mpsc::UnboundedSender<(String, JoinEvent)>) -> Self {
        let join_timeout = search.config.join_timeout;
        Self {
            search,
            look_at: clock::now(),
            has_rank_0_ended: false,
            listings: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
            tries: JoinSet::new(),
            tried: HashMap::new(),
            searches: HashMap::new(),
            unlike: HashSet::new(),
            events,
            forming: FormingWorlds::default(),
            failures: SearchFailures::default(),
            unreachable: UnreachableReports::default(),
            other_sizes: OtherSizes::new(join_timeout),
        }
    }

    /// Fails if rank 0 has ended without accepting this rank. An answer that it gave before is read first, so its end
    /// counts when it is seen for the second time.
    fn check_rank_0(&mut self) -> Result<(), JoinFailure> {
        if self.forming.is_empty()
            && let Some(ended) = (self.search.config.find_ended)(&|rank| rank == Rank::ZERO)
            && std::mem::replace(&mut self.has_rank_0_ended, true)
        {
            return Err(JoinFailure::Own(ended));
        }
        if self.forming.is_empty()
            && let Some(watch) = &self.search.config.idle_watch
            && let Some(failure) = watch.failure_of(Rank::ZERO)
        {
            return Err(JoinFailure::Own(failure));
        }
        Ok(())
    }

    /// Starts a try of every candidate that is due for one.
    async fn look(&mut self) -> Result<(), JoinFailure> {
        self.check_rank_0()?;
        for candidate in self.candidates().await? {
            let now = clock::now();
            let tries = self
                .tried
                .entry(candidate.name.clone())
                .or_insert_with(|| Tries {
                    communicator: candidate.communicator,
                    is_this_host: false,
                    pauses: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
                    due: Some(now),
                });
            if tries.due.is_some_and(|due| now >= due) {
                tries.due = None;
                let whereabouts = &self.search.whereabouts;
                tries.is_this_host = whereabouts.means_this_host(&candidate.addresses);
                let join = self.search.join.clone();
                self.tries.spawn(attempt(candidate, join));
            }
        }
        self.look_at = clock::now() + self.listings.next_jittered(fresh());
        Ok(())
    }

    /// Notes that a world cannot be reached, and reports that to its rank 0 once it is certain.
    pub(super) fn cannot_reach(&mut self, world: Option<Uuid>, obstacle: Obstacle, tried: &str) {
        let Whereabouts::Board(board) = &self.search.whereabouts else {
            return;
        };
        let Some(communicator) = world else { return };
        if !self
            .unreachable
            .record(communicator, obstacle, clock::now())
        {
            return;
        }
        let join = &self.search.join;
        let report = UnreachableReport {
            communicator,
            peer: Peer {
                rank: join.rank,
                host: join.process.host.clone(),
                pid: join.process.pid,
            },
            tried: tried.to_owned(),
        };
        let board = Arc::clone(board);
        drop(ThreadCall::start(move || {
            if let Err(error) = board.report_unreachable(&report.to_bytes()) {
                tracing::debug!("rank 0 cannot be told that it cannot be reached: {error}");
            }
        }));
    }

    /// Handles an event of a world, over TCP or over files, and returns the world if this rank is in it.
    fn on_event(
        &mut self,
        name: String,
        event: JoinEvent,
    ) -> Result<Option<JoinedWorld>, JoinFailure> {
        if self.other_sizes.contains(&name)
            || matches!(event, JoinEvent::Refused(RefusalReason::OtherSize(_)))
        {
            self.heard_of_other_size(&name, event);
            return Ok(None);
        }
        if let JoinEvent::Forming {
            coordinator,
            connection,
        } = event
        {
            // A rank 0 that has accepted this rank there cannot be its own, which would have refused it.
            if self.unlike.contains(&name) {
                let rank = self.search.join.rank;
                let failure = failures::another_secret(rank, &coordinator);
                return Err(JoinFailure::Own(failure));
            }
            tracing::info!(
                "rank 0 ({coordinator}) has accepted this rank and waits for the others"
            );
            self.add_forming(name, coordinator, connection);
            return Ok(None);
        }
        if let Some(tries) = self.tried.get_mut(&name)
            && tries.due.is_none()
            && self.forming.coordinator_of(&name).is_none()
        {
            tries.due = Some(clock::now() + tries.pauses.next_jittered(fresh()));
        }
        match event {
            JoinEvent::Forming { .. } | JoinEvent::Refused(RefusalReason::OtherSize(_)) => {}
            JoinEvent::Refused(RefusalReason::AlreadyFormed { running, is_live }) => {
                return self.has_formed(&running, is_live).map(|()| None);
            }
            JoinEvent::Refused(RefusalReason::OtherStart(why)) => self.belongs_elsewhere(why),
            JoinEvent::Refused(RefusalReason::Failed(cause)) => {
                self.forming.remove(&name);
                return Err(JoinFailure::Known(cause));
            }
            JoinEvent::Unable(cause) => return Err(JoinFailure::Own(cause)),
            JoinEvent::Unreachable(why) => self.is_unreachable(name, Obstacle::Unconnected, why),
            JoinEvent::Foreign(theirs, why) => {
                self.failures.foreign = Some(Error::incompatible(
                    format!("the wire protocol of the process at {name}"),
                    VERSION.to_string(),
                    theirs.to_string(),
                ));
                self.is_unreachable(name, Obstacle::Unanswered, why);
            }
            JoinEvent::Failed(why) => {
                self.searches.remove(&name);
                self.is_unreachable(name, Obstacle::Unanswered, why);
            }
            JoinEvent::WelcomeOverTcp(welcome, reader) => {
                return Ok(Some(self.settle(&name, welcome, reader)?));
            }
            JoinEvent::WelcomeOverFiles(entered) => return Ok(Some(JoinedWorld::Files(entered))),
            JoinEvent::Lost(how) => return Err(JoinFailure::Own(self.lost(&name, how))),
            JoinEvent::Moved => {
                self.forming.remove(&name);
                self.listings.reset();
                self.look_at = clock::now();
            }
        }
        Ok(None)
    }

    /// Notes that a world does not answer, for the end of the search, and for its rank 0 if it is over TCP.
    fn is_unreachable(&mut self, name: String, obstacle: Obstacle, mut why: String) {
        let tries = self.tried.get(&name);
        let world = tries.and_then(|tries| tries.communicator);
        let is_this_host = tries.is_some_and(|tries| tries.is_this_host);
        self.cannot_reach(world, obstacle, &why);
        if is_this_host && obstacle == Obstacle::Unconnected {
            why.push_str(", which is this host itself");
        }
        self.failures.by_world.insert(name, why);
    }

    /// Notes that a world of our key has formed without us: another job of this name, or an earlier attempt of this one.
    ///
    /// # Errors
    ///
    /// When it does not end, and there is no other world.
    fn has_formed(&mut self, running: &str, is_live: bool) -> Result<(), JoinFailure> {
        // The name of a job is anything that the environment can hold.
        let running = plain_line(running).into_owned();
        let known = self.failures.formed.as_ref();
        let known = known.filter(|formed| formed.running == running);
        if known.is_none() {
            fsgather_core::warn!(
                "found a world that has formed without this rank: {running}; looking for another rank 0. If this is another job, set \
                 FSGATHER_JOB to a different name for each"
            );
        }
        let now = clock::now();
        let since = known.and_then(|formed| formed.live_since).unwrap_or(now);
        let formed = FormedWorld {
            running,
            live_since: is_live.then_some(since),
        };
        let live_for = now.saturating_duration_since(since);
        if !is_live {
            // It is about to end.
        } else if !self.forming.is_empty() && live_for >= NOT_THE_LAST_ONE {
            self.forming.add_formed(&formed.running);
        } else if self.forming.is_empty() && live_for >= GOES_ON {
            let place = self.search.whereabouts.place();
            return Err(JoinFailure::Own(
                formed.error(self.search.join.rank, &place),
            ));
        }
        self.failures.formed = Some(formed);
        Ok(())
    }

    /// Notes that a world is not ours, although it has our key.
    fn belongs_elsewhere(&mut self, why: String) {
        if self.failures.elsewhere.is_none() {
            tracing::info!("{why}; looking for another rank 0");
        }
        self.failures.elsewhere = Some(why);
    }

    /// Notes a world that has accepted this rank. Over TCP, its welcome is read even when the result is not needed any
    /// more: a connection that is closed with unread data is reset.
    fn add_forming(
        &mut self,
        name: String,
        coordinator: String,
        connection: Option<(Box<Joining>, ConnectionReader)>,
    ) {
        let route = match connection {
            Some((joining, reader)) => {
                let (events, its) = (self.events.clone(), name.clone());
                let words = Arc::default();
                let listening = Listening::new(Arc::clone(&words), clock::now());
                tasks::spawn(async move {
                    let event = await_welcome(reader, &words).await;
                    let _ = events.send((its, event));
                });
                JoinRoute::Tcp(joining, listening)
            }
            None => match self.searches.get(&name) {
                Some(searching) => JoinRoute::Files(Arc::clone(searching)),
                None => return,
            },
        };
        self.forming.add(name, coordinator, route);
    }

    /// Waits for answers of worlds that were just asked, to notify those that have accepted this rank that it will not come.
    async fn hear_answers(&mut self) {
        let answered = async {
            while let Some(tried) = self.tries.join_next().await {
                if let Ok((
                    name,
                    JoinEvent::Forming {
                        coordinator,
                        connection,
                    },
                )) = tried
                {
                    self.add_forming(name, coordinator, connection);
                }
            }
        };
        // A world that has not answered by then may expect this rank for some seconds longer.
        let _ = tokio::time::timeout(GOODBYE_LIMIT, answered).await;
    }

    fn settle(
        &mut self,
        name: &str,
        welcome: Welcome,
        reader: ConnectionReader,
    ) -> Result<JoinedWorld, Error> {
        let join = &self.search.join;
        if welcome.nonces.get(join.rank.index()) != Some(&join.nonce) {
            return Err(Error::rendezvous(
                "a welcome that was meant for another process",
            ));
        }
        let nonce = join.nonce;
        match self.forming.remove(name) {
            Some(JoinRoute::Tcp(joining, _)) => Ok(JoinedWorld::Tcp(Box::new(EnteredTcp {
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
            .forming
            .coordinator_of(name)
            .and_then(|coordinator| coordinator.split_once(", pid "))
            .map_or(("an unknown host", 0), |(host, pid)| {
                (host, pid.parse().unwrap_or(0))
            });
        Error::peer_failed(
            Peer {
                rank: Rank::ZERO,
                host: host.into(),
                pid,
            },
            Activity::outside(Phase::Joining),
            PeerFailure::Lost { how },
        )
    }

    /// Text of the warnings while the search continues.
    fn so_far(&self) -> impl Fn(Duration, Option<Duration>) -> String + use<> {
        let place = self.search.whereabouts.place();
        self.failures.so_far(place, self.is_at_address())
    }

    const fn is_at_address(&self) -> bool {
        matches!(self.search.whereabouts, Whereabouts::Address { .. })
    }

    /// The error at the end of the time; the last look may have been unanswered for `unanswered`.
    fn out_of_time(&self, unanswered: Option<Duration>) -> JoinFailure {
        let place = self.search.whereabouts.place();
        let failure = self.failures.out_of_time(&ExpiredSearch {
            rank: self.search.join.rank,
            is_named: self.search.config.is_named,
            timeout: self.search.config.join_timeout,
            place: &place,
            is_address: self.is_at_address(),
            coordinator: self.forming.first_coordinator(),
            unanswered,
        });
        match failure {
            // A rank 0 that appears later would wait for this rank in vain.
            Error::Timeout { .. } => JoinFailure::Own(failure),
            _ => JoinFailure::Known(failure),
        }
    }
}
