//! The library as a subject of `bench`: [`Library`].

use std::io;

use fsgather::{Communicator, Pieces, SendBuffer};

use super::arguments::Contents;
use super::operation::{Operation, Subject, touch};
use crate::failure::Failure;

/// Operations as users call them.
pub(super) struct Library<'a> {
    world: &'a Communicator,
    /// This rank's payload.
    source: &'a [u8],
    /// What is in the memory where others read it, if it is handed over there.
    send_buffer: Option<Contents>,
    /// Where it lies there for the next iteration.
    buffer: Option<SendBuffer>,
}

impl Subject for Library<'_> {
    fn perform(&mut self, operation: Operation) -> Result<(), Failure> {
        let world = self.world;
        let source = match self.buffer.take() {
            Some(buffer) => Pieces::from(buffer),
            None => Pieces::from(self.source),
        };
        let ranks = world.world_size().count();
        match operation {
            Operation::Barrier => world.barrier()?,
            Operation::Broadcast => {
                self.look_at(&world.broadcast_bytes(source, 0)?)?;
            }
            Operation::Gather => {
                if let Some(parts) = world.gather_bytes(source, 0)? {
                    let mut received = 0;
                    for part in parts {
                        self.look_at(&part?.1)?;
                        received += 1;
                    }
                    expect(received, ranks)?;
                }
            }
            Operation::AllGather => {
                let received = world.all_gather_bytes(source)?;
                expect(received.len(), ranks)?;
                for payload in received {
                    self.look_at(&payload)?;
                }
            }
        }
        Ok(())
    }

    /// The library does so in the background; programs write their next payload.
    fn tidy_up(&mut self) -> Result<(), Failure> {
        self.buffer = self.next_buffer();
        Ok(())
    }
}

impl<'a> Library<'a> {
    /// That hands over `source`, or a `send_buffer` as long.
    pub(super) fn new(
        world: &'a Communicator,
        source: &'a [u8],
        send_buffer: Option<Contents>,
    ) -> Self {
        let mut library = Self {
            world,
            source,
            send_buffer,
            buffer: None,
        };
        library.buffer = library.next_buffer();
        library
    }

    fn next_buffer(&self) -> Option<SendBuffer> {
        let contents = self.send_buffer?;
        let mut buffer = self.world.send_buffer(self.source.len());
        if contents == Contents::Written {
            buffer.copy_from_slice(self.source);
        }
        Some(buffer)
    }

    fn look_at(&self, payload: &[u8]) -> Result<(), Failure> {
        expect(payload.len(), self.source.len())?;
        touch(payload);
        Ok(())
    }
}

/// Refuses a result that is not as large as it has to be.
fn expect(received: usize, expected: usize) -> Result<(), Failure> {
    if received == expected {
        return Ok(());
    }
    let cause = format!("{received} came, {expected} should have");
    Err(Failure::system("accept what was received")(
        io::Error::other(cause),
    ))
}
