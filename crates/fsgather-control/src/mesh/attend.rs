//! The side of a link that was dialled: [`attend`] waits for transfers, and serves ranks that fetch.

use std::{
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{thread_call::ThreadCall, waiting::AwakeDeadline};
use bytes::Bytes;

use fsgather_core::CallId;

use super::{
    PIECE, Source,
    core::Core,
    header::{Header, Reply, TransferKind},
    link::Link,
    stream::{CHUNK_LEN, Checksum, Sending, StreamOrigin},
};

/// Time beyond the time-out for which a link with a begun transfer is kept for this rank to reach the call; and the
/// interval at which it is then checked whether the other end has ended it.
const GRACE: Duration = Duration::from_secs(10);

/// Serves a link until it ends, or until a ring transfer has begun on it.
pub(super) async fn attend(core: Arc<Core>, mut link: Link) {
    loop {
        let header = match next_header(&mut link).await {
            Ok(header) => header,
            Err(error) => {
                tracing::trace!("the link of rank {} has ended: {error}", link.peer);
                return;
            }
        };
        match header.kind {
            TransferKind::Ring => {
                park(&core, header.call, link).await;
                return;
            }
            TransferKind::Pull => {
                if let Err(error) = deliver(&core, &mut link, header.call).await {
                    tracing::debug!("rank {} did not get its payload: {error}", link.peer);
                    return;
                }
            }
        }
    }
}

async fn next_header(link: &mut Link) -> io::Result<Header> {
    let mut bytes = [0; Header::LEN];
    link.receive(&mut bytes).await?;
    Header::from_bytes(bytes)
        .filter(|header| header.from == link.peer)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a transfer without a header"))
}

/// Keeps the link until this rank reaches the call, but not forever: it may never reach it.
async fn park(core: &Core, call: CallId, link: Link) {
    let from = link.peer;
    let (serial, mut taken) = core.parked.put(call, link);
    let mut limit = core.timeout.saturating_add(GRACE);
    loop {
        let mut deadline = AwakeDeadline::after(Instant::now(), limit);
        tokio::select! {
            _ = &mut taken => return,
            () = deadline.passed() => {}
        }
        // The rank at the other end gives up first, and knows more.
        if core.parked.expire(call, from, serial) {
            return;
        }
        limit = GRACE;
    }
}

/// Sends the payload of a call, once it is offered.
async fn deliver(core: &Core, link: &mut Link, call: CallId) -> io::Result<()> {
    // The rank that asks knows how long to wait, and ends the link then.
    let offered = tokio::select! {
        offered = core.offers.wait_for(call) => offered,
        () = link.ended() => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    let Some((source, has_checksums)) = offered else {
        return link.send(&Reply::Withdrawn.to_bytes()).await;
    };
    let _delivery = core.deliveries.begin();
    let origin = StreamOrigin {
        communicator: core.communicator(),
        call,
        rank: core.rank,
        len: source.len(),
        has_checksums,
    };
    link.send(&Reply::Follows(origin.len).to_bytes()).await?;
    send_payload(link, origin, source).await
}

async fn send_payload(link: &mut Link, origin: StreamOrigin, source: Source) -> io::Result<()> {
    let mut sending = Sending::new(origin);
    if sending.chunk().is_none() {
        return Ok(());
    }
    let mut chunk = Reading::start(&source, origin.chunk(0)).finish().await?;
    let mut ahead = Reading::start(&source, origin.chunk(1));
    loop {
        // The check of a chunk shows if there will be a next one, so that is read first.
        let next = ahead.finish().await;
        ahead = Reading::start(&source, origin.chunk(sending.index() + 2));
        if next.is_err() {
            sending.complain();
        }
        send_chunk(link, &mut sending, &chunk).await?;
        match next {
            Ok(_) if sending.chunk().is_none() => return Ok(()),
            Ok(next) => chunk = next,
            Err(error) => {
                complain(link, &error).await?;
                return Err(error);
            }
        }
        // A peer that takes all bytes at once must not keep other tasks from running.
        tokio::task::yield_now().await;
    }
}

async fn send_chunk(link: &mut Link, sending: &mut Sending, chunk: &[u8]) -> io::Result<()> {
    let index = sending.index();
    while sending.index() == index && sending.chunk().is_some() {
        let parts = sending.next(chunk, Checksum::Ours, PIECE);
        match link.try_send(&parts)? {
            Some(sent) => sending.sent(sent),
            None => link.writable().await?,
        }
    }
    while !link.try_flush()? {
        link.writable().await?;
    }
    Ok(())
}

async fn complain(link: &mut Link, error: &io::Error) -> io::Result<()> {
    let text = error.to_string();
    let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    link.send(&len.to_le_bytes()).await?;
    link.send(text).await
}

/// A chunk that is being read from its source.
enum Reading {
    Done(io::Result<Bytes>),
    /// File calls may take long, so another thread makes them.
    UnderWay(ThreadCall<io::Result<Bytes>>),
}

impl Reading {
    /// Begins; beyond the end there is an empty chunk.
    fn start(source: &Source, range: Range<u64>) -> Self {
        if range.is_empty() {
            return Self::Done(Ok(Bytes::new()));
        }
        match source {
            Source::Memory(bytes) => {
                let bounds = (usize::try_from(range.start), usize::try_from(range.end));
                Self::Done(match bounds {
                    (Ok(start), Ok(end)) => Ok(bytes.slice(start..end)),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                })
            }
            Source::File { file, .. } => {
                let file = Arc::clone(file);
                Self::UnderWay(ThreadCall::start(move || {
                    let len = usize::try_from(range.end - range.start).unwrap_or(CHUNK_LEN);
                    let mut chunk = vec![0; len];
                    file.read_exact_at(&mut chunk, range.start)?;
                    Ok(Bytes::from(chunk))
                }))
            }
        }
    }

    async fn finish(self) -> io::Result<Bytes> {
        match self {
            Self::Done(chunk) => chunk,
            Self::UnderWay(reading) => reading.finish().await?,
        }
    }
}
