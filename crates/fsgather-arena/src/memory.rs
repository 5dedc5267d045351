//! Mappings that several processes share: [`OwnMemory`], [`ForeignMemory`], [`Words`] and [`ForkWitness`], the one owner of
//! `memfd_create` and of this crate's `unsafe`, except for the hook of `forks`.
#![expect(
    unsafe_code,
    reason = "memory that other processes write to is reached through pointers"
)]

use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use fsgather_core::sys::limits;
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use rustix::{
    fs::{
        FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals,
        fcntl_get_seals, memfd_create, open,
    },
    io::Errno,
};

/// Makes an empty file in memory, without a name in any file system.
fn create(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know the flag.
        Err(Errno::INVAL) => memfd_create(name, flags),
        made => made,
    };
    Ok(File::from(made?))
}

/// Makes a nameless file in memory that cannot shrink. It is empty, and may grow to `most` bytes.
fn make(name: &str, most: u64) -> io::Result<File> {
    // Growing a file beyond the limit kills the process with a signal instead of returning an error.
    if limits::file_bytes().is_some_and(|limit| limit < most) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let file = create(name)?;
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    // No process can remove pages that others have mapped.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Returns an error unless a file of another process is sealed against shrinking.
fn check(file: &File) -> io::Result<()> {
    if fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Excludes a mapping from core files: a dump reads every page, and thereby allocates memory for mere addresses. The data is a
/// copy that the program has elsewhere too.
fn keep_out_of_cores(map: &MmapRaw) {
    if map.advise(Advice::DontDump).is_err() {
        tracing::debug!("core files will have the memory that ranks share");
    }
}

fn size(len: u64) -> io::Result<usize> {
    usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// The memory of the own arena. Only this process writes to it.
#[derive(Debug)]
pub(crate) struct OwnMemory {
    /// It grows as memory is taken up. The mapping beyond its end is mere addresses, so a program that locks all its memory, or
    /// a tool that reads it, allocates nothing there.
    file: File,
    map: MmapRaw,
    /// Length of the file.
    len: AtomicU64,
}

impl OwnMemory {
    /// Makes memory with `len` bytes of addresses, none of which is taken up.
    pub(crate) fn make(len: u64) -> io::Result<Self> {
        let file = make("fsgather payloads", len)?;
        let map = MmapOptions::new().len(size(len)?).map_raw(&file)?;
        keep_out_of_cores(&map);
        let len = AtomicU64::new(0);
        Ok(Self { file, map, len })
    }

    /// Returns a descriptor by which others can read the memory, but not write.
    pub(crate) fn for_reading(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Takes up memory for a part, so that a lack of memory is an error now instead of a signal later.
    pub(crate) fn reserve(&self, start: u64, len: u64) -> io::Result<()> {
        let end = start.saturating_add(len);
        if end > self.map.len() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        fallocate(&self.file, FallocateFlags::empty(), start, len)?;
        self.len.fetch_max(end, Ordering::Release);
        Ok(())
    }

    /// Gives the memory of a part back to the system. All processes read zeros there afterwards.
    pub(crate) fn give_back(&self, start: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, start, len)?)
    }

    /// Copies bytes to a part without readers. Returns `None`, and writes nothing, beyond the memory that was taken up. Only
    /// one thread at a time may write to a part.
    pub(crate) fn write(&self, start: u64, bytes: &[u8]) -> Option<()> {
        let range = range(start, bytes.len(), self.len.load(Ordering::Acquire))?;
        // SAFETY: the range lies in the file and in the mapping, which is at least as long (checked above, and when memory is
        // taken up); the mapping is writable and lives as long as `self`. `bytes` cannot overlap with it: no reference into a
        // slot exists while the slot is written to, because it is leased to readers only afterwards, and given to the next
        // payload only when all readers have let go of the one before.
        unsafe {
            let to = self.map.as_mut_ptr().add(range.start);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Some(())
    }

    /// Returns the bytes of a part, which must be leased to this process.
    pub(crate) fn bytes(&self, start: u64, len: usize) -> Option<&[u8]> {
        part(&self.map, start, len, self.len.load(Ordering::Acquire))
    }

    /// Returns a part without readers for writing, or `None` beyond the memory that was taken up. The caller must have the part
    /// to itself.
    #[expect(
        clippy::mut_from_ref,
        reason = "who has a part to himself is known to slots and fillings, not to the memory"
    )]
    pub(crate) fn room(&self, start: u64, len: usize) -> Option<&mut [u8]> {
        let range = range(start, len, self.len.load(Ordering::Acquire))?;
        // SAFETY: the range lies in the file and in the mapping (checked above); that is writable and lives as long as the
        // reference. No other reference into it exists: a slot is given to one payload at a time, whose one `Filling` reaches
        // the missing bytes through `&mut self` alone; other ranks learn of bytes only once they are there, and the filling
        // gives out no `&mut` to those any more.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(range.start), range.len())
        })
    }

    /// Maps a part for writing, privately to this process, while it is leased.
    pub(crate) fn private(&self, start: u64, len: usize) -> io::Result<MmapMut> {
        private(&self.file, start, len)
    }
}

