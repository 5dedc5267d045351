//! The states of threads, as `/proc` shows them: [`state_of_own`], [`state_of_process`], [`busiest_since`].

use std::{collections::BTreeMap, fs, io::Read, path::Path, process, time::Duration};

use crate::ThreadState;

mod control_group;
mod system_call;

use system_call::SystemCall;

/// The first letters of the names of this library's threads.
const OUR_THREADS: &str = "fsgather-";

/// Returns the state of a thread of this process.
#[must_use]
pub fn state_of_own(thread: u32) -> Option<ThreadState> {
    let directory = directory_of(thread)?;
    let letter = Stat::read(&format!("{directory}/stat"))?.state;
    Some(state_in(&directory, letter))
}

/// Returns true if a thread of this process waits.
#[must_use]
pub fn is_waiting(thread: u32) -> bool {
    matches!(state_of_own(thread), Some(ThreadState::Waiting { .. }))
}

/// Returns the state of a thread of this process, given its directory in `/proc` and its letter there.
fn state_in(directory: &str, letter: char) -> ThreadState {
    match letter {
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
    }
}

/// Returns the processor time of each thread of this process, in clock ticks, by its number in `/proc`.
#[must_use]
pub fn cpu_times() -> BTreeMap<u32, u64> {
    tasks().map(|(number, stat)| (number, stat.ticks)).collect()
}

/// Returns the processor time that the program of this process has used, without the threads of this library;
/// `ticks_per_second` is the unit of `/proc`.
#[must_use]
pub fn cpu_time(ticks_per_second: u64) -> Option<Duration> {
    cpu_time_in("/proc/self", ticks_per_second)
}

/// Like [`cpu_time`], for another process of this host, if it can be seen.
#[must_use]
pub fn cpu_time_of_process(pid: u32, start_time: u64, ticks_per_second: u64) -> Option<Duration> {
    let directory = format!("/proc/{pid}");
    let is_it = Stat::read(&format!("{directory}/stat"))?.start_time == start_time;
    is_it.then(|| cpu_time_in(&directory, ticks_per_second))?
}

/// Maximum number of generations between a process and a descendant.
const MAX_TREE_DEPTH: u32 = 1000;

/// Returns the processor time of each of these processes together with all its descendants, if it can be seen.
#[must_use]
pub fn cpu_times_of_trees(pids: &[u32], ticks_per_second: u64) -> Vec<Option<Duration>> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        Some((
            pid,
            Stat::read(&process.path().join("stat").to_string_lossy())?,
        ))
    });
    let stats: BTreeMap<u32, Stat> = stats.collect();
    let seen = pids.iter().filter(|pid| stats.contains_key(pid));
    let mut ticks: BTreeMap<u32, u64> = seen.map(|pid| (*pid, 0)).collect();
    for (pid, stat) in &stats {
        let mut ancestor = Some(*pid);
        // Reads at different times may form a circle of parents.
        for _ in 0..MAX_TREE_DEPTH {
            let Some(pid) = ancestor else { break };
            if let Some(ticks) = ticks.get_mut(&pid) {
                *ticks = ticks.saturating_add(stat.ticks.saturating_add(stat.ticks_of_children));
            }
            ancestor = stats.get(&pid).map(|stat| stat.parent);
        }
    }
    let time =
        |ticks: u64| Duration::from_millis(ticks.saturating_mul(1000) / ticks_per_second.max(1));
    let times = pids.iter().map(|pid| ticks.get(pid).copied().map(time));
    times.collect()
}

fn cpu_time_in(directory: &str, ticks_per_second: u64) -> Option<Duration> {
    // Only this sum has the threads that have ended.
    let all = Stat::read(&format!("{directory}/stat"))?.ticks;
    let ours = tasks_in(directory).filter(|(_, stat)| stat.name.starts_with(OUR_THREADS));
    let ours: u64 = ours.map(|(_, stat)| stat.ticks).sum();
    let millis = all.saturating_sub(ours).saturating_mul(1000) / ticks_per_second.max(1);
    Some(Duration::from_millis(millis))
}

/// Returns the threads of this process, by their numbers in `/proc`.
fn tasks() -> impl Iterator<Item = (u32, Stat)> {
    tasks_in("/proc/self")
}

