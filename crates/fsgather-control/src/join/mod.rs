//! Meeting of the ranks of a world, for every carrier: [`join`].
//!
//! - `config`: the input of joining, and its result.
//! - [`job_credentials`]: the knowledge that processes of one job share before they have met.
//! - [`record`]: the records that rank 0 leaves for the others, as bytes.
//! - `addresses`: selects the addresses that rank 0 publishes, and those that a member tries.
//! - `record_keeper`: keeps rank 0's record alive while the world forms.
//! - `rivals`: a second process that claims to be rank 0.
//! - `search`: a member's knowledge when it starts to look for rank 0.
//! - `seeker`: the search, over TCP and over files at the same time; `candidates`: the worlds that may be asked.
//! - `event`: the events of one world, and the result of a member's search.
//! - `other_sizes`: worlds of this job whose ranks were given another world size.
//! - `forming`: the worlds that have accepted a member and wait for the others.
//! - `failures`: the results of all tries, for the message at the end; `search_warnings`: the times of earlier warnings
//!   that rank 0 is still looked for.
//! - `unreachable`: decides when a member reports that it cannot reach rank 0.
//! - `refusal`: leaves the refusal of a world that has failed, and reads it.
//!
//! The two ways differ in `tcp` (`host`, `attempt`) and `files` (`host`, `seek`).

pub mod job_credentials;
pub mod record;

pub(crate) mod addresses;
mod candidates;
pub(crate) mod config;
pub(crate) mod event;
mod failures;
pub(crate) mod forming;
mod other_sizes;
#[cfg(feature = "model")]
mod over_files;
pub(crate) mod record_keeper;
pub(crate) mod refusal;
mod rivals;
pub(crate) mod search;
mod search_warnings;
pub(crate) mod seeker;
mod unreachable;

use std::{sync::Arc, time::Instant};

use fsgather_core::{Activity, Error, MailboxFactory, Phase, Rank, RendezvousBackend, sys::clock};

use crate::{
    files,
    join::{
        config::own_peer,
        event::{JoinFailure, JoinedWorld},
    },
    tcp::host::{self, NotFormed},
};
pub use config::{Config, Control, FindEnded, FindIdle, IdleWatch, IsRunning, Joined, Meeting};
#[cfg(feature = "model")]
pub use over_files::join_over_files;

/// Meets the other ranks.
///
/// # Errors
///
/// - [`Error::Timeout`] names ranks that did not come; on members, rank 0.
/// - [`Error::Rendezvous`] when the ranks do not fit together: the same rank twice, different world sizes, a world that has
///   formed already, nothing reachable.
/// - [`Error::PeerFailed`] when a rank was lost after it had joined.
/// - [`Error::Config`] and [`Error::Storage`] when rank 0 cannot listen or leave its record.
pub fn join(config: &Config) -> Result<Joined, Error> {
    if config.control == Control::Markers {
        // Every rank reports this for itself: there may be no way to reach the others.
        place_of_markers(config)?;
    }
    find(config).map_err(|failure| match (failure, &config.problem) {
        (JoinFailure::Own(failure), None) => leave_word(config, failure),
        (JoinFailure::Own(_), Some(problem)) => leave_word(config, problem.clone()),
        (JoinFailure::Known(failure), problem) => problem.clone().unwrap_or(failure),
    })
}

/// Forms the world, or finds it.
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
        return host(config, clock::now()).map_err(JoinFailure::Own);
    }
    let found = host::seek_world(config);
    if let Meeting::Board(board) = &config.meeting {
        // Removes its reports, which are not needed any more.
        board.take_down();
    }
    Ok(match found? {
        (JoinedWorld::Tcp(entered), runtime) => host::enter(config, *entered, runtime)?,
        (JoinedWorld::Files(entered), _) => files::enter(config, *entered)?,
    })
}

/// Leaves a refusal for ranks of this job that run already and join later; they learn of the failure in no other way.
pub fn refuse_latecomers(config: &Config, failure: &Error) {
    if let Meeting::Board(board) = &config.meeting {
        refusal::refuse_latecomers(config, board, failure);
    }
}

fn leave_word(config: &Config, failure: Error) -> Error {
    refuse_latecomers(config, &failure);
    failure
}

/// Forms the world on rank 0.
fn host(config: &Config, started: Instant) -> Result<Joined, Error> {
    if config.control == Control::Markers {
        return host_over_markers(config, started);
    }
    match host::host(config) {
        Ok(joined) => Ok(joined),
        Err(NotFormed::Failed(failure)) => Err(failure),
        Err(NotFormed::Unreachable { why, .. }) => {
            fsgather_core::warn!(
                "{why}; messages of this job go through files instead, which is slower. Set \
                 FSGATHER_INTERFACE to the network that all hosts share, or FSGATHER_CONTROL=markers to \
                 try no other way"
            );
            host_over_markers(config, started)
        }
    }
}

fn host_over_markers(config: &Config, started: Instant) -> Result<Joined, Error> {
    let (board, mailboxes) = place_of_markers(config)?;
    files::host(config, board, mailboxes, started)
}

/// The place for messages through marker files.
fn place_of_markers(
    config: &Config,
) -> Result<(&Arc<dyn RendezvousBackend>, &dyn MailboxFactory), Error> {
    match (&config.meeting, &config.mailboxes) {
        (Meeting::Address { host, port, .. }, _) => Err(Error::config(format!(
            "FSGATHER_CONTROL=markers needs a directory in which ranks meet, but they are told to meet at \
             tcp://{host}:{port}; unset FSGATHER_RENDEZVOUS and name a directory with FSGATHER_DIR"
        ))),
        (Meeting::Board(_), None) => Err(Error::config(
            "FSGATHER_CONTROL=markers needs a directory that all ranks share; name one with FSGATHER_DIR",
        )),
        (Meeting::Board(board), Some(mailboxes)) => Ok((board, &**mailboxes)),
    }
}
