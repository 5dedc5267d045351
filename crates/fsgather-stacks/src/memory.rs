//! Memory of this process, read as if it were another's: [`Memory`].

use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
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

/// What is protected or mapped is so in pieces no smaller than this.
const PAGE: usize = 4096;

/// Memory of which each page is read once: for what lies close together, and is many times as much as one word.
#[derive(Debug)]
pub(crate) struct Pages<'memory, M> {
    memory: &'memory M,
    known: RefCell<BTreeMap<u64, Box<[u8; PAGE]>>>,
}

impl<'memory, M: Memory> Pages<'memory, M> {
    pub(crate) const fn of(memory: &'memory M) -> Self {
        let known = RefCell::new(BTreeMap::new());
        Self { memory, known }
    }
}

impl<M: Memory> Memory for Pages<'_, M> {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut known = self.known.borrow_mut();
        let mut done = 0;
        while done < into.len() {
            let place = at.checked_add(done as u64);
            let place = place.ok_or(io::ErrorKind::UnexpectedEof)?;
            let within = usize::try_from(place % PAGE as u64).map_err(io::Error::other)?;
            let start = place - within as u64;
            if let Entry::Vacant(free) = known.entry(start) {
                let mut page = Box::new([0; PAGE]);
                self.memory.read(start, page.as_mut_slice())?;
                free.insert(page);
            }
            let page = &known[&start];
            let count = (PAGE - within).min(into.len() - done);
            into[done..done + count].copy_from_slice(&page[within..within + count]);
            done += count;
        }
        Ok(())
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
    fn pages_have_what_memory_has_also_across_their_ends_and_are_read_once() {
        let memory = OwnMemory::open().unwrap();
        let mut bytes: Vec<u8> = (0..251).cycle().take(3 * PAGE).collect();
        let pages = Pages::of(&memory);
        let start = bytes.as_ptr().addr();
        let first = start.next_multiple_of(PAGE) - start;
        for (from, length) in [(first, 8), (first + PAGE - 3, 8), (first, PAGE + 10)] {
            let mut found = vec![0; length];
            pages.read((start + from) as u64, &mut found).unwrap();
            assert_eq!(found, bytes[from..from + length]);
        }
        let before = pages.word((start + first) as u64).unwrap();
        bytes[first] ^= 255;
        std::hint::black_box(&bytes);
        assert_eq!(pages.word((start + first) as u64).unwrap(), before);
        assert_ne!(
            Pages::of(&memory).word((start + first) as u64).unwrap(),
            before
        );
        for nowhere in [0, 8, u64::MAX, u64::MAX - 7, 1 << 62] {
            assert!(pages.word(nowhere).is_err(), "{nowhere:#x}");
        }
    }

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
