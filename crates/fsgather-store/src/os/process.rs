//! Identifies this process, and determines if another one still runs: [`this_process`], [`liveness`].

use std::{
    cell::OnceCell, collections::BTreeMap, fs, io, os::unix::fs::MetadataExt, sync::OnceLock,
    time::Duration,
};

use fsgather_core::{Error, ProcessId};
use rustix::{io::Errno, process::Pid};

/// Evidence about the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs; being stopped by a signal counts as running.
    Running,
    /// It is proved to be gone: no process has its pid, where its pid would be visible.
    Gone,
    /// Another process has its pid. A process that was dumped and restored looks the same, so a sign of life outweighs this.
    Replaced,
    /// Its host, by machine id and name, has been booted since. Hosts are cloned with both, so a sign of life outweighs this.
    Rebooted,
    /// Nothing is proved.
    Unknown,
}

impl Liveness {
    /// Returns true if the process has ended, as far as its pid shows. For callers that have no sign of life, and that may be
    /// wrong without harm.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Gone | Self::Replaced)
    }
}

/// Result of examining one pid in this process's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// No process has this pid.
    Absent,
    /// A process has it that started at this time, in clock ticks since boot.
    Started(u64),
    /// The process with this pid has ended, and is waiting for its parent.
    Ended,
    /// A process has this pid, and nothing else is visible.
    Hidden,
}

/// Judges if `subject` runs, from the position of `observer`. Pure.
///
/// `seen` is the result of examining the subject's pid. It counts only if both are of one boot and one pid namespace, and a
/// start time only if one clock counts both: another time namespace shifts it. Otherwise the subject is gone only if its host,
/// recognised by machine id *and* name (images are cloned with the machine id inside), has been booted since, and shows no sign
/// of life.
///
/// ```
/// use fsgather_core::ProcessId;
/// use fsgather_store::{Liveness, Sighting, judge};
///
/// let observer = ProcessId {
///     boot_id: "b".into(), pid_namespace: 1, time_namespace: 2, pid: 5, ..Default::default()
/// };
/// let subject = ProcessId { pid: 7, start_time: 100, ..observer.clone() };
/// assert_eq!(judge(&subject, &observer, Sighting::Started(100)), Liveness::Running);
/// assert_eq!(judge(&subject, &observer, Sighting::Started(101)), Liveness::Replaced);
/// assert_eq!(judge(&subject, &observer, Sighting::Absent), Liveness::Gone);
/// let elsewhere = ProcessId { time_namespace: 3, ..observer };
/// assert_eq!(judge(&subject, &elsewhere, Sighting::Started(101)), Liveness::Unknown);
/// ```
#[must_use]
pub fn judge(subject: &ProcessId, observer: &ProcessId, seen: Sighting) -> Liveness {
    if subject.boot_id.is_empty() || observer.boot_id.is_empty() {
        return Liveness::Unknown;
    }
    if observer.sees_pids_of(subject) {
        return match seen {
            Sighting::Absent | Sighting::Ended => Liveness::Gone,
            Sighting::Started(time) if time == subject.start_time => Liveness::Running,
            Sighting::Started(_) if observer.shares_clock_with(subject) => Liveness::Replaced,
            Sighting::Started(_) | Sighting::Hidden => Liveness::Unknown,
        };
    }
    let same_host = !subject.machine_id.is_empty()
        && subject.machine_id == observer.machine_id
        && subject.host == observer.host;
    if same_host && subject.boot_id != observer.boot_id {
        Liveness::Rebooted
    } else {
        Liveness::Unknown
    }
}

/// Returns the evidence that `subject` runs, for `observer`, which must be this process.
#[must_use]
pub fn liveness(subject: &ProcessId, observer: &ProcessId) -> Liveness {
    let seen = if observer.sees_pids_of(subject) {
        look_at(subject.pid)
    } else {
        Sighting::Hidden
    };
    judge(subject, observer, seen)
}

