//! The payloads that arrived from the others: [`IncomingPart`].

use std::{io::Read, sync::Arc, time::Duration, vec};

use bytes::Bytes;
use fsgather_arena::Leased;
use fsgather_control::mesh::Pull;
use fsgather_core::{CallId, Error, Peer, Rank, Recipients, Ticket};
use fsgather_store::Payload;

use crate::{
    call::guard::CallGuard,
    group_state::GroupState,
    payload::{
        ahead::fetch_ahead,
        header::{FileHeader, PayloadHeader},
        input::HeldInput,
        mesh::MeshPath,
        origin::PayloadOrigin,
        path::{FilesPath, PayloadPath},
        shared_memory::{Share, SharedPayload},
        spool::Spool,
        stream::{OwnMoved, PayloadStream},
    },
};

/// A function that is called with the number of bytes after each piece; its error ends the reading.
pub(crate) type Moved<'a> = &'a mut dyn FnMut(u64) -> Result<(), Error>;

/// One rank's payload, not read yet.
pub(crate) enum IncomingPart {
    /// It is in memory.
    Here(Bytes),
    /// It is in a file.
    File(FileHeader),
    /// Its owner keeps it, or it passes through the ring of this call.
    Linked(Linked),
    /// It is in memory that ranks share.
    Shared(Leased),
    /// It is this rank's own, too long to be held in memory.
    Spooled(Spool),
}

/// A payload in the memory of another rank.
pub(crate) struct Linked {
    mesh: MeshPath,
    call: CallId,
    pub(crate) len: u64,
    timeout: Duration,
    /// The transfer that fetches it, if it has begun.
    begun: Option<Box<Pull>>,
}

impl Linked {
    /// Returns true if it comes from another host, given that it is the payload of `rank` of a group.
    pub(crate) fn is_far(&self, inner: &GroupState, rank: Rank) -> bool {
        let hosts = &self.mesh.hosts;
        hosts.get(&inner.in_world(rank)) != hosts.get(&inner.world.rank)
    }

    /// Begins to fetch it in the background. If that fails, the error is returned when the payload is requested.
    pub(crate) fn begin(&mut self, inner: &GroupState, rank: Rank) {
        if self.begun.is_none() {
            let begun = self.asked(inner, rank).and_then(Pull::ahead);
            self.begun = begun.ok().map(Box::new);
        }
    }

    /// Fetches it from `rank` of a group.
    fn pull(mut self, inner: &GroupState, rank: Rank) -> Result<Pull, Error> {
        match self.begun.take() {
            Some(begun) => Ok(*begun),
            None => self.asked(inner, rank),
        }
    }

    fn asked(&self, inner: &GroupState, rank: Rank) -> Result<Pull, Error> {
        let pull = self
            .mesh
            .connections
            .pull(self.call, inner.in_world(rank), self.len)?;
        let pull = pull.within(self.timeout);
        Ok(if self.mesh.has_checksums {
            pull
        } else {
            pull.without_checksums()
        })
    }
}

/// The context in which the announcements of a call are read.
pub(crate) struct Announced<'a> {
    pub(crate) inner: &'a GroupState,
    pub(crate) payload_path: &'a PayloadPath,
    pub(crate) share: Option<&'a Share>,
    /// True if this rank has its own part, and takes it.
    pub(crate) keeps: bool,
    pub(crate) ticket: &'a Ticket,
}

