//! The input of a rank's payload, and the choice of its transport: [`InputWriter`].

use std::{
    io::{self, ErrorKind, Read, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_arena::Location;
use fsgather_core::{CallEvent, Contribution, Error, Progress};
use fsgather_store::{Encoding, FileCalls, Locator, PayloadId, PayloadWriter};

use crate::{
    call::{guard::CallGuard, nesting::inside_a_call},
    payload::{
        bound::Bound,
        header::{FileHeader, INLINE_OVERHEAD, PayloadHeader, inline_body},
        input::{HeldInput, InputSource, joined},
        mesh,
        origin::PayloadOrigin,
        own_part,
        path::{FilesPath, PayloadPath},
        placing, relay,
        retention::Retention,
        shared_memory::Share,
        spool::Spool,
    },
};

/// Maximum size of a stream that is held in memory until it is requested, in bytes. Longer streams go to a local file.
const MAX_HELD_BYTES: usize = 8 << 20;

/// Memory of a stream that should go through a file and does not, at which the user is warned, in bytes.
const WARNING_BYTES: usize = 2 * MAX_HELD_BYTES;

/// Minimum length of pieces taken into memory whose progress is shown, in bytes.
const MIN_SHOWN_BYTES: usize = 64 << 10;

/// Minimum length of a payload whose writing takes so long that the other ranks are notified before it begins, in
/// bytes.
const SLOW_BYTES: u64 = 8 << 20;

/// Interval at which waiting ranks see the progress of a stream.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Length of the parts in which a stream is read, in bytes.
const PART_BYTES: usize = 1 << 20;

/// Receives a payload in pieces: small payloads stay in memory, large ones go to a file as they arrive, or stay in
/// memory if there is no file.
///
/// If files are not required, a payload whose file fails goes through rank 0 in further rounds. All ranks learn of that
/// with the verdict, even if their own payloads take another path.
///
/// As an [`io::Write`] it keeps the first error, which [`finish`](Self::finish) returns with its type.
pub(crate) struct InputWriter<'a> {
    guard: &'a CallGuard,
    payload_path: &'a PayloadPath,
    /// Memory that its readers share, if they do.
    share: Option<&'a Share>,
    retention: Retention,
    encoding: Encoding,
    inline_limit: usize,
    bound: Bound,
    /// Number of bytes that have been taken.
    taken: u64,
    buffer: Vec<u8>,
    beyond: Beyond<'a>,
    /// True if the source of the bytes can be read again, so that they need not be kept here.
    has_source: bool,
    /// The reason why the payload goes through no file, if it could not.
    instead: Option<Error>,
    is_dispensable: &'a dyn Fn(&Error) -> bool,
    failure: Option<Error>,
}

/// The destination of pieces that do not fit into the buffer.
enum Beyond<'a> {
    Nowhere,
    File(&'a FilesPath, Box<Writer<'a>>),
    Published(&'a FilesPath, Locator),
    Spool(Spool),
}

/// A payload's file, and the warning text for writing that makes no progress.
struct Writer<'a> {
    file: PayloadWriter<Box<Progress<'a>>>,
    calls: &'a FileCalls,
    what: Arc<str>,
}

impl Writer<'_> {
    fn write(&mut self, bytes: &[u8], is_last: bool) -> Result<(), Error> {
        let _call = self.calls.begin(&self.what);
        let file = &mut self.file;
        if is_last {
            return file.write_last(bytes);
        }
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
    /// The data that must be handed over after the verdict.
    pub(crate) own: HeldInput<'b>,
    /// Length of the payload in bytes.
    pub(crate) len: u64,
}

impl<'a> InputWriter<'a> {
    /// Makes a writer. `is_dispensable` returns true if another path can replace the file after this error.
    pub(crate) fn new(
        guard: &'a CallGuard,
        payload_path: &'a PayloadPath,
        retention: Retention,
        encoding: Encoding,
        bound: Bound,
        share: Option<&'a Share>,
        is_dispensable: &'a dyn Fn(&Error) -> bool,
    ) -> Self {
        Self {
            share,
            guard,
            payload_path,
            retention,
            encoding,
            inline_limit: inline_limit(
                guard.inner.world.inline_setting,
                guard.inner.exchange.body_limit(),
            ),
            bound,
            taken: 0,
            buffer: Vec::new(),
            beyond: Beyond::Nowhere,
            has_source: false,
            instead: None,
            is_dispensable,
            failure: None,
        }
    }

