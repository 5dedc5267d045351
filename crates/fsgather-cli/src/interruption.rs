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

/// Has a file that would become larger than this process may write be an error of the write, and not the end of
/// the process.
pub(crate) fn survive_large_files() {
    // Whoever starts this program may have done so already. Where that fails it stays as it was.
    let _ = signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default());
}

/// Maximum time that a signalled command may take to tell the others and to clean up.
const LAST_WORDS: Duration = Duration::from_secs(4);

/// Watches for signals that end the command.
///
/// The first one makes all calls fail, so that the other ranks are told and files are removed. If that
/// takes long, because a file server is away, or if another signal comes that is no echo of the first, the command ends
/// at once and leaves its verb behind.
pub(crate) struct Interruption {
    signal: Arc<AtomicI32>,
}

impl Interruption {
    /// Starts to watch; `early_end` takes the code with which the command ends at once.
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
                let _watchdog = end_after(LAST_WORDS, code(first), early_end.clone());
                let name = signal_name(first).unwrap_or("a signal");
                interrupt.raise(format!("ended by {name}"));
                // What has come meanwhile is read only now, however soon it came.
                let came = Instant::now();
                if signals.any(|next| !is_echo(next, (first, came), Instant::now())) {
                    end(code(first), &early_end);
                }
            })?;
        Ok(Self { signal })
    }

    /// An error as the user has to see it: a signal, if that was the cause.
    pub(crate) fn explain(&self, error: Error) -> Failure {
        match self.signal() {
            None => Failure::Library(error),
            Some((name, code)) => Failure::Signal { name, code },
        }
    }

    /// The name of the signal that has come, if one has, and the code to end with.
    pub(crate) fn signal(&self) -> Option<(&'static str, u8)> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            signal => Some((signal_name(signal).unwrap_or("a signal"), code(signal))),
        }
    }
}

/// What a shell reports for a command ended by this signal.
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

/// A call that hangs in the kernel cannot be returned from; the main thread can.
fn end(code: u8, early_end: &Sender<u8>) {
    // Nobody listens when the verb has ended meanwhile.
    let _ = early_end.send(code);
}
