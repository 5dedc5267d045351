//! Taking a rank's payload and deciding how it travels: [`Outgoing`].

use std::io::{self, Write};

use bytes::Bytes;
use fsgather_core::{Contribution, Error};
use fsgather_store::{Encoding, PayloadId, PayloadWriter};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    announcement::{Announcement, FileAnnouncement, INLINE_OVERHEAD, RelayAnnouncement},
    relay,
    session::Session,
};
use crate::place::{FilePlace, Place};

type Progress<'a> = Box<dyn FnMut(u64) -> Result<(), Error> + 'a>;

/// Receives a payload in pieces: small ones stay in memory, large ones go to a file as they come, or
/// stay in memory where there is no file.
///
/// As an [`io::Write`] it keeps the first error, which [`finish`](Self::finish) returns with its type.
pub(crate) struct Outgoing<'a> {
    session: &'a Session<'a>,
    place: &'a Place,
    encoding: Encoding,
    inline_limit: usize,
    buffer: Vec<u8>,
    writer: Option<(&'a FilePlace, PayloadWriter<Progress<'a>>)>,
    failure: Option<Error>,
}

/// A payload that is ready to be announced.
pub(crate) struct Ready {
    pub(crate) contribution: Contribution,
    /// What has to be handed over in further rounds.
    pub(crate) rest: Vec<u8>,
}

impl<'a> Outgoing<'a> {
    pub(crate) fn new(session: &'a Session<'a>, place: &'a Place, encoding: Encoding) -> Self {
        Self {
            session,
            place,
            encoding,
            inline_limit: inline_limit(
                session.inner.inline_setting(),
                session.inner.exchange.body_limit(),
            ),
            buffer: Vec::new(),
            writer: None,
            failure: None,
        }
    }

    /// Says how long the payload will be, so that a lack of space is noticed before it is written.
    pub(crate) fn expect_len(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes > self.inline_limit {
            self.open()?;
        }
        if let Some((_, writer)) = &mut self.writer {
            writer.expect_len(bytes as u64);
        }
        Ok(())
    }

    /// Takes more of the payload.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.try_take(bytes)
            .inspect_err(|failure| self.failure = Some(failure.clone()))
    }

    fn try_take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.writer.is_none() && self.buffer.len() + bytes.len() > self.inline_limit {
            self.open()?;
        }
        match &mut self.writer {
            None => self.buffer.extend_from_slice(bytes),
            Some((_, writer)) => write(writer, bytes)?,
        }
        Ok(())
    }

    /// Begins the payload's file, where there is a place for one, with what has come so far.
    fn open(&mut self) -> Result<(), Error> {
        let Place::Files(files) = self.place else {
            return Ok(());
        };
        if self.writer.is_some() {
            return Ok(());
        }
        let session = self.session;
        // So that a rank that dies while it writes is known to have been writing.
        session.moved(0)?;
        let id = PayloadId {
            channel: session.ticket.channel,
            epoch: session.ticket.epoch,
            rank: session.inner.exchange.rank(),
        };
        let progress: Progress<'a> = Box::new(move |bytes| session.moved(bytes));
        let compression = session.inner.compression;
        let mut writer =
            files
                .directory()
                .create_payload(id, self.encoding, compression, progress)?;
        let begun = std::mem::take(&mut self.buffer);
        write(&mut writer, &begun)?;
        self.writer = Some((files, writer));
        Ok(())
    }

    /// Publishes the payload and says how it travels.
    pub(crate) fn finish(self) -> Result<Ready, Error> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let session = self.session;
        if let Some((files, writer)) = self.writer {
            let locator = writer.publish()?;
            files.published(locator.name);
            let announcement = Announcement::File(FileAnnouncement {
                directory: files.directory().facts().id,
                locator,
            });
            return Ok(Ready {
                contribution: Contribution {
                    body: body(session, announcement)?,
                    leaves_payload: true,
                    further_rounds: 0,
                },
                rest: Vec::new(),
            });
        }
        if self.buffer.len() <= self.inline_limit {
            let announcement = Announcement::Inline(Bytes::from(self.buffer));
            return Ok(Ready {
                contribution: Contribution::inline(body(session, announcement)?),
                rest: Vec::new(),
            });
        }
        let announcement = Announcement::Relayed(RelayAnnouncement {
            len: self.buffer.len() as u64,
            digest: xxh3_128(&self.buffer),
        });
        let piece = session.inner.exchange.body_limit();
        Ok(Ready {
            contribution: Contribution {
                body: body(session, announcement)?,
                leaves_payload: false,
                further_rounds: relay::rounds(self.buffer.len(), piece)?,
            },
            rest: self.buffer,
        })
    }
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(writer: &mut PayloadWriter<Progress<'_>>, bytes: &[u8]) -> Result<(), Error> {
    writer.write_all(bytes).map_err(|error| {
        writer
            .take_error()
            .unwrap_or_else(|| Error::storage("write", "payload", &error))
    })
}

fn body(session: &Session<'_>, announcement: Announcement) -> Result<Bytes, Error> {
    announcement
        .into_body()
        .map_err(|error| session.raised(format!("its announcement cannot be encoded: {error}")))
}

/// The largest payload that travels inside an announcement, in bytes.
fn inline_limit(setting: u64, body_limit: usize) -> usize {
    let most = body_limit.saturating_sub(INLINE_OVERHEAD);
    if body_limit == usize::MAX {
        // Nothing is copied in such a world, so nothing else is better.
        most
    } else {
        usize::try_from(setting).unwrap_or(usize::MAX).min(most)
    }
}
