//! How a member finds its world: [`seek`].
//!
//! All records that can be seen and all their addresses are tried at the same time, again and again,
//! until the deadline. No failed record ends the search: a stale one may point at somebody else's
//! port, or at a host that swallows packets.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{
    Activity, Backoff, Deadline, Error, Missing, Noticeboard, Peer, PeerFailure, Phase, Rank,
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    addresses,
    message::{Join, ToCoordinator, ToMember, Welcome},
    noise::Credentials,
    record::Record,
    transport::{Connection, Reader, TransportError, Writer},
    wire::Purpose,
};

/// How much longer than the time-out a member that was taken in waits for rank 0's verdict.
const COORDINATOR_GRACE: Duration = Duration::from_secs(10);

/// Where rank 0 may be.
#[derive(Clone)]
pub(crate) enum Whereabouts {
    /// It leaves word here.
    Board(Arc<dyn Noticeboard>),
    /// It listens at a known address.
    Address {
        host: String,
        port: u16,
        credentials: Credentials,
    },
}

/// What a member knows when it starts to look.
pub(crate) struct Search {
    pub(crate) whereabouts: Whereabouts,
    pub(crate) join: Join,
    pub(crate) network_namespace: u64,
    pub(crate) patience: Duration,
}

/// A world that has taken us in.
pub(crate) struct Found {
    pub(crate) welcome: Welcome,
    pub(crate) connection: Connection,
    /// How it was reached, for the second connection.
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
}

/// A world that may be ours.
#[derive(Clone, PartialEq, Eq)]
struct Candidate {
    name: String,
    addresses: Vec<SocketAddr>,
    credentials: Credentials,
}

/// A world that is forming and has noted us.
struct Forming {
    coordinator: String,
    writer: Writer,
    address: SocketAddr,
    credentials: Credentials,
}

/// What came of a try.
enum Outcome {
    Forming(Forming, Reader),
    Formed(String),
    Refused(Error),
    Failed(String),
}

/// What a world that is forming came to.
enum Ending {
    Welcome(Welcome, Reader),
    Aborted(Error),
    Lost(String),
}

/// Looks for the world until it is in, refused, or out of time.
pub(crate) async fn seek(search: Search) -> Result<Found, Error> {
    let started = Instant::now();
    let mut deadline = Deadline::after(started, search.patience);
    let mut seeker = Seeker::new(search);
    let (endings, mut ended) = mpsc::channel::<(usize, Ending)>(8);
    let mut listings = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut look_at = started;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(deadline.at().into()) => return Err(seeker.out_of_time()),
            () = tokio::time::sleep_until(look_at.into()) => {
                seeker.look().await?;
                look_at = Instant::now() + listings.next_jittered(rand::random());
            }
            Some(tried) = seeker.tries.join_next() => {
                let Ok((candidate, outcome)) = tried else { continue };
                if let Some(reader) = seeker.note(&candidate, outcome)? {
                    // From here on rank 0 keeps the time; this is for the case that it stops.
                    let patience = seeker.search.patience + COORDINATOR_GRACE;
                    deadline = Deadline::after(Instant::now(), patience);
                    let index = seeker.forming.len() - 1;
                    let endings = endings.clone();
                    tokio::spawn(async move {
                        let ending = await_welcome(reader).await;
                        let _ = endings.send((index, ending)).await;
                    });
                    seeker.tell_rivals().await;
                }
            }
            Some((index, ending)) = ended.recv() => match ending {
                Ending::Welcome(welcome, reader) => {
                    return seeker.settle(index, welcome, reader);
                }
                Ending::Aborted(cause) => return Err(cause),
                Ending::Lost(how) => return Err(seeker.lost(index, how)),
            },
        }
    }
}

struct Seeker {
    search: Search,
    tries: JoinSet<(Candidate, Outcome)>,
    /// When a candidate may be tried again; absent while a try is under way.
    pauses: HashMap<String, (Backoff, Option<Instant>)>,
    forming: Vec<Forming>,
    /// What became of candidates, for the message at the end.
    failures: HashMap<String, String>,
    formed: Option<String>,
}

impl Seeker {
    fn new(search: Search) -> Self {
        Self {
            search,
            tries: JoinSet::new(),
            pauses: HashMap::new(),
            forming: Vec::new(),
            failures: HashMap::new(),
            formed: None,
        }
    }

