//! The end of one rank: [`RankOutcome`], and the sentences about it.

use std::fmt;

use fsgather::Rank;
use fsgather_core::rank_ranges;
use signal_hook::low_level::signal_name;

use crate::exit;

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RankOutcome {
    /// It exited with a code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl RankOutcome {
    pub(super) const fn is_failure(self) -> bool {
        !matches!(self, Self::Code(0))
    }

    /// Returns true if the rank says by its exit code that another rank is to blame.
    pub(super) fn blames_another(self) -> bool {
        self == Self::Code(i32::from(exit::PEER_FAILED))
    }

    /// Returns true if a process ends like this because of `signal`.
    pub(super) fn obeys(self, signal: i32) -> bool {
        self == Self::Signal(signal) || self == Self::Code(i32::from(exit::code_of_signal(signal)))
    }

    /// The exit code of a run whose first failure this is.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code).unwrap_or(exit::OTHER),
            Self::Signal(signal) => exit::code_of_signal(signal),
        }
    }

    /// Sorts ranks that were found ended at the same moment: the likely cause is first, effects of other failures are last.
    pub(super) const fn innocence(self, blames_another: bool) -> u8 {
        match self {
            Self::Signal(_) => 0,
            Self::Code(_) if blames_another => 2,
            Self::Code(_) => 1,
        }
    }
}

impl RankOutcome {
    /// The same of several ranks.
    pub(super) fn of_several(self) -> String {
        self.to_string().replacen("was ", "were ", 1)
    }
}

impl fmt::Display for RankOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

/// The name of a signal: `SIGTERM`.
pub(super) fn signal_text(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// Names ranks, in order, in as few words as possible: `rank 3`, `ranks 0-2 7`.
pub(super) fn rank_list(ranks: &[Rank]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let numbers: Vec<u32> = ranks.iter().map(|rank| rank.get()).collect();
    format!("{noun} {}", rank_ranges(&numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_read_as_sentences() {
        assert_eq!(
            RankOutcome::Signal(9).to_string(),
            "was killed by signal 9 (SIGKILL)"
        );
        assert_eq!(
            RankOutcome::Signal(40).to_string(),
            "was killed by signal 40"
        );
        assert_eq!(RankOutcome::Code(3).to_string(), "exited with code 3");
        assert_eq!(
            RankOutcome::Signal(9).of_several(),
            "were killed by signal 9 (SIGKILL)"
        );
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_text(15), "SIGTERM");
        assert_eq!(signal_text(40), "signal 40");
    }

    #[test]
    fn signals_come_before_codes_and_code_11_comes_last() {
        let mut outcomes = [
            RankOutcome::Code(11),
            RankOutcome::Code(1),
            RankOutcome::Signal(9),
        ];
        outcomes.sort_by_key(|outcome| outcome.innocence(outcome.blames_another()));
        assert_eq!(
            outcomes,
            [
                RankOutcome::Signal(9),
                RankOutcome::Code(1),
                RankOutcome::Code(11)
            ]
        );
    }

    #[test]
    fn obeying_a_signal_is_dying_of_it_or_exiting_as_if() {
        assert!(RankOutcome::Signal(15).obeys(15));
        assert!(RankOutcome::Code(143).obeys(15));
        assert!(!RankOutcome::Code(1).obeys(15));
        assert!(!RankOutcome::Signal(9).obeys(15));
    }
}
