//! The owner of sockets: listening, connecting, and moving messages over one connection.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use fsgather_core::{Error, Rank};
use rustix::io::Errno;
use serde::{Serialize, de::DeserializeOwned};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::{
    forked::keep_from_children,
    tcp::{
        descriptors,
        noise::{Credentials, HANDSHAKE_LEN, Handshake, Records, Sealed},
        unsealing::Unsealing,
    },
    wire::{self, ConnectionPurpose, Deframer, PLAIN_LIMIT, Preamble, VERSION},
};

/// Maximum time that connecting and shaking hands may take.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);

/// A silent connection is probed after this long.
const PROBED_AFTER: Duration = Duration::from_secs(5);

/// It is probed again this often. Probes are as close as this so that one is sent, and answered, in the last seconds
/// before [`LOST_AFTER`]: what counts as a cut is then nearly as long as that.
const PROBED_EVERY: Duration = Duration::from_secs(3);
const PROBES: u32 = 8;

/// Time after which a vanished host is noticed. The last answer may lie [`PROBED_AFTER`] before a cut, and the last probe
/// is sent [`PROBED_EVERY`] before this: so each cut of up to 21 seconds is survived.
const LOST_AFTER: Duration = Duration::from_secs(29);
const _: () = assert!(
    LOST_AFTER.as_secs() == PROBED_AFTER.as_secs() + PROBED_EVERY.as_secs() * PROBES as u64
);

/// The reason why a connection was not made, or ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    /// Connecting failed, or no answer arrived.
    #[error("{}", descriptors::explain(.0, "connect or send, or a firewall does"))]
    Unreachable(#[source] io::Error),
    /// An error of the operating system.
    #[error("{}", descriptors::explain(.0, "connect or send, or a firewall does"))]
    Io(#[source] io::Error),
    /// The other side closed the connection.
    #[error("its connection closed")]
    Closed,
    /// No answer arrived in time.
    #[error("no answer within {} s", HANDSHAKE_LIMIT.as_secs())]
    Silent,
    /// The other side speaks another protocol.
    #[error("something that is not fsgather answers there")]
    Stranger,
    /// The other side is a build of another version.
    #[error("fsgather with wire protocol {0} answers there, this build speaks {VERSION}")]
    Version(u16),
    /// The other side does not know the secret.
    #[error("another world answers there")]
    NotAuthentic,
    /// The other side broke the protocol.
    #[error("it sent {0}")]
    Broken(#[from] wire::WireError),
}

impl TransportError {
    pub(crate) fn from_read(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Closed,
            io::ErrorKind::TimedOut => {
                Self::Io(io::Error::other("its host does not answer any more"))
            }
            _ => Self::Io(error),
        }
    }
}

/// Number of bytes of a long frame that are encrypted before they are sent: the other side decrypts them meanwhile.
const SEALED_AT_ONCE: usize = 8 * PLAIN_LIMIT;

/// The addresses to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenPlace {
    /// On all addresses, of both families where the host has both.
    Everywhere,
    /// Only on these addresses, as far as the host has them.
    At(Vec<IpAddr>),
}

/// Number of free ports that are tried until one is free on all addresses.
const PORTS_TRIED: u32 = 16;

/// Listens on the first free port of a range (0 for any).
///
/// A port that another process listens on is an error. A port on which connections of an earlier run linger is not: Linux
/// reuses it (`SO_REUSEADDR`) if no process listens there, so that a job at a fixed address can be restarted at once.
pub(crate) fn listen(
    place: &ListenPlace,
    ports: RangeInclusive<u16>,
) -> io::Result<(Vec<TcpListener>, u16)> {
    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for port in ports {
        let listening = match place {
            ListenPlace::Everywhere => everywhere(port).map(|listener| vec![listener]),
            ListenPlace::At(addresses) => at(addresses, port),
        };
        match listening {
            Ok(listeners) => {
                let port = listeners.first().map(TcpListener::local_addr);
                return Ok((listeners, port.transpose()?.map_or(0, |own| own.port())));
            }
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn everywhere(port: u16) -> io::Result<TcpListener> {
    let six = listen_on(Ipv6Addr::UNSPECIFIED.into(), port, false);
    match six {
        // In use for one family is in use: the other one would belong to another process.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            listen_on(Ipv4Addr::UNSPECIFIED.into(), port, false)
        }
        other => other,
    }
}

/// One listener for each address. Addresses that this host does not have, or not any more, are left out, unless none is left.
fn at(addresses: &[IpAddr], port: u16) -> io::Result<Vec<TcpListener>> {
    let mut tried = 0;
    loop {
        tried += 1;
        let mut listeners: Vec<TcpListener> = Vec::new();
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            // The first one chooses a port for the others.
            let chosen = listeners.first().map(TcpListener::local_addr).transpose()?;
            let port = chosen.map_or(port, |first| first.port());
            match listen_on(*address, port, true) {
                Ok(listener) => listeners.push(listener),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    refused = error;
                    listeners.clear();
                    break;
                }
                Err(error) => {
                    tracing::debug!("cannot listen at {address}: {error}");
                    refused = error;
                }
            }
        }
        if !listeners.is_empty() {
            return Ok(listeners);
        }
        let is_taken = refused.kind() == io::ErrorKind::AddrInUse;
        if port != 0 || !is_taken || tried == PORTS_TRIED {
            return Err(refused);
        }
    }
}

