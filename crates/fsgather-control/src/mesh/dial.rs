//! Making links: [`dial`] on the side that wants one, [`answer`] on the other.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fsgather_core::{Backoff, Error, Rank, sys::random::fresh};
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    join::addresses::{self, Network},
    tcp::{
        connection::{Connection, HANDSHAKE_LIMIT, TransportError},
        tasks,
    },
    wire::ConnectionPurpose,
};

use super::{attend::attend, core::Core, header::Greeting, link::Link};

/// Number of times that all addresses of a rank are tried.
const ROUNDS: u32 = 4;

/// Reaction to a rank whose host accepts connections and that does not answer on them, such as a stopped one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    /// It counts as out of reach: other ways are tried instead.
    GiveUp,
    /// It is waited for, until the caller gives up.
    Wait,
}

/// The reason why there is no link.
enum Refusal {
    /// It may work next time.
    Failed {
        why: String,
        /// True if the host accepts connections without an answer.
        is_silent: bool,
    },
    /// It will not.
    Final(Error),
}

impl From<TransportError> for Refusal {
    fn from(error: TransportError) -> Self {
        Self::Failed {
            why: error.to_string(),
            is_silent: matches!(error, TransportError::Silent),
        }
    }
}

/// Makes a link to another rank.
///
/// # Errors
///
/// [`Error::Rendezvous`] naming both ranks and what was tried.
pub(super) async fn dial(core: &Core, to: Rank, silent: Silent) -> Result<Link, Error> {
    let groups = groups(core, to)?;
    let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));
    let mut failures = String::new();
    let mut round = 0;
    loop {
        let mut waits = false;
        for addresses in &groups {
            match try_all(core, to, addresses).await {
                Ok(link) => return Ok(link),
                Err(Refusal::Final(error)) => return Err(error),
                Err(Refusal::Failed { why, is_silent }) => {
                    waits |= is_silent && silent == Silent::Wait;
                    failures = why;
                }
            }
        }
        round += u32::from(!waits);
        if round == ROUNDS {
            return Err(no_way(core, to, &failures));
        }
        tokio::time::sleep(pauses.next_jittered(fresh())).await;
    }
}

/// Groups of addresses to try together: loopback alone first, if it means that rank, then all others.
fn groups(core: &Core, to: Rank) -> Result<Vec<Vec<SocketAddr>>, Error> {
    let theirs = core
        .address(to)
        .ok_or_else(|| Error::config(format!("the addresses of rank {to} are not known yet")))?;
    let there = Network {
        boot_id: &theirs.boot_id,
        namespace: theirs.network_namespace,
    };
    let all = addresses::usable(&theirs.addresses, there, core.network());
    if all.is_empty() {
        return Err(no_way(
            core,
            to,
            "it has no address that can be used from here",
        ));
    }
    let (loopback, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|address| address.ip().is_loopback());
    Ok([loopback, others]
        .into_iter()
        .filter(|addresses| !addresses.is_empty())
        .collect())
}

fn no_way(core: &Core, to: Rank, tried: &str) -> Error {
    let message = format!(
        "{} has no way to {} to exchange payloads (tried {tried}). Set FSGATHER_INTERFACE to the network \
         that all hosts share, or FSGATHER_TRANSPORT=filesys and a shared FSGATHER_DIR to go through files",
        core.peer(core.rank),
        core.peer(to),
    );
    Error::unreached(message, to)
}

/// Tries addresses at the same time; the first on which that rank proves its identity counts.
async fn try_all(core: &Core, to: Rank, addresses: &[SocketAddr]) -> Result<Link, Refusal> {
    let mut tries = JoinSet::new();
    for &address in addresses {
        let credentials = core.credentials.clone();
        tries.spawn(async move {
            let opened =
                Connection::open(address, &credentials, ConnectionPurpose::Payload, to).await;
            (address, opened)
        });
    }
    let mut failures = Vec::new();
    let mut is_any_silent = false;
    while let Some(tried) = tries.join_next().await {
        let Ok((address, opened)) = tried else {
            continue;
        };
        let greeted = match opened {
            Ok(connection) => greet(core, to, connection).await,
            Err(error) => Err(error.into()),
        };
        match greeted {
            Err(Refusal::Failed { why, is_silent }) => {
                is_any_silent |= is_silent;
                failures.push(format!("{address}: {why}"));
            }
            decided => return decided,
        }
    }
    failures.sort();
    Err(Refusal::Failed {
        why: failures.join(", "),
        is_silent: is_any_silent,
    })
}

/// Sends our greeting, and reads whether the other side wants encryption if we do not. That side has already proved that it
/// is the expected rank.
async fn greet(core: &Core, to: Rank, mut connection: Connection) -> Result<Link, Refusal> {
    let ours = Greeting {
        rank: core.rank,
        encrypted: !core.is_safe(to, &connection),
    };
    let asked = async {
        connection.writer.send(&ours).await?;
        if ours.encrypted {
            // Nothing depends on an answer, so that a transfer can begin a round trip earlier.
            return Ok(None);
        }
        connection.reader.next::<Greeting>().await.map(Some)
    };
    let theirs = tokio::time::timeout(HANDSHAKE_LIMIT, asked)
        .await
        .unwrap_or(Err(TransportError::Silent))
        .map_err(Refusal::from)?;
    if let Some(theirs) = theirs.filter(|theirs| theirs.rank != to) {
        let (ours, other) = (core.peer(core.rank), core.peer(to));
        return Err(Refusal::Final(Error::config(format!(
            "{ours} looked for {other} and found rank {}",
            theirs.rank
        ))));
    }
    let is_sealed = theirs.is_none_or(|theirs| theirs.encrypted);
    let bare = connection.into_bare(is_sealed).map_err(Refusal::from)?;
    Ok(Link::new(to, bare, is_sealed))
}

/// Brings a connection of another rank to this one from its first byte to a link.
pub(super) async fn answer(core: Arc<Core>, stream: TcpStream) {
    match welcome(&core, stream).await {
        Ok(link) => {
            core.accepted.fetch_add(1, Ordering::Relaxed);
            tasks::spawn(attend(core, link));
        }
        Err(error) => tracing::debug!("a connection was turned away: {error}"),
    }
}

async fn welcome(core: &Core, stream: TcpStream) -> Result<Link, TransportError> {
    let (mut connection, purpose) =
        Connection::accept(stream, &core.credentials, core.rank).await?;
    if purpose != ConnectionPurpose::Payload {
        return Err(TransportError::Stranger);
    }
    let greeted = async {
        let theirs = connection.reader.next::<Greeting>().await?;
        let peer = theirs.rank;
        if peer == core.rank || peer.index() >= core.world_size() {
            return Err(TransportError::Stranger);
        }
        let ours = Greeting {
            rank: core.rank,
            encrypted: !core.is_safe(peer, &connection),
        };
        if !theirs.encrypted {
            connection.writer.send(&ours).await?;
        }
        Ok((peer, ours.encrypted || theirs.encrypted))
    };
    let (peer, encrypted) = tokio::time::timeout(HANDSHAKE_LIMIT, greeted)
        .await
        .map_err(|_| TransportError::Silent)??;
    Ok(Link::new(peer, connection.into_bare(encrypted)?, encrypted))
}
