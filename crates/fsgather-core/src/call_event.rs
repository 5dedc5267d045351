//! An event of a call of this rank, for the record of calls: [`CallEvent`].

use crate::{Error, Rank};

/// An event of a call. A call has one `Begun`, and ends with `Done`, `Failed` or `GivenUp`.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "it borrows a closure")]
pub enum CallEvent<'a> {
    /// The call has its number.
    Begun {
        /// The number of ranks that take part.
        ranks: u32,
        /// True if this rank hands in nothing, so that it waits from now on.
        waits: bool,
    },
    /// This rank is going to hand in a part of a known size.
    Expected {
        /// The size of the part.
        bytes: u64,
    },
    /// Bytes have moved.
    Moved {
        /// The number of bytes since the last such event.
        bytes: u64,
    },
    /// This rank has handed in its part.
    HandedIn {
        /// The size of the part.
        bytes: u64,
        /// The route by which the part reaches the others.
        route: Route,
    },
    /// A thread of the program begins or ceases to wait for a call that was started before.
    Awaited {
        /// True if it waits.
        is_awaited: bool,
    },
    /// All ranks have handed in their parts.
    Decided {
        /// The rank of the world that came last, if it is known.
        last: Option<Rank>,
        /// Computes the sizes that this rank receives, if it receives anything.
        received: Option<&'a dyn Fn() -> Received>,
    },
    /// The call has ended with its result.
    Done,
    /// The call has ended with this error.
    Failed(&'a Error),
    /// The program has dropped the result.
    GivenUp,
}

/// The sizes of the data that a rank receives in a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// All payloads together, in bytes.
    pub bytes: u64,
    /// The part of it that is not in the memory of this rank yet.
    pub to_move: u64,
}

/// The route by which a rank's payload reaches the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Route {
    /// The rank has no payload, or none yet.
    #[default]
    None,
    /// In the contribution to the exchange.
    Message,
    /// As a file.
    File,
    /// Over connections between ranks.
    Link,
    /// In memory that ranks share.
    SharedMemory,
    /// Through rank 0.
    Relay,
    /// No other rank receives it.
    Kept,
}

impl Route {
    /// All routes, in the order of their numbers in files.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Message,
        Self::File,
        Self::Link,
        Self::SharedMemory,
        Self::Relay,
        Self::Kept,
    ];

    /// Returns a word for it; empty for none.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Message => "message",
            Self::File => "file",
            Self::Link => "link",
            Self::SharedMemory => "shared memory",
            Self::Relay => "relay",
            Self::Kept => "kept",
        }
    }
}
