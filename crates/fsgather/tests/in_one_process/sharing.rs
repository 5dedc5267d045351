//! Tests that ranks that share memory read payloads without a copy.

use super::{RANKS, met::on_all, plain};
use fsgather::Pieces;

const LEN: usize = 1 << 20;

/// A byte that identifies rank and call.
fn of(rank: u32, call: u32) -> u8 {
    u8::try_from(rank + 10 * call + 1).unwrap()
}

fn whole(call: u32) -> Vec<Vec<u8>> {
    (0..RANKS).map(|rank| vec![of(rank, call); LEN]).collect()
}

#[test]
fn results_that_are_kept_are_not_written_over_by_later_calls() {
    let place = tempfile::tempdir().unwrap();
    let named = place.path().to_owned();
    on_all(
        move |builder| builder.directory(&named),
        |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            let mut kept = Vec::new();
            for call in 0..20 {
                let own = vec![of(me, call); LEN];
                let got = communicator.all_gather(Pieces::from(&own[..])).unwrap();
                if call % 3 == me {
                    kept.push((call, got));
                }
            }
            communicator.close().unwrap();
            for (call, got) in kept {
                assert!(plain(got) == whole(call), "call {call}");
            }
        },
    );
}
