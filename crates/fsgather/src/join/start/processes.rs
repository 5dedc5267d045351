//! Reads what `/proc` shows of other processes: [`Processes`].

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

/// The kernel counts hundredths of a second for programs, independent of its own clock.
const TICK_MILLIS: u64 = 10;

/// The facts of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) parent: u32,
    /// The pid of the leader of its session. If the leader is outside of the pid namespace that `/proc` shows, the
    /// topmost process of the session above it that entered the namespace; 0 if that process has ended.
    pub(super) session: u32,
    /// In clock ticks since boot.
    pub(super) start_time: u64,
    /// The name of its program, at most 15 bytes of it.
    pub(super) name: String,
}

/// All processes that were there at one moment.
pub(super) trait ProcessTable {
    /// The processes by pid.
    fn all(&self) -> &BTreeMap<u32, Seen>;

    /// Returns the arguments with which a process was started; none if they are hidden.
    fn arguments(&self, pid: u32) -> Vec<String>;

    /// Returns the variables with which a process was started, `NAME=value` each; none if they are hidden.
    fn variables(&self, pid: u32) -> Vec<String>;

    /// Returns the working directory of a process.
    fn working_directory(&self, pid: u32) -> Option<PathBuf>;
}

/// Processes as `/proc` shows them.
pub(super) struct Processes(BTreeMap<u32, Seen>);

impl Processes {
    pub(super) fn see() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let seen = pids.filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parse(&stat)?))
        });
        let mut all: BTreeMap<u32, Seen> = seen.collect();
        lead_sessions_from_outside(&mut all);
        Self(all)
    }

    /// Returns the session of a process; 0 when unknown.
    pub(super) fn session_of(&self, pid: u32) -> u32 {
        self.0.get(&pid).map_or(0, |seen| seen.session)
    }
}

impl ProcessTable for Processes {
    fn all(&self) -> &BTreeMap<u32, Seen> {
        &self.0
    }

    fn arguments(&self, pid: u32) -> Vec<String> {
        texts(pid, "cmdline")
    }

    fn variables(&self, pid: u32) -> Vec<String> {
        texts(pid, "environ")
    }

    fn working_directory(&self, pid: u32) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{pid}/cwd")).ok()
    }
}

fn texts(pid: u32, file: &str) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|text| !text.is_empty())
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

/// Reads a line of `/proc/PID/stat`; returns `None` for a process that has ended.
///
/// The name in the second field may contain spaces and parentheses, so fields are counted from its last closing one.
fn parse(stat: &str) -> Option<Seen> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    Some(Seen {
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
        name: name.to_owned(),
    })
}

/// Sets the leader of sessions whose leader is outside of this pid namespace to the process that entered the namespace,
/// as by `docker exec`, by `kubectl exec` or as the first process of the namespace.
fn lead_sessions_from_outside(all: &mut BTreeMap<u32, Seen>) {
    let leader = |pid: u32| {
        let mut at = pid;
        for _ in 0..all.len() {
            let parent = all.get(&at)?.parent;
            if parent == 0 {
                return Some(at);
            }
            // An orphan of that process is a child of a process that belongs to another session.
            all.get(&parent).filter(|seen| seen.session == 0)?;
            at = parent;
        }
        None
    };
    let without = all.iter().filter(|(_, seen)| seen.session == 0);
    let leaders: Vec<(u32, u32)> = without
        .filter_map(|(pid, _)| Some((*pid, leader(*pid)?)))
        .collect();
    for (pid, leader) in leaders {
        if let Some(seen) = all.get_mut(&pid) {
            seen.session = leader;
        }
    }
}

fn this_process() -> Option<Seen> {
    parse(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Returns the time since a process of this host has started; a long time if it is unknown.
pub(super) fn age(start_time: u64) -> Duration {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime = uptime.split_ascii_whitespace().next();
    let uptime = uptime.and_then(|text| text.parse().ok());
    let Some(uptime) = uptime.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) else {
        return Duration::MAX;
    };
    uptime.saturating_sub(Duration::from_millis(
        start_time.saturating_mul(TICK_MILLIS),
    ))
}

/// Returns the time since this process has started.
pub(super) fn age_of_this_process() -> Duration {
    this_process().map_or(Duration::MAX, |seen| age(seen.start_time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_with_its_parent_and_start_state() {
        let processes = Processes::see();
        let pid = std::process::id();
        let me = &processes.all()[&pid];
        assert_eq!(me.parent, std::os::unix::process::parent_id());
        assert_eq!(me.session, processes.session_of(pid));
        assert!(processes.all().contains_key(&me.parent));
        assert!(!processes.arguments(pid).is_empty());
        assert!(!processes.variables(pid).is_empty());
        assert!(processes.working_directory(pid).is_some());
        assert!(age(me.start_time) < Duration::from_secs(3600));
        assert!(age_of_this_process() < Duration::from_secs(3600));
    }

    #[test]
    fn a_session_from_outside_is_led_by_whoever_came_in() {
        let seen = |parent, session| Seen {
            parent,
            session,
            ..Seen::default()
        };
        let sessions = |all: &[(u32, Seen)]| -> Vec<u32> {
            let mut all = all.iter().cloned().collect();
            lead_sessions_from_outside(&mut all);
            all.values().map(|seen| seen.session).collect()
        };
        // As the first process of a namespace, whose child leads a session of its own.
        let all = [
            (1, seen(0, 0)),
            (5, seen(1, 0)),
            (6, seen(5, 6)),
            (7, seen(5, 0)),
        ];
        assert_eq!(sessions(&all), [1, 1, 6, 1]);
        // Twice by `docker exec`; process 23 has lost the one that came in.
        let all = [
            (1, seen(0, 1)),
            (20, seen(0, 0)),
            (21, seen(20, 0)),
            (22, seen(0, 0)),
            (23, seen(1, 0)),
            (24, seen(23, 0)),
        ];
        assert_eq!(sessions(&all), [1, 20, 20, 22, 0, 0]);
        // Hidden parents.
        assert_eq!(sessions(&[(9, seen(8, 0))]), [0]);
    }

    #[test]
    fn odd_names_do_not_confuse_and_the_dead_are_not_seen() {
        let line = "42 (a) Z (b) S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 777 0";
        let seen = parse(line).unwrap();
        assert_eq!((seen.parent, seen.session, seen.start_time), (1, 3, 777));
        assert_eq!(seen.name, "a) Z (b");
        assert_eq!(parse(&line.replace(") S", ") Z")), None);
        assert_eq!(parse("42"), None);
    }
}
