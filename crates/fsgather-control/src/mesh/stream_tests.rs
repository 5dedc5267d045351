//! Tests of payloads as bytes.

use fsgather_core::{ChannelId, Epoch};
use fsgather_testkit::pace::cases;
use proptest::prelude::*;

use super::*;

fn origin(len: usize) -> StreamOrigin {
    StreamOrigin {
        communicator: Uuid::from_u128(7),
        call: CallId {
            channel: ChannelId::new(3),
            epoch: Epoch::new(9),
        },
        rank: Rank::new(2),
        len: len as u64,
        has_checksums: true,
    }
}

fn payload(len: usize) -> Vec<u8> {
    (0_u32..)
        .map(|index| index.wrapping_mul(0x9e37_79b9).to_be_bytes()[0])
        .take(len)
        .collect()
}

fn part(payload: &[u8], chunk: Range<u64>) -> &[u8] {
    &payload[usize::try_from(chunk.start).unwrap()..usize::try_from(chunk.end).unwrap()]
}

/// Everything that goes over the wire for a payload, in pieces of any size.
fn sent(payload: &[u8], most: usize, taken: usize) -> Vec<u8> {
    sent_by(origin(payload.len()), payload, most, taken)
}

fn sent_by(origin: StreamOrigin, payload: &[u8], most: usize, taken: usize) -> Vec<u8> {
    let mut sending = Sending::new(origin);
    let mut wire = Vec::new();
    while let Some(chunk) = sending.chunk() {
        let parts = sending.next(part(payload, chunk), Checksum::Ours, most);
        let before = wire.len();
        for part in &parts {
            wire.extend_from_slice(part);
        }
        wire.truncate(before.saturating_add(taken));
        let sent = wire.len() - before;
        sending.sent(sent);
    }
    wire
}

/// A payload and the checksums of its chunks.
type Arrived = (Vec<u8>, Vec<u64>);

/// Receives all of it, in pieces of any size; what arrived, and its checksums.
fn received(origin: StreamOrigin, wire: &[u8], most: usize) -> Result<Option<Arrived>, Fault> {
    let mut receiving = Receiving::new(origin);
    let (mut rest, mut payload, mut checksums) = (wire, Vec::new(), Vec::new());
    loop {
        match receiving.wanted() {
            Wanted::Nothing => return Ok(rest.is_empty().then_some((payload, checksums))),
            _ if rest.is_empty() => return Ok(None),
            Wanted::Chunk(wanted) => {
                let (piece, tail) = rest.split_at(wanted.min(most).min(rest.len()));
                payload.extend_from_slice(piece);
                receiving.took(piece);
                rest = tail;
            }
            Wanted::Tail => {
                let room = receiving.tail();
                let taken = room.len().min(most).min(rest.len());
                room[..taken].copy_from_slice(&rest[..taken]);
                rest = &rest[taken..];
                checksums.extend(receiving.took_tail(taken)?);
            }
        }
    }
}

fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![
        0_usize..100,
        CHUNK_LEN - 2..CHUNK_LEN + 3,
        3 * CHUNK_LEN - 1..3 * CHUNK_LEN + 2,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24, 48)))]

    #[test]
    fn payloads_survive_any_cut(
        len in lens(),
        piece in 1_000_usize..3_000_000,
        taken in 1_000_usize..3_000_000,
        most in 1_000_usize..3_000_000,
    ) {
        let payload = payload(len);
        let wire = sent(&payload, piece, taken);
        let chunks = len.div_ceil(CHUNK_LEN);
        let expected = if len == 0 { 0 } else { len + chunks * CHECK_LEN + DIGEST_LEN };
        prop_assert_eq!(wire.len(), expected);
        let (got, checksums) = received(origin(len), &wire, most).unwrap().unwrap();
        prop_assert!(got == payload);
        prop_assert_eq!(checksums.len(), chunks);
    }

    #[test]
    fn any_damage_is_noticed(len in 1_usize..CHUNK_LEN + 50, at: prop::sample::Index, bit in 0..8_u32) {
        let mut wire = sent(&payload(len), usize::MAX, usize::MAX);
        let at = at.index(wire.len());
        wire[at] ^= 1_u8 << bit;
        prop_assert!(received(origin(len), &wire, usize::MAX).is_err());
    }

    #[test]
    fn what_is_handed_on_is_the_same_to_the_byte(len in lens(), most in 100_000_usize..3_000_000) {
        let payload = payload(len);
        let wire = sent(&payload, most, usize::MAX);
        let (got, checksums) = received(origin(len), &wire, most).unwrap().unwrap();
        let mut sending = Sending::new(origin(len));
        let mut again = Vec::new();
        while let Some(chunk) = sending.chunk() {
            let chunk = part(&got, chunk);
            // First without the check, which has not come yet.
            let begun = sending.next(chunk, Checksum::Awaited, most);
            prop_assert!(begun[1].is_empty());
            let checksum = checksums[usize::try_from(sending.index()).unwrap()];
            let parts = sending.next(chunk, Checksum::Given(checksum), most);
            let taken: usize = parts.iter().map(|part| part.len()).sum();
            for part in &parts {
                again.extend_from_slice(part);
            }
            sending.sent(taken);
        }
        prop_assert!(again == wire);
    }

    #[test]
    fn what_is_there_is_followed_chunk_by_chunk(len in lens(), taken in 1_usize..30, at: prop::sample::Index) {
        let payload = payload(len);
        let (_, checksums) = received(origin(len), &sent(&payload, 1 << 20, 1 << 20), 1 << 20).unwrap().unwrap();
        let mut sending = Sending::of_what_is_there(origin(len));
        let (mut wire, mut begun) = (Vec::new(), None);
        while let Some(chunk) = sending.chunk() {
            let chunk = part(&payload, chunk);
            let checksum = checksums[usize::try_from(sending.index()).unwrap()];
            if begun.replace(sending.index()) != Some(sending.index()) {
                // Neither before all of it is there nor before that has been verified.
                let early = sending.next(&chunk[1..], Checksum::Given(checksum), 1);
                prop_assert!(early.iter().all(|part| part.is_empty()));
                let unverified = sending.next(chunk, Checksum::Awaited, 1);
                prop_assert!(unverified.iter().all(|part| part.is_empty()));
            }
            let [bytes, tail] = sending.next(chunk, Checksum::Given(checksum), 1);
            prop_assert!(bytes.is_empty());
            let taken = tail.len().min(taken);
            wire.extend_from_slice(&tail[..taken]);
            sending.sent(taken);
        }
        let follow = |origin: StreamOrigin, wire: &[u8]| {
            let mut receiving = Receiving::of_what_is_there(origin);
            let (mut rest, mut seen) = (wire, Vec::new());
            while receiving.wanted() == Wanted::Tail {
                let room = receiving.tail();
                let taken = room.len().min(taken).min(rest.len());
                room[..taken].copy_from_slice(&rest[..taken]);
                rest = &rest[taken..];
                seen.extend(receiving.took_tail(taken)?);
            }
            Ok::<_, Fault>((receiving.wanted(), rest.len(), seen))
        };
        prop_assert_eq!(follow(origin(len), &wire), Ok((Wanted::Nothing, 0, checksums)));
        if len > 0 {
            let other = StreamOrigin { rank: Rank::new(77), ..origin(len) };
            prop_assert_eq!(follow(other, &wire), Err(Fault::Digest));
            let at = at.index(wire.len());
            wire[at] ^= 1;
            prop_assert!(follow(origin(len), &wire).is_err());
        }
    }
}

