//! Has the ranks of each host share memory, once all ranks have met: [`share_memory`].
//!
//! All say whether they can, and the first rank of each host where it listens; the others of that host come there with the
//! descriptors of their arenas, and say whether they could; then they map everybody's, and say whether they have. What of that
//! fails on a host concerns that host alone: its ranks use no shared memory, and payloads go where they would go without it.
//! That is no loss but of speed, so that it is said to those only who ask for much.
//!
//! Later nobody has to be asked any more: who shares memory is the same for all ranks, and for all groups of them.

use fsgather_arena::{Host, MOST_RANKS, MeetingPoint, Visitor};
use fsgather_config::settings::Transport;
use fsgather_control::fresh;
use fsgather_core::{Call, Error, ProcessId, Rank};
use serde::{Deserialize, Serialize};

use crate::{group_state::GroupState, join::sharing::Talk, setup::SetUp};

/// What a rank tells the others.
#[derive(Serialize, Deserialize)]
struct Told {
    /// Whether it can share memory.
    is_able: bool,
    /// Where it listens, on the first rank of a host.
    point: Option<MeetingPoint>,
}

/// Has the ranks of a world share memory with those of their host, where `call` is made and with its time-out.
pub(crate) fn share_memory(inner: &GroupState, call: &Call) -> Result<(), Error> {
    let set_up = SetUp {
        inner,
        request: inner.default_request(),
        call,
        processes: inner.processes(),
    };
    let hosts = set_up.hosts();
    // The same on all ranks, who know where all of them run.
    if hosts.iter().all(|ranks| !can_share(ranks)) {
        return Ok(());
    }
    // Whoever asks for files gets files; on several hosts ranks read them for each other.
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

    /// The hosts, of these, whose ranks share memory.
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
        // By host, and the same on all ranks.
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
        // Nobody waits for one that could not come.
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

    /// The ranks that have not met with a problem.
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

/// Listens for the others of this host.
fn listen() -> Option<Host> {
    let mut random = [0; 80];
    for piece in random.chunks_mut(16) {
        piece.copy_from_slice(&fresh::<[u8; 16]>());
    }
    Host::listen(random)
        .inspect_err(|error| tracing::debug!("{error}"))
        .ok()
}
