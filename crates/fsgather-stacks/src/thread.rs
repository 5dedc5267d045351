//! The states of threads, as `/proc` says: [`state_of_own`], [`state_of_process`].
//!
//! Nothing is asked about the file in which a thread hangs: that could hang as well. Its name is the kernel's own.

use std::{fs, io::Read, process};

use fsgather_core::ThreadState;
use syscalls::Sysno;

use crate::memory::{Memory, OwnMemory};

/// The longest path that is read of a call's arguments, in bytes.
const LONGEST_PATH: usize = 256;

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
                call: call.map(|call| call.name.name().to_owned()),
                is_deaf: letter == 'D',
            }
        }
    })
}

/// Where `/proc` tells of a thread of this process.
///
/// A `/proc` of another pid namespace, as in some containers, has other numbers; each tells the own one as its last.
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

/// The state of another process, by its main thread, if it can be seen; it has ended where its number is another one's now.
pub(crate) fn state_of_process(pid: u32, start_time: u64) -> Option<ThreadState> {
    let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
    if stat.start_time != start_time {
        return Some(ThreadState::Ended);
    }
    Some(match stat.state {
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

/// A system call that a thread waits in.
struct SystemCall {
    name: Sysno,
    arguments: Vec<u64>,
}

impl SystemCall {
    /// Reads `/proc/PID/task/TID/syscall`: the number, six arguments, stack pointer, address.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        let number = fields.next()?.parse::<usize>().ok()?;
        let argument = |field: &str| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok();
        Some(Self {
            name: Sysno::new(number)?,
            arguments: fields.take(6).map_while(argument).collect(),
        })
    }

    /// The file or address that the call is about.
    fn object(&self) -> Option<String> {
        let argument = |place: usize| self.arguments.get(place).copied();
        match self.name.name() {
            "read" | "write" | "pread64" | "pwrite64" | "readv" | "writev" | "preadv"
            | "pwritev" | "preadv2" | "pwritev2" | "fsync" | "fdatasync" | "sync_file_range"
            | "ftruncate" | "fallocate" | "fstat" | "fstatfs" | "ioctl" | "flock" | "fcntl"
            | "getdents64" | "recvfrom" | "recvmsg" | "sendto" | "sendmsg" | "accept"
            | "accept4" | "connect" | "close" | "lseek" | "syncfs" | "fchmod" | "fchown"
            | "fgetxattr" => descriptor(argument(0)?),
            "sendfile" | "splice" => descriptor(argument(1)?).or_else(|| descriptor(argument(0)?)),
            "open" | "stat" | "lstat" | "access" | "mkdir" | "rmdir" | "unlink" | "rename"
            | "statfs" | "truncate" | "readlink" | "execve" | "chdir" | "creat" | "chmod"
            | "link" | "symlink" | "getxattr" | "utimensat" => path_at(argument(0)?),
            "openat" | "openat2" | "newfstatat" | "statx" | "unlinkat" | "mkdirat"
            | "faccessat" | "faccessat2" | "readlinkat" | "renameat" | "renameat2"
            | "name_to_handle_at" => path_at(argument(1)?),
            "wait4" => Some(format!("process {}", i32::try_from(argument(0)?).ok()?)),
            "waitid" if argument(0)? == 1 => Some(format!("process {}", argument(1)?)),
            _ => None,
        }
    }
}

/// The file behind a descriptor, or both ends of a connection.
fn descriptor(number: u64) -> Option<String> {
    let number = u32::try_from(number).ok()?;
    let name = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let name = name.to_string_lossy();
    let socket = name
        .strip_prefix("socket:[")
        .and_then(|name| name.strip_suffix(']'));
    Some(match socket {
        Some(inode) => connection(inode).unwrap_or_else(|| "a socket".to_owned()),
        None if name.starts_with("pipe:") => "a pipe".to_owned(),
        None => name.into_owned(),
    })
}

/// Where a TCP connection leads, by the inode of its socket.
fn connection(inode: &str) -> Option<String> {
    ["tcp", "tcp6"].iter().find_map(|protocol| {
        let table = fs::read_to_string(format!("/proc/self/net/{protocol}")).ok()?;
        let is_it = |line: &&str| line.split_ascii_whitespace().nth(9) == Some(inode);
        let remote = table.lines().skip(1).find(is_it)?;
        let remote = remote.split_ascii_whitespace().nth(2)?;
        Some(format!("{protocol} {}", address(remote)?))
    })
}

/// An address as the kernel's tables have it: words of hexadecimal digits in the host's order, and a port.
fn address(text: &str) -> Option<String> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(host.get(at..at + 8)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..host.len() / 8)
        .map(|at| word(at * 8).map(u32::to_ne_bytes))
        .collect::<Option<Vec<[u8; 4]>>>()
        .map(|words| words.concat());
    let bytes = bytes?;
    let ip: std::net::IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    Some(std::net::SocketAddr::new(ip, port).to_string())
}

/// The path that begins at an address.
fn path_at(at: u64) -> Option<String> {
    let memory = OwnMemory::open().ok()?;
    let mut path = Vec::new();
    while path.len() < LONGEST_PATH {
        // Only up to the end of a page: the next one may not be there.
        let page_left = 64 - (at + path.len() as u64) % 64;
        let mut part = vec![0; usize::try_from(page_left).ok()?];
        memory.read(at + path.len() as u64, &mut part).ok()?;
        let end = part.iter().position(|byte| *byte == 0);
        path.extend_from_slice(&part[..end.unwrap_or(part.len())]);
        if end.is_some() {
            return (!path.is_empty()).then(|| String::from_utf8_lossy(&path).into_owned());
        }
    }
    Some(format!("{}…", String::from_utf8_lossy(&path)))
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
