//! The reason for which a call has failed: [`Cause`]. Pure.

use fsgather_core::{Error, PeerFailure, Rank};

/// The reason for which a call has failed, as in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The call has not failed.
    #[default]
    None,
    /// Ranks were in different calls.
    Desync,
    /// No rank made progress for too long.
    Timeout,
    /// A rank was lost, or could not be reached.
    Lost,
    /// A rank had left before.
    Departed,
    /// The program of a rank has raised an error.
    Raised,
    /// Another error.
    Other,
}

impl Cause {
    pub(crate) const ALL: [Self; 7] = [
        Self::None,
        Self::Desync,
        Self::Timeout,
        Self::Lost,
        Self::Departed,
        Self::Raised,
        Self::Other,
    ];

    /// Returns the cause of a call that has ended with this error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error.root_cause() {
            Error::Desync { .. } => Self::Desync,
            Error::Timeout { .. } => Self::Timeout,
            Error::PeerFailed { failure, .. } => match failure {
                PeerFailure::Raised { .. } => Self::Raised,
                PeerFailure::Departed { .. } => Self::Departed,
                _ => Self::Lost,
            },
            _ => Self::Other,
        }
    }

    /// Returns the rank that caused an error, if the error names one.
    #[must_use]
    pub fn culprit(error: &Error) -> Option<Rank> {
        match error.root_cause() {
            // Both ends of a link report that they have lost the other.
            Error::PeerFailed {
                failure: PeerFailure::LinkLost { .. },
                ..
            } => None,
            Error::PeerFailed { peer, .. } => Some(peer.rank),
            _ => None,
        }
    }

    /// Returns the cause in a few words; empty for none and for another error.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::None | Self::Other => "",
            Self::Desync => "ranks were in different calls",
            Self::Timeout => "timed out",
            Self::Lost => "a rank was lost",
            Self::Departed => "a rank had already left",
            Self::Raised => "a rank has failed",
        }
    }

    /// Returns the cause in a few words that name the rank that caused it, if it is known.
    #[must_use]
    pub fn words_of(self, culprit: Option<Rank>) -> String {
        let words = self.words();
        match (culprit, words.strip_prefix("a rank ")) {
            (Some(rank), Some(deed)) => format!("rank {rank} {deed}"),
            _ => words.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{Activity, Peer, Phase};

    use super::*;

    #[test]
    fn the_cause_of_an_error_is_that_of_the_first_one() {
        let peer = || Peer {
            rank: Rank::ZERO,
            host: "n1".into(),
            pid: 1,
        };
        let failed =
            |failure| Error::peer_failed(peer(), Activity::outside(Phase::Computing), failure);
        let how = || "gone".to_owned();
        let errors = [
            (failed(PeerFailure::Lost { how: how() }), Cause::Lost),
            (
                failed(PeerFailure::LinkLost {
                    other: peer(),
                    how: how(),
                }),
                Cause::Lost,
            ),
            (failed(PeerFailure::DEPARTED), Cause::Departed),
            (
                failed(PeerFailure::Raised { message: how() }),
                Cause::Raised,
            ),
            (Error::config("x"), Cause::Other),
        ];
        for (error, cause) in errors {
            assert_eq!(Cause::of(&error), cause, "{error}");
            assert_eq!(Cause::of(&error.poisoned()), cause, "{error}");
        }
    }

    #[test]
    fn culprit_is_the_one_rank_that_an_error_names() {
        let peer = |rank| Peer {
            rank: Rank::new(rank),
            host: "n1".into(),
            pid: 1,
        };
        let failed =
            |failure| Error::peer_failed(peer(2), Activity::outside(Phase::Computing), failure);
        let left = failed(PeerFailure::DEPARTED);
        assert_eq!(Cause::culprit(&left.poisoned()), Some(Rank::new(2)));
        let link = failed(PeerFailure::LinkLost {
            other: peer(1),
            how: "gone".into(),
        });
        assert_eq!(Cause::culprit(&link), None);
        assert_eq!(Cause::culprit(&Error::config("x")), None);
        let words = |culprit| Cause::Departed.words_of(culprit);
        assert_eq!(words(Some(Rank::new(2))), "rank 2 had already left");
        assert_eq!(words(None), "a rank had already left");
        assert_eq!(Cause::Timeout.words_of(Some(Rank::new(2))), "timed out");
    }

    #[test]
    fn each_has_its_number() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
