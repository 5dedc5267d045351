//! The fields of an [`Error`](crate::Error), for programs that look at more than its text and its
//! [kind](crate::Error::kind).

pub use fsgather_core::{
    Activity, CallName, Missing, Operation, Peer, PeerFailure, Phase, StorageCause,
};
