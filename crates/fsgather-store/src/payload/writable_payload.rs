//! A payload that may be written to: [`WritablePayload`].

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use bytes::BytesMut;
use fsgather_core::room_for;
use memmap2::MmapMut;

use crate::payload::{
    format::CHUNK_LEN,
    map::{self, WritableMapping},
};

/// One rank's payload in private memory that may be written to.
///
/// [`Payload::into_writable`](crate::Payload::into_writable) returns it. Writes are visible nowhere else: neither in the
/// payload's file nor in other clones of the payload. The bytes stay at one address while this lives, even if it is moved.
///
/// ```
/// # use fsgather_store as fsgather;
/// use fsgather::Payload;
///
/// let mut own = Payload::from(vec![1, 2, 3]).into_writable();
/// own[0] = 9;
/// assert_eq!(*own, [9, 2, 3]);
/// ```
pub struct WritablePayload {
    memory: WritableMemory,
}

/// Owner of the bytes.
pub(crate) enum WritableMemory {
    /// A part of a private mapping of a file, whose pages are copied when they are written to.
    Mapped {
        mapping: WritableMapping,
        start: usize,
        len: usize,
    },
    /// Memory from the system.
    Room(MmapMut),
    /// Memory from the allocator.
    Held(BytesMut),
    /// Memory that another owner has made for this.
    Lent(Box<dyn DerefMut<Target = [u8]> + Send + Sync>),
}

impl WritablePayload {
    pub(crate) const fn new(memory: WritableMemory) -> Self {
        Self { memory }
    }

    /// Copies these bytes; returns `None` if there is not enough memory.
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Self> {
        let memory = if bytes.len() < CHUNK_LEN {
            let mut copy = room_for(bytes.len() as u64)?;
            copy.extend_from_slice(bytes);
            WritableMemory::Held(BytesMut::from(bytes::Bytes::from(copy)))
        } else {
            let mut room = map::room(bytes.len() as u64).ok()?;
            room.copy_from_slice(bytes);
            WritableMemory::Room(room)
        };
        Some(Self { memory })
    }
}

impl Deref for WritablePayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            WritableMemory::Mapped {
                mapping,
                start,
                len,
            } => &mapping[*start..*start + *len],
            WritableMemory::Room(room) => room,
            WritableMemory::Held(bytes) => bytes,
            WritableMemory::Lent(bytes) => bytes,
        }
    }
}

