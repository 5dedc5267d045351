//! Memory of this process, read as if it were another's: [`Memory`].

use std::{fs::File, io, os::unix::fs::FileExt};

/// Memory in which pointers may lead anywhere.
pub trait Memory {
    /// Fills `into` with what lies at an address.
    ///
    /// # Errors
    ///
    /// When not all of it is there.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// The bytes at an address.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn bytes<const LENGTH: usize>(&self, at: u64) -> io::Result<[u8; LENGTH]> {
        let mut bytes = [0; LENGTH];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The pointer at an address, or another number of its size.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn word(&self, at: u64) -> io::Result<u64> {
        self.bytes(at).map(u64::from_ne_bytes)
    }
}

/// This process's own memory, through the kernel.
#[derive(Debug)]
pub struct OwnMemory(File);

impl OwnMemory {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// Where there is no `/proc`, or it is closed even to the process itself.
    pub fn open() -> io::Result<Self> {
        // That of the process is its main thread's, and gone where that has ended.
        File::open("/proc/thread-self/mem").map(Self)
    }
}

impl Memory for OwnMemory {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_an_error() {
        let memory = OwnMemory::open().unwrap();
        let number = Box::new(0x1234_5678_9abc_def0_u64);
        let at = std::ptr::from_ref(&*number).addr() as u64;
        assert_eq!(memory.word(at).unwrap(), *number);
        for nowhere in [0, 8, 0x10, u64::MAX, u64::MAX / 2, 1 << 62] {
            assert!(memory.word(nowhere).is_err(), "{nowhere:#x}");
        }
    }
}
