//! Watching processes on the same host: [`Watch`].
//!
//! The end of a process usually closes its connections. A forked child that holds them open hides it,
//! so each rank watches another one on its host by pidfd: the next in a ring, and when that one has
//! ended, the one after it.

use std::{
    io::{self, PipeReader, PipeWriter},
    sync::Arc,
};

use crate::join::config::{Config, IsRunning};
use fsgather_core::{ProcessId, Rank};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The ranks that `rank` watches, in this order, one at a time.
fn ring(rank: Rank, processes: &[ProcessId]) -> Vec<Rank> {
    let Some(own) = processes.get(rank.index()) else {
        return Vec::new();
    };
    let ranks = (0..).map(Rank::new).zip(processes);
    let (before, after): (Vec<_>, Vec<_>) = ranks
        .filter(|(other, process)| *other != rank && process.sees_pids_of(own))
        .map(|(other, _)| other)
        .partition(|other| *other < rank);
    after.into_iter().chain(before).collect()
}

/// A thread that watches siblings; it ends when this is dropped.
pub(crate) struct Watch {
    /// The thread waits for the end of this pipe as well.
    _alive: PipeWriter,
}

impl Watch {
    /// Starts to watch the siblings of this rank and to report each that ends.
    pub(crate) fn start(
        config: &Config,
        processes: &[ProcessId],
        report: impl Fn(Rank) + Send + 'static,
    ) -> io::Result<Option<Self>> {
        let rank = config.rank;
        let own = processes.get(rank.index()).map(|own| own.pid);
        let siblings: Vec<(Rank, ProcessId)> = ring(rank, processes)
            .into_iter()
            .filter_map(|sibling| Some((sibling, processes.get(sibling.index())?.clone())))
            // Threads of one process end together.
            .filter(|(_, process)| Some(process.pid) != own)
            .collect();
        // Processes of a model cannot be pinned; their signs of life show their end.
        let is_model = own.is_some_and(|own| fsgather_core::sys::process::in_model(own).is_some());
        if siblings.is_empty() || is_model {
            return Ok(None);
        }
        let (stopped, alive) = io::pipe()?;
        let is_running = Arc::clone(&config.is_running);
        config
            .threads()
            .start(format!("fsgather-{rank}-watch"), move || {
                watch(siblings, &*is_running, &stopped, report);
            })?;
        Ok(Some(Self { _alive: alive }))
    }
}

fn watch(
    siblings: Vec<(Rank, ProcessId)>,
    is_running: &IsRunning,
    stopped: &PipeReader,
    report: impl Fn(Rank),
) {
    for (sibling, process) in siblings {
        match ended(&process, is_running, stopped) {
            Ok(true) => report(sibling),
            Ok(false) => return,
            Err(errno) => tracing::debug!("cannot watch rank {sibling}: {errno}"),
        }
    }
}

/// Waits until a process has ended (true) or the watch is over (false).
fn ended(process: &ProcessId, is_running: &IsRunning, stopped: &PipeReader) -> Result<bool, Errno> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let pinned = match pidfd_open(pid.ok_or(Errno::INVAL)?, PidfdFlags::empty()) {
        Ok(pinned) => pinned,
        Err(Errno::SRCH) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    // The pid may have gone to another process before it was pinned.
    if !is_running(process) {
        return Ok(true);
    }
    loop {
        let mut waited = [
            PollFd::new(&pinned, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match poll(&mut waited, None) {
            Ok(_) if !waited[1].revents().is_empty() => return Ok(false),
            Ok(_) if !waited[0].revents().is_empty() => return Ok(true),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use fsgather_testkit::process::{Started, spawn};

    use super::*;

    fn on(boot_id: &str, pid: u32) -> ProcessId {
        ProcessId {
            boot_id: boot_id.into(),
            pid_namespace: 1,
            pid,
            ..ProcessId::default()
        }
    }

    fn of(child: &Started) -> ProcessId {
        on("here", child.id())
    }

    #[test]
    fn a_process_end_is_noticed_and_a_reused_pid_ignored() {
        let mut child = spawn(Command::new("sleep").arg("60")).unwrap();
        let process = of(&child);
        let (stopped, _alive) = io::pipe().unwrap();
        // Another process has that pid now: the one that is meant is gone.
        assert_eq!(ended(&process, &|_| false, &stopped), Ok(true));
        thread::scope(|scope| {
            let watch = scope.spawn(|| ended(&process, &|_| true, &stopped));
            child.kill().unwrap();
            assert_eq!(watch.join().unwrap(), Ok(true));
        });
        child.wait().unwrap();
        assert_eq!(ended(&process, &|_| true, &stopped), Ok(true));
    }

    #[test]
    fn a_watch_ends_when_it_is_dropped() {
        let mut child = spawn(Command::new("sleep").arg("60")).unwrap();
        let process = of(&child);
        let (stopped, alive) = io::pipe().unwrap();
        thread::scope(|scope| {
            let watch = scope.spawn(|| ended(&process, &|_| true, &stopped));
            drop(alive);
            assert_eq!(watch.join().unwrap(), Ok(false));
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn every_rank_is_watched_by_the_one_before_it_on_its_host() {
        let processes = [on("a", 1), on("b", 1), on("a", 2), on("a", 3), on("b", 2)];
        let first = |rank| ring(Rank::new(rank), &processes).first().copied();
        assert_eq!(first(0), Some(Rank::new(2)));
        assert_eq!(first(2), Some(Rank::new(3)));
        assert_eq!(first(3), Some(Rank::new(0)));
        assert_eq!(first(1), Some(Rank::new(4)));
        assert_eq!(first(4), Some(Rank::new(1)));
        assert_eq!(ring(Rank::ZERO, &processes), [Rank::new(2), Rank::new(3)]);
    }
}