/// The same payload without checksums.
fn unhashed(len: usize) -> StreamOrigin {
    StreamOrigin {
        has_checksums: false,
        ..origin(len)
    }
}

#[test]
fn without_checksums_all_but_the_payload_bytes_is_checked() {
    let len = CHUNK_LEN + 9;
    let bytes = payload(len);
    let wire = sent_by(unhashed(len), &bytes, 70_000, 60_000);
    let (got, checksums) = received(unhashed(len), &wire, 50_000).unwrap().unwrap();
    assert!(got == bytes && checksums == [0, 0]);
    let is_of_payload =
        |at: usize| at < CHUNK_LEN || (CHUNK_LEN + CHECK_LEN..len + CHECK_LEN).contains(&at);
    let checked = (0..wire.len()).filter(|at| !is_of_payload(*at));
    for at in checked {
        let mut damaged = wire.clone();
        damaged[at] ^= 1;
        assert!(
            received(unhashed(len), &damaged, usize::MAX).is_err(),
            "{at}"
        );
    }
}

#[test]
fn ranks_that_do_not_agree_on_checksums_notice() {
    let bytes = payload(70);
    for (ours, theirs) in [(origin(70), unhashed(70)), (unhashed(70), origin(70))] {
        let wire = sent_by(ours, &bytes, usize::MAX, usize::MAX);
        assert_eq!(received(theirs, &wire, 9), Err(Fault::Chunk(0)));
    }
}

#[test]
fn the_payload_of_another_call_rank_or_world_is_refused() {
    for has_checksums in [true, false] {
        let ours = StreamOrigin {
            has_checksums,
            ..origin(70)
        };
        refuses_others(ours);
    }
}

fn refuses_others(ours: StreamOrigin) {
    let wire = sent_by(ours, &payload(70), usize::MAX, usize::MAX);
    assert!(received(ours, &wire, 9).unwrap().is_some());
    let others = [
        StreamOrigin {
            rank: Rank::new(1),
            ..ours
        },
        StreamOrigin {
            communicator: Uuid::nil(),
            ..ours
        },
        StreamOrigin {
            call: CallId {
                epoch: Epoch::new(8),
                ..ours.call
            },
            ..ours
        },
        StreamOrigin {
            call: CallId {
                channel: ChannelId::new(4),
                ..ours.call
            },
            ..ours
        },
    ];
    for other in others {
        assert_eq!(received(other, &wire, 9), Err(Fault::Digest));
    }
}

#[test]
fn chunks_beyond_four_gibibytes_are_counted_right() {
    let origin = StreamOrigin {
        len: (5 << 30) + 1,
        ..origin(0)
    };
    assert_eq!(origin.chunks(), 5 * 1024 + 1);
    assert_eq!(origin.chunk(5 * 1024), 5 << 30..(5 << 30) + 1);
    assert_eq!(origin.chunk_len(5 * 1024), 1);
    assert!(origin.chunk(5 * 1024 + 1).is_empty());
}

#[test]
fn the_documented_example_is_exact() {
    let wire = sent(b"xyz", usize::MAX, usize::MAX);
    assert_eq!(wire[..3], *b"xyz");
    assert_eq!(wire[3..11], Hash64::of(b"xyz").to_le_bytes());
    assert_eq!(wire[11], 0);
    let mut covered = vec![0; 15];
    covered.push(7);
    covered.extend_from_slice(&3_u64.to_le_bytes());
    covered.extend_from_slice(&9_u64.to_le_bytes());
    covered.extend_from_slice(&2_u32.to_le_bytes());
    covered.extend_from_slice(&3_u64.to_le_bytes());
    covered.extend_from_slice(&wire[3..11]);
    assert_eq!(wire[12..], Hash128::of(&covered).to_le_bytes());
}
