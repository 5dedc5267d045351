//! Watches, signals and reaps the rank processes: [`Processes`].

use std::{os::unix::process::ExitStatusExt as _, process::Child};

use fsgather::Rank;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use super::outcome::RankOutcome;

/// All ranks that were started, by rank.
///
/// An ended rank stays a zombie until [`Processes::reap`]. Until then no other process gets its process id, so that signals to
/// its group reach only processes that it has left behind.
#[derive(Debug, Default)]
pub(super) struct Processes {
    children: Vec<Child>,
    pids: Vec<u32>,
    ended: Vec<bool>,
}

impl Processes {
    /// Adds the next rank.
    pub(super) fn add(&mut self, child: Child) {
        self.pids.push(child.id());
        self.children.push(child);
        self.ended.push(false);
    }

    /// The process ids, by rank.
    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Returns the ranks that have ended since the last call.
    pub(super) fn newly_ended(&mut self) -> Vec<(Rank, RankOutcome)> {
        let mut found = Vec::new();
        for ((rank, ended), child) in (0..).zip(&mut self.ended).zip(&mut self.children) {
            if !*ended && let Some(outcome) = outcome_of(child) {
                *ended = true;
                found.push((Rank::new(rank), outcome));
            }
        }
        found
    }

    /// Sends a signal to the groups of all ranks that run.
    pub(super) fn signal_running(&self, signal: Signal) {
        for (pid, ended) in self.pids.iter().zip(&self.ended) {
            if !ended {
                signal_group(*pid, signal);
            }
        }
    }

    /// Sends a signal to the groups of all ranks, and so to processes that ended ranks left behind.
    pub(super) fn signal_all(&self, signal: Signal) {
        for pid in &self.pids {
            signal_group(*pid, signal);
        }
    }

    /// Reaps all ranks that have ended.
    pub(super) fn reap(&mut self) {
        for child in &mut self.children {
            // Ranks that have not ended were given up; the system kills them when this process ends.
            let _ = child.try_wait();
        }
    }
}

fn pid(raw: u32) -> Option<Pid> {
    i32::try_from(raw).ok().and_then(Pid::from_raw)
}

fn outcome_of(child: &mut Child) -> Option<RankOutcome> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if let Ok(status) = waitid(WaitId::Pid(pid(child.id())?), options) {
        let status: WaitIdStatus = status?;
        return of_status(status.exit_status(), status.terminating_signal());
    }
    // A sandbox may deny this call. The other one reaps the rank at once: better than never to see its end.
    let status = child.try_wait().ok()??;
    of_status(status.code(), status.signal())
}

const fn of_status(code: Option<i32>, signal: Option<i32>) -> Option<RankOutcome> {
    match (code, signal) {
        (Some(code), _) => Some(RankOutcome::Code(code)),
        (None, Some(signal)) => Some(RankOutcome::Signal(signal)),
        (None, None) => None,
    }
}

/// Sends a signal to all processes of a group.
pub(super) fn signal_group(raw: u32, signal: Signal) {
    if let Some(group) = pid(raw) {
        // An empty group, or one with the rights of another user, cannot be signalled.
        let _ = kill_process_group(group, signal);
    }
}