impl Announced<'_> {
    /// Returns the parts that all ranks have announced, in rank order, with the pieces from further rounds.
    pub(crate) fn parts(
        &self,
        bodies: &[Bytes],
        relayed: Vec<Vec<u8>>,
    ) -> Result<Vec<IncomingPart>, Error> {
        let mut relayed = relayed.into_iter();
        let bodies = (0..).map(Rank::new).zip(bodies);
        bodies
            .map(|(rank, body)| self.part(rank, body, relayed.next().unwrap_or_default()))
            .collect()
    }

    /// Returns the part that `rank` has announced, with its `pieces` from further rounds. Payloads in memory are
    /// verified, and parts of another rank or another call are errors.
    fn part(&self, rank: Rank, body: &Bytes, pieces: Vec<u8>) -> Result<IncomingPart, Error> {
        let Self {
            inner,
            payload_path,
            share,
            keeps,
            ticket,
        } = *self;
        let linked = |rank: Rank, len| match payload_path {
            PayloadPath::Mesh(mesh) => Ok(IncomingPart::Linked(Linked {
                mesh: mesh.clone(),
                call: ticket.id(),
                len,
                timeout: ticket.call.timeout.unwrap_or(mesh.connections.timeout()),
                begun: None,
            })),
            _ => Err(Error::config(format!(
                "rank {rank} hands its payload over by memory, this rank reads files; all ranks must name the \
                 same directory and transport"
            ))),
        };
        let origin = PayloadOrigin::of(inner, ticket, rank);
        let broken = |what: &str| Err(origin.broken(inner, ticket, rank, what));
        match PayloadHeader::from_body(body) {
            Some(PayloadHeader::Inline { seal, payload }) => {
                if origin.seal(inner, std::slice::from_ref(&payload)) != seal {
                    return broken("a payload sent with the control messages");
                }
                Ok(IncomingPart::Here(payload))
            }
            Some(PayloadHeader::File(file)) => {
                if !origin.is_of(&file.locator.name) {
                    return broken(&file.locator.name.to_string());
                }
                Ok(IncomingPart::File(file))
            }
            Some(PayloadHeader::Relayed(announced)) => {
                let is_whole = pieces.len() as u64 == announced.len;
                if !is_whole || origin.digest(&pieces) != announced.digest {
                    return broken("a payload sent through rank 0");
                }
                if let (Some(why), PayloadPath::Files(files)) = (&announced.instead, payload_path)
                    && warns(inner, ticket)
                    && let Some(whose) = inner.peer(rank)
                {
                    files.warn_of_fallback(whose, why);
                }
                Ok(IncomingPart::Here(pieces.into()))
            }
            Some(PayloadHeader::Linked { len }) => linked(rank, len),
            // The part that this rank has kept, or has in its own memory, replaces it.
            Some(PayloadHeader::Placed(_)) if rank == inner.exchange.rank() => {
                Ok(IncomingPart::Here(Bytes::new()))
            }
            Some(PayloadHeader::Placed(location)) if !inner.is_sharing(rank) => {
                linked(rank, location.len())
            }
            // The part that this rank has kept replaces it.
            Some(PayloadHeader::Shared(_) | PayloadHeader::Kept { .. })
                if rank == inner.exchange.rank() && keeps =>
            {
                Ok(IncomingPart::Here(Bytes::new()))
            }
            Some(PayloadHeader::Kept { .. }) => broken("a payload that is for its owner alone"),
            Some(PayloadHeader::TooLarge { .. }) => broken("a refusal of a call without a bound"),
            Some(PayloadHeader::Shared(location) | PayloadHeader::Placed(location)) => {
                let leased = share.and_then(|share| share.lease(inner.in_world(rank), &location));
                leased.map_or_else(
                    || broken("a payload in shared memory"),
                    |leased| Ok(IncomingPart::Shared(leased)),
                )
            }
            None => Err(Error::incompatible(
                format!("the announcement of rank {rank}"),
                "the kinds 0 to 7",
                format!("{:?}", body.first()),
            )),
        }
    }
}

