//! Payloads from neighbour to neighbour, over blocking sockets: [`Ring`].

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use fsgather::Communicator;

use super::{links, touch};

/// A connection from every rank to the next one, and from the last one to rank 0.
pub(super) struct Ring {
    /// Connections to the neighbour that we receive from and to the one that we send to; none in a world of one.
    neighbours: Option<(TcpStream, TcpStream)>,
    /// Buffers for the payloads of all others.
    received: Vec<Vec<u8>>,
}

impl Ring {
    /// Connects all ranks. All ranks call this.
    pub(super) fn connect(world: &Communicator, len: usize, timeout: Duration) -> Self {
        let (rank, ranks) = (world.rank().index(), world.world_size().count());
        let neighbours = if ranks > 1 {
            let mut links = links::connect(world, &[(rank + 1) % ranks], 1, timeout);
            links.taken.pop().zip(links.made.pop())
        } else {
            None
        };
        Self {
            neighbours,
            received: vec![vec![0; len]; ranks - 1],
        }
    }

    /// Sends `source` of each rank to all ranks: each rank forwards the data that it receives, while it receives more.
    pub(super) fn all_gather(&mut self, source: &[u8]) -> io::Result<()> {
        let Some((left, right)) = &self.neighbours else {
            return Ok(());
        };
        let received = &mut self.received;
        thread::scope(|scope| {
            let (next, blocks) = mpsc::channel();
            let sender = thread::Builder::new().spawn_scoped(scope, || send(right, blocks))?;
            // A sender that has failed returns its error when it is joined.
            let _ = next.send(source);
            let last = received.len() - 1;
            for (step, block) in received.iter_mut().enumerate() {
                let mut left = left;
                left.read_exact(block).inspect_err(|_| {
                    // The sender must not wait for a rank that may wait for this one.
                    let _ = right.shutdown(Shutdown::Both);
                })?;
                touch(block);
                if step < last {
                    let _ = next.send(block);
                }
            }
            drop(next);
            let sent = sender.join();
            sent.unwrap_or_else(|_| Err(io::Error::other("the sending thread panicked")))
        })
    }
}

fn send(mut right: &TcpStream, blocks: Receiver<&[u8]>) -> io::Result<()> {
    for block in blocks {
        right.write_all(block)?;
    }
    Ok(())
}
