//! The bytes that one rank handed over: [`Payload`].

use std::{
    fmt,
    fs::File,
    io,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use bytes::Bytes;
use memmap2::MmapMut;

use crate::payload::{
    format::HEADER_LEN,
    map::Mapping,
    writable_payload::{WritableMemory, WritablePayload},
};

/// One rank's payload, verified, as one slice of bytes.
///
/// It holds the bytes in a private mapping of the payload's file, of a nameless local copy of it, or in
/// memory. Clones share them. Mapped bytes stay valid after the file has been removed and begin at an
/// address divisible by 64; others begin anywhere. One of 16 KiB or more that came
/// with the messages may be a part of the memory in which they came: what is kept of call after call needs about four times its
/// length at most.
///
/// ```
/// # use fsgather_store as fsgather;
/// use fsgather::Payload;
///
/// let payload = Payload::from(vec![1, 2, 3]);
/// assert_eq!(&payload[1..], [2, 3]);
/// ```
#[derive(Clone)]
pub struct Payload {
    bytes: Inner,
}

#[derive(Clone)]
enum Inner {
    Mapped {
        mapping: Arc<Mapping>,
        start: usize,
        len: usize,
    },
    /// Memory from the system, which the payload was read into.
    Room(Arc<MmapMut>),
    Held(Bytes),
    Lent(Arc<dyn LentBytes>),
}

/// Bytes that somebody else keeps, and that can be had for writing.
pub trait LentBytes: Deref<Target = [u8]> + Send + Sync {
    /// The same in memory that may be written to, which nobody else sees; `None` where they have to be copied.
    fn writable(self: Arc<Self>) -> Option<Box<dyn DerefMut<Target = [u8]> + Send + Sync>>;
}

impl Payload {
    /// Bytes that somebody else keeps for as long as this lives.
    #[must_use]
    pub fn lent(bytes: Arc<dyn LentBytes>) -> Self {
        Self {
            bytes: Inner::Lent(bytes),
        }
    }

    /// The payload in a mapping of its whole file. `len` has been checked against the mapping.
    pub(crate) fn in_file(mapping: Mapping, len: usize) -> Self {
        Self::mapped(mapping, HEADER_LEN, len)
    }

    /// The payload as a mapping.
    pub(crate) fn copied(mapping: Mapping) -> Self {
        let len = mapping.len();
        Self::mapped(mapping, 0, len)
    }

    /// The payload in memory that it was read into.
    pub(crate) fn in_room(room: MmapMut) -> Self {
        Self {
            bytes: Inner::Room(Arc::new(room)),
        }
    }

    fn mapped(mapping: Mapping, start: usize, len: usize) -> Self {
        Self {
            bytes: Inner::Mapped {
                mapping: Arc::new(mapping),
                start,
                len,
            },
        }
    }

    /// Maps a whole file of one's own and brings its pages in, without verifying anything; `None` on a file
    /// system on which mapping is not safe, such as one of a network.
    ///
    /// Only for files that nobody writes to or cuts short any more: whoever does so while the payload
    /// lives changes bytes that everybody takes for constant, or ends this process.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn map_file(file: &File) -> io::Result<Option<Self>> {
        let mapping = Mapping::of(file, file.metadata()?.len())?;
        Ok(mapping.map(|mapping| {
            mapping.populate(0, mapping.len());
            Self::copied(mapping)
        }))
    }

    /// Whether the bytes are mapped from a file rather than held in memory.
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        matches!(self.bytes, Inner::Mapped { .. })
    }

    /// The payload in memory that may be written to, which nobody else sees.
    ///
    /// Nothing is copied if no clone of this payload lives: of mapped bytes the system copies the pages that
    /// are written to, and only when they are; the file never changes. Bytes that others hold, such as what a
    /// rank has handed in itself without a copy, are copied.
    ///
    /// Lack of memory for a copy ends the process, as it does anywhere;
    /// [`try_into_writable`](Self::try_into_writable) does not.
    #[must_use]
    pub fn into_writable(self) -> WritablePayload {
        self.try_into_writable().unwrap_or_else(|payload| {
            let copy = Bytes::copy_from_slice(&payload);
            WritablePayload::new(WritableMemory::Held(copy.into()))
        })
    }

    /// The same, for those who can do with less.
    ///
    /// # Errors
    ///
    /// The payload as it was, when it has to be copied and there is not enough memory for that.
    pub fn try_into_writable(self) -> Result<WritablePayload, Self> {
        let shared = match self.bytes {
            Inner::Mapped {
                mapping,
                start,
                len,
            } => match Arc::try_unwrap(mapping).map(Mapping::into_writable) {
                Ok(Ok(mapping)) => {
                    return Ok(WritablePayload::new(WritableMemory::Mapped {
                        mapping,
                        start,
                        len,
                    }));
                }
                Ok(Err(mapping)) => Self::mapped(mapping, start, len),
                Err(mapping) => Self {
                    bytes: Inner::Mapped {
                        mapping,
                        start,
                        len,
                    },
                },
            },
            Inner::Room(room) => match Arc::try_unwrap(room) {
                Ok(room) => return Ok(WritablePayload::new(WritableMemory::Room(room))),
                Err(room) => Self {
                    bytes: Inner::Room(room),
                },
            },
            Inner::Lent(lent) => match Arc::clone(&lent).writable() {
                Some(writable) => return Ok(WritablePayload::new(WritableMemory::Lent(writable))),
                None => Self::lent(lent),
            },
            Inner::Held(bytes) => match bytes.try_into_mut() {
                Ok(bytes) => return Ok(WritablePayload::new(WritableMemory::Held(bytes))),
                Err(bytes) => bytes.into(),
            },
        };
        WritablePayload::copy_of(&shared).ok_or(shared)
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Inner::Mapped {
                mapping,
                start,
                len,
            } => &mapping[*start..*start + *len],
            Inner::Room(room) => room,
            Inner::Held(bytes) => bytes,
            Inner::Lent(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self {
            bytes: Inner::Held(bytes),
        }
    }
}

