//! The operations that `bench` measures, [`Operation`], and the ranks that receive.

use std::hint::black_box;

use clap::ValueEnum;
use serde::Serialize;

/// An operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Operation {
    /// Everybody waits for everybody.
    Barrier,
    /// Rank 0's payload for everybody.
    Broadcast,
    /// Everybody's payload for rank 0.
    Gather,
    /// Everybody's payload for everybody.
    AllGather,
}

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Recipients {
    /// Every rank.
    All,
    /// The root alone.
    Root,
}

impl Operation {
    pub(super) const ALL: [Self; 4] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Gather,
        Self::AllGather,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Gather => "gather",
            Self::AllGather => "all_gather",
        }
    }

    pub(super) const fn recipients(self) -> Recipients {
        match self {
            Self::Gather => Recipients::Root,
            Self::Barrier | Self::Broadcast | Self::AllGather => Recipients::All,
        }
    }

    /// Returns true if ranks send payloads.
    pub(super) const fn has_payload(self) -> bool {
        !matches!(self, Self::Barrier)
    }
}

impl Recipients {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Root => "root",
        }
    }
}

/// The smallest page size, in bytes.
const PAGE: usize = 4096;

/// Reads a byte of every page, so that the data must be in memory.
pub(super) fn touch(bytes: &[u8]) {
    let sum = bytes.iter().step_by(PAGE).fold(0, |sum, byte| sum ^ byte);
    black_box(sum);
}