/// The same for a rank of a world; a failure names it and the setting that chooses the ports.
///
/// # Errors
///
/// [`Error::Rendezvous`].
pub(crate) fn listen_as(
    rank: Rank,
    host: &str,
    place: &ListenPlace,
    ports: RangeInclusive<u16>,
    setting: &str,
) -> Result<(Vec<TcpListener>, u16), Error> {
    let text = if ports.start() == ports.end() {
        format!("port {}", ports.start())
    } else {
        format!("any of the ports {} to {}", ports.start(), ports.end())
    };
    listen(place, ports.clone()).map_err(|error| {
        let is_about_port = matches!(
            error.kind(),
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
        ) || error.raw_os_error() == Some(Errno::ACCESS.raw_os_error());
        let way_out = if is_about_port && *ports.end() != 0 {
            format!("; choose another one with {setting}")
        } else {
            String::new()
        };
        let why = descriptors::explain(&error, "socket, setsockopt, bind or listen");
        Error::rendezvous(format!(
            "rank {rank} cannot listen on {text} of {host}: {why}{way_out}"
        ))
    })
}

fn listen_on(address: IpAddr, port: u16, is_alone: bool) -> io::Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, None)?;
    keep_from_children(&socket);
    if domain == Domain::IPV6 {
        socket.set_only_v6(is_alone)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

/// A connection that both sides have proved to belong to one world.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) reader: ConnectionReader,
    pub(crate) writer: ConnectionWriter,
}

