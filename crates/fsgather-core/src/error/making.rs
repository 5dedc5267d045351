//! The constructors of [`Error`], for the crates of fsgather alone.

use std::{path::PathBuf, time::Duration};

use crate::{Activity, Error, Missing, Peer, PeerFailure, Rank, RollCall, StorageCause};

#[doc(hidden)]
impl Error {
    /// A wrong setting or argument.
    #[must_use]
    pub fn config(message: impl Into<String>) -> Self {
        Self::Config {
            message: message.into(),
        }
    }

    /// A call on a communicator that has been closed.
    #[must_use]
    pub fn closed() -> Self {
        Self::config("this communicator is closed")
    }

    /// A rank that could not continue its work.
    #[must_use]
    pub const fn peer_failed(peer: Peer, activity: Activity, failure: PeerFailure) -> Self {
        Self::PeerFailed {
            peer,
            activity,
            failure,
        }
    }

    /// A failure that a rank reported itself.
    #[must_use]
    pub fn raised(peer: Peer, activity: Activity, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::peer_failed(peer, activity, PeerFailure::Raised { message })
    }

    /// A failed meeting.
    #[must_use]
    pub fn rendezvous(message: impl Into<String>) -> Self {
        Self::Rendezvous {
            message: message.into(),
            unreached: None,
        }
    }

    /// A failed file operation, not yet attributed to a rank.
    #[must_use]
    pub fn storage(
        operation: impl Into<String>,
        path: impl Into<PathBuf>,
        cause: impl Into<StorageCause>,
    ) -> Self {
        Self::Storage {
            path: path.into(),
            operation: operation.into(),
            cause: cause.into(),
            peer: None,
            activity: None,
        }
    }

    /// A failed meeting: there was no way to a rank that had joined already.
    #[must_use]
    pub fn unreached(message: impl Into<String>, rank: Rank) -> Self {
        Self::Rendezvous {
            message: message.into(),
            unreached: Some(rank),
        }
    }

    /// A wait for `missing` ranks that has taken too long; `stacks` has their activities, `hint` the setting that gives
    /// more time.
    #[must_use]
    pub fn timed_out(
        during: impl Into<String>,
        timeout: Duration,
        missing: Vec<Missing>,
        stacks: RollCall,
        hint: impl Into<String>,
    ) -> Self {
        Self::Timeout {
            during: during.into(),
            timeout,
            missing,
            hint: hint.into(),
            stacks,
        }
    }

    /// Two ranks, each with the call that it has made, that differ in `difference`.
    #[must_use]
    pub fn desync(
        number: u64,
        difference: impl Into<String>,
        (one, one_call): (Peer, String),
        (other, other_call): (Peer, String),
        stacks: RollCall,
    ) -> Self {
        Self::Desync {
            number,
            difference: difference.into(),
            one: Box::new(one),
            one_call,
            other: Box::new(other),
            other_call,
            stacks: Box::new(stacks),
        }
    }

    /// A directory that these hosts do not see as the others do.
    #[must_use]
    pub fn not_shared(
        directory: impl Into<PathBuf>,
        hosts: Vec<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::NotShared {
            directory: directory.into(),
            hosts,
            reason: reason.into(),
        }
    }

    /// Data that differs from the announced data, with the ranks that have written and read it as far as they are known.
    #[must_use]
    pub fn corrupt(
        path: impl Into<PathBuf>,
        reason: impl Into<String>,
        writer: Option<Peer>,
        reader: Option<Peer>,
    ) -> Self {
        Self::Corrupt {
            path: path.into(),
            reason: reason.into(),
            writer,
            reader,
        }
    }

    /// A payload that exceeds the bound of its call.
    #[must_use]
    pub const fn too_large(peer: Peer, size: u64, bound: u64) -> Self {
        Self::TooLarge { peer, size, bound }
    }

    /// A version of `what` that this build does not understand.
    #[must_use]
    pub fn incompatible(
        what: impl Into<String>,
        ours: impl Into<String>,
        theirs: impl Into<String>,
    ) -> Self {
        Self::Incompatible {
            what: what.into(),
            ours: ours.into(),
            theirs: theirs.into(),
        }
    }
}
