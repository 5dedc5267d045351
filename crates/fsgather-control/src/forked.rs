//! Sockets that forked children must not hold: [`keep_from_children`].
//!
//! A child that was forked and runs no other program, such as a worker that loads data, has a copy of every
//! descriptor. Its copies keep connections open when the process that speaks over them has died, and hide that from
//! the other side. So in every forked child each of our sockets is replaced, under its number, by one that is
//! connected to nothing: what the child has inherited of this library can be dropped there as ever, and closes that.
//!
//! Children that run another program need nothing of this: our descriptors are closed by `exec`.
//!
//! # Why this is sound
//!
//! [`in_child`] runs in a process that has a single thread, while others may have held locks when it was made. It
//! takes none, allocates nothing, and calls the kernel alone. Numbers are noted when a socket is made and not when
//! it is closed; so a number may belong to something else by now, or to nothing. The kernel is asked first, and the
//! descriptor is replaced only if it still is the socket that was noted, by the inode, of which no two sockets have
//! the same at a time. Whoever owns the number in the child's memory goes on owning one open descriptor.
#![expect(
    unsafe_code,
    reason = "what is called by `fork`, and numbers without an owner; the argument is above"
)]

use std::{
    mem::ManuallyDrop,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::{
        Once,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{FileType, fstat},
    io::{DupFlags, dup3},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};

/// Descriptors from this number on are not noted; the usual limits are below it.
const MOST: usize = 1 << 16;

/// By the number of the descriptor: the inode of the socket that was made there last; 0 for none.
static SOCKETS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// All numbers that were noted are below this one.
static END: AtomicUsize = AtomicUsize::new(0);

/// Notes a socket, which children that are forked from now on do not get.
pub(crate) fn keep_from_children(socket: &impl AsFd) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: `in_child` may be called in any forked child; see above.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if refused != 0 {
            tracing::debug!(
                "forked children will hold our sockets: error {refused} of pthread_atfork"
            );
        }
    });
    let socket = socket.as_fd();
    let (Ok(number), Ok(status)) = (usize::try_from(socket.as_raw_fd()), fstat(socket)) else {
        return;
    };
    if let Some(noted) = SOCKETS.get(number) {
        noted.store(status.st_ino, Ordering::Release);
        END.fetch_max(number + 1, Ordering::AcqRel);
    }
}

/// Replaces all sockets that were noted, in a child that has just been forked.
extern "C" fn in_child() {
    let end = END.load(Ordering::Acquire);
    let mut nothing = None;
    for (number, noted) in (0..).zip(SOCKETS.iter().take(end)) {
        let inode = noted.load(Ordering::Acquire);
        if inode == 0 || !is_socket(number, inode) {
            continue;
        }
        if nothing.is_none() {
            nothing = connected_to_nothing();
        }
        let Some(nothing) = &nothing else {
            // No descriptor is left. It is as it would be without all this.
            return;
        };
        // SAFETY: the number is open, which was seen a moment ago in a process with one thread. It is not closed
        // here, but by whoever owns it.
        let mut replaced = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        let _ = dup3(nothing, &mut replaced, DupFlags::CLOEXEC);
    }
}

/// Whether a number is open and is the socket with this inode.
fn is_socket(number: RawFd, inode: u64) -> bool {
    // SAFETY: used for one question to the kernel, which says so if the number is not open.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    fstat(socket).is_ok_and(|status| {
        status.st_ino == inode && FileType::from_raw_mode(status.st_mode) == FileType::Socket
    })
}

fn connected_to_nothing() -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
    };

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn a_forked_child_draws_other_numbers_than_its_parent() {
        // A generator of the process's own would have its state by now.
        let _: [u8; 32] = crate::fresh();
        let (mut told, mut tell) = std::io::pipe().unwrap();
        // SAFETY: the child does nothing but draw a number, say it and end.
        let child = unsafe { libc::fork() };
        let own: [u8; 32] = crate::fresh();
        if child == 0 {
            let well = tell.write_all(&own).is_ok();
            // SAFETY: it ends this process.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        drop(tell);
        let mut its = Vec::new();
        told.read_to_end(&mut its).unwrap();
        let child = rustix::process::Pid::from_raw(child);
        waitpid(child, WaitOptions::empty()).unwrap();
        assert_eq!(its.len(), own.len());
        assert_ne!(its, own);
    }

    #[test]
    fn a_forked_child_holds_no_connection_open() {
        let (ours, mut theirs) = connected();
        let (kept, mut other) = connected();
        let (told, tell) = std::io::pipe().unwrap();
        keep_from_children(&ours);
        // What has come to a number that was noted before is left alone.
        let (noted, _) = connected();
        keep_from_children(&noted);
        let mut file = OwnedFd::from(noted);
        let opened = std::fs::File::open("/proc/self/stat").unwrap();
        dup3(&opened, &mut file, DupFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(file);
        // SAFETY: the child does nothing but wait for the end of a pipe, read a file and end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(tell);
            let _ = (&told).read(&mut [0]);
            let well = (&file).read(&mut [0]).is_ok() && kept.peer_addr().is_ok();
            // SAFETY: it ends this process.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        drop((ours, kept));
        theirs
            .set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the child holds it");
        other.set_nonblocking(true).unwrap();
        let open = other.read(&mut [0]).unwrap_err().kind();
        assert_eq!(open, ErrorKind::WouldBlock, "not ours to take away");
        drop(tell);
        let child = rustix::process::Pid::from_raw(child);
        let (_, status) = waitpid(child, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }
}
