//! Pauses that a signal ends: [`Pauses`].

use std::{
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use fsgather::Interrupt;

use crate::{failure::Failure, interruption::Interruption, invocation::Invocation, verbs::inspect};

/// Pauses between two looks. If files have to be removed at the end, a signal ends the pause instead of the process.
#[derive(Default)]
pub(super) struct Pauses(Option<SignalWatch>);

struct SignalWatch {
    interruption: Interruption,
    raised: Receiver<()>,
    /// Keeps the sender of `raised`.
    _interrupt: Interrupt,
}

impl Pauses {
    /// Returns pauses that a signal ends, so that the caller can remove its files.
    ///
    /// # Errors
    ///
    /// Returns an error if signals cannot be watched.
    pub(super) fn until_signal(invocation: &Invocation) -> Result<Self, Failure> {
        let interrupt = Interrupt::default();
        let (sender, raised) = mpsc::channel();
        interrupt.on_raise(move |_| {
            // The verb may have ended.
            let _ = sender.send(());
        });
        let interruption =
            Interruption::watch(&interrupt, invocation.early_end()).map_err(|error| {
                fsgather::Error::config(format!("signals cannot be watched for: {error}"))
            })?;
        Ok(Self(Some(SignalWatch {
            interruption,
            raised,
            _interrupt: interrupt,
        })))
    }

    /// Pauses, until a signal arrives at the latest.
    pub(super) fn pause(&self, pause: Duration) {
        match &self.0 {
            None => inspect::pause(pause),
            // The caller asks whether a signal has arrived.
            Some(watch) => drop(watch.raised.recv_timeout(pause)),
        }
    }

    /// Returns the exit code of the signal that has arrived, if there is one.
    pub(super) fn ended(&self) -> Option<u8> {
        let watch = self.0.as_ref()?;
        watch.interruption.signal().map(|(_, code)| code)
    }
}
