//! Ranks that share memory: what is written for sending, and what is read where it lies.

use fsgather::{Payload, Pieces, SendBuffer};

use super::{RANKS, met::on_all, plain};

const LEN: usize = 1 << 20;

/// Memory for a call, full of what tells rank and call.
fn filled(mut buffer: SendBuffer, rank: u32, call: u32) -> SendBuffer {
    assert_eq!(buffer.len(), LEN);
    assert!(format!("{buffer:?}").contains("1048576"));
    buffer.fill(of(rank, call));
    buffer
}

fn of(rank: u32, call: u32) -> u8 {
    u8::try_from(rank + 10 * call + 1).unwrap()
}

fn whole(call: u32) -> Vec<Vec<u8>> {
    (0..RANKS).map(|rank| vec![of(rank, call); LEN]).collect()
}

#[test]
fn what_is_written_for_sending_arrives_and_is_the_programs_own_afterwards() {
    let place = tempfile::tempdir().unwrap();
    let named = place.path().to_owned();
    let are_shared = on_all(
        move |builder| builder.directory(&named),
        |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            let memory = |call| filled(communicator.send_buffer(LEN), me, call);
            let mut kept: Vec<(u32, Vec<Payload>)> = Vec::new();
            let mut is_shared = false;
            for call in 0..8 {
                let mut buffer = memory(call);
                is_shared |= buffer.is_shared();
                let got = match call % 4 {
                    // By reference: what is written later nobody sees.
                    0 => {
                        let got = communicator.all_gather_bytes(&buffer).unwrap();
                        buffer.fill(0xee);
                        assert!(buffer.iter().all(|byte| *byte == 0xee));
                        got
                    }
                    1 => communicator.all_gather_bytes(buffer).unwrap(),
                    // In two pieces.
                    2 => {
                        let mut first = buffer.freeze();
                        let second = first.split_off(LEN / 3);
                        let both = Pieces::new(128, vec![first, second]);
                        communicator.all_gather_bytes(both).unwrap()
                    }
                    // Handed over twice.
                    _ => {
                        let frozen = buffer.freeze();
                        let got = communicator.all_gather_bytes(frozen.clone()).unwrap();
                        assert!(plain(got) == whole(call));
                        communicator.all_gather_bytes(frozen).unwrap()
                    }
                };
                kept.push((call, got));
            }
            // Later calls have left what earlier ones have brought.
            for (call, got) in kept {
                assert!(plain(got) == whole(call), "call {call}");
            }
            let parts = communicator.gather_bytes(memory(20), 1).unwrap();
            if let Some(parts) = parts {
                assert!(plain(parts.map(|part| part.unwrap().1)) == whole(20));
            }
            communicator.close().unwrap();
            is_shared
        },
    );
    assert_eq!(are_shared, [true; RANKS as usize]);
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
                let got = communicator.all_gather_bytes(&own[..]).unwrap();
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

#[test]
fn a_world_of_one_has_memory_of_its_own() {
    let solo = fsgather::Communicator::solo();
    let buffer = filled(solo.send_buffer(LEN), 0, 0);
    assert!(!buffer.is_shared());
    assert_eq!(buffer.as_ref().len(), LEN);
    let got = solo.all_gather_bytes(&buffer).unwrap();
    assert!(plain(got) == [vec![of(0, 0); LEN]]);
    assert_eq!(&buffer.freeze()[..3], [of(0, 0); 3]);
}
