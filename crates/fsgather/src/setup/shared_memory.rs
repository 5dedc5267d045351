//! Has the members of a group share memory, where they run on one host.
//!
//! All say whether they can, and the first one where it listens; all come there with the descriptors of their arenas, and say
//! whether they could; then they map everybody's, and say whether they have. If anybody has not, nobody uses shared memory in this group, and payloads go
//! where they went before: that is no loss but of speed, so that it is said to those only who ask for much.

use fsgather_arena::{Arenas, Host, MOST_RANKS, MeetingPoint, Visitor};
use fsgather_control::fresh;
use fsgather_core::{Call, Error};
use fsgather_rendezvous::sharing::Talk;
use serde::{Deserialize, Serialize};

use crate::{group_state::GroupState, payload::path_request::PathRequest, setup::SetUp};

/// What a member tells the others.
#[derive(Serialize, Deserialize)]
enum Told {
    /// It shares no memory.
    Nothing,
    /// It can share memory.
    Ready {
        /// Whether it has mapped the arenas of all members before.
        knows_all: bool,
        /// Where the first member listens.
        point: Option<MeetingPoint>,
    },
}

/// Finds out together with all members whether they share memory, where `call` is made and with its time-out.
pub(super) fn find_out(
    inner: &GroupState,
    request: &PathRequest,
    call: &Call,
) -> Result<(), Error> {
    let set_up = SetUp {
        inner,
        request,
        call,
        processes: inner.processes(),
    };
    if set_up.is_of_one_host() {
        let is_shared = set_up.share_memory();
        let is_shared = is_shared.inspect_err(|failure| inner.world.record_failure(failure))?;
        inner.sharing.keep(is_shared);
    }
    Ok(())
}

impl SetUp<'_> {
    /// The same on all members, who know where all of them run.
    fn is_of_one_host(&self) -> bool {
        let first = self.processes.first();
        let boot_ids = self.processes.iter().map(|process| &process.boot_id);
        let mut others = boot_ids.skip(1);
        (2..=MOST_RANKS).contains(&self.processes.len())
            && first.is_some_and(|first| {
                !first.boot_id.is_empty() && others.all(|other| *other == first.boot_id)
            })
    }

    fn share_memory(&self) -> Result<bool, Error> {
        let world = &self.inner.world;
        let arenas = world.shared_memory.make(world).unwrap_or_else(|error| {
            tracing::debug!("{error}");
            None
        });
        let host = self.listen(arenas.as_deref());
        let own = match &arenas {
            None => Told::Nothing,
            Some(arenas) => Told::Ready {
                knows_all: self
                    .inner
                    .members
                    .iter()
                    .all(|member| arenas.knows(*member)),
                point: host.as_ref().map(|host| host.point().clone()),
            },
        };
        let told = self.gather_all(&own)?;
        let ready: Option<Vec<bool>> = told
            .iter()
            .map(|told| match told {
                Told::Nothing => None,
                Told::Ready { knows_all, .. } => Some(*knows_all),
            })
            .collect();
        let all_know = ready.map(|ready| ready.into_iter().all(|knows| knows));
        let (Some(all_know), Some(arenas), Some(Told::Ready { point, .. })) =
            (all_know, arenas, told.first())
        else {
            return Ok(false);
        };
        let Some(point) = point.as_ref().filter(|_| !all_know) else {
            return Ok(all_know);
        };
        // Nobody waits for one that could not come.
        let come = match &host {
            Some(_) => Ok(None),
            None => Visitor::come(point, &arenas).map(Some),
        };
        if !self.is_right_with_all(come.as_ref().err())? {
            return Ok(false);
        }
        let heed = || self.inner.heed();
        let members = &self.inner.members;
        let met = match (host, come) {
            (Some(host), _) => host.serve(&arenas, members.get(1..).unwrap_or_default(), &heed),
            (None, Ok(Some(visitor))) => visitor.receive(&arenas, members.len(), &heed),
            (None, _) => Err(Error::closed()),
        };
        self.is_right_with_all(met.as_ref().err())
    }

    /// Whether nobody has met with a problem.
    fn is_right_with_all(&self, problem: Option<&Error>) -> Result<bool, Error> {
        let told: Vec<Option<String>> = self.gather_all(&problem.map(ToString::to_string))?;
        let why = told.into_iter().flatten().next();
        if let Some(why) = &why {
            tracing::debug!("ranks of one host do not share memory: {why}");
        }
        Ok(why.is_none())
    }

    /// Listens for the others, on the first member.
    fn listen(&self, arenas: Option<&Arenas>) -> Option<Host> {
        if !self.is_root() || arenas.is_none() {
            return None;
        }
        let mut random = [0; 80];
        for piece in random.chunks_mut(16) {
            piece.copy_from_slice(&fresh::<[u8; 16]>());
        }
        Host::listen(random)
            .inspect_err(|error| tracing::debug!("{error}"))
            .ok()
    }
}