/// The memory of another rank's arena.
#[derive(Debug)]
pub(crate) struct ForeignMemory {
    file: File,
    map: MmapRaw,
    /// Length of the file when it was last checked.
    len: AtomicU64,
}

impl ForeignMemory {
    /// Maps the memory behind a descriptor, which may grow to `most` bytes.
    pub(crate) fn map(descriptor: OwnedFd, most: u64) -> io::Result<Self> {
        let file = File::from(descriptor);
        check(&file)?;
        let map = MmapOptions::new()
            .len(size(most)?)
            .map_raw_read_only(&file)?;
        keep_out_of_cores(&map);
        let len = AtomicU64::new(0);
        Ok(Self { file, map, len })
    }

    /// Returns the bytes of a part, which must be leased to this process.
    pub(crate) fn bytes(&self, start: u64, len: usize) -> Option<&[u8]> {
        let end = start.saturating_add(len as u64);
        let mut there = self.len.load(Ordering::Acquire);
        if end > there {
            there = self.file.metadata().ok()?.len().min(self.map.len() as u64);
            self.len.fetch_max(there, Ordering::Release);
        }
        part(&self.map, start, len, there)
    }

    /// As [`OwnMemory::private`].
    pub(crate) fn private(&self, start: u64, len: usize) -> io::Result<MmapMut> {
        private(&self.file, start, len)
    }
}

/// Maps a part of an arena once more. Pages are copied when they are written to; the others are the arena's.
fn private(file: &File, start: u64, len: usize) -> io::Result<MmapMut> {
    if file.metadata()?.len() < start.saturating_add(len as u64) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the part lies in the file (checked above), which is sealed against getting shorter. The mapping is private, so
    // that nothing is written through it. Bytes that have not been written to are the arena's, which do not change while the
    // part is leased (see `part`); the caller holds the lease for as long as the mapping.
    let map = unsafe { MmapOptions::new().offset(start).len(len).map_copy(file) }?;
    if map.advise(Advice::PopulateRead).is_err() {
        tracing::trace!("this kernel does not populate mappings on request");
    }
    Ok(map)
}

/// Returns a part of a mapping. The file is at least as long as `there`, which does not exceed the mapping.
fn part(map: &MmapRaw, start: u64, len: usize, there: u64) -> Option<&[u8]> {
    let range = range(start, len, there)?;
    // SAFETY: the range lies in the file and in the mapping (checked above), which lives as long as the reference. The file is
    // sealed against getting shorter, so that none of its pages can vanish. Bytes of a leased slot do not change: their owner
    // writes to a slot only while no rank has a lease, and gives back memory only of such slots; no other process has a
    // writable descriptor. Other processes of the same user could still do so on purpose, or an owner that breaks these rules;
    // the documented trust boundary includes them, as it does for mapped files.
    Some(unsafe { std::slice::from_raw_parts(map.as_mut_ptr().add(range.start), len) })
}

fn range(start: u64, len: usize, total: u64) -> Option<Range<usize>> {
    let (start, total) = (usize::try_from(start).ok()?, usize::try_from(total).ok()?);
    let end = start.checked_add(len)?;
    (end <= total).then_some(start..end)
}

