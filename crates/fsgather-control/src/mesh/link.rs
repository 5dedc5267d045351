//! One TCP connection between two ranks: [`Link`].

use std::{
    io::{self, IoSlice},
    mem::{self, MaybeUninit},
    net::Shutdown,
    sync::Arc,
};

use bytes::BufMut;
use fsgather_core::{ChannelId, Rank};
use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::tcp::{
    connection::{self, Bare},
    noise::{Records, Sealed},
    unsealing::Unsealing,
};

use super::header::RECEIVED;

/// Number of bytes that are encrypted at a time.
const SEAL_SIZE: usize = 128 << 10;

/// A connection that both sides have proved to belong to one world, and over which one transfer goes at
/// a time. Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Link {
    /// The rank at the other end.
    pub(super) peer: Rank,
    /// Not shared, except by copies that a forked child must not close.
    stream: Arc<TcpStream>,
    /// Present unless both ends are sure that the link does not leave their host.
    seal: Option<Seal>,
    /// Confirmations of ring transfers that the other end has still to send, and their channel.
    due: Option<Due>,
    /// The process that made it.
    pid: u32,
}

/// Confirmations that are outstanding for transfers that have ended here.
#[derive(Clone, Copy, Debug)]
struct Due {
    channel: ChannelId,
    words: u32,
}

/// State of the encryption of both directions.
#[derive(Debug)]
struct Seal {
    records: Unsealing,
    /// Decrypted bytes that have not been taken yet.
    plain: Vec<u8>,
    taken: usize,
    sealed: Sealed,
    number: u64,
    /// Encrypted bytes that the socket has not taken yet.
    wire: Records,
    written: usize,
}

/// Turns `WouldBlock` into `None`.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

/// Makes the end of the connection an error: it is never the end of a transfer.
fn unless_ended(result: io::Result<Option<usize>>) -> io::Result<Option<usize>> {
    match result {
        Ok(Some(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        other => other,
    }
}

impl Link {
    /// Takes over a connection after its handshake.
    pub(super) fn new(peer: Rank, bare: Bare, is_sealed: bool) -> Self {
        let Bare {
            stream,
            records,
            sealed,
            sent,
        } = bare;
        if let Err(error) = connection::probe_when_silent(&stream) {
            tracing::debug!("a link cannot be probed: {error}");
        }
        let seal = is_sealed.then(|| Seal {
            records,
            plain: Vec::new(),
            taken: 0,
            sealed,
            number: sent,
            wire: Records::default(),
            written: 0,
        });
        Self {
            peer,
            stream: Arc::new(stream),
            seal,
            due: None,
            pid: std::process::id(),
        }
    }

    /// Notes that a transfer of a channel has ended here, and that the other end has still to confirm it.
    pub(super) fn expect_word(&mut self, channel: ChannelId) {
        let words = self.due.map_or(0, |due| due.words) + 1;
        self.due = Some(Due { channel, words });
    }

    /// Returns true if a transfer of this channel may begin at once. A transfer of another channel may not as long as the
    /// end of an earlier one is not confirmed: if that has failed, the link ends.
    pub(super) fn is_open_to(&self, channel: Option<ChannelId>) -> bool {
        self.due.is_none_or(|due| Some(due.channel) == channel)
    }

    /// Waits for all confirmations of earlier transfers.
    pub(super) async fn settle(&mut self) -> io::Result<()> {
        while !self.try_settle()? {
            self.readable().await?;
        }
        Ok(())
    }

    /// Reads confirmations that have arrived, and returns true if none is outstanding any more.
    pub(super) fn try_settle(&mut self) -> io::Result<bool> {
        while let Some(due) = &mut self.due {
            let mut word = [0];
            let mut into = word.as_mut_slice();
            let received = match &mut self.seal {
                None => unless_ended(unless_blocked(self.stream.try_read_buf(&mut into))),
                Some(seal) => seal.try_receive(&self.stream, &mut into, 1),
            };
            if received?.is_none() {
                return Ok(false);
            }
            if word != [RECEIVED] {
                let wrong = "it has not said that it got everything";
                return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
            }
            due.words -= 1;
            if due.words == 0 {
                self.due = None;
            }
        }
        Ok(true)
    }

    /// Appends bytes that have arrived to `into`, at most `most`, which must not be 0. Returns `None` if there are none;
    /// the end of the connection is an error.
    pub(super) fn try_receive(
        &mut self,
        into: &mut impl BufMut,
        most: usize,
    ) -> io::Result<Option<usize>> {
        if !self.try_settle()? {
            return Ok(None);
        }
        match &mut self.seal {
            None => {
                let read = self.stream.try_read_buf(&mut (&mut *into).limit(most));
                unless_ended(unless_blocked(read))
            }
            Some(seal) => seal.try_receive(&self.stream, into, most),
        }
    }

    /// Waits until [`try_receive`](Self::try_receive) may find something.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Fills `into`.
    pub(super) async fn receive(&mut self, into: &mut [u8]) -> io::Result<()> {
        let mut rest = into;
        while !rest.is_empty() {
            let most = rest.len();
            if self.try_receive(&mut rest, most)?.is_none() {
                self.readable().await?;
            }
        }
        Ok(())
    }

    /// Sends as much of `parts` as can be sent now; `None` if nothing can. The bytes taken may still have to be
    /// [flushed](Self::try_flush).
    pub(super) fn try_send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match &mut self.seal {
            None => unless_blocked(self.stream.try_write_vectored(parts)),
            Some(seal) => seal.try_send(&self.stream, parts),
        }
    }

    /// Returns true if all bytes taken have gone to the operating system.
    pub(super) fn try_flush(&mut self) -> io::Result<bool> {
        match &mut self.seal {
            None => Ok(true),
            Some(seal) => seal.try_flush(&self.stream),
        }
    }

    /// Waits until [`try_send`](Self::try_send) or [`try_flush`](Self::try_flush) may make progress.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Sends all of `bytes`.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.try_send(&[IoSlice::new(rest)])? {
                Some(sent) => rest = &rest[sent..],
                None => self.writable().await?,
            }
        }
        while !self.try_flush()? {
            self.writable().await?;
        }
        Ok(())
    }

    /// Waits until the link has ended, or unexpected data arrives.
    pub(super) async fn ended(&self) {
        let mut unexpected = [0];
        while self.stream.readable().await.is_ok() {
            let read = self.stream.try_read(&mut unexpected);
            if !matches!(unless_blocked(read), Ok(None)) {
                return;
            }
        }
    }

    /// Returns true if the other end or the network has ended it, even with unread data before the end.
    pub(super) fn has_ended(&self) -> bool {
        let mut asked = [PollFd::new(&*self.stream, PollFlags::RDHUP)];
        let found = rustix::event::poll(&mut asked, Some(&Timespec::default()));
        found.is_ok_and(|found| found > 0)
    }

    /// Returns true if a link can still be used on which nothing is expected to arrive, except outstanding confirmations.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh_or_heard(false)
    }

    /// The same, but with `may_be_heard` other data may have arrived as well.
    pub(super) fn is_fresh_or_heard(&self, may_be_heard: bool) -> bool {
        let may_be_heard = may_be_heard || self.due.is_some();
        let mut nothing = [MaybeUninit::uninit()];
        // Asks the kernel rather than the runtime, which may not have run for a while.
        let peeked = SockRef::from(&*self.stream).peek(&mut nothing);
        match unless_blocked(peeked) {
            Ok(None) => true,
            Ok(Some(bytes)) => bytes > 0 && may_be_heard,
            Err(_) => false,
        }
    }
}

