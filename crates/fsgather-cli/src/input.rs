//! Reads the payload of a rank: [`Input`].

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use fsgather::{Error, Rank};
use fsgather_core::{PeerFailure, StorageCause};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{failure::Failure, standard_streams};

/// A file or standard input, opened when it is first read.
///
/// All failures happen inside the call, so that the other ranks get an error instead of waiting.
pub(crate) struct Input {
    path: Option<PathBuf>,
    /// A reason to fail instead of reading.
    refusal: Option<String>,
    /// True if reading has failed, for any reason.
    has_failed: bool,
    open: Option<File>,
    read: u64,
    /// The length of the file when it was opened, if it was a regular file: it may grow, but not shrink.
    least: u64,
}

impl Input {
    /// The argument `[FILE or -]`.
    ///
    /// # Errors
    ///
    /// Returns a usage error if there is no file and standard input is a terminal: no user would type a payload.
    pub(crate) fn of(argument: Option<&Path>) -> Result<Self, Failure> {
        let path = argument.filter(|path| *path != Path::new("-"));
        if argument.is_none() && io::stdin().is_terminal() {
            return Err(Failure::usage(
                "standard input is a terminal; name a FILE, or - to type the payload",
            ));
        }
        let refusal = match path {
            Some(_) => None,
            None => standard_streams::input_objection().map(str::to_owned),
        };
        Ok(Self {
            path: path.map(Path::to_owned),
            refusal,
            has_failed: false,
            open: None,
            read: 0,
            least: 0,
        })
    }

    /// Makes reads fail with this reason.
    pub(crate) fn refuse(&mut self, reason: String) {
        self.refusal.get_or_insert(reason);
    }

    /// The file name without its directory, if there is a file.
    pub(crate) fn file_name(&self) -> Option<&OsStr> {
        self.path.as_ref()?.file_name()
    }

    /// The failure of the call that has read this input: `Failure::Own` if this input caused it. All ranks get the same error, but on this
    /// rank no other rank is to blame.
    pub(crate) fn explain(&self, error: Error, me: Rank) -> Failure {
        let is_own = matches!(
            error.root_cause(),
            Error::PeerFailed { peer, failure: PeerFailure::Raised { .. }, .. } if peer.rank == me
        );
        if self.has_failed && is_own {
            Failure::Own(error)
        } else {
            Failure::Library(error)
        }
    }

    /// Number of bytes that have been read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    fn read_file(&mut self, path: &Path, buffer: &mut [u8]) -> io::Result<usize> {
        let mut file = match self.open.take() {
            Some(file) => file,
            None => File::open(path)?,
        };
        if self.read == 0 {
            let found = file.metadata()?;
            self.least = if found.is_file() { found.len() } else { 0 };
        }
        let read = file.read(buffer)?;
        self.open = Some(file);
        if read == 0 && !buffer.is_empty() && self.read < self.least {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "it has become shorter meanwhile: {} bytes of {} were read",
                    self.read, self.least
                ),
            ));
        }
        Ok(read)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(reason) = &self.refusal {
            self.has_failed = true;
            return Err(io::Error::other(reason.clone()));
        }
        let path = self.path.clone();
        let read = match &path {
            Some(path) => self.read_file(path, buffer),
            None => read_stdin(buffer),
        };
        let read = read.map_err(|error| match &path {
            _ if error.kind() == io::ErrorKind::Interrupted => error,
            Some(path) => explain(path, &error),
            None => explain(Path::new("standard input"), &error),
        });
        let read = read.inspect_err(|error| {
            self.has_failed |= error.kind() != io::ErrorKind::Interrupted;
        })?;
        self.read += read as u64;
        Ok(read)
    }
}

/// Reads standard input, or returns [`Interrupted`](io::ErrorKind::Interrupted) if no input arrives for a moment: its writer may take
/// hours, and the library, which then retries, must check in between that the other ranks are still running.
fn read_stdin(buffer: &mut [u8]) -> io::Result<usize> {
    // Unbuffered, so that `poll` on the descriptor sees all remaining input.
    let stdin = io::stdin();
    if !is_ready(&stdin)? {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(rustix::io::read(&stdin, buffer)?)
}

fn is_ready(stdin: &io::Stdin) -> io::Result<bool> {
    const MOMENT: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 200_000_000,
    };
    let mut waited = [PollFd::new(stdin, PollFlags::IN)];
    match poll(&mut waited, Some(&MOMENT)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn explain(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "cannot read {}: {}",
            path.display(),
            StorageCause::from(error)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_grow_while_it_is_read_but_not_shrink() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("part");
        for (len, is_whole) in [(500, false), (1000, true), (2000, true)] {
            std::fs::write(&path, [7; 1000]).unwrap();
            let mut input = Input::of(Some(&path)).unwrap();
            input.read_exact(&mut [0; 100]).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(len).unwrap();
            let rest = input.read_to_end(&mut Vec::new());
            match rest {
                Ok(read) => assert!(is_whole && read as u64 == len - 100, "{read}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(
                        !is_whole && said.contains("shorter meanwhile: 500 bytes of 1000"),
                        "{said}"
                    );
                }
            }
        }
    }
}
