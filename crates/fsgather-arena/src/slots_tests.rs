use std::collections::BTreeMap;

use fsgather_core::{ChannelId, Epoch};
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn call(epoch: u64) -> CallId {
    CallId {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(epoch),
    }
}

fn held(_: usize, _: &Lease, _: Rank) -> bool {
    false
}

fn gone(_: usize, _: &Lease, _: Rank) -> bool {
    true
}

fn readers() -> Vec<Rank> {
    vec![Rank::ZERO, Rank::new(1)]
}

/// Finds a place for a payload, which is written there at once.
fn place(
    slots: &mut Slots,
    len: u64,
    epoch: u64,
    has_let_go: impl Fn(usize, &Lease, Rank) -> bool,
) -> Option<Plan> {
    let plan = slots.place(len, call(epoch), readers(), has_let_go)?;
    slots.end_writing(plan.slot);
    Some(plan)
}

#[test]
fn only_the_second_payload_of_a_size_gets_a_slot() {
    let mut slots = Slots::new(16 * MIB);
    assert_eq!(place(&mut slots, MIB, 0, held), None);
    let plan = place(&mut slots, MIB, 1, held).unwrap();
    assert_eq!((plan.slot, plan.to_reserve), (0, Some(MIB)));
    let next = place(&mut slots, MIB - 5, 2, gone).unwrap();
    assert_eq!((next.slot, next.to_reserve), (0, None));
    assert!(next.generation > plan.generation);
}

#[test]
fn a_second_slot_is_made_while_the_first_is_held() {
    let mut slots = Slots::new(16 * MIB);
    let mut place = |epoch, has_let_go: fn(usize, &Lease, Rank) -> bool| {
        let plan = place(&mut slots, MIB, epoch, has_let_go);
        plan.map(|plan| (plan.slot, plan.to_reserve.is_some()))
    };
    assert_eq!(place(0, held), None);
    assert_eq!(place(1, held), Some((0, true)));
    assert_eq!(place(2, held), Some((1, true)));
    let first_is_free: fn(usize, &Lease, Rank) -> bool = |slot, _, _| slot == 0;
    assert_eq!(place(3, first_is_free), Some((0, false)));
}

#[test]
fn one_reader_that_holds_on_keeps_the_slot() {
    let mut slots = Slots::new(2 * MIB);
    place(&mut slots, MIB, 0, held);
    place(&mut slots, MIB, 1, held).unwrap();
    let plan = place(&mut slots, MIB, 2, |_, _, reader| reader == Rank::ZERO);
    assert_eq!(plan.unwrap().slot, 1);
}

#[test]
fn more_than_the_budget_goes_another_way() {
    let mut slots = Slots::new(2 * MIB);
    for epoch in 0..3 {
        assert_eq!(place(&mut slots, 3 * MIB, epoch, gone), None);
    }
    place(&mut slots, MIB, 3, held);
    place(&mut slots, MIB, 4, held).unwrap();
    place(&mut slots, MIB, 5, held).unwrap();
    assert_eq!(place(&mut slots, MIB, 6, held), None);
}

#[test]
fn idle_slots_make_room_for_another_size() {
    let mut slots = Slots::new(4 * MIB);
    place(&mut slots, MIB, 0, held);
    let small = place(&mut slots, MIB, 1, held).unwrap();
    place(&mut slots, 4 * MIB, 2, gone);
    let large = place(&mut slots, 4 * MIB, 3, gone).unwrap();
    assert_eq!(large.to_give_back, [(small.start, MIB)]);
    assert_eq!(large.to_reserve, Some(4 * MIB));
}

#[test]
fn what_is_withdrawn_is_free() {
    let mut slots = Slots::new(MIB);
    place(&mut slots, MIB, 0, held);
    place(&mut slots, MIB, 1, held).unwrap();
    assert_eq!(place(&mut slots, MIB, 2, held), None);
    slots.withdraw(call(1));
    assert_eq!(place(&mut slots, MIB, 3, held).unwrap().slot, 0);
}

#[test]
fn a_slot_given_up_while_written_is_kept_until_the_end() {
    let mut slots = Slots::new(16 * MIB);
    place(&mut slots, MIB, 0, gone);
    let slow = slots.place(MIB, call(1), readers(), gone).unwrap();
    let next = place(&mut slots, MIB, 2, gone).unwrap();
    assert_eq!([slow.slot, next.slot], [0, 1]);
    slots.end_writing(slow.slot);
    assert_eq!(place(&mut slots, MIB, 3, gone).unwrap().slot, slow.slot);
}

