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

use fsgather_core::{
    Call, CallEvent, ChannelId, Epoch, Operation, ProcessId, Rank, RankNames, Site, Ticket,
};
use fsgather_observe::trace::{record_file::LEN, recorder::Recorder};
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
    let (file, path) = calls::create(&place, &header, LEN).expect("a file");
    let recorder = Recorder::new(Rank::ZERO, &RankNames::default(), &[]);
    recorder.write_to(&file, &path).expect("a mapping");
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
            recorder.observe(
                &ticket,
                CallEvent::Begun {
                    ranks: 4,
                    waits: true,
                },
            );
            recorder.observe(
                &ticket,
                CallEvent::Decided {
                    last: Some(Rank::ZERO),
                    received: None,
                },
            );
            recorder.observe(&ticket, CallEvent::Done);
        }
        least = least.min(begun.elapsed());
    }
    calls::remove(&path);
    println!("{} ns for each barrier", (least / CALLS).as_nanos());
}
