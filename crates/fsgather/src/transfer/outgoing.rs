//! Taking a rank's payload and deciding how it travels: [`Outgoing`].

use std::{
    io::{self, ErrorKind, Read, Write},
    sync::Arc,
};

use bytes::Bytes;
use fsgather_control::mesh::{Mesh, Source as Offered};
use fsgather_core::{Contribution, Error, Leaves, Recipients, bytes_text};
use fsgather_store::{Encoding, Locator, PayloadId, PayloadWriter};

use super::{
    announcement::{
        Announcement, FileAnnouncement, INLINE_OVERHEAD, RelayAnnouncement, inline_body,
    },
    manner::Manner,
    origin::Origin,
    relay,
    session::Session,
    source::{Own, Source},
    spool::Spool,
};
use crate::{
    file_calls::FileCalls,
    place::{FilePlace, Place, call_id},
};

type Progress<'a> = Box<dyn FnMut(u64) -> Result<(), Error> + 'a>;

/// Streams that have to be kept until they are asked for are held in memory up to this length, in bytes.
const HELD: usize = 8 << 20;

/// What is taken into memory in pieces of at least this length, in bytes, is shown as it comes.
const NOTED: usize = 64 << 10;

/// How much of a stream is read at once, in bytes.
const AT_ONCE: usize = 1 << 20;

/// Of why a payload is in no file others are told so many characters at most.
const REASON: usize = 400;

/// Receives a payload in pieces: small ones stay in memory, large ones go to a file as they come, or
/// stay in memory where there is no file.
///
/// A payload whose file fails, where files need not be, goes through rank 0 in further rounds: of that all ranks learn
/// with the verdict, whatever way their own payloads go.
///
/// As an [`io::Write`] it keeps the first error, which [`finish`](Self::finish) returns with its type.
pub(crate) struct Outgoing<'a> {
    session: &'a Session,
    place: &'a Place,
    manner: Manner,
    encoding: Encoding,
    inline_limit: usize,
    /// The largest payload that the call allows, in bytes.
    bound: Option<u64>,
    /// How many bytes have been taken.
    taken: u64,
    buffer: Vec<u8>,
    beyond: Beyond<'a>,
    /// Whether what is taken can be had once more, so that it need not be kept here.
    has_source: bool,
    /// Why the payload goes through no file, where it could not.
    instead: Option<Error>,
    is_dispensable: &'a dyn Fn(&Error) -> bool,
    failure: Option<Error>,
}

/// Where pieces go that do not fit into the buffer.
enum Beyond<'a> {
    Nowhere,
    File(&'a FilePlace, Box<Writer<'a>>),
    Published(&'a FilePlace, Locator),
    Spool(Spool),
}

/// A payload's file, and what the user is told of writing it, if that does not get on.
struct Writer<'a> {
    file: PayloadWriter<Progress<'a>>,
    calls: &'a FileCalls,
    what: Arc<str>,
}

impl Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let _call = self.calls.begin(&self.what);
        let file = &mut self.file;
        file.write_all(bytes).map_err(|error| {
            file.take_error()
                .unwrap_or_else(|| Error::storage("write", "payload", &error))
        })
    }

    fn publish(&mut self) -> Result<Locator, Error> {
        let _call = self.calls.begin(&self.what);
        self.file.try_publish()
    }
}

/// A payload that is ready to be announced.
pub(crate) struct Ready<'b> {
    pub(crate) contribution: Contribution,
    /// What has to be handed over after the verdict.
    pub(crate) own: Own<'b>,
    /// How long the payload is, in bytes.
    pub(crate) len: u64,
}

impl<'a> Outgoing<'a> {
    /// `is_dispensable` says of an error of a payload's file whether another way will do.
    pub(crate) fn new(
        session: &'a Session,
        place: &'a Place,
        manner: Manner,
        encoding: Encoding,
        is_dispensable: &'a dyn Fn(&Error) -> bool,
    ) -> Self {
        Self {
            session,
            place,
            manner,
            encoding,
            inline_limit: inline_limit(
                session.inner.world.inline_setting,
                session.inner.exchange.body_limit(),
            ),
            bound: session.ticket.call.bound,
            taken: 0,
            buffer: Vec::new(),
            beyond: Beyond::Nowhere,
            has_source: false,
            instead: None,
            is_dispensable,
            failure: None,
        }
    }

