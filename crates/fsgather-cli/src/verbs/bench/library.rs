//! Performs the operations that `bench` measures: [`Library`].

use std::io;

use fsgather::{Communicator, Pieces};

use super::operation::{Operation, touch};
use crate::failure::Failure;

/// Operations as users call them.
pub(super) struct Library<'a> {
    world: &'a Communicator,
    /// The payload of this rank.
    source: &'a [u8],
}

impl Library<'_> {
    /// Performs this rank's part, and reads a byte of every page that it receives.
    ///
    /// # Errors
    ///
    /// Returns the errors of the call.
    pub(super) fn perform(&self, operation: Operation) -> Result<(), Failure> {
        let world = self.world;
        let source = Pieces::from(self.source);
        let ranks = world.world_size().count();
        match operation {
            Operation::Barrier => world.barrier()?,
            Operation::Broadcast => {
                self.look_at(&world.broadcast(source, 0)?)?;
            }
            Operation::Gather => {
                if let Some(parts) = world.gather(source, 0)? {
                    let mut received = 0;
                    for part in parts {
                        self.look_at(&part?.1)?;
                        received += 1;
                    }
                    expect(received, ranks)?;
                }
            }
            Operation::AllGather => {
                let received = world.all_gather(source)?;
                expect(received.len(), ranks)?;
                for payload in received {
                    self.look_at(&payload)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> Library<'a> {
    /// A library whose payload is `source`.
    pub(super) const fn new(world: &'a Communicator, source: &'a [u8]) -> Self {
        Self { world, source }
    }

    fn look_at(&self, payload: &[u8]) -> Result<(), Failure> {
        expect(payload.len(), self.source.len())?;
        touch(payload);
        Ok(())
    }
}

/// Refuses a result of the wrong length.
fn expect(received: usize, expected: usize) -> Result<(), Failure> {
    if received == expected {
        return Ok(());
    }
    let cause = format!("{received} came, {expected} should have");
    Err(Failure::system("accept what was received")(
        io::Error::other(cause),
    ))
}
