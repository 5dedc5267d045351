//! Groups: the ranks of each host, every other rank, and several groups at work at the same time.
//!
//! ```text
//! cargo build --release -p fsgather --example groups
//! cargo run --release -- run -n 4 -- target/release/examples/groups
//! ```

#![expect(clippy::print_stdout, reason = "a program with a result to show")]

use std::{fs, thread};

use fsgather::{Communicator, Error};

fn main() -> Result<(), Error> {
    let world = Communicator::from_env()?;
    let me = world.rank().get();

    // All ranks of a host, say to load a file once. A color is any number that they have in common: here
    // the first rank with the same host name.
    let hosts = world.all_gather(&host_name())?;
    let first = hosts.iter().position(|host| *host == host_name());
    let color = first.and_then(|first| u32::try_from(first).ok());
    if let Some(host) = world.split(color, 0)? {
        let loaded = host.broadcast(&format!("loaded by rank {me}"), 0)?;
        println!(
            "rank {me} is {} of {} here: {loaded}",
            host.rank(),
            host.world_size()
        );
    }

    // Every other rank. Within a group ranks count from 0 again, in the order of the list.
    let mine: Vec<u32> = (me % 2..world.world_size().get()).step_by(2).collect();
    let parity = world.group(&mine)?;
    println!("rank {me} is with {:?}", parity.all_gather(&me)?);

    // Calls of one communicator have to be made in the same order on all ranks. Groups are independent of
    // each other, so each thread takes its own.
    let all: Vec<u32> = (0..world.world_size().get()).collect();
    let (boxes, masks) = (world.group(&all)?, world.group(&all)?);
    let (boxes, masks) = thread::scope(|scope| {
        let boxes = scope.spawn(move || boxes.all_gather(&vec![me; 100_000]));
        let masks = scope.spawn(move || masks.all_gather(&format!("mask {me}")));
        (boxes.join(), masks.join())
    });
    if let (0, Ok(boxes), Ok(masks)) = (me, boxes, masks) {
        println!("{} lists of boxes, {}", boxes?.len(), masks?.join(", "));
    }

    parity.close()?;
    world.close()
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}