impl IncomingPart {
    /// Reads and verifies the payload of `rank`.
    pub(crate) fn read(
        self,
        inner: &GroupState,
        rank: Rank,
        moved: Moved<'_>,
    ) -> Result<Payload, Error> {
        match self {
            Self::Here(payload) => Ok(payload.into()),
            Self::File(file) => {
                let files = files_of(inner, rank, &file)?;
                let directory = files.directory();
                let call = inner.world.file_calls.begin(&reading(inner, rank, &files));
                let moved: Moved<'_> = &mut |bytes| {
                    call.moved();
                    moved(bytes)
                };
                let collected = if rank == inner.exchange.rank() {
                    directory.collect_own(&file.locator, files.policy(), moved)
                } else {
                    directory.collect(&file.locator, files.policy(), moved)
                };
                collected.map_err(|error| written_by(inner.peer(rank), error))
            }
            Self::Linked(linked) => {
                let pull = linked.pull(inner, rank)?;
                Ok(pull.read_to_end(moved)?.into())
            }
            Self::Shared(leased) => Ok(SharedPayload::of(leased)),
            Self::Spooled(mut spool) => {
                let mut bytes = Vec::new();
                let read = spool.read_to_end(&mut bytes);
                read.map_err(|error| Error::storage("read a stream kept in", "/tmp", &error))?;
                Ok(bytes.into())
            }
        }
    }

    /// Takes the payload that this rank itself has handed in.
    pub(crate) fn take_own(&mut self, own: HeldInput<'_>) {
        *self = match own {
            HeldInput::Spooled(spool) => Self::Spooled(spool),
            HeldInput::Placed(leased) => Self::Shared(leased),
            held => Self::Here(held.to_bytes()),
        };
    }

    /// Begins to read the payload of `rank` as a stream, which needs memory only for a piece.
    pub(crate) fn open(
        self,
        inner: &GroupState,
        rank: Rank,
        moved: OwnMoved,
    ) -> Result<PayloadStream, Error> {
        match self {
            Self::Here(payload) => Ok(PayloadStream::held(payload)),
            Self::Shared(leased) => Ok(PayloadStream::held(SharedPayload::of(leased).into())),
            Self::File(file) => {
                let files = files_of(inner, rank, &file)?;
                let what = reading(inner, rank, &files);
                let reader = {
                    let _call = inner.world.file_calls.begin(&what);
                    let directory = files.directory();
                    let opened = directory.open_payload(&file.locator, files.policy(), moved);
                    opened.map_err(|error| written_by(inner.peer(rank), error))?
                };
                let writer = inner.peer(rank).cloned();
                let calls = (Arc::clone(&inner.world), what);
                Ok(PayloadStream::from_file(reader, writer, calls))
            }
            Self::Linked(linked) => Ok(PayloadStream::from_link(linked.pull(inner, rank)?, moved)),
            Self::Spooled(spool) => Ok(PayloadStream::from_spool(spool)),
        }
    }

    /// Length in bytes, as announced.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Here(payload) => payload.len() as u64,
            Self::File(file) => file.locator.raw_len,
            Self::Linked(linked) => linked.len,
            Self::Shared(leased) => leased.len() as u64,
            Self::Spooled(spool) => spool.len(),
        }
    }

    /// Returns the file that contains it, if any.
    pub(crate) fn file(&self) -> Option<&FileHeader> {
        match self {
            Self::File(file) => Some(file),
            _ => None,
        }
    }

    /// Records that this rank, a root that is the only reader of a payload, must [remove](Self::remove) its file.
    pub(crate) fn is_to_be_removed(&self, inner: &GroupState) {
        if let Some(file) = self.file()
            && let Some(files) = inner.world.directories.of(file.directory)
        {
            files.is_ours_to_read(file.locator.name);
        }
    }

    /// Removes a payload's file; for a root that is the only reader.
    pub(crate) fn remove(inner: &GroupState, file: Option<&FileHeader>) {
        if let Some(file) = file
            && let Some(files) = inner.world.directories.of(file.directory)
        {
            files.reclaim(file.locator.name);
        }
    }
}