impl From<Payload> for Bytes {
    /// Without a copy, whatever holds the bytes.
    fn from(payload: Payload) -> Self {
        match payload.bytes {
            Inner::Held(bytes) => bytes,
            Inner::Mapped { .. } | Inner::Room(_) | Inner::Lent(_) => Self::from_owner(payload),
        }
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("len", &self.len())
            .field("is_mapped", &self.is_mapped())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_come_back_without_a_copy() {
        let bytes = Bytes::from(vec![1, 2, 3]);
        let payload = Payload::from(bytes.clone());
        assert!(!payload.is_mapped());
        assert_eq!(Bytes::from(payload).as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn a_file_of_ones_own_can_be_mapped() {
        let mut file = crate::payload::map::tests::mappable_file();
        io::Write::write_all(&mut file, b"abcdef").unwrap();
        let payload = Payload::map_file(&file).unwrap().unwrap();
        assert!(payload.is_mapped());
        assert_eq!(&*payload, b"abcdef");
        let foreign = File::open("/proc/self/stat").unwrap();
        assert_eq!(Payload::map_file(&foreign).unwrap(), None);
    }

    #[test]
    fn printing_a_payload_does_not_print_its_bytes() {
        let text = format!("{:?}", Payload::from(vec![65; 1000]));
        assert_eq!(text, "Payload { len: 1000, is_mapped: false }");
    }

    #[test]
    fn payloads_are_equal_by_their_bytes() {
        let payload = |bytes: &'static [u8]| Payload::from(Bytes::from_static(bytes));
        assert_eq!(payload(b"abc"), payload(b"abc"));
        assert_ne!(payload(b"abc"), payload(b"abd"));
    }
}
