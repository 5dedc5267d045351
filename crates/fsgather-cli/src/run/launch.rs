//! Starting one rank.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Child, Stdio},
};

use super::{guard::Guard, handshake, variables::Variable};
use crate::{exit, invocation::Invocation};

/// A rank whose command runs.
#[derive(Debug)]
pub(super) struct StartedRank {
    pub(super) child: Child,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Why a rank could not be started.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// The command cannot be executed, on any rank.
    Command {
        /// Its first word.
        program: OsString,
        /// Why.
        cause: io::Error,
    },
    /// The system does not give us another process.
    System(io::Error),
}

/// Starts the command as one rank and waits until it runs.
///
/// Must be called on the main thread: ranks are killed when the *thread* that started them ends.
///
/// # Errors
///
/// Nothing is left behind then.
pub(super) fn start(
    invocation: &Invocation,
    guard: &mut Guard,
    command: &[OsString],
    variables: &[Variable],
    with_stdin: bool,
) -> Result<StartedRank, StartFailure> {
    let (ours, theirs) = UnixStream::pair().map_err(StartFailure::System)?;
    let mut own = invocation.again().map_err(StartFailure::System)?;
    own.args(["exec-rank", "--parent", &std::process::id().to_string()]);
    own.arg("--").args(command);
    for (name, value) in variables {
        match value {
            Some(value) => own.env(name, value),
            None => own.env_remove(name),
        };
    }
    own.stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = own.spawn().map_err(StartFailure::System)?;
    // It holds an end of the channel, which would never close.
    drop(own);
    // It starts nothing before it is known to the guard.
    let sent_off = guard.add(child.id()).and_then(|()| {
        let stdin = io::stdin();
        handshake::send_off(&ours, with_stdin.then(|| stdin.as_fd()))
    });
    if let Err(cause) = sent_off {
        // One that has ended by itself is a zombie until it is waited for, so that this cannot fail.
        let _ = child.kill();
        child.wait().map_err(StartFailure::System)?;
        return Err(StartFailure::System(cause));
    }
    if let Err(cause) = handshake::wait_for_start(ours) {
        // The process is ending; waiting leaves no zombie.
        child.wait().map_err(StartFailure::System)?;
        let program = command.first().cloned().unwrap_or_default();
        return Err(StartFailure::Command { program, cause });
    }
    match (child.stdout.take(), child.stderr.take()) {
        (Some(stdout), Some(stderr)) => Ok(StartedRank {
            child,
            stdout: stdout.into(),
            stderr: stderr.into(),
        }),
        _ => Err(StartFailure::System(io::ErrorKind::BrokenPipe.into())),
    }
}

impl StartFailure {
    /// The exit code, as shells have it.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::System(_) => exit::OTHER,
            Self::Command { program, cause } if is_missing(program, cause) => exit::NOT_FOUND,
            Self::Command { .. } => exit::NOT_EXECUTABLE,
        }
    }
}

/// Whether the command itself was not found, rather than the interpreter that it names.
fn is_missing(program: &OsStr, cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::NotFound && !(is_path(program) && Path::new(program).exists())
}

fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(cause) => cause.fmt(f),
            Self::Command { program, cause } => {
                write!(f, "cannot start `{}`: ", program.display())?;
                if is_missing(program, cause) {
                    f.write_str(if is_path(program) {
                        "no such file"
                    } else {
                        "no such command in PATH"
                    })
                } else if cause.kind() == io::ErrorKind::NotFound {
                    f.write_str("the interpreter named in its first line does not exist")
                } else {
                    cause.fmt(f)
                }
            }
        }
    }
}