/// Words that several processes read and write.
#[derive(Debug)]
pub struct Words(MmapRaw);

impl Words {
    /// Maps `count` words of a named file, which this process has made for writing, on a file system of its host. The words
    /// stay when the process ends, however it ends.
    ///
    /// The space is allocated now, so that a lack of space is an error here. Only this user can cut the file short; a process
    /// whose file was cut short on purpose is killed by a signal.
    ///
    /// # Errors
    ///
    /// If there is no space, or the file system does not support allocation.
    pub fn in_file(file: &File, count: usize) -> io::Result<Self> {
        let len = byte_len(count)?;
        fallocate(file, FallocateFlags::empty(), 0, len)?;
        Ok(Self(MmapOptions::new().len(size(len)?).map_raw(file)?))
    }

    /// Makes `count` words, all zero, and returns them with the descriptor by which other processes map them.
    pub(crate) fn make(count: usize) -> io::Result<(Self, File)> {
        let len = byte_len(count)?;
        let file = make("fsgather ledger", len)?;
        fallocate(&file, FallocateFlags::empty(), 0, len)?;
        let map = MmapOptions::new().len(size(len)?).map_raw(&file)?;
        keep_out_of_cores(&map);
        Ok((Self(map), file))
    }

    /// Maps the words behind a descriptor.
    pub(crate) fn map(descriptor: OwnedFd, count: usize) -> io::Result<Self> {
        let file = File::from(descriptor);
        let len = byte_len(count)?;
        check(&file)?;
        if file.metadata()?.len() < len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let map = MmapOptions::new()
            .len(size(len)?)
            .map_raw(file.as_fd().as_raw_fd())?;
        keep_out_of_cores(&map);
        Ok(Self(map))
    }

    /// Stores consecutive words, in an unspecified order. Returns `None`, and stores nothing, beyond the end.
    #[must_use = "nothing is there where there is no room"]
    pub fn store(&self, first: usize, values: &[u64]) -> Option<()> {
        for (word, value) in self.several(first, values.len())?.iter().zip(values) {
            word.store(*value, Ordering::Relaxed);
        }
        Some(())
    }

    /// Returns a word, if the index is not beyond the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&AtomicU64> {
        self.several(index, 1)?.first()
    }

    /// Returns `count` words from the word `first` on, if there are as many.
    fn several(&self, first: usize, count: usize) -> Option<&[AtomicU64]> {
        let start = first.checked_mul(size_of::<u64>())?;
        let len = count.checked_mul(size_of::<u64>())?;
        range(start as u64, len, self.0.len() as u64)?;
        // SAFETY: the words lie in the mapping (checked above), which is writable, lives as long as the reference and cannot
        // lose pages (those of a named file this user alone could take away, which is a signal and no wrong memory); mappings
        // begin at a page, so that each word is aligned. All processes reach them as atomics alone.
        Some(unsafe { std::slice::from_raw_parts(self.0.as_mut_ptr().add(start).cast(), count) })
    }
}

/// A mapping that forked children inherit. They keep it until they end or run another program, whichever descriptors they
/// close. Nothing is ever stored there.
#[derive(Debug)]
pub(crate) struct ForkWitness {
    file: File,
    /// The mapping of this process, until children must no longer inherit it.
    map: Option<MmapRaw>,
}

impl ForkWitness {
    /// Maps a new one.
    pub(crate) fn make() -> io::Result<Self> {
        let file = create("fsgather forks")?;
        let map = Some(MmapOptions::new().len(1).map_raw(&file)?);
        Ok(Self { file, map })
    }

    /// Removes the mapping of this process. Children that are forked from now on do not inherit it.
    pub(crate) fn retire(&mut self) {
        self.map = None;
    }

    /// Returns true if no process has the mapping any more.
    pub(crate) fn is_unmapped(&self) -> bool {
        // The kernel refuses this seal while any process could write to the file through a mapping.
        fcntl_add_seals(&self.file, SealFlags::WRITE).is_ok()
    }
}

