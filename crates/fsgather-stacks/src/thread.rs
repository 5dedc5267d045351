//! The states of threads, as `/proc` says: [`state_of_own`], [`state_of_process`].

use std::{fs, io::Read, process};

use fsgather_core::ThreadState;

use crate::object::SystemCall;

/// The state of a thread of this process.
pub(crate) fn state_of_own(thread: u32) -> Option<ThreadState> {
    let directory = directory_of(thread)?;
    let letter = Stat::read(&format!("{directory}/stat"))?.state;
    Some(match letter {
        'R' => ThreadState::Running,
        'T' | 't' => ThreadState::Stopped,
        'Z' | 'X' => ThreadState::Ended,
        letter => {
            let call = fs::read_to_string(format!("{directory}/syscall")).ok();
            let call = call.as_deref().and_then(SystemCall::parse);
            ThreadState::Waiting {
                on: call.as_ref().and_then(SystemCall::object),
                call: call.map(|call| call.name().to_owned()),
                is_deaf: letter == 'D',
            }
        }
    })
}

/// Where `/proc` tells of a thread of this process.
///
/// A `/proc` of another pid namespace, as in some containers, has other numbers; each tells the own one as its last.
pub(crate) fn directory_of(thread: u32) -> Option<String> {
    let own = fs::read_link("/proc/self").ok()?;
    if own.as_os_str().to_str() == Some(process::id().to_string().as_str()) {
        return Some(format!("/proc/self/task/{thread}"));
    }
    let is_it = |status: &str| {
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let own = numbers.and_then(|numbers| numbers.split_ascii_whitespace().last());
        own.and_then(|number| number.parse().ok()) == Some(thread)
    };
    fs::read_dir("/proc/self/task")
        .ok()?
        .flatten()
        .find_map(|task| {
            let directory = task.path();
            let status = fs::read(directory.join("status")).ok()?;
            let it = is_it(&String::from_utf8_lossy(&status));
            it.then(|| directory.to_string_lossy().into_owned())
        })
}

/// Something that stays the same as long as a thread of this process rests; nothing while it runs.
pub(crate) fn rest_of(thread: u32) -> Option<u64> {
    let status = fs::read(format!("{}/status", directory_of(thread)?)).ok()?;
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()
    };
    let rests = ["S", "D", "T", "t", "I"].contains(&field("State:")?);
    let count = |name: &str| field(name)?.parse::<u64>().ok();
    let switches = count("voluntary_ctxt_switches:")?;
    let switches = switches.wrapping_add(count("nonvoluntary_ctxt_switches:")?);
    rests.then_some(switches)
}

/// The state of another process, by its main thread, or by another one where that has ended, if it can be seen; it has ended where
/// its number is another one's now.
pub(crate) fn state_of_process(pid: u32, start_time: u64) -> Option<ThreadState> {
    let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
    if stat.start_time != start_time {
        return Some(ThreadState::Ended);
    }
    let has_ended = |letter: char| matches!(letter, 'Z' | 'X');
    let other = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let stats = tasks.flatten().filter_map(|task| {
            let stat = task.path().join("stat");
            Some(Stat::read(&stat.to_string_lossy())?.state)
        });
        stats.into_iter().find(|letter| !has_ended(*letter))
    };
    let alive = Some(stat.state).filter(|letter| !has_ended(*letter));
    Some(match alive.or_else(other).unwrap_or(stat.state) {
        'R' => ThreadState::Running,
        'T' | 't' => ThreadState::Stopped,
        'Z' | 'X' => ThreadState::Ended,
        letter => ThreadState::Waiting {
            call: None,
            on: None,
            is_deaf: letter == 'D',
        },
    })
}

/// What is of use of a `stat` of `/proc`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    start_time: u64,
}

impl Stat {
    fn read(path: &str) -> Option<Self> {
        // The name in it may be any bytes.
        let mut bytes = Vec::new();
        fs::File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        let (_, after_name) = text.rsplit_once(')')?;
        let mut fields = after_name.split_ascii_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            start_time: fields.nth(18)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
