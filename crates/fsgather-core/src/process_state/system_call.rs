//! The system call in which a thread waits, and its object: [`SystemCall`].
//!
//! Facts that all threads share are read from the own thread: those of the process are those of its main thread, and
//! disappear when that ends. No call uses the file in which a thread hangs, because that call could hang as well. The
//! name of the file is the kernel's own.

use std::{fs, io::IoSliceMut};

use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::gettid,
};
use syscalls::Sysno;

/// Maximum length of a path in a call's arguments, in bytes: that of the kernel.
const LONGEST_PATH: usize = 4096;

/// A system call in which a thread waits.
pub(super) struct SystemCall {
    name: Sysno,
    arguments: Vec<u64>,
}

impl SystemCall {
    /// Reads `/proc/PID/task/TID/syscall`: the number, six arguments, stack pointer, address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        let number = fields.next()?.parse::<usize>().ok()?;
        let argument = |field: &str| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok();
        Some(Self {
            name: Sysno::new(number)?,
            arguments: fields.take(6).map_while(argument).collect(),
        })
    }

    /// Returns the kernel's name of the call.
    pub(super) fn name(&self) -> &'static str {
        self.name.name()
    }

    /// Returns the file or address that the call is about.
    pub(super) fn object(&self) -> Option<String> {
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

/// Returns the file behind a descriptor, or both ends of a connection.
fn descriptor(number: u64) -> Option<String> {
    let number = u32::try_from(number).ok()?;
    let name = fs::read_link(format!("/proc/thread-self/fd/{number}")).ok()?;
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

/// Returns the other end of a TCP connection, or the address of a listener, by the inode of its socket.
fn connection(inode: &str) -> Option<String> {
    ["tcp", "tcp6"].iter().find_map(|protocol| {
        let table = fs::read_to_string(format!("/proc/thread-self/net/{protocol}")).ok()?;
        let mut lines = table.lines().skip(1);
        lines.find_map(|line| ends(protocol, inode, line))
    })
}

/// Returns the ends of a socket from a line of the kernel's table, if the line is about this socket.
fn ends(protocol: &str, inode: &str, line: &str) -> Option<String> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (own, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    if fields.nth(5) != Some(inode) {
        return None;
    }
    if state == LISTENS {
        return Some(format!("{protocol} listening on {}", address(own)?));
    }
    // A socket that is not connected has no other end.
    (!remote.ends_with(":0000")).then_some(())?;
    Some(format!("{protocol} {}", address(remote)?))
}

/// Returns an address of the kernel's tables: words of hexadecimal digits in the host's order, and a port.
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

/// Returns the path that begins at an address. The kernel reads it, so an invalid address is an error.
fn path_at(at: u64) -> Option<String> {
    let mut path = Vec::new();
    while path.len() < LONGEST_PATH {
        // Only up to the end of a page: the next one may not be there.
        let base = usize::try_from(at).ok()? + path.len();
        let mut part = vec![0; 64 - base % 64];
        let len = part.len();
        let remote = [RemoteIoVec { base, len }];
        // The main thread may have ended, and then its number leads to no memory.
        let read = process_vm_readv(gettid(), &mut [IoSliceMut::new(&mut part)], &remote).ok()?;
        (read == len).then_some(())?;
        let end = part.iter().position(|byte| *byte == 0);
        path.extend_from_slice(&part[..end.unwrap_or(part.len())]);
        if end.is_some() {
            return (!path.is_empty()).then(|| String::from_utf8_lossy(&path).into_owned());
        }
    }
    Some(format!("{}…", String::from_utf8_lossy(&path)))
}

#[cfg(test)]
#[path = "system_call_tests.rs"]
mod tests;
