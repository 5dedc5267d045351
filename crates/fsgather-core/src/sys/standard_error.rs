//! Lines on standard error with a short time-out: [`StandardError`].

use std::{
    io::{self, IsTerminal},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::Errno,
};

/// Maximum time for writing a line.
const PATIENCE: Duration = Duration::from_millis(200);

/// Number of bytes that a writable pipe takes at once (`PIPE_BUF`).
const ATOMIC_BYTES: usize = 4096;

/// Pause between two tries.
const A_MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// The turns of all threads of this process.
static TURNS: Turns = Turns::new();

/// Standard error for messages beside the work: a line that cannot be written within 0.2 s is lost. As long as standard
/// error accepts nothing, further lines are lost at once.
///
/// A pipe without a reader, a paused terminal and a hanging log collector block their writers forever, and other ranks
/// wait for the rank that warns. The lock of the standard library is not taken, because a program may hold it for long.
///
/// ```
/// use std::io::Write;
///
/// fsgather_core::sys::StandardError.write_all(b"rank 2 is still waited for\n")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardError;

impl io::Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(mut turn) = TURNS.take(PATIENCE * 2) {
            let patience = if turn.is_full {
                Duration::ZERO
            } else {
                PATIENCE
            };
            let stream = io::stderr();
            let terminal = stream.is_terminal().then(unhurried_terminal).flatten();
            let stream = terminal.as_ref().map_or(stream.as_fd(), AsFd::as_fd);
            turn.is_full = !is_taken(stream, bytes, patience);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the terminal of standard error once more so that no write to it blocks: a terminal that is ready for writing
/// may take less than a line, and block for the rest. Other writers to it are not affected.
fn unhurried_terminal() -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open("/proc/self/fd/2", flags, Mode::empty()).ok()
}

/// The right to write, for one thread at a time.
struct Turns {
    /// True if the last line was not written whole; `None` while a thread writes.
    is_full: Mutex<Option<bool>>,
    ended: Condvar,
}

/// A thread's turn to write, which ends when this is dropped.
struct Turn<'a> {
    turns: &'a Turns,
    is_full: bool,
}

impl Turns {
    const fn new() -> Self {
        Self {
            is_full: Mutex::new(Some(false)),
            ended: Condvar::new(),
        }
    }

    /// Returns this thread's turn, if it comes within this time. In a child that was forked while another thread wrote
    /// it never does.
    fn take(&self, patience: Duration) -> Option<Turn<'_>> {
        let is_taken = |is_full: &mut Option<bool>| is_full.is_none();
        let waited =
            self.ended
                .wait_timeout_while(crate::sys::lock(&self.is_full), patience, is_taken);
        let (mut is_full, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_full = is_full.take()?;
        Some(Turn {
            turns: self,
            is_full,
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *crate::sys::lock(&self.turns.is_full) = Some(self.is_full);
        self.turns.ended.notify_one();
    }
}

/// Writes to a file, for `patience` at most. Returns true if all bytes were written.
fn is_taken(file: BorrowedFd<'_>, mut bytes: &[u8], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while !bytes.is_empty() {
        if !is_writable(file, deadline) {
            return false;
        }
        match rustix::io::write(file, &bytes[..bytes.len().min(ATOMIC_BYTES)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) if Instant::now() < deadline => {}
            // It was ready for writing, but takes less than this.
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                let _ = poll(&mut [], Some(&A_MOMENT));
            }
            Err(_) => return false,
        }
    }
    true
}

fn is_writable(file: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(file, PollFlags::OUT)],
            Some(&left),
        ) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, pipe},
        thread,
    };

    use super::*;

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let (mut reader, writer) = pipe().unwrap();
        let line = [b'x'; 1000];
        let began = Instant::now();
        let mut taken = 0;
        while is_taken(writer.as_fd(), &line, Duration::ZERO) {
            taken += line.len();
        }
        assert!(taken > ATOMIC_BYTES);
        // No more is taken, however often, nor of a line that is longer than all that fits.
        assert!(!is_taken(writer.as_fd(), &line, Duration::from_millis(20)));
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert!(!is_taken(
            writer.as_fd(),
            &vec![b'y'; 1 << 20],
            Duration::ZERO
        ));
        // Writing succeeds again after a reader has read.
        let mut read = vec![0; taken];
        reader.read_exact(&mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == b'x'));
        assert!(is_taken(writer.as_fd(), &line, Duration::ZERO));
    }

    #[test]
    fn a_line_too_long_to_write_at_once_arrives_whole() {
        let (mut reader, writer) = pipe().unwrap();
        let text: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
        let reading = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        assert!(is_taken(writer.as_fd(), &text, Duration::from_secs(60)));
        drop(writer);
        assert_eq!(reading.join().unwrap(), text);
    }

    #[test]
    fn threads_take_turns_and_none_waits_for_one_that_never_comes() {
        let turns = Turns::new();
        let mut held = turns.take(Duration::ZERO).unwrap();
        assert!(turns.take(Duration::from_millis(5)).is_none());
        held.is_full = true;
        thread::scope(|scope| {
            let next = scope.spawn(|| turns.take(Duration::from_secs(60)).map(|next| next.is_full));
            drop(held);
            assert_eq!(next.join().unwrap(), Some(true));
        });
        assert!(turns.take(Duration::ZERO).is_some());
    }

    #[test]
    fn a_reader_that_is_gone_is_no_reason_to_wait() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        assert!(!is_taken(writer.as_fd(), b"x", Duration::from_secs(60)));
    }
}
