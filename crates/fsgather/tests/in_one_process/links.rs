//! Connections between ranks over which payloads go from memory to memory.

use std::{fs, sync::Barrier, time::Instant};

use fsgather::{Transport, Verify};
use fsgather_testkit::pace::{patience, rest};

use super::{bytes_of, met::on_all_alone, plain};

/// How many sockets this process has.
fn sockets() -> usize {
    let opened = fs::read_dir("/proc/self/fd").unwrap();
    let links = opened.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

#[test]
fn who_has_announced_a_payload_connects_to_its_neighbour_before_the_others_come() {
    let (has_counted, may_come) = (Barrier::new(2), Barrier::new(2));
    on_all_alone(
        // What is verified lies in no memory that ranks share.
        |builder| builder.transport(Transport::Memory).verify(Verify::Always),
        move |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            // Round the world it is the other way.
            let group = communicator.group(&[0, 2, 1]).unwrap();
            communicator.barrier().unwrap();
            let mut is_connected = true;
            match me {
                0 => drop(has_counted.wait()),
                1 => {
                    let (before, since) = (sockets(), Instant::now());
                    has_counted.wait();
                    while sockets() <= before && since.elapsed() < patience() {
                        rest();
                    }
                    is_connected = sockets() > before;
                    may_come.wait();
                }
                _ => drop(may_come.wait()),
            }
            let got = group.all_gather_bytes(&bytes_of(me, 1)[..]).unwrap();
            let [first, second, third] = [0, 2, 1].map(|rank| bytes_of(rank, 1));
            assert!(plain(got) == [first, second, third]);
            assert!(is_connected);
            group.close().unwrap();
            communicator.close().unwrap();
        },
        || (),
    );
}
