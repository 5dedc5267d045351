//! Listens to everything that goes over a network, until its standard input ends; then says how much of a
//! rank's payload went by in the clear.
//!
//! `wiretap RANK LEN` prints `listening`, and at the end `seen N of M samples in B bytes`. It needs root.

use std::{
    collections::HashSet,
    error::Error,
    io::{Read, Write},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use fsgather_tests::Generated;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with,
        sockopt::{self, Timeout},
    },
};

/// One sample of eight bytes in so many.
const SPACING: usize = 4096;

/// Packets of all protocols, in network byte order.
const ALL: NonZeroU32 = NonZeroU32::new(0x0003_u16.to_be() as u32).expect("not 0");

fn beginning(sample: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([sample[0], sample[1]]))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rank, len] = arguments.as_slice() else {
        return Err("wiretap RANK LEN".into());
    };
    let payload = Generated::new(rank.parse()?, len.parse()?).bytes();
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(Protocol::from_raw(ALL)),
    )?;
    sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20)?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(50)))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&is_over);
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        its.store(true, Ordering::SeqCst);
    });
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening")?;
    stdout.flush()?;
    let mut heard = Vec::new();
    let mut packet = vec![0_u8; 1 << 17];
    loop {
        match recv(&socket, packet.as_mut_slice(), RecvFlags::empty()) {
            Ok((len, _)) => heard.extend_from_slice(packet.get(..len).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) if is_over.load(Ordering::SeqCst) => break,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let samples: HashSet<&[u8]> = payload
        .chunks_exact(SPACING)
        .filter_map(|chunk| chunk.get(..8))
        .collect();
    // Looks at two bytes first, which is fast.
    let mut begins = vec![false; 1 << 16];
    for sample in &samples {
        begins[beginning(sample)] = true;
    }
    let seen: HashSet<&[u8]> = heard
        .windows(8)
        .filter(|bytes| begins[beginning(bytes)] && samples.contains(bytes))
        .collect();
    writeln!(
        stdout,
        "seen {} of {} samples in {} bytes",
        seen.len(),
        samples.len(),
        heard.len()
    )?;
    Ok(())
}
