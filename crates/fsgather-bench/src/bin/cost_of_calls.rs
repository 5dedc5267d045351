//! Measures what it costs to write a call down: `cargo run --release -p fsgather-bench --bin cost_of_calls -- DIR`.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "it is run by hand"
)]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Call, ChannelId, Epoch, Operation, ProcessId, Rank, Site, Ticket};
use fsgather_observe::trace::recorder::{self, Recorder};
use fsgather_store::calls::{self, CallsHeader};
use uuid::Uuid;

const CALLS: u32 = 100_000;

fn main() {
    let place = std::env::args_os()
        .nth(1)
        .map_or("/tmp".into(), PathBuf::from);
    let header = CallsHeader {
        process: ProcessId::default(),
        communicator: Uuid::new_v4(),
        rank: Rank::ZERO,
        called: Rank::ZERO,
        world_size: 4,
        began: 0,
        job: None,
        directory: None,
    };
    let (file, path) = calls::create(&place, &header, recorder::LEN).expect("a file");
    let recorder = Recorder::begin_in(&file, &path, Instant::now()).expect("a mapping");
    let mut least = Duration::MAX;
    for _ in 0..10 {
        let begun = Instant::now();
        for number in 0..u64::from(CALLS) {
            let ticket = Ticket {
                channel: ChannelId::WORLD,
                epoch: Epoch::new(number),
                call: Arc::new(Call::new(
                    Operation::Barrier,
                    Site::named("/home/ada/project/eval.py:42"),
                )),
            };
            recorder.begin_waiting(&ticket, 4);
            recorder.decided_and_done(&ticket, Some(Rank::ZERO));
        }
        least = least.min(begun.elapsed());
    }
    calls::remove(&path);
    println!("{} ns for each barrier", (least / CALLS).as_nanos());
}