/// Returns true if this rank warns of problems that all recipients of a call see.
fn warns(inner: &GroupState, ticket: &Ticket) -> bool {
    let me = inner.exchange.rank();
    match ticket.call.recipients() {
        Recipients::Only(root) => me == root,
        Recipients::All | Recipients::Nobody => me == Rank::ZERO,
    }
}

/// Returns the warning text for reading a file that makes no progress.
fn reading(inner: &GroupState, rank: Rank, files: &FilesPath) -> Arc<str> {
    let path = files.directory().path().display();
    match inner.peer(rank) {
        Some(peer) => format!("reading the payload of {peer} in {path}").into(),
        None => format!("reading the payload of rank {rank} in {path}").into(),
    }
}

fn files_of(inner: &GroupState, rank: Rank, file: &FileHeader) -> Result<Arc<FilesPath>, Error> {
    inner.world.directories.of(file.directory).ok_or_else(|| {
        Error::config(format!(
            "rank {rank} handed its payload over in another gather directory ({}); all ranks must name the \
             same directory and transport",
            file.directory
        ))
    })
}

/// Returns the same error with the rank that wrote the unreadable data.
pub(crate) fn written_by(peer: Option<&Peer>, mut error: Error) -> Error {
    if let Error::Corrupt { writer, .. } = &mut error {
        *writer = peer.cloned();
    }
    error
}

/// Returns the order in which `reader` reads the payloads of `ranks` ranks: its own neighbour first, so that the ranks
/// do not all read one file at once.
fn reading_order(reader: Rank, ranks: usize) -> impl Iterator<Item = usize> {
    (1..=ranks).map(move |step| (reader.index() + step) % ranks)
}

/// The parts of all ranks in the order in which this rank reads them. Slow transfers begin before their parts are
/// requested.
pub(crate) struct InReadingOrder<'a> {
    inner: &'a GroupState,
    parts: vec::IntoIter<(Rank, IncomingPart)>,
}

impl<'a> InReadingOrder<'a> {
    pub(crate) fn new(inner: &'a GroupState, incoming: Vec<IncomingPart>) -> Self {
        let mut incoming: Vec<Option<IncomingPart>> = incoming.into_iter().map(Some).collect();
        let parts: Vec<_> = reading_order(inner.exchange.rank(), incoming.len())
            .filter_map(|index| {
                let rank = Rank::new(u32::try_from(index).ok()?);
                Some((rank, incoming.get_mut(index)?.take()?))
            })
            .collect();
        Self {
            inner,
            parts: parts.into_iter(),
        }
    }
}

impl Iterator for InReadingOrder<'_> {
    type Item = (Rank, IncomingPart);

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.parts.as_mut_slice().iter_mut();
        fetch_ahead(self.inner, next.map(|(rank, part)| (*rank, part)));
        self.parts.next()
    }
}

/// Reads all payloads of a call, in the order that spreads the load; results in rank order.
pub(crate) fn read_all<R>(
    guard: &CallGuard,
    incoming: Vec<IncomingPart>,
    mut take: impl FnMut(Rank, Payload) -> Result<R, Error>,
) -> Result<Vec<R>, Error> {
    let inner = &guard.inner;
    let mut results: Vec<Option<R>> = incoming.iter().map(|_| None).collect();
    for (rank, part) in InReadingOrder::new(inner, incoming) {
        let payload = part.read(inner, rank, &mut |bytes| guard.moved(bytes))?;
        if let Some(result) = results.get_mut(rank.index()) {
            *result = Some(take(rank, payload)?);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_start_at_different_ranks_and_read_all() {
        let order: Vec<usize> = reading_order(Rank::new(2), 4).collect();
        assert_eq!(order, [3, 0, 1, 2]);
        let firsts: Vec<Option<usize>> = (0..4)
            .map(|rank| reading_order(Rank::new(rank), 4).next())
            .collect();
        assert_eq!(firsts, [Some(1), Some(2), Some(3), Some(0)]);
    }
}
