//! Makes ranks map each other's arenas: [`Host`] on one of them, [`Visitor`] on the others.
//!
//! One rank listens; the others send it their descriptors, and each receives those of all. Descriptors pass between processes
//! of one kernel only, so a rank that has mapped an arena provably shares memory with its owner. A process that connects
//! receives nothing before it has sent a password that only ranks of the world know.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    time::{Duration, Instant},
};

use fsgather_core::{Error, Rank};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
        sendmsg, socket_with,
    },
};
use serde::{Deserialize, Serialize};

use crate::foreign::Arenas;

/// Maximum number of ranks that share memory: one message carries all their descriptors.
pub const MOST_RANKS: usize = 100;

/// Maximum time to wait for ranks that have announced that they will connect.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum time that a process may take to identify itself after it has connected.
const GREETING: Duration = Duration::from_secs(1);

/// Interval at which a waiting rank checks if it must stop.
const LOOK: Duration = Duration::from_millis(100);

/// Length of a password in bytes.
const PASSWORD: usize = 32;

/// Length of the entry of a rank in bytes: its number and its budget.
const ENTRY: usize = 12;

/// Address at which ranks meet to share memory, and the secrets that they exchange there. Only ranks of the world may see it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeetingPoint {
    name: [u8; 16],
    /// Sent by a rank that connects.
    password: [u8; PASSWORD],
    /// Sent back by the host.
    answer: [u8; PASSWORD],
}

impl std::fmt::Debug for MeetingPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeetingPoint").finish_non_exhaustive()
    }
}

impl MeetingPoint {
    /// Returns the name of an abstract socket, which leaves no file behind. It is valid in one network namespace.
    fn name(&self) -> Vec<u8> {
        let mut name = b"fsgather-".to_vec();
        for byte in self.name {
            name.extend(format!("{byte:02x}").into_bytes());
        }
        name
    }
}

/// Callback of a waiting rank: it returns an error if the rank must stop waiting.
pub type Heed<'a> = &'a dyn Fn() -> Result<(), Error>;

/// The rank to which the others connect.
#[derive(Debug)]
pub struct Host {
    listener: UnixListener,
    point: MeetingPoint,
}

/// An arena on its way to other ranks: its owner, its budget and its descriptors.
type Entry = (Rank, u64, [OwnedFd; 2]);

impl Host {
    /// Listens at a new address, made of `random` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the system refuses the socket.
    pub fn listen(random: [u8; 80]) -> Result<Self, Error> {
        let mut point = MeetingPoint {
            name: [0; 16],
            password: [0; 32],
            answer: [0; 32],
        };
        point.name.copy_from_slice(&random[..16]);
        point.password.copy_from_slice(&random[16..48]);
        point.answer.copy_from_slice(&random[48..]);
        let listen = || {
            let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(point.name())?)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|error| failed(&error))?;
        Ok(Self { listener, point })
    }

    /// Address at which this host listens.
    #[must_use]
    pub fn point(&self) -> &MeetingPoint {
        &self.point
    }

    /// Accepts all of `others`, which have announced that they will connect, and sends all arenas to all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if a rank does not connect within ten seconds, or descriptors do not pass; the error of `heed`.
    pub fn serve(&self, arenas: &Arenas, others: &[Rank], heed: Heed<'_>) -> Result<(), Error> {
        let deadline = Instant::now() + LIMIT;
        let mut come: Vec<(UnixStream, Entry)> = Vec::new();
        while come.len() < others.len() {
            heed()?;
            if Instant::now() >= deadline {
                return Err(failed(&io::ErrorKind::TimedOut.into()));
            }
            if let Some(stream) = self.accept().map_err(|error| failed(&error))?
                && let Some(entry) = self
                    .welcome(&stream, others)
                    .map_err(|error| failed(&error))?
                && come.iter().all(|(_, known)| known.0 != entry.0)
            {
                come.push((stream, entry));
            }
        }
        let own = arenas.own();
        let mut all = vec![(own.owner(), own.budget(), own.descriptors()?)];
        let mut streams = Vec::new();
        for (stream, entry) in come {
            streams.push(stream);
            all.push(entry);
        }
        let mut table = self.point.answer.to_vec();
        for (rank, budget, _) in &all {
            push_entry(&mut table, *rank, *budget);
        }
        let descriptors: Vec<BorrowedFd<'_>> = all
            .iter()
            .flat_map(|(_, _, both)| both.iter().map(AsFd::as_fd))
            .collect();
        for stream in &streams {
            send(stream, &table, &descriptors).map_err(|error| failed(&error))?;
        }
        all.into_iter()
            .try_for_each(|(rank, budget, both)| keep(arenas, rank, budget, both))
    }

    /// Accepts a connection, if one arrives within [`LOOK`].
    fn accept(&self) -> io::Result<Option<UnixStream>> {
        let wait = Timespec::try_from(LOOK).map_err(io::Error::other)?;
        match poll(
            &mut [PollFd::new(&self.listener, PollFlags::IN)],
            Some(&wait),
        ) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match self.listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Receives the arena of a process that has connected, if it is one of the expected ranks.
    fn welcome(&self, stream: &UnixStream, others: &[Rank]) -> io::Result<Option<Entry>> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut said = [0; PASSWORD + ENTRY];
        let Ok(mut descriptors) = receive(stream, &mut said, 2, GREETING, &|| Ok(())) else {
            // A foreign process, or one that has gone.
            return Ok(None);
        };
        let (password, entry) = said.split_at(PASSWORD);
        let (Some((rank, budget)), Some(words), Some(memory)) =
            (entries(entry).next(), descriptors.pop(), descriptors.pop())
        else {
            return Ok(None);
        };
        let is_expected = password == self.point.password && others.contains(&rank);
        Ok(is_expected.then_some((rank, budget, [memory, words])))
    }
}

