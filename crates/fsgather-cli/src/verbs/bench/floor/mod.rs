//! The floor: the same operations as bare system calls, on blocking sockets and files.
//!
//! Nothing here checks, names or counts more than it takes to move the bytes, so that no library can be
//! expected to be faster by much. It is no way to gather anything: nothing notices a difference, a stranger
//! or a full disk in time.

mod files;
mod links;
mod ring;
mod star;

use std::{io, path::Path, time::Duration};

use fsgather::Communicator;

pub(super) use star::Star;

use super::operation::{Operation, Subject};
use crate::failure::Failure;
use files::Files;
use ring::Ring;

/// How much is read at once.
const BUFFER: usize = 1 << 20;

/// Operations as bare system calls.
pub(super) struct Floor<'a> {
    star: &'a Star,
    /// This rank's payload.
    source: &'a [u8],
    bulk: Bulk<'a>,
}

/// How payloads travel.
enum Bulk<'a> {
    /// Like messages: this is the buffer for those of all ranks.
    Inline(Vec<u8>),
    Files(Files<'a>),
    /// Over sockets: to rank 0 and from it with a buffer, or round the ring.
    Memory(Vec<u8>, Ring),
}

/// Which way the payloads that are measured take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloorPath {
    Inline,
    Files,
    Memory,
}

impl<'a> Floor<'a> {
    /// Gets ready; a collective call.
    ///
    /// # Errors
    ///
    /// When ranks cannot be connected.
    pub(super) fn new(
        world: &Communicator,
        star: &'a Star,
        source: &'a [u8],
        way: FloorPath,
        directory: &'a Path,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let (rank, ranks) = (world.rank().index(), world.world_size().count());
        let bulk = match way {
            FloorPath::Inline => Bulk::Inline(vec![0; ranks * source.len()]),
            FloorPath::Files => Bulk::Files(Files::new(directory, rank, ranks)),
            FloorPath::Memory => {
                let ring = Ring::connect(world, source.len(), timeout)?;
                Bulk::Memory(vec![0; BUFFER], ring)
            }
        };
        Ok(Self { star, source, bulk })
    }
}

impl Subject for Floor<'_> {
    fn perform(&mut self, operation: Operation) -> Result<(), Failure> {
        let (star, source) = (self.star, self.source);
        match (operation, &mut self.bulk) {
            (Operation::Barrier, _) => star.barrier(),
            (Operation::Broadcast, Bulk::Files(files)) => files.broadcast(star, source),
            (Operation::Gather, Bulk::Files(files)) => files.gather(star, source),
            (Operation::AllGather, Bulk::Files(files)) => files.all_gather(star, source),
            (Operation::Broadcast, Bulk::Inline(buffer) | Bulk::Memory(buffer, _)) => {
                star.broadcast(source, buffer)
            }
            (Operation::Gather, Bulk::Inline(buffer) | Bulk::Memory(buffer, _)) => {
                star.gather(source, buffer)
            }
            (Operation::AllGather, Bulk::Inline(buffer)) => star.all_gather(source, buffer),
            (Operation::AllGather, Bulk::Memory(_, ring)) => ring.all_gather(source),
        }
        .map_err(Failure::system("do without the library"))
    }

    fn tidy_up(&mut self) -> Result<(), Failure> {
        match &mut self.bulk {
            Bulk::Files(files) => files
                .remove(self.star)
                .map_err(Failure::system("remove files of the floor")),
            Bulk::Inline(_) | Bulk::Memory(..) => Ok(()),
        }
    }
}

/// Whether an error says that another rank has gone, or says nothing any more.
pub(super) fn is_loss(cause: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut, UnexpectedEof,
        WouldBlock,
    };
    matches!(
        cause.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | TimedOut
            | UnexpectedEof
            | WouldBlock
    )
}
