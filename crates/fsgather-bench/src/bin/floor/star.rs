//! Messages through rank 0, over blocking sockets: [`Star`].

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use fsgather::Communicator;

use super::{links, touch};

/// A connection from every rank to rank 0.
pub(super) struct Star {
    rank: usize,
    /// On rank 0 the connections to all others, in rank order; elsewhere the one to rank 0.
    links: Vec<TcpStream>,
}

impl Star {
    /// Connects all ranks. All ranks call this.
    pub(super) fn connect(world: &Communicator, timeout: Duration) -> Self {
        let rank = world.rank().index();
        let links = if rank == 0 {
            links::connect(world, &[], world.world_size().count() - 1, timeout).taken
        } else {
            links::connect(world, &[0], 0, timeout).made
        };
        Self { rank, links }
    }

    pub(super) const fn is_root(&self) -> bool {
        self.rank == 0
    }

    /// Sends a byte from each rank to rank 0, and one back.
    pub(super) fn barrier(&self) -> io::Result<()> {
        let mut byte = [0];
        self.all_gather_into(&[0], &mut byte, |_| 0..1)
    }

    /// Sends `source` of each rank to all ranks; rank 0 puts the parts together.
    pub(super) fn all_gather(&self, source: &[u8], table: &mut [u8]) -> io::Result<()> {
        let len = source.len();
        table[self.rank * len..][..len].copy_from_slice(source);
        self.all_gather_into(source, table, |rank| rank * len..(rank + 1) * len)
    }

    fn all_gather_into(
        &self,
        source: &[u8],
        table: &mut [u8],
        place_of: impl Fn(usize) -> std::ops::Range<usize>,
    ) -> io::Result<()> {
        if self.is_root() {
            for (rank, mut link) in (1..).zip(&self.links) {
                link.read_exact(&mut table[place_of(rank)])?;
            }
            for mut link in &self.links {
                link.write_all(table)?;
            }
        } else {
            for mut link in &self.links {
                link.write_all(source)?;
                link.read_exact(table)?;
            }
        }
        touch(table);
        Ok(())
    }

    /// Sends `source` of each rank to rank 0.
    pub(super) fn gather(&self, source: &[u8], buffer: &mut [u8]) -> io::Result<()> {
        for link in &self.links {
            if self.is_root() {
                receive(link, source.len(), buffer)?;
            } else {
                let mut link = link;
                link.write_all(source)?;
            }
        }
        Ok(())
    }

    /// Sends `source` of rank 0 to all ranks.
    pub(super) fn broadcast(&self, source: &[u8], buffer: &mut [u8]) -> io::Result<()> {
        for link in &self.links {
            if self.is_root() {
                let mut link = link;
                link.write_all(source)?;
            } else {
                receive(link, source.len(), buffer)?;
            }
        }
        Ok(())
    }
}

/// Reads `len` bytes through a buffer.
fn receive(mut link: &TcpStream, len: usize, buffer: &mut [u8]) -> io::Result<()> {
    let mut left = len;
    while left > 0 {
        let piece = left.min(buffer.len());
        link.read_exact(&mut buffer[..piece])?;
        touch(&buffer[..piece]);
        left -= piece;
    }
    Ok(())
}