/// A rank that has connected to a [`Host`].
#[derive(Debug)]
pub struct Visitor {
    stream: UnixStream,
    answer: [u8; PASSWORD],
}

impl Visitor {
    /// Sends the own arena to the host, without waiting for any rank.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if no host listens that can be reached from here, as in another network namespace.
    pub fn come(point: &MeetingPoint, arenas: &Arenas) -> Result<Self, Error> {
        let own = arenas.own();
        let descriptors = own.descriptors()?;
        let mut said = point.password.to_vec();
        push_entry(&mut said, own.owner(), own.budget());
        let come = || {
            // Foreign processes may have filled the backlog of the listener. That is an error instead of a reason to wait.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            connect(&socket, &SocketAddrUnix::new_abstract_name(&point.name())?)?;
            let stream = UnixStream::from(socket);
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(LIMIT))?;
            stream.set_read_timeout(Some(LOOK))?;
            send(&stream, &said, &descriptors.each_ref().map(AsFd::as_fd))?;
            Ok(stream)
        };
        let stream = come().map_err(|error| failed(&error))?;
        Ok(Self {
            stream,
            answer: point.answer,
        })
    }

    /// Maps the arenas of all `ranks` ranks that have connected, once the host sends them.
    ///
    /// # Errors
    ///
    /// As [`Host::serve`].
    pub fn receive(&self, arenas: &Arenas, ranks: usize, heed: Heed<'_>) -> Result<(), Error> {
        let mut table = vec![0; PASSWORD + ranks * ENTRY];
        let received = receive(&self.stream, &mut table, 2 * ranks, LIMIT, heed);
        let mut come = received.map_err(|error| failed(&error))?.into_iter();
        let (answer, table) = table.split_at(PASSWORD);
        if answer != self.answer {
            return Err(failed(&io::ErrorKind::PermissionDenied.into()));
        }
        for (rank, budget) in entries(table) {
            if let (Some(memory), Some(words)) = (come.next(), come.next()) {
                keep(arenas, rank, budget, [memory, words])?;
            }
        }
        Ok(())
    }
}

fn keep(arenas: &Arenas, rank: Rank, budget: u64, descriptors: [OwnedFd; 2]) -> Result<(), Error> {
    if arenas.knows(rank) {
        return Ok(());
    }
    arenas.add(rank, budget, descriptors)
}

fn failed(error: &io::Error) -> Error {
    Error::storage("pass on", "memory that ranks share", error)
}

fn push_entry(table: &mut Vec<u8>, rank: Rank, budget: u64) {
    table.extend(rank.get().to_le_bytes());
    table.extend(budget.to_le_bytes());
}

fn entries(table: &[u8]) -> impl Iterator<Item = (Rank, u64)> {
    table.chunks_exact(ENTRY).filter_map(|entry| {
        let (rank, budget) = entry.split_first_chunk()?;
        Some((
            Rank::new(u32::from_le_bytes(*rank)),
            u64::from_le_bytes(*budget.first_chunk()?),
        ))
    })
}

/// Sends bytes, and descriptors with the first of them.
fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space =
        vec![MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(descriptors).size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(
        stream,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    (&*stream).write_all(&bytes[sent..])
}

/// Receives exactly as many bytes as `bytes` has space for, and the descriptors that arrive with the first of them.
fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    descriptors: usize,
    limit: Duration,
    heed: Heed<'_>,
) -> io::Result<Vec<OwnedFd>> {
    let deadline = Instant::now() + limit;
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(descriptors))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let received = recvmsg(
            stream,
            &mut [IoSliceMut::new(bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        match received {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
                if Instant::now() < deadline =>
            {
                heed().map_err(io::Error::other)?;
            }
            received => break received?.bytes,
        }
    };
    let mut come = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            come.extend(rights);
        }
    }
    if received == 0 || come.len() != descriptors {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    (&*stream).read_exact(&mut bytes[received..])?;
    Ok(come)
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
pub(crate) mod tests;