    /// Starts a try of every candidate that is due for one.
    async fn look(&mut self) -> Result<(), Error> {
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

    async fn candidates(&mut self) -> Result<Vec<Candidate>, Error> {
        match &self.search.whereabouts {
            Whereabouts::Address {
                host,
                port,
                credentials,
            } => {
                let name = format!("{host}:{port}");
                match tokio::net::lookup_host((host.as_str(), *port)).await {
                    Ok(addresses) => Ok(vec![Candidate {
                        name,
                        addresses: addresses.collect(),
                        credentials: credentials.clone(),
                    }]),
                    Err(error) => {
                        self.failures
                            .insert(name, format!("its name does not resolve ({error})"));
                        Ok(Vec::new())
                    }
                }
            }
            Whereabouts::Board(board) => {
                let board = Arc::clone(board);
                let records = tokio::task::spawn_blocking(move || board.records())
                    .await
                    .map_err(|_| Error::rendezvous("looking for records was cut short"))??;
                Ok(records
                    .iter()
                    .filter_map(|bytes| self.candidate(bytes))
                    .collect())
            }
        }
    }

    fn candidate(&mut self, bytes: &[u8]) -> Option<Candidate> {
        match Record::from_bytes(bytes) {
            Ok(record) => {
                let process = &self.search.join.process;
                let addresses =
                    addresses::usable(&record, &process.boot_id, self.search.network_namespace);
                let name = format!("{} ({})", record.host, short(&record));
                if addresses.is_empty() {
                    let only = "published no address that can be reached from this host".into();
                    self.failures.insert(name, only);
                    return None;
                }
                Some(Candidate {
                    name,
                    addresses,
                    credentials: record.credentials(),
                })
            }
            Err(error) => {
                self.failures.insert("a record".into(), error.to_string());
                None
            }
        }
    }

    /// Takes note of a try; the reader of a connection on which a welcome is to come.
    fn note(&mut self, candidate: &Candidate, outcome: Outcome) -> Result<Option<Reader>, Error> {
        let failure = match outcome {
            Outcome::Forming(forming, reader) => {
                tracing::info!(
                    "rank 0 ({}) has taken this rank in and waits for the others",
                    forming.coordinator
                );
                self.forming.push(forming);
                return Ok(Some(reader));
            }
            Outcome::Refused(cause) => return Err(cause),
            Outcome::Formed(running) => {
                self.formed = Some(running);
                "has formed without this process".into()
            }
            Outcome::Failed(why) => why,
        };
        self.failures.insert(candidate.name.clone(), failure);
        if let Some((pauses, due)) = self.pauses.get_mut(&candidate.name) {
            *due = Some(Instant::now() + pauses.next_jittered(rand::random()));
        }
        Ok(None)
    }

    /// Two worlds of one key are forming: both are told, and both will fail.
    async fn tell_rivals(&mut self) {
        if self.forming.len() < 2 {
            return;
        }
        let names: Vec<String> = self
            .forming
            .iter()
            .map(|forming| forming.coordinator.clone())
            .collect();
        for (index, forming) in self.forming.iter_mut().enumerate() {
            let other = names[(index + 1) % names.len()].clone();
            let _ = forming.writer.send(&ToCoordinator::Rival { other }).await;
        }
    }

    fn settle(&mut self, index: usize, welcome: Welcome, reader: Reader) -> Result<Found, Error> {
        if welcome.nonce != self.search.join.nonce {
            return Err(Error::rendezvous(
                "a welcome that was meant for another process",
            ));
        }
        let forming = self.forming.swap_remove(index);
        Ok(Found {
            welcome,
            connection: Connection {
                reader,
                writer: forming.writer,
            },
            address: forming.address,
            credentials: forming.credentials,
        })
    }

    fn lost(&self, index: usize, how: String) -> Error {
        let (host, pid) = self
            .forming
            .get(index)
            .and_then(|forming| forming.coordinator.split_once(", pid "))
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

    fn out_of_time(&self) -> Error {
        let place = match &self.search.whereabouts {
            Whereabouts::Board(board) => board.place(),
            Whereabouts::Address { host, port, .. } => format!("tcp://{host}:{port}"),
        };
        let rank = self.search.join.rank;
        if let Some(running) = &self.formed {
            return Error::rendezvous(format!(
                "rank {rank} looked in {place} and found only a world that has formed without it: \
                 {running}. Set FSGATHER_JOB to a different name for each job"
            ));
        }
        if let Some(forming) = self.forming.first() {
            return timeout(
                self.search.patience,
                Some(&forming.coordinator),
                "to say that all ranks have joined",
                &place,
            );
        }
        if self.failures.is_empty()
            || matches!(self.search.whereabouts, Whereabouts::Address { .. })
        {
            return timeout(self.search.patience, None, "to appear", &place);
        }
        let mut failures: Vec<String> = self
            .failures
            .iter()
            .map(|(name, failure)| format!("{name}: {failure}"))
            .collect();
        failures.sort();
        Error::rendezvous(format!(
            "rank {rank} found no rank 0 of its world in {place} within {}; tried {}. Set \
             FSGATHER_INTERFACE to the network that all hosts share, or FSGATHER_JOIN_TIMEOUT to wait \
             longer",
            fsgather_core::duration_text(self.search.patience),
            failures.join("; ")
        ))
    }
}

fn timeout(patience: Duration, coordinator: Option<&str>, what: &str, place: &str) -> Error {
    let process = coordinator
        .and_then(|name| name.split_once(", pid "))
        .map(|(host, pid)| (host.to_owned(), pid.parse().unwrap_or(0)));
    Error::Timeout {
        during: format!("meeting (looked in {place} for rank 0 {what})"),
        patience,
        missing: vec![Missing {
            rank: Rank::ZERO,
            last_seen: process
                .is_some()
                .then_some((Activity::outside(Phase::Joining), patience)),
            process,
        }],
        hint: "see whether rank 0 was started and looks in the same place, or set \
               FSGATHER_JOIN_TIMEOUT to wait longer"
            .into(),
    }
}

fn short(record: &Record) -> String {
    record.communicator.simple().to_string()[..8].to_owned()
}

/// Tries all addresses of a candidate at the same time, and asks the first that answers to join.
async fn attempt(candidate: Candidate, join: Join) -> (Candidate, Outcome) {
    let mut connects = JoinSet::new();
    for address in candidate.addresses.clone() {
        let credentials = candidate.credentials.clone();
        connects.spawn(async move {
            let connection = Connection::open(address, &credentials, Purpose::Control).await;
            (address, connection)
        });
    }
    let mut failures = Vec::new();
    while let Some(connected) = connects.join_next().await {
        match connected {
            Ok((address, Ok(connection))) => {
                let outcome = ask(connection, address, &candidate.credentials, join).await;
                return (candidate, outcome);
            }
            Ok((address, Err(error))) => failures.push(format!("{address}: {error}")),
            Err(_) => {}
        }
    }
    failures.sort();
    (candidate, Outcome::Failed(failures.join(", ")))
}

/// Asks to join over a fresh connection.
async fn ask(
    mut connection: Connection,
    address: SocketAddr,
    credentials: &Credentials,
    join: Join,
) -> Outcome {
    let asked = async {
        connection.writer.send(&ToCoordinator::Join(join)).await?;
        connection.reader.next::<ToMember>().await
    };
    match tokio::time::timeout(crate::transport::HANDSHAKE_LIMIT, asked).await {
        Ok(Ok(ToMember::Forming { coordinator })) => {
            let forming = Forming {
                coordinator,
                writer: connection.writer,
                address,
                credentials: credentials.clone(),
            };
            Outcome::Forming(forming, connection.reader)
        }
        Ok(Ok(ToMember::Formed { running })) => Outcome::Formed(running),
        Ok(Ok(ToMember::Abort { cause, .. })) => Outcome::Refused(cause),
        Ok(Ok(_)) => Outcome::Failed("an answer out of place".into()),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(_) => Outcome::Failed(TransportError::Silent.to_string()),
    }
}

/// Waits for the end of a world's forming, as long as it takes: rank 0 keeps the time.
async fn await_welcome(mut reader: Reader) -> Ending {
    loop {
        match reader.next::<ToMember>().await {
            Ok(ToMember::Welcome(welcome)) => return Ending::Welcome(welcome, reader),
            Ok(ToMember::Abort { cause, .. }) => return Ending::Aborted(cause),
            Ok(ToMember::Bye { .. }) => return Ending::Lost("it left".into()),
            Ok(_) => {}
            Err(end) => return Ending::Lost(end.to_string()),
        }
    }
}
