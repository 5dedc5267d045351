//! Ends the ranks when `run` itself is killed: [`Guard`], and the hidden verb `guard-run`.
//!
//! The system ends each rank's first process then ([`exec_rank`](super::exec_rank)), but not what that one has
//! started. Hence one more process for each run, however many ranks there are: it knows the process groups of
//! the ranks, and waits for the end of its standard input, which comes when `run` is gone, however that ended.

use std::{
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Stdio},
    sync::{Arc, atomic::AtomicBool},
};

use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::processes::signal_group;
use crate::{exit, invocation::Invocation};

/// The process that ends all ranks' process groups when this one is gone.
#[derive(Debug)]
pub(super) struct Guard(Child);

impl Guard {
    /// Starts it, in a process group of its own: what is sent to that of `run` is not for it.
    pub(super) fn start(invocation: &Invocation) -> io::Result<Self> {
        let child = invocation
            .again()?
            .arg("guard-run")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Has it end this group as well.
    pub(super) fn add(&mut self, group: u32) -> io::Result<()> {
        match &mut self.0.stdin {
            Some(input) => input.write_all(&group.to_ne_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Lets go of all groups. It has to be before any rank is let go of: another process can get its id then.
    pub(super) fn dismiss(&mut self) {
        // One that is gone already cannot be ended, and it is the same.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Guards one run; ends with it.
pub(crate) fn guard_run() -> u8 {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // Schedulers send them to every process of a job, and `run` may take its time to end.
        let _ = flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    for group in groups(io::stdin().lock()) {
        signal_group(group, Signal::KILL);
    }
    exit::DONE
}

/// All groups that are told before the end.
fn groups(mut input: impl Read) -> Vec<u32> {
    let mut groups = Vec::new();
    let mut group = [0; 4];
    while input.read_exact(&mut group).is_ok() {
        groups.push(u32::from_ne_bytes(group));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_were_told_in_full() {
        let told = [7_u32, 70_000].map(u32::to_ne_bytes).concat();
        assert_eq!(groups(told.as_slice()), [7, 70_000]);
        assert_eq!(groups(&told[..6]), [7]);
        assert_eq!(groups(io::empty()), [0; 0]);
    }
}
