//! Messages about the end of ranks and of the world: [`EndRequest`] and [`EndReply`].

use fsgather_core::{Error, Peer, Rank, Site, error_form};
use serde::{Deserialize, Serialize};

/// A message of a member that ends, or has seen another one end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndRequest {
    /// The member has reached the orderly end.
    Close {
        /// The place in the user's program.
        site: Site,
    },
    /// The member makes no more calls, and stays as long as others have to read what it keeps.
    Stay {
        /// The reason, if something went wrong.
        #[serde(with = "error_form::optional")]
        cause: Option<Error>,
    },
    /// The member leaves without waiting for the others.
    Leave {
        /// The reason, if something went wrong.
        #[serde(with = "error_form::optional")]
        cause: Option<Error>,
    },
    /// A process on the member's host, with the pid of this rank, has ended.
    SiblingExited {
        /// The rank that ended.
        rank: Rank,
    },
}

/// A message of rank 0 to a member that ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReply {
    /// The ranks that have still to read what a staying member has handed over; none if it can go. It is repeated while one
    /// of them makes progress.
    Needed {
        /// Those ranks.
        by: Vec<Peer>,
    },
    /// This world has ended; nothing follows.
    Bye {
        /// True if all ranks closed it in good order.
        orderly: bool,
    },
}
