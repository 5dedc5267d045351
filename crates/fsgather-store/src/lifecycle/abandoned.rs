//! Removal of abandoned gather directories: of one, and of several at a time.
//!
//! # The protocol for one gather directory
//!
//! 1. It is judged. If nothing is proved, its heartbeat is watched first.
//! 2. A mark is left beside it, so that an owner that comes back learns why the directory is gone.
//! 3. It is judged again, after the mark is there. If it shows life now, the mark is taken back.
//! 4. Our entries in it are removed, deepest first, the owner record last; then the directory.
//! 5. If the owner was proved to be gone or had finished, or there was nothing to lose, the mark is removed too; else
//!    it stays, and is removed once it is old itself.
//!
//! If an owner wakes between 3 and 4, its directory disappears while it is in use. It gets errors, never other data: files are
//! opened only under names that were announced, names are never used twice, and every byte is verified.

use std::{
    ops::ControlFlow,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use fsgather_core::lock;

use crate::{
    lifecycle::{
        judgement::Removable,
        removal::{self, remove_file},
        removal_mark::Mark,
        survey::SurveyedGather,
        surveyor::Surveyor,
    },
    os::directory::OwnUid,
};

/// Number of directories that are removed at a time. The bottleneck is the server's responses, one for each file, not this
/// host's processor.
const MAX_REMOVERS: usize = 8;

/// Interval at which the caller is asked if the removal must stop.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The outcome of the removal of a gather directory.
pub(crate) enum Outcome {
    /// It disappeared while it was examined.
    Gone,
    Removed,
    Alive(String),
    /// The removal was stopped, and the rest is left to other processes.
    Unfinished,
    Failed(String),
}

/// Progress of the removal of directories.
pub(crate) enum Removing<'a> {
    /// The removal continues.
    Goes,
    /// The removal of this directory has ended.
    Ended(&'a SurveyedGather, Outcome),
}

/// Removes gather directories, several at a time, by the protocol above. `on` receives each event, one at a time and on this
/// thread, and may stop the removal: then directories in progress are left as they are.
pub(crate) fn remove_all(
    surveyor: &Surveyor,
    gathers: &[SurveyedGather],
    what: &str,
    on: &mut dyn FnMut(Removing<'_>) -> ControlFlow<()>,
) {
    let is_stopped = AtomicBool::new(false);
    let is_enough = || is_stopped.load(Ordering::Relaxed);
    let queue = Mutex::new(gathers.iter());
    let next = || lock(&queue).next().filter(|_| !is_enough());
    thread::scope(|scope| {
        // The channel is bounded, so that no thread runs ahead of the reports.
        let (sender, ended) = mpsc::sync_channel(MAX_REMOVERS);
        for _ in 0..MAX_REMOVERS.min(gathers.len()) {
            let sender = sender.clone();
            let work = || {
                let sender = sender;
                while let Some(gather) = next() {
                    let outcome = remove(surveyor, gather, what, true, &is_enough);
                    // The receiver lives until all threads have ended.
                    let _ = sender.send((gather, outcome));
                }
            };
            let thread = thread::Builder::new().name("fsgather-remove".into());
            if let Err(error) = thread.spawn_scoped(scope, work) {
                tracing::debug!(%error, "one thread less for removing");
            }
        }
        drop(sender);
        loop {
            let told = match ended.recv_timeout(ASK_EVERY) {
                Ok((gather, outcome)) => on(Removing::Ended(gather, outcome)),
                Err(RecvTimeoutError::Timeout) => on(Removing::Goes),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            is_stopped.fetch_or(told.is_break(), Ordering::Relaxed);
        }
    });
    // Only needed if no thread could be started.
    while let Some(gather) = next() {
        let outcome = remove(surveyor, gather, what, true, &is_enough);
        let told = on(Removing::Ended(gather, outcome));
        is_stopped.fetch_or(told.is_break(), Ordering::Relaxed);
    }
}

/// Removes one gather directory by the protocol above. The rest is left to other processes if `is_enough` returns true.
pub(crate) fn remove(
    surveyor: &Surveyor,
    gather: &SurveyedGather,
    what: &str,
    patient: bool,
    is_enough: &dyn Fn() -> bool,
) -> Outcome {
    let own = OwnUid(gather.uid);
    let Some(rendezvous) = gather.path.parent() else {
        return Outcome::Failed("it has no parent directory".into());
    };
    let what = format!("{what}, uid {},", own.0);
    let is_gone = gather.leaves_nobody();
    let mark = match Mark::leave(rendezvous, gather.id, &what, &surveyor.me, is_gone) {
        Ok(mark) => mark,
        Err(error) => return Outcome::Failed(format!("it cannot be condemned: {error}")),
    };
    let take_back = || {
        if let Err(error) = mark.take_back() {
            fsgather_core::warn!("a mark beside {} stays: {error}", gather.path.display());
        }
    };
    let now = match surveyor.look_again(gather) {
        // Another process has removed it meanwhile.
        None => {
            take_back();
            return Outcome::Gone;
        }
        Some(now) if now.judgement.removable != Removable::Yes || now.uid != gather.uid => {
            take_back();
            return Outcome::Alive(now.judgement.reason);
        }
        Some(now) => now,
    };
    let removal = removal::remove_abandoned(&gather.path, own, patient, is_enough);
    if !removal.is_complete() {
        take_back();
        return if is_enough() {
            Outcome::Unfinished
        } else {
            Outcome::Failed(removal.reasons())
        };
    }
    for name in &gather.beside.detours {
        if let Err(reason) = remove_file(&rendezvous.join(name), own) {
            tracing::debug!(name, reason, "a message beside it stays");
        }
    }
    if now.leaves_nobody() {
        take_back();
        // Marks of interrupted cleaners go too.
        for name in &gather.beside.marks {
            if let Err(reason) = remove_file(&rendezvous.join(name), own) {
                tracing::debug!(name, reason, "a mark stays");
            }
        }
    } else {
        mark.sign(rendezvous, gather.id, &what, &surveyor.me);
    }
    Outcome::Removed
}
