//! Brings a world together, whatever carries its messages: [`join`].

use std::{sync::Arc, time::Instant};

use fsgather_core::{Activity, Error, MailboxFactory, Phase, Rank, RendezvousBackend};

pub use crate::config::{Config, Control, Joined, Meeting};
use crate::{
    config::own_peer,
    join_event::{JoinFailure, JoinedWorld},
    markers, refusal,
    tcp::{self, NotFormed},
};

/// Meets the other ranks.
///
/// # Errors
///
/// - [`Error::Timeout`] names ranks that did not come; on members, rank 0.
/// - [`Error::Rendezvous`] when the ranks do not fit together: the same rank twice, different world
///   sizes, a world that has formed already, nothing reachable.
/// - [`Error::PeerFailed`] when a rank was lost after it had joined.
/// - [`Error::Config`] and [`Error::Storage`] when rank 0 cannot listen or leave word.
pub fn join(config: &Config) -> Result<Joined, Error> {
    if config.control == Control::Markers {
        // Every rank says so for itself: there may be no way to tell the others.
        place_of_markers(config)?;
    }
    find(config).map_err(|failure| match (failure, &config.problem) {
        (JoinFailure::Own(failure), None) => leave_word(config, failure),
        (JoinFailure::Own(_), Some(problem)) => leave_word(config, problem.clone()),
        (JoinFailure::Known(failure), problem) => problem.clone().unwrap_or(failure),
    })
}

/// Brings the world together, or finds it.
fn find(config: &Config) -> Result<Joined, JoinFailure> {
    config.interrupt.poll();
    if let Some(reason) = config.interrupt.reason() {
        let joining = Activity::outside(Phase::Joining);
        return Err(JoinFailure::Own(Error::raised(
            own_peer(config),
            joining,
            reason,
        )));
    }
    if config.rank == Rank::ZERO {
        return host(config, Instant::now()).map_err(JoinFailure::Own);
    }
    let found = tcp::seek_world(config);
    if let Meeting::Board(board) = &config.meeting {
        // Objections, which have done what they were for.
        board.take_down();
    }
    Ok(match found? {
        (JoinedWorld::Tcp(entered), runtime) => tcp::enter(config, *entered, runtime)?,
        (JoinedWorld::Files(entered), _) => markers::enter(config, *entered)?,
    })
}

/// Leaves word of a failure that others can hear of in no other way.
fn leave_word(config: &Config, failure: Error) -> Error {
    if let Meeting::Board(board) = &config.meeting {
        refusal::refuse_latecomers(config, board, &failure);
    }
    failure
}

/// Brings the world together on rank 0.
fn host(config: &Config, started: Instant) -> Result<Joined, Error> {
    if config.control == Control::Markers {
        return host_over_markers(config, started);
    }
    match tcp::host(config) {
        Ok(joined) => Ok(joined),
        Err(NotFormed::Failed(failure)) => Err(failure),
        Err(NotFormed::Unreachable { why, .. }) => {
            tracing::warn!(
                "{why}; messages of this job go through files instead, which is slower. Set \
                 FSGATHER_INTERFACE to the network that all hosts share, or FSGATHER_CONTROL=markers to \
                 try no other way"
            );
            host_over_markers(config, started)
        }
    }
}

fn host_over_markers(config: &Config, started: Instant) -> Result<Joined, Error> {
    let (board, office) = place_of_markers(config)?;
    markers::host(config, board, office, started)
}

/// Where messages can be left.
fn place_of_markers(
    config: &Config,
) -> Result<(&Arc<dyn RendezvousBackend>, &dyn MailboxFactory), Error> {
    match (&config.meeting, &config.office) {
        (Meeting::Address { host, port, .. }, _) => Err(Error::config(format!(
            "FSGATHER_CONTROL=markers needs a directory in which ranks meet, but they are told to meet at \
             tcp://{host}:{port}; unset FSGATHER_RENDEZVOUS and name a directory with FSGATHER_DIR"
        ))),
        (Meeting::Board(_), None) => Err(Error::config(
            "FSGATHER_CONTROL=markers needs a directory that all ranks share; name one with FSGATHER_DIR",
        )),
        (Meeting::Board(board), Some(office)) => Ok((board, &**office)),
    }
}
