//! The exit codes of the command. [`fsgather::ErrorKind`] determines the code of an error.

/// Success.
pub(crate) const DONE: u8 = 0;
/// A failure that has no code of its own.
pub(crate) const OTHER: u8 = 1;
/// Wrong usage or configuration.
pub(crate) const USAGE: u8 = 2;
/// No progress within the time-out.
pub(crate) const TIMED_OUT: u8 = 10;
/// Another rank was lost, or raised an error.
pub(crate) const PEER_FAILED: u8 = 11;
/// Storage: no space, no permission, or a directory that not all ranks share.
pub(crate) const STORAGE: u8 = 12;
/// Data that is corrupt, or written by an incompatible build.
pub(crate) const CORRUPT: u8 = 13;
/// Ranks in different calls, or with values that do not fit together.
pub(crate) const DIFFERENT_CALLS: u8 = 14;
/// The ranks did not find each other.
pub(crate) const RENDEZVOUS: u8 = 15;
/// The command of `run` was found but could not be executed, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command of `run` was not found, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// Ended by SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// The reader of standard output went away (SIGPIPE in a shell).
pub(crate) const BROKEN_PIPE: u8 = 141;
/// Ended by SIGTERM.
pub(crate) const TERMINATED: u8 = 143;

const MEANINGS: [(u8, &str); 14] = [
    (DONE, "done"),
    (OTHER, "other failure"),
    (USAGE, "wrong usage or configuration"),
    (TIMED_OUT, "timed out"),
    (PEER_FAILED, "another rank was lost or raised an error"),
    (STORAGE, "storage: space, permission, not shared"),
    (CORRUPT, "corrupt or incompatible data"),
    (DIFFERENT_CALLS, "ranks in different calls"),
    (RENDEZVOUS, "ranks did not find each other"),
    (NOT_EXECUTABLE, "run: the command cannot be executed"),
    (NOT_FOUND, "run: the command was not found"),
    (INTERRUPTED, "ended by SIGINT"),
    (BROKEN_PIPE, "the reader of standard output went away"),
    (TERMINATED, "ended by SIGTERM"),
];

/// The exit code of a process that a signal has ended, as shells have it.
pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(OTHER)
}

/// All codes and their meanings, for the help.
pub(crate) fn table() -> String {
    let rows = MEANINGS.map(|(code, meaning)| format!("  {code:>3}  {meaning}\n"));
    format!(
        "Exit codes:\n{}`run` ends with the code of the first rank that failed, 128 + n for signal n.",
        rows.concat()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fsgather::{Error, Rank};
    use fsgather_core::{Activity, Peer, PeerFailure, Phase, RollCall, StorageCause};

    use super::*;

    fn peer() -> Peer {
        Peer {
            rank: Rank::ZERO,
            host: "n1".into(),
            pid: 1,
        }
    }

    fn desync() -> Error {
        Error::desync(
            1,
            "different roots",
            (peer(), "gather".into()),
            (peer(), "gather".into()),
            RollCall::default(),
        )
    }

    #[test]
    fn every_kind_of_error_has_its_code() {
        let expected = [
            (Error::config("x"), 2),
            (
                Error::timed_out(
                    "barrier #1",
                    Duration::from_secs(1),
                    Vec::new(),
                    RollCall::default(),
                    "wait",
                ),
                10,
            ),
            (
                Error::peer_failed(
                    peer(),
                    Activity::outside(Phase::Computing),
                    PeerFailure::DEPARTED,
                ),
                11,
            ),
            (
                Error::storage("write", "/x", StorageCause::described("full")),
                12,
            ),
            (Error::not_shared("/x", Vec::new(), "x"), 12),
            (Error::corrupt("/x", "x", None, None), 13),
            (Error::incompatible("x", "1", "2"), 13),
            (desync(), 14),
            (Error::rendezvous("x"), 15),
            (Error::too_large(peer(), 2, 1), 1),
        ];
        for (error, code) in expected {
            assert_eq!(error.exit_code(), code, "{error}");
            assert_eq!(error.poisoned().exit_code(), code, "poisoned by: {error}");
        }
    }

    #[test]
    fn signals_have_the_codes_that_shells_give_them() {
        assert_eq!(code_of_signal(2), INTERRUPTED);
        assert_eq!(code_of_signal(13), BROKEN_PIPE);
        assert_eq!(code_of_signal(15), TERMINATED);
        assert_eq!(code_of_signal(9), 137);
    }

    #[test]
    fn the_table_names_every_code() {
        let table = table();
        for (code, meaning) in MEANINGS {
            assert!(table.contains(&format!("{code:>3}  {meaning}\n")));
        }
    }
}