/// Returns the identity of this process.
///
/// Facts that the system does not provide (a missing `/etc/machine-id`, for example) are left empty or 0. They prove nothing to
/// other processes.
///
/// # Errors
///
/// [`Error::Storage`] if `/proc` does not show this process itself.
pub fn this_process() -> Result<ProcessId, Error> {
    let stat = "/proc/self/stat";
    let text = fs::read_to_string(stat).map_err(|error| Error::storage("read", stat, &error))?;
    let (_, status) = parse_stat(&text).ok_or_else(|| {
        Error::storage("read", stat, &io::Error::from(io::ErrorKind::InvalidData))
    })?;
    Ok(ProcessId {
        host: fsgather_core::sys::process::host_name(),
        boot_id: line_of("/proc/sys/kernel/random/boot_id"),
        machine_id: line_of("/etc/machine-id"),
        pid_namespace: inode_of("/proc/self/ns/pid"),
        mount_namespace: inode_of("/proc/self/ns/mnt"),
        // `/proc` may be that of another pid namespace, with another pid for this process.
        pid: std::process::id(),
        start_time: status.start_time,
        time_namespace: time_namespace(),
    })
}

/// Number of units of a start time in a second: the same on every supported architecture.
const TICKS: u64 = 100;

/// Time since this process was started; `None` if unknown.
pub(crate) fn age(me: &ProcessId) -> Option<Duration> {
    let uptime = line_of("/proc/uptime");
    age_at(&uptime, me.start_time)
}

/// Computes the age from a line of `/proc/uptime`, whose clock is that of start times.
fn age_at(uptime: &str, start_time: u64) -> Option<Duration> {
    let seconds: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let uptime = Duration::try_from_secs_f64(seconds).ok()?;
    let started = Duration::from_millis(start_time.checked_mul(1000 / TICKS)?);
    uptime.checked_sub(started)
}

/// The time namespace of this process. New children may get another one.
fn time_namespace() -> u64 {
    match fs::metadata("/proc/self/ns/time") {
        Ok(found) => found.ino(),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && inode_of("/proc/self/ns/pid") != 0 =>
        {
            ProcessId::NO_TIME_NAMESPACES
        }
        Err(_) => 0,
    }
}

/// Returns true if `/proc` shows the pids of this process's own pid namespace.
fn proc_is_own() -> bool {
    static IS_OWN: OnceLock<bool> = OnceLock::new();
    *IS_OWN.get_or_init(|| {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let shown = parse_stat(&read("/proc/self/stat")).map(|(pid, _)| pid);
        shows_own_pids(&read("/proc/self/status"), shown, std::process::id())
    })
}

/// Returns true if a `/proc` that shows this process as `shown` is that of its own pid namespace, in which its pid is `own`: a
/// process in a namespace below has one more pid there.
fn shows_own_pids(status: &str, shown: Option<u32>, own: u32) -> bool {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    shown == Some(own) && pids.is_none_or(|pids| pids.split_whitespace().count() == 1)
}

/// Returns the name of this process's user for its files: the name in `/etc/passwd`, the `login` name that the shell has set
/// (for users of directory services), or the number. Other processes believe it only if they know neither the name nor the
/// number.
///
/// ```
/// # use fsgather_store::own_user_text;
/// assert_eq!(own_user_text(0, Some("ada")), "root");
/// ```
#[must_use]
pub fn own_user_text(uid: u32, login: Option<&str>) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let users = Users::of(&passwd);
    users
        .name(uid, login)
        .map_or_else(|| uid.to_string(), str::to_owned)
}

/// The users that are known on this host.
#[derive(Default)]
struct Users(BTreeMap<u32, String>);

thread_local! {
    static USERS: OnceCell<Users> = const { OnceCell::new() };
}

/// Returns a user for messages: the name if known here, else `uid 1001`. Each thread reads the names once.
#[must_use]
pub fn user_text(uid: u32) -> String {
    claimed_user_text(uid, None)
}

/// Like [`user_text`], with the name from a file of the user. The name counts only if this host knows neither name nor number,
/// so that a user cannot pose as another.
pub(crate) fn claimed_user_text(uid: u32, claim: Option<&str>) -> String {
    USERS.with(|users| {
        let users = users.get_or_init(|| {
            let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
            Users::of(&passwd)
        });
        users.text(uid, claim)
    })
}

impl Users {
    fn of(passwd: &str) -> Self {
        let mut users = BTreeMap::new();
        for (uid, name) in passwd.lines().filter_map(user_in) {
            users.entry(uid).or_insert_with(|| name.to_owned());
        }
        Self(users)
    }