    /// Takes the whole payload, and returns its announcement.
    pub(crate) fn take_all(self, source: InputSource<'_>) -> Result<Ready<'_>, Error> {
        let (guard, path, shares) = (self.guard, self.payload_path, self.share.is_some());
        let kept = own_part::kept(guard, &source, path, shares, self.inline_limit);
        if let Some(bytes) = kept.filter(|bytes| !self.bound.is_exceeded_by(bytes.len() as u64)) {
            let len = bytes.len() as u64;
            let own = HeldInput::Shared(bytes);
            return placing::announced(guard, PayloadHeader::Kept { len }, len, own);
        }
        let Some(share) = self.share else {
            return self.take_elsewhere(source);
        };
        let Some(location) = self.place(&source, share) else {
            return self.take_elsewhere(source);
        };
        let kept = match source {
            InputSource::Shared(bytes) => Some(bytes),
            _ => None,
        };
        placing::placed(guard, share, location, kept)
    }

    /// Takes the whole payload, which does not go into shared memory as it is.
    fn take_elsewhere(mut self, source: InputSource<'_>) -> Result<Ready<'_>, Error> {
        let own = match source {
            InputSource::Nothing => HeldInput::Gone,
            InputSource::Slice(bytes) if self.can_wait(bytes.len()) => HeldInput::Slice(bytes),
            InputSource::Shared(bytes) if self.can_wait(bytes.len()) => HeldInput::Held(bytes),
            InputSource::Slice(bytes) => {
                self.take_at_once(bytes)?;
                self.settled_or(HeldInput::Slice(bytes))?
            }
            InputSource::Shared(bytes) => {
                self.take_at_once(&bytes)?;
                self.settled_or(HeldInput::Held(bytes))?
            }
            InputSource::Pieces(pieces) => return self.take_pieces(&pieces),
            InputSource::PayloadStream(stream) => {
                self.take_stream(stream)?;
                HeldInput::Gone
            }
            InputSource::Written(write) => {
                inside_a_call(|| write(self.guard, &mut self))?;
                HeldInput::Gone
            }
            InputSource::Failure(reason) => return Err(self.guard.raised(reason)),
        };
        self.finish(own)
    }

    /// Places a payload that is complete in memory that its readers share, if there is room.
    fn place(&self, source: &InputSource<'_>, share: &Share) -> Option<Location> {
        let pieces: Vec<&[u8]> = match source {
            InputSource::Slice(bytes) => vec![bytes],
            InputSource::Shared(bytes) => vec![bytes],
            InputSource::Pieces(pieces) => pieces.iter().map(Bytes::as_ref).collect(),
            _ => return None,
        };
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let keeps = matches!(source, InputSource::Shared(_));
        let is_too_short = len < placing::least(share.reach(), self.inline_limit);
        (!is_too_short && !self.bound.is_exceeded_by(len))
            .then(|| share.place(&self.guard.inner, &self.guard.ticket, &pieces, keeps))?
    }

    /// Takes the data of a stream, a chunk at a time.
    fn take_stream(&mut self, stream: &mut dyn Read) -> Result<(), Error> {
        let mut chunk = vec![0; PART_BYTES];
        // A rank that is lost before any data arrives is known to have been here.
        self.guard.set_about()?;
        let (mut shown_at, mut came) = (Instant::now(), 0);
        loop {
            match inside_a_call(|| stream.read(&mut chunk)) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    self.take(&chunk[..read])?;
                    came += read as u64;
                    // Waiting ranks must learn that data arrives, even if it is little.
                    if shown_at.elapsed() >= PROGRESS_INTERVAL {
                        self.guard.came(std::mem::take(&mut came))?;
                        shown_at = Instant::now();
                    }
                }
                // A source without data for a long time returns this error: check that the call has not failed.
                Err(error) if error.kind() == ErrorKind::Interrupted => self.guard.moved(0)?,
                Err(error) => return Err(self.guard.raised(error.to_string())),
            }
        }
    }

    /// Returns true if bytes in memory need not be copied now.
    fn can_wait(&self, len: usize) -> bool {
        len > self.inline_limit && !matches!(self.payload_path, PayloadPath::Files(_))
    }

    fn take_at_once(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.has_source = true;
        if bytes.len() > self.inline_limit {
            self.expect(bytes.len() as u64)?;
        }
        self.take_part(bytes, true)
    }

