//! The failure of a verb: [`Failure`].

use std::{
    fmt, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use fsgather::Error;
use fsgather_core::{Peer, PeerFailure, StorageCause, sys::explain_denial};

use crate::exit;

/// The error that ends a verb: of the library, or of this machine outside of any call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the library.
    Library(Error),
    /// A failure of a file or stream of this rank, inside a call: the library has reported it to all ranks.
    Own(Error),
    /// An error of a system call.
    System {
        /// The operation that failed, as a verb: `write standard output`.
        operation: &'static str,
        /// The reason why it failed.
        cause: io::Error,
    },
    /// A file that the user named.
    File {
        /// The operation that failed, as a verb: `write`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason why it failed.
        cause: io::Error,
    },
    /// A rank process that was started here.
    Rank {
        /// Its rank.
        rank: usize,
        /// Its exit status; it has printed the reason itself.
        status: ExitStatus,
    },
    /// Two ranks are in different commands of one job.
    DifferentCommands {
        /// One rank,
        one: Peer,
        /// and its command.
        one_line: String,
        /// The other rank,
        other: Peer,
        /// and its command.
        other_line: String,
    },
    /// A signal.
    Signal {
        /// Its name: `SIGTERM`.
        name: &'static str,
        /// The code to exit with.
        code: u8,
    },
}

impl Failure {
    /// A failed system call, for `map_err`.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { operation, cause }
    }

    /// The same, with the names of the system calls, because a sandbox may deny one of them.
    pub(crate) fn denied(
        operation: &'static str,
        calls: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System {
            operation,
            cause: io::Error::new(cause.kind(), explain_denial(&cause, calls)),
        }
    }

    /// A temporary directory that cannot be made, with a way to choose another place.
    pub(crate) fn temporary_directory(cause: &io::Error) -> Self {
        let text = format!("{cause}; name another place with TMPDIR");
        Self::System {
            operation: "make a temporary directory",
            cause: io::Error::new(cause.kind(), text),
        }
    }

    /// A failed operation on a file that the user named, for `map_err`.
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::File {
            operation,
            path,
            cause,
        }
    }

    /// Wrong usage that only shows after the command line has been read.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Library(Error::config(message))
    }

    /// The code to exit with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Library(error) => error.exit_code(),
            Self::System { cause, .. } if cause.kind() == io::ErrorKind::BrokenPipe => {
                exit::BROKEN_PIPE
            }
            Self::System { .. } => exit::OTHER,
            Self::DifferentCommands { .. } => exit::DIFFERENT_CALLS,
            Self::File { .. } | Self::Own(_) => exit::STORAGE,
            Self::Signal { code, .. } => *code,
            Self::Rank { status, .. } => status
                .code()
                .or_else(|| Some(128 + status.signal()?))
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(exit::OTHER),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Scripts have commands, not calls.
            Self::Library(Error::PeerFailed {
                peer,
                activity,
                failure: failure @ PeerFailure::Raised { .. },
                ..
            }) if activity.call.is_some() => {
                write!(f, "{peer} {failure}")?;
                let command = activity.call.as_ref().map(|call| &call.site);
                command.map_or(Ok(()), |command| write!(f, " in {command}"))
            }
            Self::Library(error) => error.fmt(f),
            // The user of this rank knows its number; the others received an error that names it.
            Self::Own(error) => match error.root_cause() {
                Error::PeerFailed {
                    failure: PeerFailure::Raised { message },
                    ..
                } => f.write_str(message),
                error => error.fmt(f),
            },
            Self::System { operation, cause } => {
                write!(f, "cannot {operation}: {}", StorageCause::from(cause))
            }
            Self::File {
                operation,
                path,
                cause,
            } => {
                let cause = StorageCause::from(cause);
                write!(f, "cannot {operation} {}: {cause}", path.display())
            }
            Self::Rank { rank, status } => write!(f, "rank {rank} failed ({status})"),
            Self::DifferentCommands {
                one,
                one_line,
                other,
                other_line,
            } => write!(
                f,
                "ranks are in different commands: {one} in {one_line}, {other} in {other_line}; where a command has \
                 failed on one rank, its script must not go on to the next (set -e); give commands that \
                 belong together although they differ the same --name"
            ),
            Self::Signal { name, .. } => write!(f, "ended by {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{Activity, Call, CallName, Epoch, Operation, Phase, Rank, Site};

    use super::*;

    #[test]
    fn failure_of_another_rank_names_its_command_and_no_call() {
        let peer = Peer {
            rank: Rank::new(1),
            host: "n7".into(),
            pid: 42,
        };
        let call = Call::new(Operation::Gather, Site::named("`fsgather gather x`"));
        let activity = Activity::within(Phase::Publishing, CallName::of(&call, Epoch::new(2)));
        let failure = Failure::from(Error::raised(peer, activity, "x exists"));
        let expected = "rank 1 on n7 (pid 42) failed (x exists) in `fsgather gather x`";
        assert_eq!(failure.to_string(), expected);
    }

    #[test]
    fn temporary_directory_that_cannot_be_made_names_the_way_out() {
        let failure = Failure::temporary_directory(&io::ErrorKind::ReadOnlyFilesystem.into());
        assert_eq!(
            failure.to_string(),
            "cannot make a temporary directory: read-only filesystem or storage medium; name another place with TMPDIR"
        );
        assert_eq!(failure.exit_code(), exit::OTHER);
    }

    #[test]
    fn a_reader_that_went_away_has_a_code_of_its_own() {
        let failure = |kind: io::ErrorKind| Failure::system("write")(kind.into()).exit_code();
        assert_eq!(failure(io::ErrorKind::BrokenPipe), exit::BROKEN_PIPE);
        assert_eq!(failure(io::ErrorKind::StorageFull), exit::OTHER);
        assert_eq!(Failure::from(Error::config("x")).exit_code(), exit::USAGE);
        assert_eq!(Failure::Own(Error::config("x")).exit_code(), exit::STORAGE);
    }
}
