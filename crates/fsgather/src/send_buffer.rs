//! Memory for a payload that is handed over without being copied: [`SendBuffer`].

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use bytes::Bytes;
use fsgather_arena::LentMemory;

use crate::{codec::Codec, communicator::Communicator, pieces::Pieces};

/// Memory for a payload, which ranks of the same host then read where it lies: [`Communicator::send_buffer`].
///
/// It is a slice of bytes, and handed over like any other: the first time it is not copied, if all who receive it share memory
/// with this rank. What is written to it afterwards they do not see, so it can be written to at any time; what has been handed over
/// is copied for that, page by page. Handed over again it is copied as any slice is.
///
/// That is so of what a processor writes. A device that was given the memory before goes on writing where the others read: let no
/// direct read of a file (`O_DIRECT`, registered buffers of `io_uring`) be under way when it is handed over, and register none with
/// a GPU or a network adapter (`cudaHostRegister`, RDMA).
///
/// Handed over by value, or [frozen](Self::freeze) before, it pays from some hundred kibibytes on; there a call costs as much as one
/// of no bytes, beside what its readers do. By reference it pays for tens of mebibytes: of less, a copy takes no longer than the
/// exchange of mappings by which what is written later becomes the program's own.
///
/// A process that is forked from this one has the bytes for itself. Until they are handed over it sees what this process goes on
/// writing, and not the other way round.
pub struct SendBuffer(Memory);

enum Memory {
    Shared(LentMemory),
    Own(Vec<u8>),
}

impl SendBuffer {
    /// Whether it lies in memory that this rank shares with others. Elsewhere it does the same, and is copied.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self.0, Memory::Shared(_))
    }

    /// Gives up writing to it: the same bytes, which handing over costs nothing.
    ///
    /// They can be cloned and cut like any [`Bytes`], and what is cut is handed over without a copy as well. That is so the first
    /// time; handed over again they are copied to where others read, as any are. The memory is free for the next
    /// [`send_buffer`](Communicator::send_buffer) once the last clone is dropped and all ranks have dropped what they were handed.
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// let mut masks = communicator.send_buffer(1 << 20);
    /// masks.fill(1);
    /// let first_half = masks.freeze().split_to(1 << 19);
    /// assert_eq!(communicator.all_gather_bytes(first_half)?[0].len(), 1 << 19);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[must_use]
    pub fn freeze(self) -> Bytes {
        match self.0 {
            Memory::Shared(memory) => Bytes::from_owner(memory.freeze()),
            Memory::Own(memory) => memory.into(),
        }
    }
}

impl<C: Codec> Communicator<C> {
    /// Memory for a payload of `len` bytes, to be written by the program and then handed over without being copied.
    ///
    /// It lies in memory that ranks of one host share, if they do and there is room (`FSGATHER_SHARED_MEMORY` bounds all that one
    /// rank shares), and elsewhere otherwise, as in a forked child: programs need not know. What is in it at first is arbitrary. It
    /// counts to what this rank shares until it is dropped, and results that were made of it are too.
    ///
    /// No other rank takes part in this.
    ///
    /// # Examples
    ///
    /// ```
    /// let communicator = fsgather::Communicator::solo();
    /// let mut masks = communicator.send_buffer(1 << 20);
    /// masks.fill(1);
    /// let parts = communicator.all_gather_bytes(masks)?;
    /// assert_eq!(parts[0].len(), 1 << 20);
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[must_use]
    pub fn send_buffer(&self, len: usize) -> SendBuffer {
        let shared = self.shared_send_buffer(len);
        shared.unwrap_or_else(|| SendBuffer(Memory::Own(vec![0; len])))
    }

    /// The same in memory that ranks share, or nothing. For bindings, which have memory of their own, and errors where there is
    /// none.
    #[doc(hidden)]
    #[must_use]
    pub fn shared_send_buffer(&self, len: usize) -> Option<SendBuffer> {
        let world = &self.inner.world;
        // A forked child has what its parent shares, and must not touch it.
        let shared = (!world.is_foreign()).then(|| world.shared_memory.lend(len));
        shared.flatten().map(Memory::Shared).map(SendBuffer)
    }
}

impl Deref for SendBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Shared(memory) => memory,
            Memory::Own(memory) => memory,
        }
    }
}

impl DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Shared(memory) => memory,
            Memory::Own(memory) => memory,
        }
    }
}

impl AsRef<[u8]> for SendBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<'a> From<&'a SendBuffer> for Pieces<'a> {
    fn from(buffer: &'a SendBuffer) -> Self {
        Self::from(&**buffer)
    }
}

/// [Frozen](SendBuffer::freeze).
impl From<SendBuffer> for Pieces<'_> {
    fn from(buffer: SendBuffer) -> Self {
        buffer.freeze().into()
    }
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBuffer")
            .field("len", &self.len())
            .field("is_shared", &self.is_shared())
            .finish()
    }
}
