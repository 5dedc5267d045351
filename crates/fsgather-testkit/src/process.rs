//! Processes that tests start: none of them outlives its limit, and all of them begin with the signals of a terminal.
//!
//! **Limits.** A process that has a handle of ours is killed when its time is over, so that whoever waits for it, or for what
//! it says, fails instead of waiting for ever.
//!
//! **Signals.** `nohup`, and shells for what they run in the background, have a program ignore `SIGHUP` or `SIGINT`, and all that it
//! starts inherits that. A test that sends such a signal would wait in vain. A signal that has a handler, however, is back at its
//! default in a program that is started. So the test program takes the signals that it was told to ignore, and does nothing.

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

/// No wait takes longer on a machine that works, however busy it is. No promise is measured by this.
pub const TIME_LIMIT: Duration = Duration::from_secs(180);

/// No process that a test has started in the background lives longer.
pub const LIFETIME: Duration = Duration::from_secs(600);

/// A process that is killed when its time is over.
#[derive(Debug)]
pub struct Started {
    child: Child,
    /// Whoever watches the time goes once this is dropped.
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
    /// [`Child::wait_with_output`], while the time is watched.
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn wait_with_output(self) -> io::Result<Output> {
        self.child.wait_with_output()
    }
}

/// [`Command::spawn`] for at most [`LIFETIME`].
///
/// # Errors
///
/// Those of that function.
pub fn spawn(command: &mut Command) -> io::Result<Started> {
    spawn_within(command, LIFETIME)
}

/// [`Command::output`] within [`TIME_LIMIT`]; without input.
///
/// # Errors
///
/// Those of that function.
pub fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, TIME_LIMIT)
}

/// The same within another limit.
///
/// # Errors
///
/// Those of [`output`].
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
/// Those of that function.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    status_within(command, TIME_LIMIT)
}

/// The same within another limit.
///
/// # Errors
///
/// Those of [`status`].
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

/// Kills a process when its time is over, unless what is returned has been dropped.
fn watch(child: &Child, limit: Duration, name: String) -> io::Result<Sender<()>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process: OwnedFd = pidfd_open(pid.expect("a pid"), PidfdFlags::empty())?;
    let (watch, dropped) = mpsc::channel();
    thread::Builder::new()
        .name("time limit".into())
        .spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // One that has ended meanwhile needs no signal.
                if pidfd_send_signal(&process, Signal::KILL).is_ok() {
                    eprintln!("killed after {limit:?}: {name}");
                }
            }
        })?;
    Ok(watch)
}

/// Has programs that are started from now on begin with the default for signals that this program was told to ignore.
/// It goes on ignoring them itself.
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

/// Whether the `/proc` status of a process says that it ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// What a program sees that this one starts.
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
