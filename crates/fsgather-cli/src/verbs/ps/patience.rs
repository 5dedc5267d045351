//! Pauses that a signal ends: [`Patience`].

use std::{
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use fsgather::Interrupt;

use crate::{failure::Failure, interruption::Interruption, invocation::Invocation, verbs::inspect};

/// Waits between two looks. Where there is something to clear away, a signal ends the wait rather than the process.
#[derive(Default)]
pub(super) struct Patience(Option<Watched>);

struct Watched {
    interruption: Interruption,
    raised: Receiver<()>,
    /// As long as this is held somebody can say that a signal has come.
    _interrupt: Interrupt,
}

impl Patience {
    /// One that a signal ends, so that whoever waits can clear away what it has left for others.
    ///
    /// # Errors
    ///
    /// When signals cannot be watched for.
    pub(super) fn that_heeds_signals(invocation: &Invocation) -> Result<Self, Failure> {
        let interrupt = Interrupt::default();
        let (sender, raised) = mpsc::channel();
        interrupt.on_raise(move |_| {
            // Nobody listens when the verb has ended meanwhile.
            let _ = sender.send(());
        });
        let interruption =
            Interruption::watch(&interrupt, invocation.early_end()).map_err(|error| {
                fsgather::Error::config(format!("signals cannot be watched for: {error}"))
            })?;
        Ok(Self(Some(Watched {
            interruption,
            raised,
            _interrupt: interrupt,
        })))
    }

    /// Waits so long, or until a signal comes.
    pub(super) fn pause(&self, pause: Duration) {
        match &self.0 {
            None => inspect::pause(pause),
            // Whether it has come, who waits asks.
            Some(watched) => drop(watched.raised.recv_timeout(pause)),
        }
    }

    /// The code to end with, if a signal has come.
    pub(super) fn ended(&self) -> Option<u8> {
        let watched = self.0.as_ref()?;
        watched.interruption.signal().map(|(_, code)| code)
    }
}
