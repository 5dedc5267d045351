//! Turns signals into events: [`SignalWatch`].

use std::{
    io,
    sync::mpsc::Sender,
    thread::{self, JoinHandle},
};

use rustix::process::Signal;
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};

use super::event::Event;
use crate::heeded::heeded;

/// A thread that turns signals into events.
#[derive(Debug)]
pub(super) struct SignalWatch {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl SignalWatch {
    /// Begins to listen for ended children and for the signals that end a job, except those that are
    /// ignored.
    pub(super) fn start(events: Sender<Event>) -> io::Result<Self> {
        let mut listen = vec![SIGCHLD];
        listen.extend(heeded(&[SIGINT, SIGTERM, SIGHUP]));
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
