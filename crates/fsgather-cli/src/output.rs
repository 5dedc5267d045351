//! The only writer of standard output and standard error.
//!
//! Nothing is buffered here, so nothing is lost at the end: a call returns when the system has accepted every byte. Text for a terminal may
//! be coloured ([`colour`](crate::colour)) and fitted to its width ([`size`]); in a log file or a pipe it is complete.

use std::{
    fmt::Write,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use fsgather_core::{plain_text, steers};
use rustix::event::{PollFd, PollFlags};
use serde::Serialize;

use crate::standard_streams;

/// A standard stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Data: the results for the user.
    Stdout,
    /// Everything else.
    Stderr,
}

/// The version of all JSON documents; it increases when a field changes its meaning or is removed.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    document: &'a T,
}

/// Writes all bytes, however long the reader takes.
///
/// # Errors
///
/// Returns any error of the system except `EAGAIN` and `EINTR`, most likely a broken pipe.
pub(crate) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => match standard_streams::output_objection() {
            Some(objection) => Err(io::Error::other(objection)),
            None => write_all(io::stdout().as_fd(), bytes),
        },
        Stream::Stderr => write_all(io::stderr().as_fd(), bytes),
    }
}

/// Number of columns and rows of the terminal of standard output; none if it is not a terminal, or its size is unknown.
pub(crate) fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Prints one line on standard error. A failure to print is ignored.
///
/// Parts of it may come from others: command lines of other ranks, names of files. Characters that control a terminal are escaped.
pub(crate) fn say(line: &str) {
    let _ = write(Stream::Stderr, format!("{}\n", plain_text(line)).as_bytes());
}

/// Writes a document as one line of JSON on standard output, with its `schema_version` first. Characters that control a
/// terminal are escaped.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub(crate) fn json<T: Serialize>(document: &T) -> io::Result<()> {
    let mut line = json_text(document)?;
    line.push('\n');
    write(Stream::Stdout, line.as_bytes())
}

/// The line, with characters that control a terminal as JSON escapes.
fn json_text<T: Serialize>(document: &T) -> serde_json::Result<String> {
    let text = serde_json::to_string(&Versioned {
        schema_version: SCHEMA_VERSION,
        document,
    })?;
    let mut line = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        // Outside strings there are none, and each of them is one UTF-16 unit.
        if steers(character) {
            // Writing to a `String` cannot fail.
            let _ = write!(line, "\\u{:04x}", u32::from(character));
        } else {
            line.push(character);
        }
    }
    Ok(line)
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            // Another process that shares the stream may have made it non-blocking.
            Err(rustix::io::Errno::AGAIN) => wait_until_writable(fd)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_until_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
    match rustix::event::poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream, thread};

    use super::*;

    #[test]
    fn a_non_blocking_stream_gets_every_byte() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let sent = vec![7_u8; 4 << 20];
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        write_all(ours.as_fd(), &sent).unwrap();
        drop(ours);
        assert_eq!(reader.join().unwrap(), sent);
    }

    #[test]
    fn a_closed_reader_is_a_broken_pipe() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let error = write_all(ours.as_fd(), b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn documents_carry_their_version() {
        #[derive(Serialize)]
        struct Document {
            rank: u32,
        }
        let text = json_text(&Document { rank: 3 }).unwrap();
        assert_eq!(text, r#"{"schema_version":1,"rank":3}"#);
    }

    #[test]
    fn names_steer_no_terminal_and_are_read_as_they_are() {
        #[derive(Serialize)]
        struct Document<'n> {
            name: &'n str,
        }
        let name = "a\u{202e}b\u{9b}2J\u{1b}[2J\u{7f}\n\\ü";
        let text = json_text(&Document { name }).unwrap();
        assert!(!text.chars().any(steers), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["name"], name);
    }
}