    fn text(&self, uid: u32, claim: Option<&str>) -> String {
        self.name(uid, claim)
            .map_or_else(|| format!("uid {uid}"), str::to_owned)
    }

    fn name<'a>(&'a self, uid: u32, claim: Option<&'a str>) -> Option<&'a str> {
        let is_free = |name: &&str| {
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
            !is_number && !self.0.values().any(|known| known == name)
        };
        let known = self.0.get(&uid).map(String::as_str);
        known.or_else(|| claim.filter(is_free))
    }
}

fn user_in(line: &str) -> Option<(u32, &str)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let uid = fields.nth(1)?.parse().ok()?;
    (!name.is_empty()).then_some((uid, name))
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn inode_of(path: &str) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.ino())
}

/// Examines a pid. Signal 0 finds processes even if `/proc` hides those of other users.
fn look_at(pid: u32) -> Sighting {
    if let Some(seen) = fsgather_core::sys::process::in_model(pid) {
        return seen.map_or(Sighting::Absent, Sighting::Started);
    }
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Sighting::Hidden;
    };
    if let Err(Errno::SRCH) = rustix::process::test_kill_process(pid) {
        return Sighting::Absent;
    }
    if !proc_is_own() {
        return Sighting::Hidden;
    }
    let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
    match fs::read_to_string(stat) {
        Err(_) => Sighting::Hidden,
        Ok(text) => match parse_stat(&text) {
            None => Sighting::Hidden,
            Some((_, status)) if status.has_ended => Sighting::Ended,
            Some((_, status)) => Sighting::Started(status.start_time),
        },
    }
}

struct Status {
    start_time: u64,
    has_ended: bool,
}