fn tasks_in(directory: &str) -> impl Iterator<Item = (u32, Stat)> + use<> {
    let tasks = fs::read_dir(format!("{directory}/task"));
    let tasks = tasks.into_iter().flatten();
    tasks.flatten().filter_map(|task| {
        let number = task.file_name().to_str()?.parse().ok()?;
        Some((
            number,
            Stat::read(&task.path().join("stat").to_string_lossy())?,
        ))
    })
}

/// Returns the state of the thread of this process that has used most processor time since then, and that time in clock
/// ticks.
///
/// Threads of this library do not count, nor do threads that wait for a lock. If several threads have used the same
/// time, the oldest counts.
#[must_use]
pub fn busiest_since(before: &BTreeMap<u32, u64>) -> Option<(ThreadState, u64)> {
    let mut busiest: Option<(ThreadState, u64)> = None;
    for (number, stat) in tasks().filter(|(_, stat)| !stat.name.starts_with(OUR_THREADS)) {
        let used = stat.ticks
            - before
                .get(&number)
                .copied()
                .unwrap_or_default()
                .min(stat.ticks);
        let state = state_in(&format!("/proc/self/task/{number}"), stat.state);
        let waits_for_lock =
            matches!(&state, ThreadState::Waiting { call: Some(call), .. } if call == "futex");
        if !waits_for_lock
            && state != ThreadState::Ended
            && busiest.as_ref().is_none_or(|(_, most)| used > *most)
        {
            busiest = Some((state, used));
        }
    }
    busiest
}

/// Returns the directory of a thread of this process in `/proc`.
///
/// A `/proc` of another pid namespace, as in some containers, has other numbers; the last number of each entry is that
/// in the own namespace.
fn directory_of(thread: u32) -> Option<String> {
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

/// Returns the state of another process, if it can be seen: that of its main thread, or of another thread if that has
/// ended. If the start time differs, another process has the pid, and the first has ended.
#[must_use]
pub fn state_of_process(pid: u32, start_time: u64) -> Option<ThreadState> {
    state_below(Path::new("/"), pid, start_time)
}

/// Like [`state_of_process`], below a root directory, which is `/` except in tests.
fn state_below(root: &Path, pid: u32, start_time: u64) -> Option<ThreadState> {
    let directory = root.join(format!("proc/{pid}"));
    let stat_in = |place: &Path| Stat::read(&place.join("stat").to_string_lossy());
    let stat = stat_in(&directory)?;
    if stat.start_time != start_time {
        return Some(ThreadState::Ended);
    }
    let has_ended = |letter: char| matches!(letter, 'Z' | 'X');
    let other = || {
        let tasks = fs::read_dir(directory.join("task")).ok()?;
        let states = tasks
            .flatten()
            .filter_map(|task| Some(stat_in(&task.path())?.state));
        states.into_iter().find(|letter| !has_ended(*letter))
    };
    let alive = Some(stat.state).filter(|letter| !has_ended(*letter));
    Some(match alive.or_else(other).unwrap_or(stat.state) {
        'Z' | 'X' => ThreadState::Ended,
        // Its threads look as if they waited.
        _ if control_group::is_frozen(root, pid) => ThreadState::Frozen,
        'R' => ThreadState::Running,
        'T' | 't' => ThreadState::Stopped,
        letter => ThreadState::Waiting {
            call: None,
            on: None,
            is_deaf: letter == 'D',
        },
    })
}

/// The used fields of a `stat` of `/proc`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    state: char,
    parent: u32,
    /// Processor time of the program, and of the kernel on its behalf.
    ticks: u64,
    /// Processor time of its children that have ended.
    ticks_of_children: u64,
    start_time: u64,
}

impl Stat {
    fn read(path: &str) -> Option<Self> {
        // The name in it may contain any bytes.
        let mut bytes = Vec::new();
        fs::File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            name: name.split_once('(')?.1.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(1)?).ok()?,
            ticks: number(11)?.saturating_add(number(12)?),
            ticks_of_children: number(13)?.saturating_add(number(14)?),
            start_time: number(19)?,
        })
    }
}

#[cfg(test)]
mod tests;
