//! Counts the kinds of endings of runs.

use fsgather_core::{ChannelId, Error, PeerFailure};

use super::Ledger;

impl Ledger {
    /// The kinds of endings that this run was an example of.
    pub(crate) fn endings(&self) -> Vec<&'static str> {
        let mut endings = vec![match self.abort() {
            None if self.closed.is_empty() => "other",
            None => "good",
            Some(Error::Desync { .. }) => "desync",
            Some(Error::Timeout { .. }) => "time-out",
            Some(Error::PeerFailed { failure, .. }) => match failure {
                PeerFailure::Lost { .. } => "lost",
                PeerFailure::Departed { .. } => "departed",
                _ => "raised",
            },
            Some(_) => "raised",
        }];
        let unknown = self.failures.values().any(|failed| {
            let failure = failed.error.root_cause();
            matches!(failure, Error::PeerFailed { failure, .. }
                if matches!(failure, PeerFailure::OutcomeUnknown { .. }))
        });
        let groups = self.lanes.iter();
        let mut groups = groups.filter(|(channel, _)| **channel != ChannelId::WORLD);
        let group_failed = groups.any(|(_, lane)| lane.abort.is_some());
        let others = [
            (
                group_failed && self.abort().is_none(),
                "a group failed alone",
            ),
            (
                self.late_releases > 0,
                "a group went on after the world had failed",
            ),
            (
                self.reclaims_of_abandoned > 0,
                "reclaimed although abandoned",
            ),
            (unknown, "unknown outcome"),
            (self.abandoned, "abandoned"),
            (self.stays_to_the_end > 0, "stayed until all had read"),
            (self.stays_given_up > 0, "went although others had not read"),
            (self.reclaims > 0, "reclaimed"),
            (self.reclaims_for_others > 0, "gone before its payload was"),
        ];
        endings.extend(
            others
                .iter()
                .filter(|(true_of_it, _)| *true_of_it)
                .map(|(_, name)| *name),
        );
        endings
    }

    /// Number of ranks that were sent a goodbye, and true if all were in good order.
    pub(crate) fn goodbyes(&self) -> (usize, bool) {
        (
            self.goodbyes.len(),
            self.goodbyes.values().all(|orderly| *orderly),
        )
    }
}
