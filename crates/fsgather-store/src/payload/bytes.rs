//! The bytes of one rank's payload: [`Payload`].

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
/// It holds the bytes in a private mapping of the payload's file, in one of a nameless local copy, or in memory. Clones share
/// them. Mapped bytes stay valid after the file has been removed, and begin at an address divisible by 64; other bytes may
/// begin anywhere. A payload of 16 KiB or more that arrived with the messages may be a part of the memory in which they
/// arrived: keeping the payloads of many calls needs at most about four times their length.
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
    /// Memory from the system, into which the payload was read.
    Room(Arc<MmapMut>),
    Held(Bytes),
    Lent(Arc<dyn LentBytes>),
}

/// Bytes that another owner keeps, and that can be made writable.
pub trait LentBytes: Deref<Target = [u8]> + Send + Sync {
    /// Returns the bytes in private memory that may be written to, or `None` if they must be copied.
    fn writable(self: Arc<Self>) -> Option<Box<dyn DerefMut<Target = [u8]> + Send + Sync>>;
}

impl Payload {
    /// Wraps bytes that another owner keeps while the payload lives.
    #[must_use]
    pub fn lent(bytes: Arc<dyn LentBytes>) -> Self {
        Self {
            bytes: Inner::Lent(bytes),
        }
    }

    /// The payload in a mapping of its whole file. The caller has checked `len` against the mapping.
    pub(crate) fn in_file(mapping: Mapping, len: usize) -> Self {
        Self::mapped(mapping, HEADER_LEN, len)
    }

    /// The payload that a mapping consists of.
    pub(crate) fn copied(mapping: Mapping) -> Self {
        let len = mapping.len();
        Self::mapped(mapping, 0, len)
    }

    /// The payload in memory into which it was read.
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

    /// Maps a whole file of the caller and reads its pages, without verification. Returns `None` on a file system on which
    /// mapping is not safe, such as a network file system.
    ///
    /// Only for files that no process writes to or truncates any more: doing so while the payload lives changes bytes that
    /// count as constant, or kills this process.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn map_file(file: &File) -> io::Result<Option<Self>> {
        let mapping = Mapping::of(file, file.metadata()?.len())?;
        Ok(mapping.map(|mapping| {
            mapping.populate(0, mapping.len());
            Self::copied(mapping)
        }))
    }

    /// Returns true if the bytes are mapped from a file, not held in memory.
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        matches!(self.bytes, Inner::Mapped { .. })
    }

    /// Returns the payload in private memory that may be written to.
    ///
    /// Nothing is copied if this payload has no clones: for mapped bytes, the system copies a page when it is written to; the
    /// file never changes. Bytes with other owners are copied, such as those that a rank has handed in itself without a copy.
    ///
    /// Lack of memory for a copy ends the process, as everywhere; [`try_into_writable`](Self::try_into_writable) returns
    /// instead.
    #[must_use]
    pub fn into_writable(self) -> WritablePayload {
        self.try_into_writable().unwrap_or_else(|payload| {
            let copy = Bytes::copy_from_slice(&payload);
            WritablePayload::new(WritableMemory::Held(copy.into()))
        })
    }

    /// Like [`into_writable`](Self::into_writable), but returns if memory is missing.
    ///
    /// # Errors
    ///
    /// The unchanged payload, if it must be copied and there is not enough memory.
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
    /// Converts without a copy.
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
