//! The names of the ranks of a world that is a part of a job: [`RankNames`].

use std::sync::Arc;

use crate::{Error, Missing, Peer, PeerFailure, Rank, RollCall};

/// The names that messages give to the ranks of a world, if they are not the ranks' numbers in it.
///
/// Some ranks of a job may make a world of their own, which counts its ranks from 0 as any other. Users know them by
/// their numbers in the job.
///
/// ```
/// use fsgather_core::{Rank, RankNames};
///
/// let names = RankNames::new([3, 7].map(Rank::new));
/// assert_eq!(names.of(Rank::new(1)), 7);
/// assert_eq!(RankNames::default().of(Rank::new(1)), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankNames(Option<Arc<[Rank]>>);

impl RankNames {
    /// Names rank 0 of a world by the first of these numbers, and so on.
    #[must_use]
    pub fn new(numbers: impl IntoIterator<Item = Rank>) -> Self {
        Self(Some(numbers.into_iter().collect()))
    }

    /// Returns the name of a rank of the world.
    #[must_use]
    pub fn of(&self, rank: Rank) -> Rank {
        let name = |names: &Arc<[Rank]>| names.get(rank.index()).copied();
        self.0.as_ref().and_then(name).unwrap_or(rank)
    }

    /// Returns a process of the world with the name of its rank.
    #[must_use]
    pub fn of_peer(&self, mut peer: Peer) -> Peer {
        peer.rank = self.of(peer.rank);
        peer
    }

    /// Returns a rank that others wait for, with its name.
    #[must_use]
    pub fn of_missing(&self, mut missing: Missing) -> Missing {
        missing.rank = self.of(missing.rank);
        missing
    }

    /// Returns the activities of ranks, with their names.
    #[must_use]
    pub fn of_roll_call(&self, mut roll_call: RollCall) -> RollCall {
        for (ranks, _) in &mut roll_call.groups {
            for rank in &mut *ranks {
                *rank = self.of(*rank);
            }
            ranks.sort_unstable();
        }
        roll_call
    }

    /// Returns a failure with the names of the ranks in its fields. Its texts stay: their authors use these names.
    ///
    /// For code that shows it to users; among ranks failures travel with numbers of the world.
    #[must_use]
    pub fn of_error(&self, mut error: Error) -> Error {
        if self.0.is_some() {
            self.rename(&mut error);
        }
        error
    }

    fn rename(&self, error: &mut Error) {
        let rename = |peer: &mut Peer| peer.rank = self.of(peer.rank);
        match error {
            Error::Rendezvous { unreached, .. } => {
                *unreached = unreached.map(|rank| self.of(rank));
            }
            Error::Timeout {
                missing, stacks, ..
            } => {
                for one in missing {
                    one.rank = self.of(one.rank);
                }
                *stacks = self.of_roll_call(std::mem::take(stacks));
            }
            Error::PeerFailed { peer, failure, .. } => {
                rename(peer);
                if let PeerFailure::LinkLost { other, .. } = failure {
                    rename(other);
                }
            }
            Error::Desync {
                one, other, stacks, ..
            } => {
                rename(one);
                rename(other);
                **stacks = self.of_roll_call(std::mem::take(stacks));
            }
            Error::Storage { peer, .. } => {
                if let Some(peer) = peer {
                    rename(peer);
                }
            }
            Error::Corrupt { writer, reader, .. } => {
                writer.iter_mut().chain(reader).for_each(rename);
            }
            Error::TooLarge { peer, .. } => rename(peer),
            Error::Poisoned { cause } => self.rename(cause),
            Error::Config { .. } | Error::NotShared { .. } | Error::Incompatible { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Activity, Phase, Whereabouts};

    fn names() -> RankNames {
        RankNames::new([5, 2].map(Rank::new))
    }

    fn peer(rank: u32) -> Peer {
        Peer {
            rank: Rank::new(rank),
            host: "n7".into(),
            pid: 40,
        }
    }

    #[test]
    fn a_timeout_names_whom_people_know() {
        let silent = || Arc::new(Whereabouts::silent(None));
        let error = Error::Timeout {
            during: "barrier #1".into(),
            timeout: Duration::from_secs(4),
            missing: vec![Missing {
                rank: Rank::new(1),
                process: None,
                last_seen: None,
            }],
            hint: "wait longer".into(),
            stacks: RollCall::of([Rank::ZERO, Rank::new(1)].map(|rank| (rank, silent()))),
        };
        let text = names().of_error(error.clone().poisoned()).to_string();
        assert!(text.contains("waiting for rank 2 (never joined)"), "{text}");
        assert!(text.contains("\n  ranks 2 5: "), "{text}");
        assert_eq!(RankNames::default().of_error(error.clone()), error);
    }

    #[test]
    fn both_ends_of_a_link_and_of_a_disagreement_are_named() {
        let lost = PeerFailure::LinkLost {
            other: peer(0),
            how: "closed".into(),
        };
        let lost = Error::peer_failed(peer(1), Activity::outside(Phase::Reading), lost);
        let text = names().of_error(lost).to_string();
        assert!(
            text.starts_with("rank 2 on n7 (pid 40) lost its link to rank 5 on n7"),
            "{text}"
        );
        let desync = Error::Desync {
            number: 1,
            difference: "different operations".into(),
            one: Box::new(peer(0)),
            one_call: "barrier".into(),
            other: Box::new(peer(1)),
            other_call: "gather".into(),
            stacks: Box::default(),
        };
        let text = names().of_error(desync).to_string();
        assert!(
            text.contains("rank 5 on n7 (pid 40) called barrier, rank 2 on n7"),
            "{text}"
        );
    }

    #[test]
    fn whoever_has_written_or_handed_in_is_named() {
        let large = Error::TooLarge {
            peer: peer(1),
            size: 2,
            bound: 1,
        };
        let corrupt = Error::Corrupt {
            path: "/there".into(),
            reason: "cut off".into(),
            writer: Some(peer(0)),
            reader: Some(peer(1)),
        };
        let storage = Error::Storage {
            path: "/there".into(),
            operation: "write".into(),
            cause: crate::StorageCause::described("full"),
            peer: Some(Box::new(peer(1))),
            activity: None,
        };
        for error in [large, storage] {
            let text = names().of_error(error).to_string();
            assert!(
                text.contains("rank 2") && !text.contains("rank 1"),
                "{text}"
            );
        }
        let text = names().of_error(corrupt).to_string();
        assert!(text.contains("rank 5") && text.contains("rank 2"), "{text}");
    }
}
