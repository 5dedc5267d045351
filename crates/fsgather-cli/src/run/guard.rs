//! Ends the ranks if `run` itself is killed: [`Guard`], and the hidden verb `guard-run`.
//!
//! The system ends the first process of each rank then, but not what that process has started. Hence one more process for
//! each run. It receives the process groups of the ranks on its standard input, whose end comes when `run` is gone.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Stdio},
    sync::{Arc, atomic::AtomicBool},
};

use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::processes::signal_group;
use crate::{exit, failure::Failure, invocation::Invocation};

/// Ends the guard instead of naming a group to it. No rank has this group.
const DISMISSAL: [u8; 4] = [0; 4];

/// The process that ends the process groups of all ranks when this one is gone.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    channel: UnixStream,
}

impl Guard {
    /// Starts the guard, in a process group of its own: it does not receive signals to the group of `run`.
    ///
    /// # Errors
    ///
    /// If no process can be started. A path that is missing in a container or a chroot is named.
    pub(super) fn start(invocation: &Invocation) -> Result<Self, Failure> {
        let start = || {
            let (channel, input) = UnixStream::pair()?;
            let mut command = invocation.again()?;
            let child = command
                .arg("guard-run")
                .process_group(0)
                .stdin(OwnedFd::from(input))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|cause| name_missing_path(cause, command.get_program()))?;
            Ok(Self { child, channel })
        };
        start().map_err(Failure::denied(
            "start a process",
            "socketpair, pipe2, clone3, setpgid or execve",
        ))
    }

    /// Returns the descriptor to which a rank sends its process group, as four bytes, before its command begins.
    pub(super) fn channel(&self) -> io::Result<OwnedFd> {
        Ok(self.channel.try_clone()?.into())
    }

    /// Ends the guard. This must happen before any rank is waited for: then another process can get its id.
    pub(super) fn dismiss(&mut self) {
        // It may have ended already. A sandbox may deny `kill`.
        let _ = self.channel.write_all(&DISMISSAL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds the path that does not exist to the failed start of a program.
fn name_missing_path(cause: io::Error, program: &OsStr) -> io::Error {
    let needed = [Path::new("/dev/null"), Path::new(program)];
    let missing = needed.iter().find(|path| !path.exists());
    match missing {
        Some(path) if cause.kind() == io::ErrorKind::NotFound => {
            let reason = if path.starts_with("/proc") {
                "/proc is missing, or not mounted; mount it".to_owned()
            } else {
                cause.to_string()
            };
            io::Error::other(format!("{}: {reason}", path.display()))
        }
        _ => cause,
    }
}

/// Guards one run; ends with it.
pub(crate) fn guard_run() -> u8 {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // Schedulers send them to every process of a job, and `run` may take its time to end.
        let _ = flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let mut input = io::stdin().lock();
    let mut groups = Vec::new();
    let mut group = [0; 4];
    while input.read_exact(&mut group).is_ok() {
        if group == DISMISSAL {
            return exit::DONE;
        }
        groups.push(u32::from_ne_bytes(group));
    }
    for group in groups {
        signal_group(group, Signal::KILL);
    }
    exit::DONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let text = |kind: io::ErrorKind| {
            name_missing_path(kind.into(), OsStr::new("/proc/no/exe")).to_string()
        };
        assert_eq!(
            text(io::ErrorKind::NotFound),
            "/proc/no/exe: /proc is missing, or not mounted; mount it"
        );
        assert!(!text(io::ErrorKind::OutOfMemory).contains("/proc/no/exe"));
    }
}