impl DerefMut for WritablePayload {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            WritableMemory::Mapped {
                mapping,
                start,
                len,
            } => &mut mapping[*start..*start + *len],
            WritableMemory::Room(room) => room,
            WritableMemory::Held(bytes) => bytes,
            WritableMemory::Lent(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for WritablePayload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for WritablePayload {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for WritablePayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritablePayload")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, os::unix::fs::FileExt, sync::Arc};

    use bytes::Bytes;

    use super::*;
    use crate::payload::bytes::Payload;

    /// Overwrites a payload with the content `before`, and returns its address.
    fn overwrite(mut own: WritablePayload, before: &[u8]) -> *const u8 {
        assert_eq!(&*own, before);
        own.fill(0xa5);
        assert!(own.iter().all(|&byte| byte == 0xa5));
        let address = own.as_ptr();
        let moved = Box::new(own);
        assert_eq!(moved.as_ptr(), address, "it stays where it is");
        assert_eq!(moved.len(), before.len());
        address
    }

    /// Makes a file, and a payload that maps it.
    fn mapped(content: &[u8]) -> (File, Payload) {
        let mut file = map::tests::mappable_file();
        file.write_all(content).unwrap();
        let payload = Payload::map_file(&file).unwrap().unwrap();
        (file, payload)
    }

    fn content_of(file: &File) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    #[test]
    fn a_mapping_is_written_to_in_place_and_the_file_never_changes() {
        let content = b"abc".repeat(5000);
        let (file, payload) = mapped(&content);
        // Another mapping of the same file, as another process of the host has one.
        let other = Payload::map_file(&file).unwrap().unwrap();
        let address = payload.as_ptr();
        assert_eq!(overwrite(payload.into_writable(), &content), address);
        assert_eq!(content_of(&file), content);
        assert_eq!(&*other, &content[..]);
    }

    #[test]
    fn a_part_of_a_mapping_keeps_its_bounds() {
        let content = [vec![1; 128], vec![2; 9000]].concat();
        let mut file = map::tests::mappable_file();
        file.write_all(&content).unwrap();
        let mapping = map::Mapping::of(&file, content.len() as u64)
            .unwrap()
            .unwrap();
        let payload = Payload::in_file(mapping, 8000);
        let address = payload.as_ptr();
        let own = payload.into_writable();
        assert_eq!(own.as_ptr() as usize % 64, 0);
        assert_eq!(overwrite(own, &[2; 8000]), address);
        assert_eq!(content_of(&file), content);
    }

    #[test]
    fn other_holders_of_a_mapping_never_see_a_write() {
        let content = vec![7; 3 << 20];
        let (_file, payload) = mapped(&content);
        let other = payload.clone();
        let address = overwrite(payload.into_writable(), &content);
        assert_ne!(address, other.as_ptr());
        assert_eq!(&*other, &content[..]);
        // The last holder is the sole owner.
        let address = other.as_ptr();
        assert_eq!(overwrite(other.into_writable(), &content), address);
    }

    #[test]
    fn memory_that_was_read_into_is_written_to_in_place() {
        let mut room = map::room(2 << 20).unwrap();
        room.fill(3);
        let payload = Payload::in_room(room);
        assert!(!payload.is_mapped());
        let (address, other) = (payload.as_ptr(), payload.clone());
        let shared = overwrite(payload.into_writable(), &other);
        assert_ne!(shared, address);
        assert!(other.iter().all(|&byte| byte == 3));
        assert_eq!(overwrite(other.into_writable(), &vec![3; 2 << 20]), address);
    }

    #[test]
    fn memory_that_was_read_into_can_be_shared_as_bytes() {
        let mut room = map::room(2 << 20).unwrap();
        room[0] = 1;
        let payload = Payload::in_room(room);
        let address = payload.as_ptr();
        assert_eq!(Bytes::from(payload).as_ptr(), address);
    }

    #[test]
    fn bytes_are_written_to_in_place_if_nobody_else_holds_them() {
        let bytes = Bytes::from(vec![1; 1000]);
        let address = bytes.as_ptr();
        let own = Payload::from(bytes).into_writable();
        assert_eq!(overwrite(own, &[1; 1000]), address);

        let frame = Bytes::from(vec![1; 1000]);
        let payload = Payload::from(frame.slice(1..));
        overwrite(payload.into_writable(), &[1; 999]);
        assert_eq!(frame, [1; 1000][..]);
    }

    #[test]
    fn bytes_of_another_owner_are_copied() {
        static CONSTANT: [u8; 5] = *b"fixed";
        overwrite(
            Payload::from(Bytes::from_static(&CONSTANT)).into_writable(),
            &CONSTANT,
        );
        for len in [0, 10, 3 << 20] {
            let content = vec![8; len];
            let owner: Arc<[u8]> = content.clone().into();
            let bytes = Bytes::from_owner(Arc::clone(&owner));
            overwrite(Payload::from(bytes).into_writable(), &content);
            assert_eq!(owner[..], content);
        }
    }

    #[test]
    fn empty_payloads_are_writable() {
        assert!(Payload::from(Vec::new()).into_writable().is_empty());
    }

    #[test]
    fn it_may_be_used_by_any_thread() {
        fn check<T: Send + Sync>(_: &T) {}
        check(&Payload::from(vec![1]).into_writable());
    }

    #[test]
    fn its_bytes_are_lent_to_whoever_takes_bytes() {
        let mut own = Payload::from(Bytes::from_static(b"abc")).into_writable();
        own.as_mut()[1] = b'x';
        assert_eq!(own.as_ref(), b"axc");
    }
}
