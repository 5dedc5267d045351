//! Makes the ranks of each host share memory, once all ranks have met: [`share_memory`].
//!
//! All ranks report if they can share memory, and the first rank of each host sends its address. The other ranks of
//! that host connect to it with the descriptors of their arenas, and report if that succeeded. Then they map all
//! arenas, and report if that succeeded. A failure on a host affects only that host: its ranks use no shared memory,
//! and payloads take the path that they would take without it. This costs only speed, so that only users who ask for
//! details see it.
//!
//! Later no further messages are needed: all ranks, and all their groups, know which ranks share memory.

use fsgather_arena::{Host, MOST_RANKS, MeetingPoint, Visitor};
use fsgather_config::settings::Transport;
use fsgather_control::fresh;
use fsgather_core::{Call, Error, ProcessId, Rank};
use serde::{Deserialize, Serialize};

use crate::{group_state::GroupState, join::sharing::Talk, setup::SetUp};

/// The message of a rank to the others.
#[derive(Serialize, Deserialize)]
struct Told {
    /// True if it can share memory.
    is_able: bool,
    /// Its address, on the first rank of a host.
    point: Option<MeetingPoint>,
}

/// Makes the ranks of a world share memory with those of their host, at the place of `call` and with its time-out.
pub(crate) fn share_memory(inner: &GroupState, call: &Call) -> Result<(), Error> {
    let set_up = SetUp {
        inner,
        request: inner.default_request(),
        call,
        processes: inner.processes(),
    };
    let hosts = set_up.hosts();
    // The result is the same on all ranks, because they know the hosts of all ranks.
    if hosts.iter().all(|ranks| !can_share(ranks)) {
        return Ok(());
    }
    // If the user asks for files, payloads go through files; on several hosts ranks read them for each other.
    if inner.default_request().transport == Transport::Filesys && hosts.len() == 1 {
        return Ok(());
    }
    let shared = set_up.share_memory(&hosts);
    let shared = shared.inspect_err(|failure| inner.world.record_failure(failure))?;
    inner.world.shared_memory.keep(shared);
    Ok(())
}

fn can_share(ranks: &[Rank]) -> bool {
    (2..=MOST_RANKS).contains(&ranks.len())
}

impl SetUp<'_> {
    /// The ranks of each kernel.
    fn hosts(&self) -> Vec<Vec<Rank>> {
        let mut hosts: Vec<(&ProcessId, Vec<Rank>)> = Vec::new();
        for (rank, process) in self.inner.members.iter().zip(&self.processes) {
            match hosts
                .iter_mut()
                .find(|(first, _)| process.shares_kernel_with(first))
            {
                Some((_, ranks)) => ranks.push(*rank),
                None => hosts.push((process, vec![*rank])),
            }
        }
        hosts.into_iter().map(|(_, ranks)| ranks).collect()
    }

    /// Returns those of these hosts whose ranks share memory.
    fn share_memory(&self, hosts: &[Vec<Rank>]) -> Result<Vec<Vec<Rank>>, Error> {
        let world = &self.inner.world;
        let me = world.rank;
        let mine = hosts.iter().find(|ranks| ranks.contains(&me));
        let mine = mine
            .filter(|ranks| can_share(ranks))
            .cloned()
            .unwrap_or_default();
        let arenas = if mine.is_empty() {
            None
        } else {
            world
                .shared_memory
                .make(world, mine.len())
                .unwrap_or_else(|error| {
                    tracing::debug!("{error}");
                    None
                })
        };
        let host = arenas
            .as_ref()
            .filter(|_| mine.first() == Some(&me))
            .and_then(|_| listen());
        let own = Told {
            is_able: arenas.is_some(),
            point: host.as_ref().map(|host| host.point().clone()),
        };
        let told: Vec<Told> = self.gather_all(&own)?;
        // The result is per host, and the same on all ranks.
        let able = |ranks: &[Rank]| {
            let told_by = |rank: &Rank| told.get(rank.index());
            can_share(ranks)
                && ranks
                    .iter()
                    .all(|rank| told_by(rank).is_some_and(|told| told.is_able))
                && ranks
                    .first()
                    .and_then(told_by)
                    .is_some_and(|told| told.point.is_some())
        };
        let hosts: Vec<&Vec<Rank>> = hosts.iter().filter(|ranks| able(ranks)).collect();
        if hosts.is_empty() {
            world.shared_memory.release();
            return Ok(Vec::new());
        }
        let point = mine
            .first()
            .and_then(|first| told.get(first.index())?.point.as_ref());
        let meeting = arenas.as_deref().zip(point).filter(|_| able(&mine));
        // No rank waits for one that could not connect.
        let come = match (&meeting, &host) {
            (Some((arenas, point)), None) => Visitor::come(point, arenas).map(Some),
            _ => Ok(None),
        };
        let have_come = self.who_is_right(come.as_ref().err())?;
        let all = |ranks: &[Rank], right: &[Rank]| ranks.iter().all(|rank| right.contains(rank));
        let heed = || self.inner.heed();
        let met = match (meeting.filter(|_| all(&mine, &have_come)), &host, &come) {
            (Some((arenas, _)), Some(host), _) => {
                host.serve(arenas, mine.get(1..).unwrap_or_default(), &heed)
            }
            (Some((arenas, _)), None, Ok(Some(visitor))) => {
                visitor.receive(arenas, mine.len(), &heed)
            }
            _ => Ok(()),
        };
        let have_met = self.who_is_right(met.as_ref().err())?;
        let sharing = hosts
            .into_iter()
            .filter(|ranks| all(ranks, &have_come) && all(ranks, &have_met));
        let sharing: Vec<Vec<Rank>> = sharing.cloned().collect();
        if !sharing.contains(&mine) {
            world.shared_memory.release();
        }
        Ok(sharing)
    }

    /// Returns the ranks without a problem.
    fn who_is_right(&self, problem: Option<&Error>) -> Result<Vec<Rank>, Error> {
        let told: Vec<Option<String>> = self.gather_all(&problem.map(ToString::to_string))?;
        let mut right = Vec::new();
        for (rank, problem) in self.inner.members.iter().zip(told) {
            match problem {
                None => right.push(*rank),
                Some(why) => tracing::debug!("the host of rank {rank} shares no memory: {why}"),
            }
        }
        Ok(right)
    }
}

/// Listens for the other ranks of this host.
fn listen() -> Option<Host> {
    let mut random = [0; 80];
    for piece in random.chunks_mut(16) {
        piece.copy_from_slice(&fresh::<[u8; 16]>());
    }
    Host::listen(random)
        .inspect_err(|error| tracing::debug!("{error}"))
        .ok()
}
