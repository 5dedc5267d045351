//! The last known activity of a rank: [`Phase`] and [`Activity`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Epoch, Operation};

/// The stages a rank goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Phase {
    /// Looking for the other ranks.
    Joining,
    /// Outside of any call, in the user's own code.
    Computing,
    /// Turning its value into bytes and writing them where others will read them.
    Publishing,
    /// Has handed in its contribution and waits for the verdict.
    Waiting,
    /// Reads what others have published.
    Reading,
    /// Leaving.
    Closing,
    /// Collecting contributions, which is what rank 0 does whatever else it does.
    Coordinating,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joining => "joining",
            Self::Computing => "computing",
            Self::Publishing => "publishing its payload",
            Self::Waiting => "waiting for the others",
            Self::Reading => "reading payloads",
            Self::Closing => "closing",
            Self::Coordinating => "coordinating",
        })
    }
}

/// A phase, and the call it belongs to if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Activity {
    /// The stage.
    pub phase: Phase,
    /// The call: its operation and number.
    pub call: Option<(Operation, Epoch)>,
}

impl Activity {
    /// A phase outside of any call.
    #[must_use]
    pub const fn outside(phase: Phase) -> Self {
        Self { phase, call: None }
    }

    /// A phase of a call.
    #[must_use]
    pub const fn within(phase: Phase, operation: Operation, epoch: Epoch) -> Self {
        Self {
            phase,
            call: Some((operation, epoch)),
        }
    }

    /// What a rank is doing once it has got through with this.
    #[must_use]
    pub fn gone_on(self) -> Self {
        let call = self
            .call
            .filter(|(operation, _)| *operation != Operation::Meet);
        Self {
            phase: Phase::Computing,
            call,
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.phase.fmt(f)?;
        match (self.phase, self.call) {
            (_, None) => Ok(()),
            (Phase::Computing, Some((operation, epoch))) => {
                write!(f, " after {operation} #{epoch}")
            }
            (_, Some((operation, epoch))) => write!(f, " in {operation} #{epoch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_name_phase_and_call() {
        let publishing = Activity::within(Phase::Publishing, Operation::AllGather, Epoch::new(2));
        assert_eq!(
            publishing.to_string(),
            "publishing its payload in all_gather #2"
        );
        assert_eq!(Activity::outside(Phase::Joining).to_string(), "joining");
    }
}
