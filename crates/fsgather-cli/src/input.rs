//! What a rank hands over: [`Input`].

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// A file or standard input, opened when it is first read.
///
/// Everything that can go wrong with it goes wrong inside of the call, so that the other ranks are told
/// instead of being left waiting.
pub(crate) struct Input {
    path: Option<PathBuf>,
    /// A reason to fail instead of reading.
    refusal: Option<String>,
    open: Option<Box<dyn Read>>,
    read: u64,
}

impl Input {
    /// The argument `[FILE or -]`.
    ///
    /// # Errors
    ///
    /// Wrong usage, when there is no file and standard input is a terminal: nobody would type a payload.
    pub(crate) fn of(argument: Option<&Path>) -> Result<Self, Failure> {
        let path = argument.filter(|path| *path != Path::new("-"));
        if argument.is_none() && io::stdin().is_terminal() {
            return Err(Failure::usage(
                "standard input is a terminal; name a FILE, or - to type the payload",
            ));
        }
        Ok(Self {
            path: path.map(Path::to_owned),
            refusal: None,
            open: None,
            read: 0,
        })
    }

    /// Makes reading fail with this reason.
    pub(crate) fn refuse(&mut self, reason: String) {
        self.refusal.get_or_insert(reason);
    }

    /// The file's own name, if it has one.
    pub(crate) fn file_name(&self) -> Option<String> {
        let name = self.path.as_ref()?.file_name()?;
        Some(name.to_string_lossy().into_owned())
    }

    /// How many bytes have been read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    fn source(&mut self) -> io::Result<&mut Box<dyn Read>> {
        if let Some(reason) = &self.refusal {
            return Err(io::Error::other(reason.clone()));
        }
        let open: Box<dyn Read> = match (self.open.take(), &self.path) {
            (Some(open), _) => open,
            (None, None) => Box::new(io::stdin().lock()),
            (None, Some(path)) => {
                Box::new(File::open(path).map_err(|error| explain(path, &error))?)
            }
        };
        Ok(self.open.insert(open))
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source()?.read(buffer);
        let read = read.map_err(|error| match &self.path {
            _ if error.kind() == io::ErrorKind::Interrupted => error,
            Some(path) => explain(path, &error),
            None => explain(Path::new("standard input"), &error),
        })?;
        self.read += read as u64;
        Ok(read)
    }
}

fn explain(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot read {}: {error}", path.display()),
    )
}