impl Seal {
    fn try_receive(
        &mut self,
        stream: &TcpStream,
        into: &mut impl BufMut,
        most: usize,
    ) -> io::Result<Option<usize>> {
        loop {
            let plain = &self.plain[self.taken..];
            if !plain.is_empty() {
                let taken = plain.len().min(most);
                into.put_slice(&plain[..taken]);
                self.taken += taken;
                return Ok(Some(taken));
            }
            self.plain.clear();
            self.taken = 0;
            let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, "a forged record came");
            if let Some(record) = self.records.open().map_err(damaged)? {
                self.plain.extend_from_slice(record);
                continue;
            }
            let read = stream.try_read_buf(self.records.room());
            if unless_ended(unless_blocked(read))?.is_none() {
                return Ok(None);
            }
        }
    }

    fn try_send(&mut self, stream: &TcpStream, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if !self.try_flush(stream)? {
            return Ok(None);
        }
        self.wire.clear();
        self.written = 0;
        let mut taken = 0;
        for part in parts {
            let piece = &part[..part.len().min(SEAL_SIZE - taken)];
            self.sealed
                .seal(piece, &mut self.number, &mut self.wire)
                .map_err(io::Error::other)?;
            taken += piece.len();
        }
        self.try_flush(stream)?;
        Ok(Some(taken))
    }

    fn try_flush(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while self.written < self.wire.as_slice().len() {
            match unless_blocked(stream.try_write(&self.wire.as_slice()[self.written..]))? {
                Some(written) => self.written += written,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // The other side has to notice although a forked child may hold a copy of the socket.
            let _ = SockRef::from(&*self.stream).shutdown(Shutdown::Both);
        } else {
            // It is the parent's, and closing it here would take it out of the parent's runtime.
            mem::forget(Arc::clone(&self.stream));
        }
    }
}
