//! Starts one rank: [`start`].

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use fsgather_core::sys::explain_denial;
use rustix::{
    net::{SendFlags, send},
    process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid},
};

use super::{guard::Guard, variables::Variable};
use crate::exit;

/// A command that cannot be executed.
#[derive(Debug)]
pub(super) struct StartFailure {
    program: OsString,
    cause: io::Error,
}

/// Starts the command as one rank, with pipes for its output.
///
/// The rank is a session of its own. As a process group it can be ended with all that it starts, and as a session it can
/// read from the terminal, which would stop a mere background group. It is killed with this process: by the system, which
/// does that when the *thread* that started it ends, hence call this on the main thread; and with its group by the guard,
/// which knows the rank before its command begins.
///
/// # Errors
///
/// If the command cannot be executed; nothing is left behind then.
#[expect(
    unsafe_code,
    reason = "a process can make itself a session only between fork and exec"
)]
pub(super) fn start(
    guard: &Guard,
    command: &[OsString],
    variables: &[Variable],
    with_stdin: bool,
) -> Result<Child, StartFailure> {
    let program = command.first().cloned().unwrap_or_default();
    let failure = |cause| StartFailure {
        program: program.clone(),
        cause,
    };
    let mut rank = Command::new(&program);
    rank.args(command.iter().skip(1))
        .stdin(if with_stdin {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, value) in variables {
        match value {
            Some(value) => rank.env(name, value),
            None => rank.env_remove(name),
        };
    }
    let guard = guard.channel().map_err(failure)?;
    let run = getpid();
    let prepare = move || {
        // The guard does the same, a moment later: a sandbox may deny this call.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // No signal comes if `run` ended before this was asked for.
        if getppid() != Some(run) {
            return Err(io::Error::from_raw_os_error(3));
        }
        setsid()?;
        let group = getpid().as_raw_pid().to_ne_bytes();
        send(&guard, &group, SendFlags::NOSIGNAL)?;
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` only makes system calls. It takes no lock and allocates nothing.
    unsafe { rank.pre_exec(prepare) };
    rank.spawn().map_err(failure)
}

impl StartFailure {
    /// The exit code that a shell would use.
    pub(super) fn code(&self) -> u8 {
        if self.is_missing() {
            exit::NOT_FOUND
        } else {
            exit::NOT_EXECUTABLE
        }
    }

    /// Returns true if the command itself was not found, rather than the interpreter that it names.
    fn is_missing(&self) -> bool {
        self.cause.kind() == io::ErrorKind::NotFound
            && !(is_path(&self.program) && Path::new(&self.program).exists())
    }
}

fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot start `{}`: ", self.program.display())?;
        match self.cause.kind() {
            _ if self.is_missing() && is_path(&self.program) => f.write_str("no such file"),
            _ if self.is_missing() => f.write_str("no such command in PATH"),
            io::ErrorKind::NotFound => {
                f.write_str("the interpreter named in its first line does not exist")
            }
            _ => f.write_str(&explain_denial(
                &self.cause,
                "pipe2, clone3, setsid or execve",
            )),
        }
    }
}