#[test]
fn memory_that_is_refused_is_asked_for_again_after_a_while() {
    let mut slots = Slots::new(4 * MIB);
    place(&mut slots, MIB, 0, held);
    place(&mut slots, MIB, 1, held).unwrap();
    let refused = place(&mut slots, MIB, 2, held).unwrap();
    slots.refuse(refused.slot);
    for _ in 1..PATIENCE {
        assert_eq!(place(&mut slots, MIB, 3, held), None);
    }
    let again = place(&mut slots, MIB, 4, held).unwrap();
    assert_eq!(again.to_reserve, Some(MIB));
    slots.refuse(again.slot);
    assert_eq!(
        place(&mut slots, MIB, 5, gone).unwrap().to_reserve,
        None,
        "what there is serves"
    );
}

/// An idle slot that is dropped for a payload without a place would have to be made again, and its memory would stay in use.
#[test]
fn idle_slots_stay_where_there_is_no_room_without_them_either() {
    const UNIT: u64 = SMALLEST;
    let mut slots = Slots::new(16 * UNIT);
    let mut epoch = 0;
    let mut place = |slots: &mut Slots, units: u64, held: &dyn Fn(u64) -> bool| {
        epoch += 1;
        place(slots, units * UNIT, epoch, |_, lease, _| {
            !held(lease.generation)
        })
    };
    assert_eq!(place(&mut slots, 1, &|_| true), None);
    for unit in 0..16 {
        let plan = place(&mut slots, 1, &|_| true).unwrap();
        assert_eq!((plan.start, plan.generation), (unit * UNIT, unit + 1));
    }
    let every_other = |generation| generation % 2 == 1 || generation > 16;
    assert_eq!(place(&mut slots, 2, &every_other), None);
    for unit in [16, 18, 20, 22] {
        let plan = place(&mut slots, 2, &every_other).unwrap();
        assert_eq!(plan.start, unit * UNIT);
    }
    // There is memory for 13 more, but addresses for 11 in a row.
    let two = |generation| generation == 9 || generation == 19;
    for _ in 0..3 {
        assert_eq!(place(&mut slots, 12, &two), None);
        assert_eq!(slots.used, 16 * UNIT);
    }
    let plan = place(&mut slots, 2, &two).unwrap();
    assert_eq!((plan.to_reserve, plan.to_give_back), (None, Vec::new()));
    assert_eq!(place(&mut slots, 10, &two), None);
    let plan = place(&mut slots, 10, &two).unwrap();
    let given_back: u64 = plan.to_give_back.iter().map(|(_, len)| len).sum();
    assert_eq!(slots.used, (16 + 10) * UNIT - given_back);
    assert!(slots.used <= 16 * UNIT);
}

proptest! {
    /// Readers hold on to payloads or let go of them in any order, also before they are written, sizes vary: no two payloads
    /// that are held or written overlap, and the memory stays within the budget.
    #[test]
    fn payloads_that_are_held_lie_apart(
        steps in prop::collection::vec((1..5 * MIB, prop::collection::vec(any::<bool>(), 8), 0..3_usize), 1..40),
    ) {
        const BUDGET: u64 = 12 * MIB;
        let mut slots = Slots::new(BUDGET);
        let mut held: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut reserved: BTreeMap<u64, u64> = BTreeMap::new();
        // Slots, with the parts of them that are being written to.
        let mut written: Vec<(usize, (u64, u64))> = Vec::new();
        for (epoch, (len, stays, writing)) in (0..).zip(steps) {
            while written.len() > writing {
                slots.end_writing(written.remove(0).0);
            }
            let mut index = 0;
            held.retain(|_, _| {
                index += 1;
                stays[index % stays.len()]
            });
            let has_let_go = |_: usize, lease: &Lease, _: Rank| !held.contains_key(&lease.generation);
            let Some(plan) = slots.place(len, call(epoch), readers(), has_let_go) else {
                prop_assert_eq!(reserved.values().sum::<u64>(), slots.used, "no slot goes in vain");
                continue;
            };
            for (start, capacity) in plan.to_give_back {
                prop_assert_eq!(reserved.remove(&start), Some(capacity));
                for (other, length) in held.values().chain(written.iter().map(|(_, part)| part)) {
                    prop_assert!(start + capacity <= *other || other + length <= start, "somebody reads it");
                }
            }
            if let Some(capacity) = plan.to_reserve {
                reserved.insert(plan.start, capacity);
            }
            prop_assert!(reserved.values().sum::<u64>() <= BUDGET);
            prop_assert!(reserved[&plan.start] >= len);
            for (start, length) in held.values().chain(written.iter().map(|(_, part)| part)) {
                prop_assert!(plan.start + len <= *start || start + length <= plan.start);
            }
            held.insert(plan.generation, (plan.start, len));
            written.push((plan.slot, (plan.start, len)));
        }
    }
}