    /// Takes the whole payload, and says how it travels.
    pub(crate) fn take_all(mut self, source: Source<'_>) -> Result<Ready<'_>, Error> {
        let own = match source {
            Source::Nothing => Own::Gone,
            Source::Slice(bytes) if self.can_wait(bytes.len()) => Own::Slice(bytes),
            Source::Shared(bytes) if self.can_wait(bytes.len()) => Own::Held(bytes),
            Source::Slice(bytes) => {
                self.take_at_once(bytes)?;
                self.settled_or(Own::Slice(bytes))?
            }
            Source::Shared(bytes) => {
                self.take_at_once(&bytes)?;
                self.settled_or(Own::Held(bytes))?
            }
            Source::Pieces(pieces) => return self.take_pieces(&pieces),
            Source::Stream(stream) => {
                self.take_stream(stream)?;
                Own::Gone
            }
            Source::Written(write) => {
                write(self.session, &mut self)?;
                Own::Gone
            }
            Source::Failure(reason) => return Err(self.session.raised(reason)),
        };
        self.finish(own)
    }

    /// Takes what a stream reads, a chunk at a time.
    fn take_stream(&mut self, stream: &mut dyn Read) -> Result<(), Error> {
        let mut chunk = vec![0; AT_ONCE];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => self.take(&chunk[..read])?,
                // A source that has nothing for long says so: time to see whether the call still stands.
                Err(error) if error.kind() == ErrorKind::Interrupted => self.session.moved(0)?,
                Err(error) => return Err(self.session.raised(error.to_string())),
            }
        }
    }

    /// Whether bytes that are there already need not be copied now.
    fn can_wait(&self, len: usize) -> bool {
        len > self.inline_limit && !matches!(self.place, Place::Files(_))
    }

    fn take_at_once(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.has_source = true;
        if bytes.len() > self.inline_limit {
            self.expect(bytes.len() as u64)?;
        }
        self.take(bytes)
    }

    /// Prepares for more than fits into an announcement, so that a lack of space is noticed before it is
    /// written.
    fn expect(&mut self, len: u64) -> Result<(), Error> {
        if let Place::Files(files) = self.place
            && let Some(refused) = files.refuses(len)
            && (self.is_dispensable)(&refused)
        {
            self.instead = Some(refused);
        }
        self.session.expect(len);
        self.open_file()?;
        if let Beyond::File(_, writer) = &mut self.beyond {
            writer.file.expect_len(len);
        }
        Ok(())
    }

    /// Takes a whole payload that is there in pieces, and says how it travels.
    fn take_pieces(mut self, pieces: &[Bytes]) -> Result<Ready<'static>, Error> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if self.bound.is_some_and(|bound| len > bound) {
            // Nothing has to be moved to tell how much it would need.
            self.taken = len;
            return self.finish(Own::Gone);
        }
        if usize::try_from(len).is_ok_and(|len| len <= self.inline_limit) {
            let seal = seal(self.session, pieces);
            return Ok(Ready {
                contribution: Contribution::inline(inline_body(seal, pieces)),
                own: Own::Gone,
                len,
            });
        }
        if !matches!(self.place, Place::Files(_)) {
            let joined = joined(self.session, pieces, len)?;
            return self.finish(Own::Held(joined));
        }
        self.has_source = true;
        self.expect(len)?;
        for piece in pieces {
            self.take(piece)?;
        }
        self.settle_file()?;
        let own = match self.instead {
            None => Own::Gone,
            Some(_) => Own::Held(joined(self.session, pieces, len)?),
        };
        self.finish(own)
    }

    /// Nothing, if what has been taken is settled; else where it came from.
    fn settled_or<'b>(&mut self, source: Own<'b>) -> Result<Own<'b>, Error> {
        self.settle_file()?;
        Ok(match self.instead {
            None => Own::Gone,
            Some(_) => source,
        })
    }

    /// Takes more of the payload.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.try_take(bytes)
            .inspect_err(|failure| self.failure = Some(failure.clone()))
    }

    /// The first error, with its type, which [`io::Error`] does not show.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.clone()
    }

    fn try_take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.taken += bytes.len() as u64;
        if self.bound.is_some_and(|bound| self.taken > bound) {
            // Goes on to be counted, so that all are told how much it would need.
            self.buffer = Vec::new();
            return Ok(());
        }
        let becomes = self.buffer.len() + bytes.len();
        if becomes > self.inline_limit {
            self.open_file()?;
        }
        if becomes > HELD {
            self.open_spool()?;
        }
        match &mut self.beyond {
            Beyond::Nowhere if self.instead.is_some() && self.has_source => {}
            Beyond::Nowhere => {
                self.buffer.extend_from_slice(bytes);
                if bytes.len() >= NOTED {
                    self.session.note_taken(bytes.len() as u64);
                }
            }
            Beyond::File(_, writer) => {
                let before = writer.file.written();
                if let Err(problem) = writer.write(bytes) {
                    self.take_back(problem)?;
                    let came = (self.buffer.len() as u64).saturating_sub(before);
                    let came = usize::try_from(came).unwrap_or(usize::MAX);
                    if !self.has_source {
                        self.buffer.extend(bytes.iter().skip(came));
                    }
                }
            }
            Beyond::Published(..) => {}
            Beyond::Spool(spool) => {
                spool.append(bytes)?;
                self.session.moved(bytes.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Does without the payload's file, which has failed, and holds what is in it; the problem where that cannot be.
    fn take_back(&mut self, problem: Error) -> Result<(), Error> {
        let Beyond::File(files, writer) = std::mem::replace(&mut self.beyond, Beyond::Nowhere)
        else {
            return Err(problem);
        };
        if !(self.is_dispensable)(&problem) {
            return Err(problem);
        }
        if !self.has_source {
            match writer.file.take_back() {
                Some(taken) => self.buffer = taken,
                None => return Err(problem),
            }
        }
        self.do_without(files, problem);
        Ok(())
    }

    fn do_without(&mut self, files: &FilePlace, problem: Error) {
        tracing::debug!("a payload goes through memory instead: {problem}");
        files.refused(&problem);
        self.instead = Some(problem);
    }

    /// Publishes the payload's file, if it has one; or does without it.
    fn settle_file(&mut self) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.bound.is_some_and(|bound| self.taken > bound) {
            // It is not going to be announced.
            self.beyond = Beyond::Nowhere;
        }
        let Beyond::File(files, writer) = &mut self.beyond else {
            return Ok(());
        };
        match writer.publish() {
            Ok(locator) => {
                let files = *files;
                files.published(locator.name);
                self.beyond = Beyond::Published(files, locator);
                Ok(())
            }
            Err(problem) => self.take_back(problem),
        }
    }

    /// Begins the payload's file, where there is a place for one, with what has come so far.
    fn open_file(&mut self) -> Result<(), Error> {
        let (Place::Files(files), Beyond::Nowhere, None) =
            (self.place, &self.beyond, &self.instead)
        else {
            return Ok(());
        };
        let session = self.session;
        // So that a rank that dies while it writes is known to have been writing.
        session.moved(0)?;
        let inner = &session.inner;
        let id = PayloadId {
            channel: session.ticket.channel,
            epoch: session.ticket.epoch,
            rank: inner.world.rank,
        };
        let progress: Progress<'a> = Box::new(move |bytes| session.moved(bytes));
        let compression = session.inner.world.compression;
        let calls = &inner.world.file_calls;
        let directory = files.directory();
        let what: Arc<str> = format!(
            "writing a payload of {} in {}",
            inner.me(),
            directory.path().display()
        )
        .into();
        let created = {
            let _call = calls.begin(&what);
            directory.create_payload(id, self.encoding, compression, progress)
        };
        let written = created.and_then(|file| {
            let mut writer = Writer { file, calls, what };
            writer.write(&self.buffer)?;
            Ok(writer)
        });
        match written {
            Ok(writer) => {
                self.buffer = Vec::new();
                self.beyond = Beyond::File(files, Box::new(writer));
            }
            Err(problem) if (self.is_dispensable)(&problem) => self.do_without(files, problem),
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    /// Begins to keep the payload in a local file, where it has to be kept until it is asked for.
    fn open_spool(&mut self) -> Result<(), Error> {
        let is_kept = self.manner != Manner::Passing;
        if let (Place::Mesh(_), true, Beyond::Nowhere) = (self.place, is_kept, &self.beyond) {
            let mut spool = Spool::new()?;
            spool.append(&std::mem::take(&mut self.buffer))?;
            self.beyond = Beyond::Spool(spool);
        }
        Ok(())
    }

    /// Publishes the payload and says how it travels.
    fn finish(mut self, own: Own<'_>) -> Result<Ready<'_>, Error> {
        self.settle_file()?;
        let session = self.session;
        let len = self.taken.max(own.len());
        if let Some(bound) = self.bound.filter(|bound| len > *bound) {
            return Err(Error::TooLarge {
                peer: session.inner.me(),
                size: len,
                bound,
            });
        }
        let own = match (own, self.beyond) {
            (Own::Gone, Beyond::Published(files, locator)) => {
                let announcement = Announcement::File(FileAnnouncement {
                    directory: files.directory().facts().id,
                    locator,
                });
                let contribution = Contribution {
                    body: body(session, announcement)?,
                    leaves: self.manner.leaves_of_files(),
                    further_rounds: 0,
                };
                let own = Own::Gone;
                return Ok(Ready {
                    contribution,
                    own,
                    len,
                });
            }
            (Own::Gone, Beyond::Spool(spool)) => Own::Spooled(spool),
            (Own::Gone, Beyond::Nowhere) if self.buffer.len() <= self.inline_limit => {
                let payload = Bytes::from(self.buffer);
                let seal = seal(session, std::slice::from_ref(&payload));
                let announcement = Announcement::Inline { seal, payload };
                return Ok(Ready {
                    contribution: Contribution::inline(body(session, announcement)?),
                    own: Own::Gone,
                    len,
                });
            }
            (Own::Gone, Beyond::Nowhere) => Own::Held(Bytes::from(self.buffer)),
            (own, _) => own,
        };
        match self.place {
            Place::Mesh(mesh) => link(session, mesh, self.manner, own),
            _ => relayed(session, own, self.instead.as_ref()),
        }
    }
}

/// Announces a payload that is handed over by connections between ranks.
fn link<'b>(
    session: &Session,
    mesh: &Mesh,
    manner: Manner,
    own: Own<'b>,
) -> Result<Ready<'b>, Error> {
    let ticket = &session.ticket;
    let len = own.len();
    let is_only_reader =
        ticket.call.recipients() == Recipients::Only(session.inner.exchange.rank());
    let (leaves, own) = match manner {
        // Both neighbours are in the call as long as we are.
        Manner::Passing => (Leaves::Nothing, own),
        Manner::Kept | Manner::KeptForReader if is_only_reader => {
            (Leaves::Nothing, own.into_kept())
        }
        Manner::Kept | Manner::KeptForReader => {
            let own = own.into_kept();
            let offered = match &own {
                Own::Spooled(spool) => spool.offered(),
                other => Offered::Memory(other.to_bytes()),
            };
            mesh.offer(call_id(ticket), offered);
            (Leaves::WithOwner, own)
        }
    };
    Ok(Ready {
        contribution: Contribution {
            body: body(session, Announcement::Linked { len })?,
            leaves,
            further_rounds: 0,
        },
        own,
        len,
    })
}

/// Announces a payload that goes through rank 0 in further rounds; `instead` is why it is in no file.
fn relayed<'b>(
    session: &Session,
    own: Own<'b>,
    instead: Option<&Error>,
) -> Result<Ready<'b>, Error> {
    let bytes = own.as_slice();
    let announcement = Announcement::Relayed(RelayAnnouncement {
        len: bytes.len() as u64,
        digest: own_origin(session).digest(bytes),
        instead: instead.map(|problem| problem.to_string().chars().take(REASON).collect()),
    });
    let piece = session.inner.exchange.body_limit();
    Ok(Ready {
        contribution: Contribution {
            body: body(session, announcement)?,
            leaves: Leaves::Nothing,
            further_rounds: relay::rounds(bytes.len(), piece)?,
        },
        len: bytes.len() as u64,
        own,
    })
}

fn own_origin(session: &Session) -> Origin {
    Origin::own(&session.inner.world, &session.ticket)
}

fn seal(session: &Session, pieces: &[Bytes]) -> u64 {
    own_origin(session).seal(&session.inner, pieces)
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

/// One payload of all pieces; a single one is taken as it is.
fn joined(session: &Session, pieces: &[Bytes], len: u64) -> Result<Bytes, Error> {
    let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
    if let (Some(only), None) = (filled.next(), filled.next()) {
        return Ok(only.clone());
    }
    let mut bytes = Vec::new();
    match usize::try_from(len) {
        Ok(size) if bytes.try_reserve_exact(size).is_ok() => {}
        _ => {
            return Err(session.raised(format!(
                "there is not enough memory to join a payload of {}, which goes from memory to memory; a \
                 shared directory takes it in pieces",
                bytes_text(len)
            )));
        }
    }
    for piece in pieces {
        bytes.extend_from_slice(piece);
    }
    Ok(bytes.into())
}

fn body(session: &Session, announcement: Announcement) -> Result<Bytes, Error> {
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
