//! Connects ranks over loopback: [`connect`].

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use fsgather::Communicator;
use rand::{RngExt, rand_core::UnwrapErr, rngs::SysRng};

/// Maximum time that a rank may take to introduce itself.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// A random number of the rank that accepts, and the number of the rank that connects.
type Hello = [u8; 12];

/// Connections between this rank and others.
pub(super) struct Links {
    /// Connections that this rank has made, in the requested order.
    pub(super) made: Vec<TcpStream>,
    /// Connections that others have made, in rank order.
    pub(super) taken: Vec<TcpStream>,
}

/// Connects this rank to the ranks in `to`, while `from` others connect to this one. All ranks call this.
pub(super) fn connect(world: &Communicator, to: &[usize], from: usize, timeout: Duration) -> Links {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let secret: u64 = UnwrapErr(SysRng).random();
    let known = world.all_gather(&(port, secret)).unwrap();
    let mut made = Vec::with_capacity(to.len());
    for &rank in to {
        let (port, secret) = known[rank];
        made.push(call(port, &hello(secret, world.rank().get()), timeout).unwrap());
    }
    // From here on, all connections wait to be accepted.
    world.barrier().unwrap();
    let mut taken = Vec::with_capacity(from);
    while taken.len() < from {
        let (stream, _) = listener.accept().unwrap();
        // A process that does not know the number is not a rank.
        if let Some(rank) = introduced(&stream, secret) {
            prepare(&stream, timeout).unwrap();
            taken.push((rank, stream));
        }
    }
    taken.sort_by_key(|(rank, _)| *rank);
    let taken = taken.into_iter().map(|(_, stream)| stream).collect();
    Links { made, taken }
}

fn call(port: u16, hello: &Hello, timeout: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    prepare(&stream, timeout)?;
    stream.write_all(hello)?;
    Ok(stream)
}

fn introduced(mut stream: &TcpStream, secret: u64) -> Option<u32> {
    let mut said = Hello::default();
    stream.set_read_timeout(Some(INTRODUCTION_TIMEOUT)).ok()?;
    stream.read_exact(&mut said).ok()?;
    let (number, rank) = said.split_first_chunk()?;
    let rank = u32::from_le_bytes(*rank.first_chunk()?);
    (u64::from_le_bytes(*number) == secret).then_some(rank)
}

fn hello(secret: u64, rank: u32) -> Hello {
    let mut hello = Hello::default();
    hello[..8].copy_from_slice(&secret.to_le_bytes());
    hello[8..].copy_from_slice(&rank.to_le_bytes());
    hello
}

fn prepare(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}
