//! Processes that are not ranks: at ports of ranks, or in place of a program's own channel.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher, Hasher},
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Resource, getrlimit, setrlimit};

/// A free port outside the range from which the kernel assigns ports, so that it stays free until it is used.
pub(crate) fn free_port() -> u16 {
    const BELOW_THOSE_OF_THE_KERNEL: Range<u16> = 10_000..32_768;
    let range = BELOW_THOSE_OF_THE_KERNEL;
    let drawn = || {
        let drawn = RandomState::new().build_hasher().finish() % u64::from(range.end - range.start);
        range.start + u16::try_from(drawn).expect("less than the range")
    };
    let mut ports = std::iter::repeat_with(drawn).take(1000);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    ports.find(is_free).expect("a port")
}

/// The ports at which a process listens, once for each address.
pub(crate) fn ports_of(pid: u32) -> Vec<u16> {
    let ports: Vec<u16> = listening(pid).iter().map(SocketAddr::port).collect();
    assert!(!ports.is_empty(), "process {pid} listens nowhere");
    ports
}

/// The addresses at which a process listens.
pub(crate) fn listening(pid: u32) -> Vec<SocketAddr> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("a running process");
    let sockets: Vec<String> = descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mut addresses = Vec::new();
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // The fourth column is the state, 0A for listening, the tenth the inode.
            if fields.get(3) == Some(&"0A")
                && fields
                    .get(9)
                    .is_some_and(|inode| sockets.iter().any(|own| own == inode))
            {
                addresses.extend(address_of(fields[1]));
            }
        }
    }
    addresses
}

/// Parses an address of the kernel: words of the address in the byte order of this machine, each in hexadecimal, and the port.
fn address_of(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = (0..address.len())
        .step_by(8)
        .map(|at| u32::from_str_radix(address.get(at..at + 8)?, 16).ok())
        .map(|word| word.map(u32::to_ne_bytes))
        .collect();
    let bytes = words?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(SocketAddr::new(ip, port))
}

/// Starts a server that stores the last message, and sends it to each client that sends none; returns its port. It ends with the test.
pub(crate) fn store() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut told = Vec::new();
            stream.read_to_end(&mut told).expect("what is said");
            if told.is_empty() {
                stream.write_all(&kept).expect("somebody who listens");
            } else {
                kept = told;
            }
        }
    });
    port
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("somebody who listens")
}

/// Sends data that no rank would send: text, zeros, large lengths, a long stream of noise.
pub(crate) fn say_nonsense(port: u16) {
    let noise = fsgather_tests::Generated::new(99, 1 << 20).bytes();
    let things: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 4096],
        &[0xff; 4096],
        &noise,
        &noise[..1],
    ];
    for thing in things {
        let mut stream = connect(port);
        // The connection should be closed.
        let _ = stream.write_all(thing);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        let _ = stream.read(&mut [0; 16]);
    }
}

/// Opens connections that send nothing while they are held.
pub(crate) fn stay_silent(port: u16, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| connect(port)).collect()
}

/// Opens connections and closes them at once, a hundred at a time.
pub(crate) fn come_and_go(port: u16, count: usize) {
    const BATCH: usize = 100;
    for _ in 0..count / BATCH {
        drop(stay_silent(port, BATCH));
    }
}

/// Number of connections that this process may hold, after it has raised its limit as far as possible.
pub(crate) fn room_for_connections() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(room).unwrap_or(usize::MAX)
}

/// Connections that send a possible first byte five times a second, and reconnect when they are closed.
pub(crate) struct Dripping {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<usize>>,
}

impl Dripping {
    pub(crate) fn at(port: u16, count: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut came = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let mut stream = connect(port);
                    came += 1;
                    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                    let mut is_in = true;
                    while is_in && !is_over.load(Ordering::SeqCst) {
                        let answer = stream.write_all(&[0]).and_then(|()| stream.read(&mut [0]));
                        is_in = answer.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
                    }
                }
                came
            })
        });
        let threads = threads.collect();
        Self { is_over, threads }
    }

    /// Ends them; returns the number of connections.
    pub(crate) fn end(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        let came = self.threads.into_iter().map(thread::JoinHandle::join);
        came.map(|came| came.expect("a thread that ends")).sum()
    }
}
