//! Hearing signals: [`SignalWatch`].

use std::{
    fs, io,
    sync::mpsc::Sender,
    thread::{self, JoinHandle},
};

use rustix::process::Signal;
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM},
    iterator::{Handle, Signals},
    low_level::signal_name,
};

use super::Event;

/// A thread that turns signals into events.
#[derive(Debug)]
pub(super) struct SignalWatch {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl SignalWatch {
    /// Begins to listen for ended children and for the signals that end a job, except those that are
    /// ignored: `nohup`, and shells for what runs in the background, do that on purpose.
    pub(super) fn start(events: Sender<Event>) -> io::Result<Self> {
        let mut listen = vec![SIGCHLD];
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        listen.extend(
            [SIGINT, SIGTERM, SIGHUP]
                .into_iter()
                .filter(|n| !is_ignored(&status, *n)),
        );
        let mut signals = Signals::new(listen)?;
        let handle = signals.handle();
        let thread = thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in &mut signals {
                    let event = match (signal, Signal::from_named_raw(signal)) {
                        (SIGCHLD, _) => Event::ChildEnded,
                        (_, Some(signal)) => Event::Signal(signal),
                        (_, None) => continue,
                    };
                    if events.send(event).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self { handle, thread })
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        self.handle.close();
        // It cannot panic, and there would be nothing left to do about it.
        let _ = self.thread.join();
    }
}

/// The name of a signal: `SIGTERM`.
pub(super) fn name(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// Whether the `/proc` status of a process says that it ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT));
        assert!(!is_ignored("", SIGHUP));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(name(15), "SIGTERM");
        assert_eq!(name(40), "signal 40");
    }
}
