//! Mapping files and memory: [`Mapping`], the one owner of `mmap`, and of the crate's only `unsafe`.
#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe in itself: what others do to the file shows in the mapping"
)]

use std::{
    fs::File,
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rustix::mm::MprotectFlags;

use crate::os::filesystem::FileSystem;

/// A whole file, mapped for reading, private to this process.
#[derive(Debug)]
pub(crate) struct Mapping(Mmap);

impl Mapping {
    /// Maps the first `len` bytes of a file.
    ///
    /// Returns `None` if the file system of the file does not allow safe mapping, or if the file is shorter.
    pub(crate) fn of(file: &File, len: u64) -> io::Result<Option<Self>> {
        let Ok(size) = usize::try_from(len) else {
            return Ok(None);
        };
        if !FileSystem::of_open(file)?.is_mappable() || file.metadata()?.len() < len {
            return Ok(None);
        }
        let mut options = MmapOptions::new();
        options.len(size);
        // SAFETY: mapping a file is unsafe because the mapped bytes may change or vanish while a
        // reference to them exists. They do neither here:
        // - The file lies on one of the local file systems of an allow-list (checked above, on the
        //   descriptor that is mapped): no other host can truncate or remove it, and removing its name on
        //   this host keeps the data for as long as the mapping lives.
        // - It is at least `len` bytes long (checked above), and no file of the store is ever truncated
        //   or written again after it has been published; spill files have no name and one user; the
        //   documentation of `Payload::map_file` requires callers to leave their own files alone. No file
        //   of the store is writable for any user except its owner, in directories of any mode.
        //   Other processes of the same user could still do so on purpose; the documented trust boundary
        //   includes them.
        // - The mapping is private, so that nothing is written through it, also once it is writable.
        let map = unsafe { options.map_copy_read_only(file) }?;
        Ok(Some(Self(map)))
    }

    /// Reads the pages of a part with one call instead of one fault each. Only a hint.
    pub(crate) fn populate(&self, start: usize, len: usize) {
        if self
            .0
            .advise_range(Advice::PopulateRead, start, len)
            .is_err()
        {
            tracing::trace!("this kernel does not populate mappings on request");
        }
    }

    /// Makes the mapping writable without an effect on the file: it is private, so the system copies a page when it is written
    /// to. Returns the unchanged mapping if that fails, for example for lack of memory that such copies might need.
    pub(crate) fn into_writable(self) -> Result<WritableMapping, Self> {
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // Not by `Mmap::make_mut`, which drops the mapping if that fails.
        // SAFETY: the range is exactly this mapping, which is owned here and lives on in the result; no other code relies on a
        // private mapping being read-only.
        let protected =
            unsafe { rustix::mm::mprotect(self.0.as_ptr().cast_mut().cast(), self.0.len(), flags) };
        match protected {
            Ok(()) => Ok(WritableMapping(self.0)),
            Err(errno) => {
                tracing::debug!(%errno, "a mapping cannot be made writable");
                Err(self)
            }
        }
    }
}

/// A whole file, mapped privately. It may be written to without changing the file.
#[derive(Debug)]
pub(crate) struct WritableMapping(Mmap);

impl Deref for WritableMapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for WritableMapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the pointer is that of a mapping of this length, which only `Mapping::into_writable` has
        // put here after having made it writable; it is private, so that no other mapping shows a write, and
        // owned by this value alone, so that no other reference into it exists while this one does.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast_mut(), self.0.len()) }
    }
}

/// Maps memory for `len` bytes, which is allocated only when it is written to. It holds zeros.
pub(crate) fn room(len: u64) -> io::Result<MmapMut> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let room = MmapMut::map_anon(len)?;
    // On a kernel without huge pages, the pages are small.
    let _ = room.advise(Advice::HugePage);
    Ok(room)
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    /// A file in memory, since the temporary directory may be on a file system whose files are not mapped.
    pub(crate) fn mappable_file() -> File {
        tempfile::tempfile_in("/dev/shm").unwrap()
    }

    #[test]
    fn a_mapping_shows_the_file_and_outlives_its_name() {
        let mut file = mappable_file();
        file.write_all(b"abcdef").unwrap();
        let mapping = Mapping::of(&file, 5).unwrap().unwrap();
        drop(file);
        mapping.populate(0, 5);
        assert_eq!(&*mapping, b"abcde");
    }

    #[test]
    fn nothing_is_mapped_past_the_end() {
        let file = tempfile::tempfile().unwrap();
        assert!(Mapping::of(&file, 1).unwrap().is_none());
    }

    #[test]
    fn room_is_empty_and_too_much_of_it_is_an_error() {
        let mut room = room(5000).unwrap();
        assert!(room.iter().all(|&byte| byte == 0) && room.len() == 5000);
        room[4999] = 1;
        assert!(super::room(u64::MAX / 2).is_err());
        assert!(super::room(u64::MAX).is_err());
    }

    #[test]
    fn pseudo_file_systems_are_not_mapped() {
        let file = File::open("/proc/self/stat").unwrap();
        assert!(Mapping::of(&file, 0).unwrap().is_none());
    }
}
