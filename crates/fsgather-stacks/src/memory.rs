//! Memory of this process, read as if it were another's: [`Memory`].

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::unix::fs::FileExt,
};

use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::gettid,
};

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
///
/// What is a part of a file may have to be fetched from a server that hangs. By the system call for this the thread that reads waits
/// alone. Through `/proc` it keeps the list of mappings meanwhile, so that no thread of the process can map memory or end: that is for
/// where the call is forbidden, and for nothing that is known to lie in files.
#[derive(Debug)]
pub struct OwnMemory(Way);

#[derive(Debug)]
enum Way {
    Call,
    File(File),
}

impl OwnMemory {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// Where the call is forbidden, and there is no `/proc`, or it is closed even to the process itself.
    pub fn open() -> io::Result<Self> {
        let there = [1];
        let is_allowed = by_call(std::ptr::from_ref(&there).addr(), &mut [0]).is_ok();
        Ok(Self(if is_allowed {
            Way::Call
        } else {
            // That of the process is its main thread's, and gone where that has ended.
            Way::File(File::open("/proc/thread-self/mem")?)
        }))
    }

    /// Whether a thread that reads what a server has to fetch keeps no other one from its work.
    #[must_use]
    pub const fn waits_alone(&self) -> bool {
        matches!(self.0, Way::Call)
    }
}

impl Memory for OwnMemory {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.0 {
            Way::Call => {
                let at = usize::try_from(at).map_err(io::Error::other)?;
                by_call(at, into)
            }
            Way::File(file) => file.read_exact_at(into, at),
        }
    }
}

fn by_call(base: usize, into: &mut [u8]) -> io::Result<()> {
    let len = into.len();
    let read = process_vm_readv(
        // The main thread may have ended.
        gettid(),
        &mut [IoSliceMut::new(into)],
        &[RemoteIoVec { base, len }],
    )?;
    if read < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_an_error() {
        let of_proc = Way::File(File::open("/proc/thread-self/mem").unwrap());
        for memory in [OwnMemory::open().unwrap(), OwnMemory(of_proc)] {
            let number = Box::new(0x1234_5678_9abc_def0_u64);
            let at = std::ptr::from_ref(&*number).addr() as u64;
            assert_eq!(memory.word(at).unwrap(), *number);
            for nowhere in [0, 8, 0x10, u64::MAX, u64::MAX / 2, 1 << 62] {
                assert!(memory.word(nowhere).is_err(), "{nowhere:#x}");
            }
        }
    }
}
