//! Questions to other processes, and their answers: [`Probe`].

use fsgather_core::{Neighbour, Rank, Whereabouts};
use serde::{Deserialize, Serialize};

/// A question to rank 0 or to a member, or the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// Is the receiver alive?
    Ask,
    /// The answer: the sender is.
    Here,
    /// Rank 0 asks for the activity of the member's process, or of a neighbour's.
    Look {
        /// Number of the question, which the answer repeats.
        number: u64,
        /// The neighbour; none for the member itself.
        neighbour: Option<Neighbour>,
    },
    /// A member's answer to [`Look`](Self::Look).
    Seen {
        /// Number of the question.
        number: u64,
        /// The rank that was looked at: the member itself, or a neighbour.
        who: Rank,
        /// Its activity, if that can be seen and is permitted.
        whereabouts: Option<Whereabouts>,
    },
}
