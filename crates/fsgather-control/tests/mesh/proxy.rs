//! A proxy between two ranks that reads and changes their bytes: [`Proxy`].

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use fsgather_control::mesh::MeshAddress;

/// The changes that a proxy makes.
#[derive(Default)]
pub(crate) struct Meddling {
    /// Number of bytes towards the listening rank after which one has a bit changed.
    pub(crate) flip: Option<usize>,
    /// The same for bytes from the listening rank.
    pub(crate) flip_back: Option<usize>,
    /// Position from which bytes from the listening rank are replaced by these.
    pub(crate) replace_back: Option<(usize, Vec<u8>)>,
    /// Number of bytes from the listening rank after which the connection is cut.
    pub(crate) cut_back: Option<usize>,
}

/// The bytes that a proxy has seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Bytes towards the listening rank, of all connections mixed.
    pub(crate) bytes: Mutex<Vec<u8>>,
    /// Number of bytes from the listening rank.
    pub(crate) back: AtomicUsize,
    /// True if bytes from the listening rank are held up.
    pub(crate) holds_back: AtomicBool,
}

/// An address in front of a rank's.
pub(crate) struct Proxy {
    address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
}

impl Proxy {
    /// Listens in front of a rank at `target`.
    pub(crate) fn before(target: SocketAddr, meddling: Meddling) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let (meddling, its) = (Arc::new(meddling), Arc::clone(&seen));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(target).unwrap();
                pass_on(&client, &server, &meddling, &its);
            }
        });
        Self { address, seen }
    }

    /// The same rank, at this address.
    pub(crate) fn in_place_of(&self, address: MeshAddress) -> MeshAddress {
        MeshAddress {
            addresses: vec![self.address],
            ..address
        }
    }
}

fn pass_on(client: &TcpStream, server: &TcpStream, meddling: &Arc<Meddling>, seen: &Arc<Seen>) {
    let ends = || (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (from, to) = ends();
    let (its, noted) = (Arc::clone(meddling), Arc::clone(seen));
    thread::spawn(move || {
        pump(&from, &to, |start, bytes| {
            flip(its.flip, start, bytes);
            noted.bytes.lock().unwrap().extend_from_slice(bytes);
            true
        });
    });
    let (to, from) = ends();
    let (its, noted) = (Arc::clone(meddling), Arc::clone(seen));
    thread::spawn(move || {
        pump(&from, &to, |start, bytes| {
            flip(its.flip_back, start, bytes);
            if let Some((from, others)) = &its.replace_back {
                for (at, byte) in (start..).zip(bytes.iter_mut()) {
                    let other = at.checked_sub(*from).and_then(|at| others.get(at));
                    *byte = other.copied().unwrap_or(*byte);
                }
            }
            noted.back.fetch_add(bytes.len(), Ordering::SeqCst);
            while noted.holds_back.load(Ordering::SeqCst) {
                thread::park_timeout(std::time::Duration::from_millis(1));
            }
            its.cut_back.is_none_or(|at| start + bytes.len() < at)
        });
    });
}

fn flip(at: Option<usize>, start: usize, bytes: &mut [u8]) {
    if let Some(at) = at
        && let Some(byte) = at.checked_sub(start).and_then(|at| bytes.get_mut(at))
    {
        *byte ^= 4;
    }
}

/// Hands bytes on until an end closes, or `look` returns that it is enough.
fn pump(mut from: &TcpStream, mut to: &TcpStream, mut look: impl FnMut(usize, &mut [u8]) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    let mut passed = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..read];
        if !look(passed, bytes) || to.write_all(bytes).is_err() {
            break;
        }
        passed += read;
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
