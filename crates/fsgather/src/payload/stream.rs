//! One payload read piece by piece: [`PayloadStream`].

use std::{
    io::{self, Read},
    sync::Arc,
};

use bytes::{Buf, Bytes};
use fsgather_control::mesh::Pull;
use fsgather_core::{Error, Peer};
use fsgather_store::PayloadReader;

use crate::{
    payload::{part::written_by, spool::Spool},
    world_state::WorldState,
};

/// A function that is called with the number of bytes after each piece; kept as long as the stream.
pub(crate) type OwnMoved = Box<dyn FnMut(u64) -> Result<(), Error> + Send>;

/// The world that watches calls of the file system, and the text of its warnings about those of this stream.
type Watched = (Arc<WorldState>, Arc<str>);

/// One payload, read piece by piece; each piece is verified before it is handed out.
///
/// As an [`io::Read`] it keeps the first error, which [`take_error`](Self::take_error) returns with its type.
pub(crate) struct PayloadStream {
    from: From,
    failure: Option<Error>,
}

enum From {
    /// It is in memory already.
    Held(Bytes),
    /// It is in a file, which that rank has written.
    File(Box<PayloadReader<OwnMoved>>, Option<Peer>, Watched),
    /// It is this rank's own.
    Spool(Spool),
    /// It comes over a connection, chunk by chunk.
    Link {
        pull: Box<Pull>,
        chunk: Bytes,
        moved: OwnMoved,
    },
}

impl PayloadStream {
    pub(crate) const fn held(payload: Bytes) -> Self {
        Self::new(From::Held(payload))
    }

    pub(crate) fn from_file(
        reader: PayloadReader<OwnMoved>,
        writer: Option<Peer>,
        watched: Watched,
    ) -> Self {
        Self::new(From::File(Box::new(reader), writer, watched))
    }

    pub(crate) const fn from_spool(spool: Spool) -> Self {
        Self::new(From::Spool(spool))
    }

    pub(crate) fn from_link(pull: Pull, moved: OwnMoved) -> Self {
        Self::new(From::Link {
            pull: Box::new(pull),
            chunk: Bytes::new(),
            moved,
        })
    }

    const fn new(from: From) -> Self {
        Self {
            from,
            failure: None,
        }
    }

    /// Returns the first error, with its type, which [`io::Error`] does not show.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        match &mut self.from {
            From::File(reader, writer, _) => {
                let error = reader.take_error()?;
                Some(written_by(writer.as_ref(), error))
            }
            _ => self.failure.clone(),
        }
    }
}

impl Read for PayloadStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let held = match &mut self.from {
            From::File(reader, _, (world, what)) => {
                let _call = world.file_calls.begin(what);
                return reader.read(buffer);
            }
            From::Spool(spool) => return spool.read(buffer),
            From::Held(payload) => payload,
            From::Link { pull, chunk, moved } => {
                if let Some(failure) = &self.failure {
                    return Err(io::Error::other(failure.clone()));
                }
                if chunk.is_empty() {
                    *chunk = match pull.next_chunk(moved) {
                        Ok(next) => next.unwrap_or_default(),
                        Err(failure) => {
                            self.failure = Some(failure.clone());
                            return Err(io::Error::other(failure));
                        }
                    };
                }
                chunk
            }
        };
        let len = held.len().min(buffer.len());
        held.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}