    /// Prepares for a payload that does not fit into an announcement, so that a lack of space is noticed before
    /// writing.
    fn expect(&mut self, len: u64) -> Result<(), Error> {
        if let PayloadPath::Files(files) = self.payload_path
            && let Some(refused) = files.refuses(len)
            && (self.is_dispensable)(&refused)
        {
            self.instead = Some(refused);
        }
        self.guard.observe(CallEvent::Expected { bytes: len });
        if len >= SLOW_BYTES {
            self.guard.set_about()?;
        }
        self.open_file()?;
        if let Beyond::File(_, writer) = &mut self.beyond {
            writer.file.expect_len(len);
        }
        Ok(())
    }

    /// Takes a whole payload in pieces, and returns its announcement.
    fn take_pieces(mut self, pieces: &[Bytes]) -> Result<Ready<'static>, Error> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if self.bound.is_exceeded_by(len) {
            // The size is known without moving data.
            self.taken = len;
            return self.finish(HeldInput::Gone);
        }
        if usize::try_from(len).is_ok_and(|len| len <= self.inline_limit) {
            let seal = seal(self.guard, pieces);
            return Ok(Ready {
                contribution: Contribution::inline(inline_body(seal, pieces)),
                own: HeldInput::Gone,
                len,
            });
        }
        if !matches!(self.payload_path, PayloadPath::Files(_)) {
            let joined = joined(self.guard, pieces, len)?;
            return self.finish(HeldInput::Held(joined));
        }
        self.has_source = true;
        self.expect(len)?;
        for (index, piece) in pieces.iter().enumerate() {
            self.take_part(piece, index + 1 == pieces.len())?;
        }
        self.settle_file()?;
        let own = match self.instead {
            None => HeldInput::Gone,
            Some(_) => HeldInput::Held(joined(self.guard, pieces, len)?),
        };
        self.finish(own)
    }

    /// Returns `Gone` if the taken bytes are settled; else their source.
    fn settled_or<'b>(&mut self, source: HeldInput<'b>) -> Result<HeldInput<'b>, Error> {
        self.settle_file()?;
        Ok(match self.instead {
            None => HeldInput::Gone,
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

    /// Returns the first error, with its type, which [`io::Error`] does not show.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.clone()
    }

    fn try_take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.take_part(bytes, false)
    }

    fn take_part(&mut self, bytes: &[u8], is_last: bool) -> Result<(), Error> {
        self.taken += bytes.len() as u64;
        if self.bound.is_exceeded_by(self.taken) {
            // Counting continues, so that all ranks learn the size that the payload needs.
            self.buffer = Vec::new();
            return Ok(());
        }
        let becomes = self.buffer.len() + bytes.len();
        // Data that arrives bit by bit goes into shared memory once it is complete, if it is small enough.
        let is_held = self.share.is_some() && !self.has_source && becomes <= MAX_HELD_BYTES;
        if becomes > self.inline_limit && !is_held {
            self.open_file()?;
        }
        if becomes > MAX_HELD_BYTES {
            self.open_spool()?;
        }
        match &mut self.beyond {
            Beyond::Nowhere if self.instead.is_some() && self.has_source => {}
            Beyond::Nowhere => {
                self.buffer.extend_from_slice(bytes);
                if bytes.len() >= MIN_SHOWN_BYTES {
                    let bytes = bytes.len() as u64;
                    self.guard.observe(CallEvent::Moved { bytes });
                }
                if let (PayloadPath::Files(files), Some(why)) = (self.payload_path, &self.instead)
                    && self.buffer.len() >= WARNING_BYTES
                {
                    files.warn_of_memory(&self.guard.inner.me(), self.buffer.len(), why);
                }
            }
            Beyond::File(_, writer) => {
                let before = writer.file.written();
                if let Err(problem) = writer.write(bytes, is_last) {
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
                self.guard.moved(bytes.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Gives up the payload's file, which has failed, and keeps its content in memory. Returns the problem if that is
    /// impossible.
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

    fn do_without(&mut self, files: &FilesPath, problem: Error) {
        tracing::debug!("a payload goes through memory instead: {problem}");
        files.refused(&problem);
        self.instead = Some(problem);
    }

    /// Publishes the payload's file, if it has one, or gives the file up.
    fn settle_file(&mut self) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.bound.is_exceeded_by(self.taken) {
            // It will not be announced.
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

    /// Begins the payload's file, if there is a place for it, with the bytes so far.
    fn open_file(&mut self) -> Result<(), Error> {
        let (PayloadPath::Files(files), Beyond::Nowhere, None) =
            (self.payload_path, &self.beyond, &self.instead)
        else {
            return Ok(());
        };
        let guard = self.guard;
        // So that a rank that dies while it writes is known to have been writing.
        guard.moved(0)?;
        let inner = &guard.inner;
        let id = PayloadId {
            channel: guard.ticket.channel,
            epoch: guard.ticket.epoch,
            rank: inner.world.rank,
        };
        let progress: Box<Progress<'a>> = Box::new(move |bytes| guard.moved(bytes));
        let compression = guard.inner.world.compression;
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
            let created = directory.create_payload(id, self.encoding, compression, progress);
            if files.has_checksums() {
                created
            } else {
                created.map(PayloadWriter::without_checksums)
            }
        };
        let written = created.and_then(|file| {
            let mut writer = Writer { file, calls, what };
            writer.write(&self.buffer, false)?;
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

    /// Begins to keep the payload in a local file, if it must be kept until it is requested.
    fn open_spool(&mut self) -> Result<(), Error> {
        let is_kept = self.retention != Retention::Passing;
        if let (PayloadPath::Mesh(_), true, Beyond::Nowhere) =
            (self.payload_path, is_kept, &self.beyond)
        {
            let mut spool = Spool::new()?;
            spool.append(&std::mem::take(&mut self.buffer))?;
            self.beyond = Beyond::Spool(spool);
        }
        Ok(())
    }

    /// Publishes the payload and returns its announcement.
    fn finish(mut self, own: HeldInput<'_>) -> Result<Ready<'_>, Error> {
        if let (Some(share), Beyond::Nowhere, None, None, HeldInput::Gone) =
            (self.share, &self.beyond, &self.instead, &self.failure, &own)
        {
            if let Some(location) = self.place(&InputSource::Slice(&self.buffer), share) {
                return placing::placed(self.guard, share, location, None);
            }
            if self.buffer.len() > self.inline_limit {
                self.open_file()?;
            }
        }
        self.settle_file()?;
        let guard = self.guard;
        let len = self.taken.max(own.len());
        if let Some(problem) = self.bound.problem(len, || guard.inner.me()) {
            return Err(problem);
        }
        let own = match (own, self.beyond) {
            (HeldInput::Gone, Beyond::Published(files, locator)) => {
                let announcement = PayloadHeader::File(FileHeader {
                    directory: files.directory().facts().id,
                    locator,
                });
                let contribution = Contribution {
                    body: body(guard, announcement)?,
                    leaves: self.retention.leaves_of_files(),
                    further_rounds: 0,
                };
                let own = HeldInput::Gone;
                return Ok(Ready {
                    contribution,
                    own,
                    len,
                });
            }
            (HeldInput::Gone, Beyond::Spool(spool)) => HeldInput::Spooled(spool),
            (HeldInput::Gone, Beyond::Nowhere) if self.buffer.len() <= self.inline_limit => {
                let payload = Bytes::from(self.buffer);
                let seal = seal(guard, std::slice::from_ref(&payload));
                let announcement = PayloadHeader::Inline { seal, payload };
                return Ok(Ready {
                    contribution: Contribution::inline(body(guard, announcement)?),
                    own: HeldInput::Gone,
                    len,
                });
            }
            (HeldInput::Gone, Beyond::Nowhere) => HeldInput::Held(Bytes::from(self.buffer)),
            (own, _) => own,
        };
        match self.payload_path {
            PayloadPath::Mesh(mesh) => mesh::announced(guard, mesh, self.retention, own),
            _ => relay::announced(guard, own, self.instead.as_ref()),
        }
    }
}

pub(super) fn own_origin(guard: &CallGuard) -> PayloadOrigin {
    PayloadOrigin::own(&guard.inner.world, &guard.ticket)
}

fn seal(guard: &CallGuard, pieces: &[Bytes]) -> u64 {
    own_origin(guard).seal(&guard.inner, pieces)
}

impl Write for InputWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn body(guard: &CallGuard, announcement: PayloadHeader) -> Result<Bytes, Error> {
    announcement
        .into_body()
        .map_err(|error| guard.raised(format!("its announcement cannot be encoded: {error}")))
}

/// Returns the maximum size of a payload inside an announcement, in bytes.
fn inline_limit(setting: u64, body_limit: usize) -> usize {
    let most = body_limit.saturating_sub(INLINE_OVERHEAD);
    if body_limit == usize::MAX {
        // Nothing is copied in such a world, so no other path is better.
        most
    } else {
        usize::try_from(setting).unwrap_or(usize::MAX).min(most)
    }
}
