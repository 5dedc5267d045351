//! The allocation of memory for whole payloads: [`room_for`], the one owner of `madvise`.

#![expect(
    unsafe_code,
    reason = "no library gives advice about memory of a vector without it"
)]

use rustix::mm::{Advice, madvise};

/// Size of a huge page, at least where programs ask for one, in bytes; a multiple of each size of small pages.
const HUGE: usize = 2 << 20;

/// Returns an empty vector with room for `len` bytes; `None` if there is no memory for them.
///
/// Memory is used only when it is written to. Large vectors use huge pages if the system has them: making and mapping
/// small pages costs several times as much as filling them.
///
/// ```
/// let mut payload = fsgather_core::room_for(8 << 20).expect("8 MiB are there");
/// assert!(payload.is_empty() && payload.capacity() >= 8 << 20);
/// payload.extend_from_slice(b"boxes and masks");
/// assert!(fsgather_core::room_for(u64::MAX).is_none());
/// ```
#[must_use]
pub fn room_for(len: u64) -> Option<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(usize::try_from(len).ok()?).ok()?;
    let spare = bytes.spare_capacity_mut();
    let before = spare.as_ptr().align_offset(HUGE);
    let whole = spare.len().saturating_sub(before) / HUGE * HUGE;
    if whole > 0 {
        let start = spare[before..].as_mut_ptr();
        // SAFETY: `start` and the `whole` bytes after it lie in the room that this vector has just been given, aligned to
        // huge pages and so to small ones. The advice changes neither what memory holds nor who may use it; what the
        // allocator gives to others later is advised likewise, which only makes it faster or larger by a page.
        let advised = unsafe { madvise(start.cast(), whole, Advice::LinuxHugepage) };
        // A kernel without huge pages: then they are small.
        let _ = advised;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_of_any_size_is_there_and_holds_what_is_written() {
        for len in [0, 1, 4096, HUGE - 1, HUGE, 3 * HUGE + 5, 16 * HUGE] {
            let mut bytes = room_for(len as u64).unwrap();
            assert!(bytes.is_empty() && bytes.capacity() >= len);
            let address = bytes.as_ptr();
            bytes.resize(len, 7);
            assert_eq!(bytes.as_ptr(), address, "it was large enough");
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn too_much_is_none() {
        assert_eq!(room_for(u64::MAX), None);
        assert_eq!(room_for(1 << 60), None);
    }
}
