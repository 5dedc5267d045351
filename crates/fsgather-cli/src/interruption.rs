//! Signals that end a rank's command: [`Interruption`].

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use fsgather::{Error, Interrupt};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::signal_name,
};

use crate::{
    exit,
    failure::Failure,
    heeded::{heeded, is_echo},
};

/// Makes a write beyond the file-size limit of this process an error of the write instead of the end of the process.
pub(crate) fn survive_large_files() {
    // The parent process may have set this already. If it fails, nothing changes.
    let _ = signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default());
}

/// Maximum time that a command may take after a signal to notify the others and to clean up.
const CLEAN_UP_TIME: Duration = Duration::from_secs(4);

/// Watches for signals that end the command.
///
/// The first signal makes all calls fail, so that the other ranks get an error and files are removed. If that takes long, because a file
/// server is gone, or if another signal arrives that is no echo of the first, the command exits at once and abandons its verb.
pub(crate) struct Interruption {
    signal: Arc<AtomicI32>,
}

impl Interruption {
    /// Starts to watch; `early_end` receives the exit code if the command exits at once.
    pub(crate) fn watch(interrupt: &Interrupt, early_end: &Sender<u8>) -> io::Result<Self> {
        let signal = Arc::new(AtomicI32::new(0));
        let mut signals = Signals::new(heeded(&[SIGINT, SIGTERM, SIGHUP]))?;
        let (seen, interrupt) = (Arc::clone(&signal), interrupt.clone());
        let early_end = early_end.clone();
        thread::Builder::new()
            .name("fsgather-signals".into())
            .spawn(move || {
                let mut signals = signals.forever();
                let Some(first) = signals.next() else { return };
                seen.store(first, Ordering::SeqCst);
                let _watchdog = end_after(CLEAN_UP_TIME, code(first), early_end.clone());
                let name = signal_name(first).unwrap_or("a signal");
                interrupt.raise(format!("ended by {name}"));
                // Signals that arrived meanwhile are read only now, however early they arrived.
                let came = Instant::now();
                if signals.any(|next| !is_echo(next, (first, came), Instant::now())) {
                    end(code(first), &early_end);
                }
            })?;
        Ok(Self { signal })
    }

    /// The error for the user: a signal, if that was the cause.
    pub(crate) fn explain(&self, error: Error) -> Failure {
        match self.signal() {
            None => Failure::Library(error),
            Some((name, code)) => Failure::Signal { name, code },
        }
    }

    /// The name of the signal that has arrived, if any, and the exit code.
    pub(crate) fn signal(&self) -> Option<(&'static str, u8)> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            signal => Some((signal_name(signal).unwrap_or("a signal"), code(signal))),
        }
    }
}

/// The exit code that shells report for a command ended by this signal.
fn code(signal: i32) -> u8 {
    exit::code_of_signal(signal)
}

fn end_after(
    delay: Duration,
    code: u8,
    early_end: Sender<u8>,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().spawn(move || {
        let started = Instant::now();
        while started.elapsed() < delay {
            thread::park_timeout(delay.saturating_sub(started.elapsed()));
        }
        end(code, &early_end);
    })
}

/// Makes the main thread return: a call that hangs in the kernel cannot return itself.
fn end(code: u8, early_end: &Sender<u8>) {
    // The receiver is gone if the verb has ended meanwhile.
    let _ = early_end.send(code);
}