/// Parses pid, state and start time from a line of `/proc/PID/stat`.
///
/// The name in the second field may contain spaces and parentheses, so fields are counted after its last closing parenthesis.
fn parse_stat(text: &str) -> Option<(u32, Status)> {
    let (head, tail) = text.rsplit_once(')')?;
    let pid = head.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    // Field 3, the state, is the first here; 20 is the number of threads and 22 the start time. A process whose first thread
    // has ended shows as a zombie while its other threads continue.
    let threads: u64 = fields.get(17)?.parse().ok()?;
    Some((
        pid,
        Status {
            start_time: fields.get(19)?.parse().ok()?,
            has_ended: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
        },
    ))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use fsgather_testkit::process::spawn;

    use super::*;

    #[test]
    fn namespaces_differ_as_their_inodes_do_and_none_is_0() {
        assert_eq!(inode_of("/proc/self/ns/none"), 0);
        let [pid, mount] = ["pid", "mnt"].map(|name| inode_of(&format!("/proc/self/ns/{name}")));
        assert!(pid != mount && pid > 1 && mount > 1, "{pid} {mount}");
    }

    #[test]
    fn this_process_runs_in_its_own_eyes() {
        let me = this_process().unwrap();
        assert_eq!(me.pid, std::process::id());
        assert!(!me.host.is_empty() && !me.boot_id.is_empty());
        assert!(me.sees_pids_of(&me) && me.sees_mounts_of(&me));
        assert_eq!(liveness(&me, &me), Liveness::Running);
    }

    #[test]
    fn the_age_of_a_process_is_that_of_the_uptime_less_its_start() {
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(age_at("100.25 7.00", 9_000), ms(10_250));
        assert_eq!(age_at("100.25 7.00", 10_100), None);
        assert_eq!(age_at("", 1), None);
        assert!(age(&this_process().unwrap()).is_some_and(|age| age < Duration::from_secs(3600)));
    }

    #[test]
    fn a_proc_of_another_pid_namespace_is_recognised() {
        assert!(shows_own_pids("Pid:\t7\nNSpid:\t7\n", Some(7), 7));
        assert!(
            shows_own_pids("", Some(7), 7),
            "kernels before 4.1 do not tell"
        );
        assert!(!shows_own_pids("NSpid:\t812\t7\n", Some(812), 7));
        assert!(!shows_own_pids("NSpid:\t7\t7\n", Some(7), 7));
    }

    #[test]
    fn users_are_named_where_the_system_knows_them() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n# a note\nbroken\nanna:x:1001:100::/:\n";
        let users = Users::of(passwd);
        assert_eq!(users.name(0, None), Some("root"));
        assert_eq!(users.name(100, None), None);
        let text = |uid, claim| users.text(uid, claim);
        assert_eq!(text(1001, None), "anna");
        assert_eq!(text(100, None), "uid 100");
        // A record may provide an unknown name, but not more.
        assert_eq!(text(100, Some("ada")), "ada");
        assert_eq!(text(1001, Some("ada")), "anna");
        for claim in ["root", "anna", "100", ""] {
            assert_eq!(text(100, Some(claim)), "uid 100");
        }
    }

    #[test]
    fn a_child_is_running_then_gone() {
        let me = this_process().unwrap();
        let mut child = spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        let Sighting::Started(start_time) = look_at(child.id()) else {
            panic!("the child is not seen")
        };
        let subject = ProcessId {
            pid: child.id(),
            start_time,
            ..me.clone()
        };
        assert_eq!(liveness(&subject, &me), Liveness::Running);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(liveness(&subject, &me), Liveness::Gone);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let me = this_process().unwrap();
        let elder = ProcessId {
            start_time: me.start_time - 1,
            ..me.clone()
        };
        assert_eq!(liveness(&elder, &me), Liveness::Replaced);
        assert!(liveness(&elder, &me).has_ended());
        // An old record does not name its clock; clocks of other time namespaces differ.
        for time_namespace in [0, me.time_namespace + 1] {
            let elder = ProcessId {
                time_namespace,
                ..elder.clone()
            };
            assert_eq!(liveness(&elder, &me), Liveness::Unknown);
            let same = ProcessId {
                time_namespace,
                ..me.clone()
            };
            assert_eq!(liveness(&same, &me), Liveness::Running);
        }
    }

    #[test]
    fn missing_pids_of_other_namespaces_prove_nothing() {
        let me = ProcessId {
            host: "n1".into(),
            boot_id: "boot".into(),
            machine_id: "machine".into(),
            pid_namespace: 1,
            mount_namespace: 1,
            pid: 10,
            start_time: 5,
            time_namespace: 1,
        };
        let container = ProcessId {
            pid_namespace: 2,
            ..me.clone()
        };
        assert_eq!(judge(&container, &me, Sighting::Absent), Liveness::Unknown);
        let unknown_namespace = ProcessId {
            pid_namespace: 0,
            ..me.clone()
        };
        let seen = judge(&unknown_namespace, &unknown_namespace, Sighting::Absent);
        assert_eq!(seen, Liveness::Unknown);
        assert_eq!(judge(&me, &me, Sighting::Hidden), Liveness::Unknown);
    }

    #[test]
    fn another_boot_of_the_same_machine_speaks_for_the_end() {
        let before = ProcessId {
            host: "n1".into(),
            boot_id: "boot 1".into(),
            machine_id: "machine".into(),
            ..ProcessId::default()
        };
        let after = ProcessId {
            boot_id: "boot 2".into(),
            ..before.clone()
        };
        assert_eq!(judge(&before, &after, Sighting::Hidden), Liveness::Rebooted);
        assert!(!judge(&before, &after, Sighting::Hidden).has_ended());
        let cloned_image = ProcessId {
            host: "n2".into(),
            ..after.clone()
        };
        let seen = judge(&before, &cloned_image, Sighting::Hidden);
        assert_eq!(seen, Liveness::Unknown);
        let nameless = ProcessId {
            machine_id: String::new(),
            ..after.clone()
        };
        let seen = judge(&nameless, &nameless, Sighting::Hidden);
        assert_eq!(seen, Liveness::Unknown);
    }

    #[test]
    fn odd_process_names_do_not_confuse() {
        let line = "42 (a) Z (b) S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 777 0";
        let (pid, status) = parse_stat(line).unwrap();
        assert_eq!((pid, status.start_time, status.has_ended), (42, 777, false));
        let zombie = line.replace(") S", ") Z").replace("20 0 3", "20 0 1");
        assert!(parse_stat(&zombie).unwrap().1.has_ended);
        let leader_only = line.replace(") S", ") Z");
        assert!(!parse_stat(&leader_only).unwrap().1.has_ended);
    }

    #[test]
    fn users_are_named_where_their_name_is_known() {
        assert_eq!(own_user_text(0, None), "root");
        assert_eq!(own_user_text(0, Some("ada")), "root");
        assert!(own_user_text(4_000_000_000, None).contains("4000000000"));
    }
}
