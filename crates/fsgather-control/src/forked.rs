//! Sockets that forked children must not hold: [`keep_from_children`].
//!
//! A child that was forked and runs no other program, such as a worker that loads data, has a copy of every descriptor. Its
//! copies keep connections open when the process that speaks over them has died, and hide that from the other side. So in
//! every forked child each of our sockets is replaced, under its number, by one that is connected to nothing: objects of
//! this library that the child has inherited can be dropped there as ever, and close that.
//!
//! Children that run another program need nothing of this: our descriptors are closed by `exec`.
//!
//! # Why this is sound
//!
//! [`in_child`] runs in a process that has a single thread, while others may have held locks when it was made. It takes
//! none, allocates nothing, and calls only the kernel. Numbers are noted when a socket is made and not when it is closed;
//! so a number may belong to something else by now, or to nothing. The kernel is asked first, and the descriptor is
//! replaced only if it still is the socket that was noted, by the inode, of which no two sockets have the same at a time.
//! The owner of the number in the child's memory still owns one open descriptor.
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
    io::{DupFlags, dup3, fcntl_dupfd_cloexec},
    net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socket_with},
};

/// Descriptors from this number on are not noted; the usual limits are below it.
const MAX_DESCRIPTOR: usize = 1 << 16;

/// The inode of the socket that was last made with this descriptor number; 0 for none.
static SOCKETS: [AtomicU64; MAX_DESCRIPTOR] = [const { AtomicU64::new(0) }; MAX_DESCRIPTOR];

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

/// Ends the connections of this library that are still open, so that the other ranks see at once that this process has lost
/// the runtime for them.
pub(crate) fn end_connections() {
    let end = END.load(Ordering::Acquire);
    for (number, noted) in (0..).zip(SOCKETS.iter().take(end)) {
        let inode = noted.load(Ordering::Acquire);
        // SAFETY: used for one call of the kernel, which says so if the number is not open.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        // Another thread may give the number to another file at any time, but not the copy.
        if inode != 0
            && let Ok(copy) = fcntl_dupfd_cloexec(socket, 0)
            && is_socket(copy.as_raw_fd(), inode)
        {
            let _ = shutdown(&copy, Shutdown::Both);
        }
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
        // SAFETY: the number is open, which was seen a moment ago in a process with one thread. It is not closed here, but
        // by its owner.
        let mut replaced = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        let _ = dup3(nothing, &mut replaced, DupFlags::CLOEXEC);
    }
}

/// Returns true if a number is open and is the socket with this inode.
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
        mem,
        net::{TcpListener, TcpStream},
        process::Command,
    };

    use fsgather_core::{BackgroundThreads, Interrupt};
    use fsgather_testkit::{
        pace::{patience, within_patience},
        process,
    };
    use tokio::runtime::Builder;

    use crate::tcp::runtime::CallerRuntime;
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

    /// Runs the test of this name in a process of its own.
    fn alone(name: &str, test: impl FnOnce()) {
        let exact = "--exact";
        if std::env::args().any(|argument| argument == exact) {
            return test();
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args([exact, &format!("forked::tests::{name}")]);
        let ended = process::output(&mut again).unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    #[test]
    fn calls_fail_after_the_program_has_closed_all_descriptors() {
        alone(
            "calls_fail_after_the_program_has_closed_all_descriptors",
            || {
                let interrupt = Interrupt::default();
                let threads = BackgroundThreads::new(interrupt.clone());
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                let runtime = CallerRuntime::new(runtime, "test".into(), &threads).unwrap();
                let (ours, theirs) = connected();
                keep_from_children(&ours);
                let (began, begins) = std::sync::mpsc::channel();
                runtime.spawn(async move { began.send(()).unwrap() });
                begins.recv_timeout(patience()).unwrap();
                mem::forget((ours, theirs));
                // SAFETY: the numbers are used by the runtime alone, which is what this test is about.
                unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
                within_patience(move || {
                    let failure = runtime.run(std::future::pending::<()>()).unwrap_err();
                    assert!(failure.to_string().contains("its thread test"), "{failure}");
                    runtime.run_at_once(|| ()).unwrap_err();
                    drop(runtime);
                });
                assert!(interrupt.reason().is_some());
            },
        );
    }

    #[test]
    fn a_forked_child_holds_no_connection_open() {
        let (ours, mut theirs) = connected();
        let (kept, mut other) = connected();
        let (told, tell) = std::io::pipe().unwrap();
        keep_from_children(&ours);
        // A file that has taken a number that was noted before is left alone.
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