fn byte_len(count: usize) -> io::Result<u64> {
    let len = count
        .checked_mul(size_of::<u64>())
        .ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(len as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads_in_place() {
        let own = OwnMemory::make(1 << 20).unwrap();
        let foreign = ForeignMemory::map(own.for_reading().unwrap(), 1 << 20).unwrap();
        own.reserve(4096, 8192).unwrap();
        own.write(4100, b"boxes").unwrap();
        assert_eq!(foreign.bytes(4100, 5), Some(&b"boxes"[..]));
        own.give_back(4096, 8192).unwrap();
        assert_eq!(foreign.bytes(4100, 5), Some(&[0; 5][..]));
    }

    #[test]
    fn nothing_is_reached_beyond_the_end() {
        let own = OwnMemory::make(4096).unwrap();
        own.reserve(0, 4096).unwrap();
        assert_eq!(own.write(4090, b"masks and"), None);
        assert_eq!(own.bytes(4096, 1), None);
        assert_eq!(own.bytes(u64::MAX, 1), None);
        assert_eq!(own.bytes(4096, 0), Some(&[][..]));
        let (words, _) = Words::make(2).unwrap();
        assert!(words.get(511).is_some_and(|_| false) || words.get(usize::MAX).is_none());
    }

    #[test]
    fn others_can_neither_write_nor_cut_it_short() {
        let own = OwnMemory::make(1 << 16).unwrap();
        own.reserve(0, 1 << 16).unwrap();
        let reading = File::from(own.for_reading().unwrap());
        reading.set_len(0).unwrap_err();
        reading.set_len(1 << 17).unwrap_err();
        MmapOptions::new().map_raw(&reading).unwrap_err();
        own.file.set_len(0).unwrap_err();
        own.reserve(1 << 16, 4096).unwrap_err();
    }

    #[test]
    fn what_is_not_taken_up_is_beyond_the_end_for_all() {
        let own = OwnMemory::make(1 << 20).unwrap();
        let foreign = ForeignMemory::map(own.for_reading().unwrap(), 1 << 20).unwrap();
        assert_eq!((own.bytes(0, 1), foreign.bytes(0, 1)), (None, None));
        own.reserve(0, 8192).unwrap();
        assert_eq!(foreign.bytes(0, 8192), Some(&[0; 8192][..]));
        assert_eq!((own.bytes(8192, 1), foreign.bytes(8192, 1)), (None, None));
        assert_eq!(own.file.metadata().unwrap().len(), 8192);
    }

    /// The flags that the kernel shows of the mapping that begins at an address.
    fn flags(map: &MmapRaw) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begins = format!("{:x}-", map.as_ptr() as usize);
        let mut own = maps.lines().skip_while(|line| !line.starts_with(&begins));
        let flags = own.find(|line| line.starts_with("VmFlags:"));
        flags.unwrap().to_owned()
    }

    #[test]
    fn no_core_file_has_it() {
        let own = OwnMemory::make(1 << 20).unwrap();
        let foreign = ForeignMemory::map(own.for_reading().unwrap(), 1 << 20).unwrap();
        let (words, file) = Words::make(100).unwrap();
        let theirs = Words::map(file.into(), 100).unwrap();
        for map in [&own.map, &foreign.map, &words.0, &theirs.0] {
            let flags = flags(map);
            assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
        }
    }

    #[test]
    fn a_truncatable_file_or_too_few_words_are_refused() {
        let plain = tempfile_in_memory();
        ForeignMemory::map(plain.into(), 16).unwrap_err();
        let (_, file) = Words::make(100).unwrap();
        Words::map(file.into(), 1000).unwrap_err();
    }

    fn tempfile_in_memory() -> File {
        let file = File::from(memfd_create("a test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(4096).unwrap();
        file
    }

    #[test]
    fn words_are_the_same_for_all() {
        let (words, file) = Words::make(100).unwrap();
        let theirs = Words::map(file.into(), 100).unwrap();
        theirs.get(99).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(words.get(99).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(words.store(98, &[5, 6]), Some(()));
        assert_eq!(theirs.get(99).unwrap().load(Ordering::Relaxed), 6);
        assert_eq!(words.store(511, &[5, 6]), None);
        assert_eq!(words.store(usize::MAX, &[]), None);
    }
}
