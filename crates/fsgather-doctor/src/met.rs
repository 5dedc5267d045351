//! A world that has formed for a diagnosis: [`Met`].

use std::time::Instant;

use fsgather::{Communicator, Pieces};
use fsgather_core::{Activity, Error, Interrupt, Peer, Phase, ProcessId};
use fsgather_rendezvous::{
    join::{Joined, Request, join},
    local_context::LocalContext,
    sharing::Talk,
};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

/// What messages call the place of the calls that ranks make for a diagnosis.
const SITE: &str = "`fsgather doctor`";

/// A world that has formed for a diagnosis, as one of its ranks sees it.
///
/// What ranks tell each other goes through rank 0, which works wherever they have met.
pub(crate) struct Met {
    pub(crate) communicator: Communicator,
    /// Names the world.
    pub(crate) id: Uuid,
    /// Where all ranks run, by rank.
    pub(crate) processes: Vec<ProcessId>,
    pub(crate) context: LocalContext,
    interrupt: Interrupt,
}

impl Met {
    /// Meets the other ranks.
    pub(crate) fn join(request: Request<'_>) -> Result<Self, Error> {
        let interrupt = request.interrupt.clone();
        let Joined {
            exchange,
            communicator,
            processes,
            context,
        } = join(request)?;
        Ok(Self {
            communicator: Communicator::relayed(exchange, processes.clone(), &interrupt, SITE),
            id: communicator,
            processes,
            context,
            interrupt,
        })
    }

    /// What ends waiting for others.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The process that this rank is.
    pub(crate) fn own_process(&self) -> Option<&ProcessId> {
        self.processes.get(self.communicator.rank().index())
    }
}

impl Talk for Met {
    fn gather_all<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>, Error> {
        self.communicator.all_gather(own)
    }

    fn fail(&self, cause: Error) -> Error {
        let reason = Pieces::failing(cause.to_string());
        match self.communicator.all_gather_bytes(reason) {
            Err(failure) => failure,
            Ok(_) => cause,
        }
    }

    fn heed(&self) -> Result<(), Error> {
        self.interrupt.poll_if_due(Instant::now());
        let Some(message) = self.interrupt.reason() else {
            return Ok(());
        };
        let process = self.own_process().cloned().unwrap_or_default();
        let me = Peer {
            rank: self.communicator.rank(),
            host: process.host,
            pid: process.pid,
        };
        Err(Error::raised(
            me,
            Activity::outside(Phase::Joining),
            message,
        ))
    }
}
