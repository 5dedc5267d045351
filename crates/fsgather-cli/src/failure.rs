//! Why a verb could not do what it was asked: [`Failure`].

use std::{fmt, io};

use fsgather::Error;

use crate::exit;

/// What ends a verb: an error of the library, or of this machine outside of any gathering.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's.
    Library(Error),
    /// A system call's.
    System {
        /// What was tried, as a verb: `write standard output`.
        operation: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
}

impl Failure {
    /// A failed system call, for `map_err`.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { operation, cause }
    }

    /// The code to exit with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Library(error) => exit::code_of(error),
            Self::System { cause, .. } if cause.kind() == io::ErrorKind::BrokenPipe => {
                exit::BROKEN_PIPE
            }
            Self::System { .. } => exit::OTHER,
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
            Self::Library(error) => error.fmt(f),
            Self::System { operation, cause } => write!(f, "cannot {operation}: {cause}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_has_a_code_of_its_own() {
        let failure = |kind: io::ErrorKind| Failure::system("write")(kind.into()).exit_code();
        assert_eq!(failure(io::ErrorKind::BrokenPipe), exit::BROKEN_PIPE);
        assert_eq!(failure(io::ErrorKind::StorageFull), exit::OTHER);
        assert_eq!(Failure::from(Error::config("x")).exit_code(), exit::USAGE);
    }
}
