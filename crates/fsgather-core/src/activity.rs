//! The last known activity of a rank: [`Phase`] and [`Activity`].

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{CallName, Operation};

/// The stages a rank goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Phase {
    /// Looking for the other ranks.
    Joining,
    /// Outside of any call, in the user's own code.
    Computing,
    /// Encoding its value, and writing the bytes for others to read.
    Publishing,
    /// Has handed in its contribution and waits for the verdict.
    Waiting,
    /// Reads payloads of others.
    Reading,
    /// Leaving.
    Closing,
    /// Collecting contributions, which rank 0 does all the time.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Activity {
    /// The stage.
    pub phase: Phase,
    /// The call.
    pub call: Option<Arc<CallName>>,
}

impl Activity {
    /// A phase outside of any call.
    #[must_use]
    pub const fn outside(phase: Phase) -> Self {
        Self { phase, call: None }
    }

    /// A phase of a call.
    #[must_use]
    pub fn within(phase: Phase, call: impl Into<Arc<CallName>>) -> Self {
        Self {
            phase,
            call: Some(call.into()),
        }
    }

    /// Returns the activity of a rank after it has finished this one.
    #[must_use]
    pub fn gone_on(self) -> Self {
        let call = self.call.filter(|call| call.operation != Operation::Meet);
        Self {
            phase: Phase::Computing,
            call,
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.phase.fmt(f)?;
        match (self.phase, &self.call) {
            (_, None) => Ok(()),
            (Phase::Computing, Some(call)) => write!(f, " after {call}"),
            (_, Some(call)) => write!(f, " in {call}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Site};

    #[test]
    fn activities_name_phase_and_call() {
        let call = CallName {
            operation: Operation::AllGather,
            number: 2,
            epoch: Epoch::new(3),
            tag: None,
            site: Site::named("eval.py:42"),
        };
        let publishing = Activity::within(Phase::Publishing, call);
        assert_eq!(
            publishing.to_string(),
            "publishing its payload in all_gather #2 at eval.py:42"
        );
        assert_eq!(
            publishing.gone_on().to_string(),
            "computing after all_gather #2 at eval.py:42"
        );
        assert_eq!(Activity::outside(Phase::Joining).to_string(), "joining");
    }
}
