//! Tests of payloads that arrive piece by piece.

use fsgather_core::Rank;

use super::*;
use crate::{
    Arenas,
    meeting::tests::{BUDGET, call, met},
};

const LEN: u64 = 100_000;

fn begin(arenas: &Arenas, epoch: u64, len: u64, readers: &[Rank]) -> Option<Filling> {
    let placement = Placement {
        call: call(epoch),
        readers,
        is_gone: &|_| false,
    };
    arenas.own().begin(len, &placement)
}

/// The second one of its size.
fn second(arenas: &Arenas, epoch: u64) -> Filling {
    let readers = [0, 1].map(Rank::new);
    begin(arenas, epoch, LEN, &readers)
        .or_else(|| begin(arenas, epoch, LEN, &readers))
        .unwrap()
}

fn fill(filling: &mut Filling, bytes: &[u8]) {
    filling.room()[..bytes.len()].copy_from_slice(bytes);
    filling.came(bytes.len());
}

#[test]
fn what_comes_bit_by_bit_is_read_along_and_then_as_a_whole() {
    let all = met(2);
    let payload: Vec<u8> = (0..LEN).map(|at| at.to_le_bytes()[0]).collect();
    let mut filling = second(&all[0], 1);
    let owner = Rank::ZERO;
    let location = *filling.location();
    let following = all[1].follow(owner, &location, call(1)).unwrap();
    for (at, part) in payload.chunks(30_000).enumerate() {
        fill(&mut filling, part);
        let so_far = &payload[..30_000 * at + part.len()];
        assert_eq!(filling.filled(), so_far);
        assert_eq!(following.beginning(so_far.len() as u64), so_far);
    }
    assert!(filling.room().is_empty());
    assert_eq!(following.beginning(u64::MAX), payload);
    drop(filling);
    let own = all[0].lease(owner, &location, call(1)).unwrap();
    let whole = following.whole();
    // A later payload gets another place while this one is held.
    let mut later = second(&all[0], 2);
    fill(&mut later, &vec![255; payload.len()]);
    assert_eq!((&*own, &*whole), (&*payload, &*payload));
    drop(own);
    assert_ne!(second(&all[0], 3).location().start, location.start);
    drop(whole);
    assert_eq!(second(&all[0], 4).location().start, location.start);
}

#[test]
fn an_unfinished_payload_frees_its_place_when_given_up() {
    let all = met(2);
    let mut filling = second(&all[0], 1);
    let start = filling.location().start;
    fill(&mut filling, &[1; 70]);
    let following = all[1].follow(Rank::ZERO, filling.location(), call(1));
    drop(filling);
    all[0].give_up(call(1), &[]);
    assert_ne!(second(&all[0], 2).location().start, start);
    drop(following);
    assert_eq!(second(&all[0], 3).location().start, start);
}

#[test]
fn what_all_have_given_up_keeps_its_place_while_it_comes() {
    let all = met(2);
    let mut filling = second(&all[0], 1);
    fill(&mut filling, &[1; 70]);
    for arenas in &all {
        arenas.give_up(call(1), &[]);
    }
    let (start, mut other) = (filling.location().start, second(&all[0], 2));
    assert_ne!(other.location().start, start);
    fill(&mut other, &[2; 70]);
    assert_eq!(
        (filling.filled(), other.filled()),
        (&[1; 70][..], &[2; 70][..])
    );
    drop(filling);
    assert_eq!(second(&all[0], 3).location().start, start);
}

#[test]
fn what_is_too_long_and_the_first_of_a_size_have_no_place() {
    let all = met(1);
    let readers = [Rank::ZERO];
    for len in [LEN, 2 * BUDGET, 2 * BUDGET] {
        assert!(begin(&all[0], 1, len, &readers).is_none());
    }
    let mut filling = begin(&all[0], 1, LEN, &readers).unwrap();
    assert_eq!(filling.room().len() as u64, LEN);
    // A count beyond the space is clamped.
    filling.came(usize::MAX);
    assert_eq!(filling.filled().len() as u64, LEN);
    assert!(filling.room().is_empty());
}
