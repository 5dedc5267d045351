//! Measures an operation of fsgather, and in turn the same by bare system calls, in the same processes.
//!
//! ```sh
//! cargo build --release -p fsgather-bench
//! fsgather run -n 8 --no-prefix -- target/release/floor gather 64MiB filesys
//! ```
//!
//! Arguments: `barrier`, `broadcast`, `gather` or `all_gather`; the payload of each rank; `filesys`, `memory` or `auto`; and the number of
//! repetitions, 20 by default. Files go to `FSGATHER_DIR`. Rank 0 prints one line of JSON. An iteration takes as long as its slowest rank,
//! from the call until a byte of every page of all received data has been read.
//!
//! Bare system calls check and name nothing, so no library can be much faster. Barriers and small payloads go through sockets to rank 0.
//! Files: each rank writes one, waits for the others and maps theirs; in a gather only rank 0 maps. Memory: a ring of sockets, or sockets
//! to rank 0.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot continue is over"
)]

mod files;
mod links;
mod ring;
mod star;

use std::{
    env,
    hint::black_box,
    io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use bytesize::ByteSize;
use fsgather::{Communicator, Pieces, Transport};
use fsgather_config::environment::{DIR, Variables};

use files::Files;
use ring::Ring;
use star::Star;

/// Maximum time of an operation on a connection of the floor.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Number of bytes of one read.
const BUFFER_BYTES: usize = 1 << 20;

/// Larger payloads do not travel inside messages.
const INLINE_LIMIT: usize = 64 << 10;

/// Number of barriers that make one iteration.
const BARRIERS: u32 = 10;

/// Iterations that do not count.
const WARM_UPS: usize = 3;

/// The path of payloads by bare system calls.
enum FloorPath {
    /// With the buffer for the payloads of all ranks.
    Inline(Vec<u8>),
    Files(Files),
    /// To and from rank 0 with a buffer, or round the ring.
    Memory(Vec<u8>, Ring),
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let operation = arguments[0].as_str();
    let ByteSize(length) = arguments[1].parse().unwrap();
    let transport = match arguments[2].as_str() {
        "memory" => Transport::Memory,
        "auto" => Transport::Auto,
        _ => Transport::Filesys,
    };
    let iterations: usize = arguments.get(3).map_or(20, |count| count.parse().unwrap());
    let length = usize::try_from(length).unwrap();

    let world = Communicator::builder()
        .transport(transport)
        .build()
        .unwrap();
    let (rank, ranks) = (world.rank().index(), world.world_size().count());
    let star = Star::connect(&world, TIMEOUT);
    let mut source = vec![0; length];
    rand::fill(source.as_mut_slice());
    let is_large = operation != "barrier" && length > INLINE_LIMIT;
    let mut floor = match transport {
        _ if !is_large => FloorPath::Inline(vec![0; ranks * length]),
        Transport::Memory => FloorPath::Memory(
            vec![0; BUFFER_BYTES],
            Ring::connect(&world, length, TIMEOUT),
        ),
        _ => {
            let variables = Variables::of_process();
            let place = variables.get(DIR).map_or_else(env::temp_dir, PathBuf::from);
            FloorPath::Files(Files::new(&place, rank, ranks))
        }
    };

    // Durations with the library, and with the floor.
    let mut seconds = [Vec::new(), Vec::new()];
    for _ in 0..WARM_UPS + iterations {
        for (subject, seconds) in seconds.iter_mut().enumerate() {
            world.barrier().unwrap();
            if is_large {
                rest();
            }
            star.barrier().unwrap();
            let (began, mut times) = (Instant::now(), 1);
            if operation == "barrier" {
                times = BARRIERS;
            }
            for _ in 0..times {
                if subject == 0 {
                    call(&world, operation, &source);
                } else {
                    bare(&star, &mut floor, operation, &source).unwrap();
                }
            }
            seconds.push(began.elapsed().as_secs_f64() / f64::from(times));
            if let (1, FloorPath::Files(files)) = (subject, &mut floor) {
                files.remove(&star).unwrap();
            }
        }
    }
    if let Some(parts) = world.gather(&seconds, 0).unwrap() {
        let parts: Vec<[Vec<f64>; 2]> = parts.map(|part| part.unwrap().1).collect();
        let median = |subject: usize| {
            let mut slowest: Vec<f64> = (WARM_UPS..WARM_UPS + iterations)
                .map(|at| {
                    parts
                        .iter()
                        .map(|part| part[subject][at])
                        .fold(0.0, f64::max)
                })
                .collect();
            slowest.sort_by(f64::total_cmp);
            slowest[slowest.len() / 2]
        };
        let row = serde_json::json!({
            "operation": operation, "transport": arguments[2], "ranks": ranks, "bytes": length,
            "median_seconds": median(0), "floor_seconds": median(1), "ratio": median(0) / median(1),
        });
        println!("{row}");
    }
    world.close().unwrap();
}

/// Performs the operation with the library.
fn call(world: &Communicator, operation: &str, source: &[u8]) {
    match operation {
        "barrier" => world.barrier().unwrap(),
        "broadcast" => touch(&world.broadcast(Pieces::from(source), 0).unwrap()),
        "gather" => {
            for part in world
                .gather(Pieces::from(source), 0)
                .unwrap()
                .into_iter()
                .flatten()
            {
                touch(&part.unwrap().1);
            }
        }
        _ => {
            for part in world.all_gather(Pieces::from(source)).unwrap() {
                touch(&part);
            }
        }
    }
}

/// Performs the operation by bare system calls.
fn bare(star: &Star, floor: &mut FloorPath, operation: &str, source: &[u8]) -> io::Result<()> {
    match (operation, floor) {
        ("barrier", _) => star.barrier(),
        ("broadcast", FloorPath::Files(files)) => files.broadcast(star, source),
        ("gather", FloorPath::Files(files)) => files.gather(star, source),
        (_, FloorPath::Files(files)) => files.all_gather(star, source),
        ("broadcast", FloorPath::Inline(buffer) | FloorPath::Memory(buffer, _)) => {
            star.broadcast(source, buffer)
        }
        ("gather", FloorPath::Inline(buffer) | FloorPath::Memory(buffer, _)) => {
            star.gather(source, buffer)
        }
        (_, FloorPath::Inline(buffer)) => star.all_gather(source, buffer),
        (_, FloorPath::Memory(_, ring)) => ring.all_gather(source),
    }
}

/// Reads a byte of every page, so that the data must be in memory.
fn touch(bytes: &[u8]) {
    const PAGE_BYTES: usize = 4096;
    black_box(
        bytes
            .iter()
            .step_by(PAGE_BYTES)
            .fold(0, |sum, byte| sum ^ byte),
    );
}

/// Gives the library time to remove files in the background.
#[expect(clippy::disallowed_methods, reason = "nothing reports the end of that")]
fn rest() {
    thread::sleep(Duration::from_millis(20));
}
