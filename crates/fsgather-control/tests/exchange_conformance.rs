//! All implementations of the exchange pass one suite.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

use std::{sync::Arc, thread, time::Duration};

use fsgather_control::{
    tcp::{self, Meeting},
    threads,
};
use fsgather_core::{Interrupt, ProcessId, Rank, Solo, WorldSize};
use fsgather_testkit::{
    MemoryBoard,
    exchange_conformance::{self, Seat},
};

fn process() -> ProcessId {
    ProcessId {
        host: "here".into(),
        boot_id: "this boot".into(),
        pid: std::process::id(),
        ..ProcessId::default()
    }
}

fn tcp_world(ranks: u32, patience: Duration) -> Vec<Seat> {
    let board = Arc::new(MemoryBoard::default());
    let world_size = WorldSize::new(ranks).unwrap();
    let join = |rank: Rank| {
        let config = tcp::Config {
            rank,
            world_size,
            process: process(),
            network_namespace: 0,
            job: "a test".into(),
            patience,
            join_patience: Duration::from_mins(1),
            ports: 0..=0,
            interfaces: Arc::new(|_, address| address.is_loopback()),
            meeting: Meeting::Board(board.clone()),
            interrupt: Interrupt::default(),
            is_running: Arc::new(|_| true),
        };
        thread::spawn(move || tcp::join(&config).unwrap().exchange)
    };
    let joining: Vec<_> = world_size.ranks().map(join).collect();
    joining
        .into_iter()
        .map(|joining| joining.join().unwrap())
        .collect()
}

#[test]
fn solo_conforms() {
    exchange_conformance::run(&|_, _| vec![Box::new(Solo::new("here", 1)) as Seat], 1);
}

#[test]
fn threads_conform() {
    let make = |ranks, patience| threads(WorldSize::new(ranks).unwrap(), &process(), patience);
    exchange_conformance::run(&make, 5);
}

#[test]
fn tcp_conforms() {
    exchange_conformance::run(&tcp_world, 4);
}
