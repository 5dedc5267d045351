//! Sorts an [`Error`] for programs that decide by its kind: [`ErrorKind`].

use crate::Error;

/// The kinds of [`Error`], without their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::Config`].
    Config,
    /// [`Error::Rendezvous`].
    Rendezvous,
    /// [`Error::Timeout`].
    Timeout,
    /// [`Error::PeerFailed`].
    PeerFailed,
    /// [`Error::Desync`].
    Desync,
    /// [`Error::Storage`].
    Storage,
    /// [`Error::NotShared`].
    NotShared,
    /// [`Error::Corrupt`].
    Corrupt,
    /// [`Error::TooLarge`].
    TooLarge,
    /// [`Error::Incompatible`].
    Incompatible,
}

impl ErrorKind {
    /// The exit code of a process for such an error: that of the command line, and of a Rust program by
    /// `fsgather::main`. It is the same on every rank that returns the same error.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            // A payload above the program's own bound is not a failure of set-up or storage.
            Self::TooLarge => 1,
            Self::Config => 2,
            Self::Timeout => 10,
            Self::PeerFailed => 11,
            Self::Storage | Self::NotShared => 12,
            Self::Corrupt | Self::Incompatible => 13,
            Self::Desync => 14,
            Self::Rendezvous => 15,
        }
    }
}

impl Error {
    /// Returns the kind of this failure; for [`Error::Poisoned`] that of the earlier failure.
    ///
    /// ```
    /// # use fsgather_core as fsgather;
    /// use fsgather::{Error, ErrorKind};
    ///
    /// let error = Error::config("no such rank");
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// assert_eq!(error.poisoned().kind(), ErrorKind::Config);
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } => ErrorKind::Config,
            Self::Rendezvous { .. } => ErrorKind::Rendezvous,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::PeerFailed { .. } => ErrorKind::PeerFailed,
            Self::Desync { .. } => ErrorKind::Desync,
            Self::Storage { .. } => ErrorKind::Storage,
            Self::NotShared { .. } => ErrorKind::NotShared,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Incompatible { .. } => ErrorKind::Incompatible,
            Self::Poisoned { cause } => cause.kind(),
        }
    }

    /// Returns the exit code of a process for this error, as `docs/reference/errors.md` lists them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.kind().exit_code()
    }

    /// Returns true if nothing moved for as long as the time-out allows.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Returns true if another rank was lost, has failed or has left.
    #[must_use]
    pub fn is_peer_failed(&self) -> bool {
        self.kind() == ErrorKind::PeerFailed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, Peer, PeerFailure, Phase, Rank, RollCall, StorageCause};

    #[test]
    fn programs_and_scripts_tell_errors_by_their_kind_and_code() {
        let peer = Peer {
            rank: Rank::ZERO,
            host: "here".into(),
            pid: 1,
        };
        let text = String::new;
        let lost = PeerFailure::Lost { how: text() };
        let timeout = Error::Timeout {
            during: text(),
            timeout: std::time::Duration::ZERO,
            missing: Vec::new(),
            stacks: RollCall::default(),
            hint: text(),
        };
        let errors = [
            (Error::config("wrong"), 2),
            (Error::closed(), 2),
            (timeout, 10),
            (
                Error::peer_failed(peer, Activity::outside(Phase::Computing), lost),
                11,
            ),
            (
                Error::storage("open", "/x", StorageCause::described("gone")),
                12,
            ),
            (Error::rendezvous("nobody came"), 15),
        ];
        for (error, code) in errors {
            for error in [error.poisoned(), error] {
                assert_eq!(error.exit_code(), code, "{error}");
                assert_eq!(error.is_timeout(), code == 10, "{error}");
                assert_eq!(error.is_peer_failed(), code == 11, "{error}");
            }
        }
        let others = [
            (ErrorKind::TooLarge, 1),
            (ErrorKind::NotShared, 12),
            (ErrorKind::Corrupt, 13),
            (ErrorKind::Incompatible, 13),
            (ErrorKind::Desync, 14),
        ];
        for (kind, code) in others {
            assert_eq!(kind.exit_code(), code, "{kind:?}");
        }
    }

    #[test]
    fn an_error_is_small_enough_to_be_returned_by_value() {
        // The limit of clippy's `result_large_err`, which every function of a user's that returns it would meet.
        assert!(size_of::<Error>() < 128, "{}", size_of::<Error>());
    }

    #[test]
    fn it_prints_as_a_sentence_also_where_a_program_ends_with_it() {
        let error = Error::config("FSGATHER_TIMEOUT=x is no time");
        assert_eq!(format!("{error:?}"), "FSGATHER_TIMEOUT=x is no time");
        assert_eq!(
            format!("{error:#?}"),
            "Config: FSGATHER_TIMEOUT=x is no time"
        );
    }
}
