//! The rank processes: finding out which have ended, sending signals, and letting go of them.

use std::process::Child;

use fsgather::Rank;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use super::outcome::RankOutcome;

/// All ranks that were started, by rank.
///
/// An ended rank stays a zombie until [`Processes::reap`]: so long nobody else can get its process id,
/// and signals to its group reach what it has left behind and nothing else.
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

    /// The ranks that have ended since the last time this was asked.
    pub(super) fn newly_ended(&mut self) -> Vec<(Rank, RankOutcome)> {
        let mut found = Vec::new();
        for ((rank, ended), pid) in (0..).zip(&mut self.ended).zip(&self.pids) {
            if !*ended && let Some(outcome) = outcome_of(*pid) {
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

    /// Sends a signal to the groups of all ranks, so that what ended ranks left behind gets it too.
    pub(super) fn signal_all(&self, signal: Signal) {
        for pid in &self.pids {
            signal_group(*pid, signal);
        }
    }

    /// Lets go of all ranks that have ended.
    pub(super) fn reap(&mut self) {
        for child in &mut self.children {
            // Whoever has not ended was given up; the system kills it when we are gone.
            let _ = child.try_wait();
        }
    }
}

fn pid(raw: u32) -> Option<Pid> {
    i32::try_from(raw).ok().and_then(Pid::from_raw)
}

fn outcome_of(raw: u32) -> Option<RankOutcome> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // It is our child and has not been waited for, so asking cannot fail.
    let status: WaitIdStatus = waitid(WaitId::Pid(pid(raw)?), options).ok()??;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(RankOutcome::Code(code)),
        (None, Some(signal)) => Some(RankOutcome::Signal(signal)),
        (None, None) => None,
    }
}

/// Sends a signal to all processes of a group.
pub(super) fn signal_group(raw: u32, signal: Signal) {
    if let Some(group) = pid(raw) {
        // A group that nobody is left in, or that has taken another user's rights, cannot be signalled.
        let _ = kill_process_group(group, signal);
    }
}
