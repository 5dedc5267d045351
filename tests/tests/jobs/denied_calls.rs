//! Sandboxes and old kernels: each system call that may be missing or denied has a replacement, or the error names it.

use std::{
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::common::{
    Stage, World,
    build::command_line_tool,
    denial::{
        Denial,
        DeniedCalls::{AllExcept, Only},
    },
    place,
};

/// The calls that a job cannot do without. All are in Linux 3.2, the oldest kernel that is supported: a call that is not listed
/// needs a replacement, and one that is added here may raise the oldest kernel in the README and in `doctor`.
const NEEDED: &[&str] = &[
    // Memory, signals and threads.
    "mmap",
    "mprotect",
    "munmap",
    "mremap",
    "brk",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "clone",
    "futex",
    "gettid",
    "set_tid_address",
    "arch_prctl",
    "exit",
    "exit_group",
    "execve",
    "clock_gettime",
    "clock_nanosleep",
    "nanosleep",
    // Processes.
    "fork",
    "vfork",
    "wait4",
    "kill",
    "tgkill",
    "getpid",
    "getppid",
    "setsid",
    "setpgid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    // Files.
    "open",
    "openat",
    "close",
    "read",
    "readv",
    "pread64",
    "write",
    "writev",
    "pwrite64",
    "lseek",
    "fstat",
    "newfstatat",
    "stat",
    "lstat",
    "access",
    "faccessat",
    "getdents64",
    "mkdir",
    "mkdirat",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "linkat",
    "readlink",
    "readlinkat",
    "ftruncate",
    "fchmod",
    "fcntl",
    "ioctl",
    "dup",
    "dup2",
    "dup3",
    "pipe2",
    "getcwd",
    "umask",
    // Connections.
    "socket@1",
    "socket@2",
    "socket@10",
    "socketpair",
    "setsockopt",
    "getsockopt",
    "bind",
    "listen",
    "accept4",
    "connect",
    "getsockname",
    "getpeername",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "shutdown",
    "poll",
    "ppoll",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "eventfd2",
];

/// The calls for which there are replacements, as far as they are made.
const OPTIONAL: &[&str] = &[
    "clone3",
    "copy_file_range",
    "fadvise64",
    "fallocate",
    "fchown",
    "fstatfs",
    "fsync",
    "getrandom",
    "madvise",
    "memfd_create",
    "pidfd_open",
    "prctl",
    "prlimit64",
    "process_vm_readv",
    "rseq",
    "sched_getaffinity",
    "sendfile",
    "set_robust_list",
    "socket@16",
    "statfs",
    "statx",
    "sysinfo",
    "uname",
    "utimensat",
    "waitid",
];

/// Calls that a sandbox may deny, and the words of the error of a rank that cannot do without.
const NAMED: [(&str, &str); 6] = [
    (
        "clone3",
        "cannot start a thread: Operation not permitted (os error 1): a sandbox or an old kernel denies clone3",
    ),
    ("epoll_create1", "denies epoll_create1 or eventfd2"),
    ("eventfd2", "denies epoll_create1 or eventfd2"),
    ("listen", "denies socket, setsockopt, bind or listen"),
    ("bind", "denies socket, setsockopt, bind or listen"),
    ("accept4", "denies accept4"),
];

/// Calls that `fsgather run` cannot do without, and the words of its error.
const NAMED_BY_RUN: [(&str, &str); 5] = [
    ("pipe2", "denies pipe2, clone3, setsid or execve"),
    (
        "setpgid",
        "denies socketpair, pipe2, clone3, setpgid or execve",
    ),
    ("setsid", "denies pipe2, clone3, setsid or execve"),
    ("socketpair", "denies socketpair, rt_sigaction or clone3"),
    ("socket@2", "denies socket, bind or listen"),
];

const ERRORS: [&str; 2] = ["ENOSYS", "EPERM"];

/// Returns each optional call with each error. A C library starts threads by `clone` only if `clone3` does not exist.
fn optional_denials() -> Vec<Denial<'static>> {
    let each = |call: &'static &'static str| {
        let errors = ERRORS
            .iter()
            .filter(|errno| **errno == "ENOSYS" || *call != "clone3");
        errors.map(|errno| Denial {
            errno,
            calls: Only(call),
        })
    };
    let everything = Denial {
        errno: "ENOSYS",
        calls: AllExcept(NEEDED),
    };
    OPTIONAL.iter().flat_map(each).chain([everything]).collect()
}

fn tool_behind(denial: &Denial<'_>, words: &[&str]) -> Command {
    let prefix = denial.prefix();
    let mut command = Command::new(&prefix[0]);
    command
        .args(&prefix[1..])
        .arg(command_line_tool())
        .args(words)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Does something for all items, a few at the same time.
fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

#[test]
fn ranks_do_without_optional_calls() {
    for_each(&optional_denials(), |denial| {
        let directory = place();
        let by_files = World::new(2, directory.path());
        for world in [by_files.clone(), by_files.sharing_memory()] {
            let mut stage = Stage::new();
            for rank in 0..2 {
                let script = "join barrier all_gather:100 all_gather_bytes:4194304 close";
                stage.start(&mut world.rank_behind(&denial.prefix(), rank, script));
            }
            for rank in 0..2 {
                let end = stage.end(rank);
                assert_eq!(end.code, 0, "{denial}\n{}", stage.transcript());
            }
        }
    });
}

#[test]
fn commands_do_without_optional_calls() {
    for_each(&optional_denials(), |denial| {
        let directory = place();
        let text = directory.path().to_str().expect("text");
        let tool = command_line_tool().to_str().expect("text");
        for words in [
            &["run", "-n", "2", "--dir", text, "--", tool, "gather", tool][..],
            &["doctor", text],
            &["ps", text],
            &["inspect", text],
        ] {
            let mut stage = Stage::new();
            let index = stage.start(&mut tool_behind(denial, words));
            let end = stage.end(index);
            assert_eq!(end.code, 0, "{denial}: {words:?}\n{}", stage.transcript());
        }
    });
}

#[test]
fn ranks_name_needed_calls_that_are_denied() {
    for_each(&NAMED, |(call, expected)| {
        let directory = place();
        let world = World::new(2, directory.path());
        let mut stage = Stage::new();
        let denial = Denial {
            errno: "EPERM",
            calls: Only(call),
        };
        let member = stage.start(&mut world.rank(1, "join"));
        let root = stage.start(&mut world.rank_behind(&denial.prefix(), 0, "join"));
        for index in [root, member] {
            let end = stage.end(index);
            assert!(
                end.error().contains(expected),
                "{denial}\n{}",
                stage.transcript()
            );
        }
    });
}

#[test]
fn run_names_needed_calls_that_are_denied() {
    for_each(&NAMED_BY_RUN, |(call, expected)| {
        let directory = place();
        let text = directory.path().to_str().expect("text");
        let mut stage = Stage::new();
        let denial = Denial {
            errno: "EPERM",
            calls: Only(call),
        };
        let words = ["run", "-n", "2", "--dir", text, "--", "true"];
        let index = stage.start(&mut tool_behind(&denial, &words));
        let end = stage.end(index);
        assert!(
            end.told_by_tool().contains(expected),
            "{denial}\n{}",
            stage.transcript()
        );
    });
}