/// A connection without messages: the socket, and the state of the encryption.
#[derive(Debug)]
pub(crate) struct Bare {
    pub(crate) stream: TcpStream,
    pub(crate) records: Unsealing,
    pub(crate) sealed: Sealed,
    /// Number of records that were sent.
    pub(crate) sent: u64,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionReader {
    half: OwnedReadHalf,
    records: Unsealing,
    deframer: Deframer,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionWriter {
    half: OwnedWriteHalf,
    sealed: Sealed,
    number: u64,
    wire: Records,
}

impl Connection {
    /// Connects to the rank `responder` of a world and proves to belong to it, within
    /// [`HANDSHAKE_LIMIT`].
    pub(crate) async fn open(
        address: SocketAddr,
        credentials: &Credentials,
        purpose: ConnectionPurpose,
        responder: Rank,
    ) -> Result<Self, TransportError> {
        let mut stream = tokio::time::timeout(HANDSHAKE_LIMIT, connect(address))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(TransportError::Unreachable)?;
        tokio::time::timeout(HANDSHAKE_LIMIT, async {
            stream.set_nodelay(true).map_err(TransportError::Io)?;
            let (handshake, first) = Handshake::initiate(credentials, purpose, responder)
                .map_err(|_| TransportError::NotAuthentic)?;
            let mut hello = Preamble::ours(purpose).to_bytes().to_vec();
            hello.extend_from_slice(&first);
            stream
                .write_all(&hello)
                .await
                .map_err(TransportError::from_read)?;
            read_preamble(&mut stream).await?;
            let mut answer = [0; HANDSHAKE_LEN];
            stream
                .read_exact(&mut answer)
                .await
                // A rank of another world hangs up on a first message that it cannot read.
                .map_err(|_| TransportError::NotAuthentic)?;
            let sealed = handshake
                .finish(&answer)
                .map_err(|_| TransportError::NotAuthentic)?;
            Ok(Self::new(stream, sealed))
        })
        .await
        .map_err(|_| TransportError::Silent)?
    }

    /// Answers a process that connected to this rank, within [`HANDSHAKE_LIMIT`].
    pub(crate) async fn accept(
        mut stream: TcpStream,
        credentials: &Credentials,
        me: Rank,
    ) -> Result<(Self, ConnectionPurpose), TransportError> {
        tokio::time::timeout(HANDSHAKE_LIMIT, async {
            stream.set_nodelay(true).map_err(TransportError::Io)?;
            let preamble = match read_preamble(&mut stream).await {
                Err(TransportError::Version(theirs)) => {
                    // Lets the other side report it to its user.
                    let ours = Preamble::ours(ConnectionPurpose::Control).to_bytes();
                    let _ = stream.write_all(&ours).await;
                    return Err(TransportError::Version(theirs));
                }
                other => other?,
            };
            let purpose = preamble.purpose.ok_or(TransportError::Stranger)?;
            let mut first = [0; HANDSHAKE_LEN];
            stream
                .read_exact(&mut first)
                .await
                .map_err(TransportError::from_read)?;
            let (sealed, answer) = Handshake::respond(credentials, purpose, me, &first)
                .map_err(|_| TransportError::NotAuthentic)?;
            let mut hello = Preamble::ours(purpose).to_bytes().to_vec();
            hello.extend_from_slice(&answer);
            stream
                .write_all(&hello)
                .await
                .map_err(TransportError::from_read)?;
            Ok((Self::new(stream, sealed), purpose))
        })
        .await
        .map_err(|_| TransportError::Silent)?
    }

    /// Returns true if it cannot have left this host: then only root can be in between.
    pub(crate) fn is_within_host(&self) -> bool {
        let peer = self.reader.half.peer_addr();
        peer.is_ok_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// The connection below its messages, once both sides have sent all of these. The bytes after them are in records if it
    /// `is_sealed`, and may have arrived already.
    ///
    /// # Errors
    ///
    /// If the other side has sent something else already.
    pub(crate) fn into_bare(self, is_sealed: bool) -> Result<Bare, TransportError> {
        let Self { reader, writer } = self;
        if !reader.deframer.is_empty() || !is_sealed && !reader.records.is_empty() {
            return Err(TransportError::Stranger);
        }
        Ok(Bare {
            // Both halves come from one stream.
            stream: reader
                .half
                .reunite(writer.half)
                .map_err(|_| TransportError::Closed)?,
            records: reader.records,
            sealed: writer.sealed,
            sent: writer.number,
        })
    }

    fn new(stream: TcpStream, sealed: Sealed) -> Self {
        let (read, write) = stream.into_split();
        Self {
            reader: ConnectionReader {
                half: read,
                records: Unsealing::new(sealed.clone()),
                deframer: Deframer::default(),
            },
            writer: ConnectionWriter {
                half: write,
                sealed,
                number: 0,
                wire: Records::default(),
            },
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    keep_from_children(&socket);
    socket.connect(address).await
}

async fn read_preamble(stream: &mut TcpStream) -> Result<Preamble, TransportError> {
    let mut bytes = [0; Preamble::LEN];
    stream
        .read_exact(&mut bytes)
        .await
        .map_err(TransportError::from_read)?;
    let preamble = Preamble::from_bytes(bytes).ok_or(TransportError::Stranger)?;
    if preamble.version == VERSION {
        Ok(preamble)
    } else {
        Err(TransportError::Version(preamble.version))
    }
}

impl ConnectionReader {
    /// Returns the next message. Messages that arrived before the end of the connection come first.
    pub(crate) async fn next<M: DeserializeOwned>(&mut self) -> Result<M, TransportError> {
        loop {
            if let Some(message) = self.deframer.next_message()? {
                return Ok(message);
            }
            // Only the other side can seal records, and it seals whole ones.
            let record = self.records.open().map_err(|_| TransportError::Stranger)?;
            if let Some(plain) = record {
                self.deframer.push(plain);
                continue;
            }
            let read = self.half.read_buf(self.records.room()).await;
            if read.map_err(TransportError::from_read)? == 0 {
                return Err(TransportError::Closed);
            }
        }
    }

    /// Reads and forgets until the other side has closed.
    pub(crate) async fn drain(&mut self) {
        loop {
            let room = self.records.room();
            room.clear();
            match self.half.read_buf(room).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl ConnectionWriter {
    /// Sends frames that are encoded already.
    pub(crate) async fn send_frames(&mut self, frames: &[u8]) -> Result<(), TransportError> {
        for piece in frames.chunks(SEALED_AT_ONCE) {
            self.wire.clear();
            self.sealed
                .seal(piece, &mut self.number, &mut self.wire)
                .map_err(|_| TransportError::Closed)?;
            self.half
                .write_all(self.wire.as_slice())
                .await
                .map_err(TransportError::from_read)?;
        }
        Ok(())
    }

    /// Sends one message.
    pub(crate) async fn send<M: Serialize>(&mut self, message: &M) -> Result<(), TransportError> {
        let frame = wire::encode_frame(message, 0)?;
        self.send_frames(&frame).await
    }

    /// Shuts the sending side.
    pub(crate) async fn shut(&mut self) {
        let _ = self.half.shutdown().await;
    }

    /// Lets the kernel probe the other host while no data is sent; for the silent connection only.
    ///
    /// Probes alone would not do: none is sent while the one message that opened the connection is not acknowledged, and
    /// the host may vanish in that moment. `TCP_USER_TIMEOUT` covers that. On a connection with data it would end peers
    /// that are merely stopped, once their buffers are full; here the kernel of a stopped peer continues to answer, since
    /// no data is left to be taken.
    pub(crate) fn keep_alive(&self) -> Result<(), TransportError> {
        let socket = SockRef::from(self.half.as_ref());
        probe_when_silent(self.half.as_ref())
            .and_then(|()| socket.set_tcp_user_timeout(Some(LOST_AFTER)))
            .map_err(TransportError::Io)
    }
}

/// Lets the kernel probe the other host while no data is sent. That does not end a peer that is merely stopped: its kernel
/// continues to answer.
pub(crate) fn probe_when_silent(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(PROBED_AFTER)
        .with_interval(PROBED_EVERY)
        .with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
