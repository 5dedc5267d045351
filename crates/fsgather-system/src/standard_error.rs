//! Lines on standard error, for which nobody waits long: [`StandardError`].

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Mutex,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// How long a line may take to be taken.
const PATIENCE: Duration = Duration::from_millis(200);

/// A pipe that can be written to takes so much at once (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Whether the last line was not taken whole; only one thread writes at a time.
static IS_FULL: Mutex<bool> = Mutex::new(false);

/// Standard error for what is said beside the work: a line that it does not take within 0.2 s is lost, and as long as it takes none
/// others are lost at once.
///
/// A pipe that nobody reads, a terminal that was told to pause and a collector of logs that hangs keep who writes to them waiting for
/// ever, and whoever warns is a rank for which others wait. The lock of the standard library is not taken: a program may hold it for long.
///
/// ```
/// use std::io::Write;
///
/// fsgather_system::StandardError.write_all(b"rank 2 is still waited for\n")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardError;

impl io::Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut is_full = crate::lock(&IS_FULL);
        let patience = if *is_full { Duration::ZERO } else { PATIENCE };
        *is_full = !is_taken(io::stderr().as_fd(), bytes, patience);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to a file, and waits so long at most; whether it has taken all.
fn is_taken(file: BorrowedFd<'_>, mut bytes: &[u8], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while !bytes.is_empty() {
        if !is_writable(file, deadline) {
            return false;
        }
        match rustix::io::write(file, &bytes[..bytes.len().min(AT_ONCE)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR | Errno::AGAIN) if Instant::now() < deadline => {}
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
    use std::io::{Read, pipe};

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
        assert!(taken > AT_ONCE);
        // No more is taken, however often, nor of a line that is longer than all that fits.
        assert!(!is_taken(writer.as_fd(), &line, Duration::from_millis(20)));
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert!(!is_taken(
            writer.as_fd(),
            &vec![b'y'; 1 << 20],
            Duration::ZERO
        ));
        // Once somebody reads, it is.
        let mut read = vec![0; taken];
        reader.read_exact(&mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == b'x'));
        assert!(is_taken(writer.as_fd(), &line, Duration::ZERO));
    }

    #[test]
    fn a_line_that_does_not_fit_at_once_is_whole_where_somebody_reads() {
        let (mut reader, writer) = pipe().unwrap();
        let text: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        assert!(is_taken(writer.as_fd(), &text, Duration::from_mins(1)));
        drop(writer);
        assert_eq!(reading.join().unwrap(), text);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_reason_to_wait() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        assert!(!is_taken(writer.as_fd(), b"x", Duration::from_mins(1)));
    }
}
