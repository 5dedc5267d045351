//! Processes that tests start: none of them outlives its limit, and all of them start with the signals of a terminal.
//!
//! **Limits.** A process with a handle of ours is killed at its time limit, so that a test that waits for the process or its output fails
//! instead of hanging.
//!
//! **Signals.** `nohup`, and shells for their background processes, make a program ignore `SIGHUP` or `SIGINT`, and all its children
//! inherit that. A test that sends such a signal would wait in vain. A signal with a handler, however, has its default action again in a
//! child. So the test program installs handlers that do nothing for the signals that it was started to ignore.

use std::{
    fs, io,
    ops::{Deref, DerefMut},
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Once,
        atomic::AtomicBool,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    flag,
};

/// Maximum time of any wait on a working machine, however busy. No promise is measured by this.
pub const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Maximum lifetime of a process that a test has started in the background.
pub const LIFETIME: Duration = Duration::from_secs(600);

/// A process that is killed at its time limit.
#[derive(Debug)]
pub struct Started {
    child: Child,
    /// The thread that watches the time ends when this is dropped.
    _watch: Sender<()>,
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Started {
    /// [`Child::wait_with_output`], with the time limit.
    ///
    /// # Errors
    ///
    /// Returns the errors of that function.
    pub fn wait_with_output(self) -> io::Result<Output> {
        self.child.wait_with_output()
    }
}

/// [`Command::spawn`] for at most [`LIFETIME`].
///
/// # Errors
///
/// Returns the errors of that function.
pub fn spawn(command: &mut Command) -> io::Result<Started> {
    spawn_within(command, LIFETIME)
}

/// [`Command::output`] within [`TIME_LIMIT`], without input.
///
/// # Errors
///
/// Returns the errors of that function.
pub fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, TIME_LIMIT)
}

/// The same within another limit.
///
/// # Errors
///
/// Returns the errors of [`output`].
pub fn output_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    spawn_within(command, limit)?.wait_with_output()
}

/// [`Command::status`] within [`TIME_LIMIT`].
///
/// # Errors
///
/// Returns the errors of that function.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    status_within(command, TIME_LIMIT)
}

/// The same within another limit.
///
/// # Errors
///
/// Returns the errors of [`status`].
pub fn status_within(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    spawn_within(command, limit)?.wait()
}

fn spawn_within(command: &mut Command, limit: Duration) -> io::Result<Started> {
    heed_signals_in_children();
    let mut child = command.spawn()?;
    let watched = watch(&child, limit, format!("{command:?}"));
    match watched {
        Ok(watch) => Ok(Started {
            child,
            _watch: watch,
        }),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

/// Kills a process at its time limit, unless the returned sender has been dropped.
fn watch(child: &Child, limit: Duration, name: String) -> io::Result<Sender<()>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process: OwnedFd = pidfd_open(pid.expect("a pid"), PidfdFlags::empty())?;
    let (watch, dropped) = mpsc::channel();
    thread::Builder::new()
        .name("time limit".into())
        .spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // A process that has ended meanwhile needs no signal.
                if pidfd_send_signal(&process, Signal::KILL).is_ok() {
                    eprintln!("killed after {limit:?}: {name}");
                }
            }
        })?;
    Ok(watch)
}

/// Resets the signals that this program was started to ignore to their defaults in programs that it starts from now on. This program
/// continues to ignore them.
fn heed_signals_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD] {
            if is_ignored(&status, signal) {
                let nobody_looks = Arc::new(AtomicBool::new(false));
                flag::register(signal, nobody_looks).expect("a signal that may be handled");
            }
        }
    });
}

/// Returns true if the `/proc` status of a process says that it ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// The status of a child, as the child sees it.
    fn seen_by_a_child() -> String {
        let seen = output(Command::new("cat").arg("/proc/self/status")).unwrap();
        String::from_utf8(seen.stdout).unwrap()
    }

    #[test]
    fn programs_start_with_no_signal_ignored() {
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD] {
            assert!(!is_ignored(&seen_by_a_child(), signal), "{signal}");
        }
    }

    #[test]
    fn nor_are_they_where_this_program_was_told_to_ignore_them() {
        let name = "process::tests::programs_start_with_no_signal_ignored";
        let again = output(
            Command::new("env")
                .arg("--ignore-signal=HUP,INT,QUIT,TERM,CHLD")
                .arg(env::current_exe().unwrap())
                .args(["--exact", name]),
        );
        let again = again.unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
    }

    #[test]
    fn a_process_is_killed_when_its_time_is_over() {
        let mut endless = Command::new("sleep");
        let ended = status_within(endless.arg("1000"), Duration::from_millis(10)).unwrap();
        assert_eq!(ended.code(), None);
        let mut silent = Command::new("sleep");
        let ended = output_within(silent.arg("1000"), Duration::from_millis(10)).unwrap();
        assert_eq!(ended.status.code(), None);
    }

    #[test]
    fn what_a_process_says_is_there_at_its_end() {
        let said = output(Command::new("sh").args(["-c", "cat; echo out; echo err >&2; exit 3"]));
        let said = said.unwrap();
        assert_eq!(
            (said.status.code(), &*said.stdout, &*said.stderr),
            (Some(3), &b"out\n"[..], &b"err\n"[..])
        );
    }
}
