use std::collections::BTreeMap;

use fsgather_core::{ChannelId, Epoch};
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn call(epoch: u64) -> CallKey {
    CallKey {
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

#[test]
fn the_first_payload_of_a_size_goes_another_way_and_the_second_has_a_slot() {
    let mut slots = Slots::new(16 * MIB);
    assert_eq!(slots.place(MIB, call(0), readers(), held), None);
    let plan = slots.place(MIB, call(1), readers(), held).unwrap();
    assert_eq!((plan.slot, plan.to_reserve), (0, Some(MIB)));
    let next = slots.place(MIB - 5, call(2), readers(), gone).unwrap();
    assert_eq!((next.slot, next.to_reserve), (0, None));
    assert!(next.generation > plan.generation);
}

#[test]
fn a_second_slot_is_made_while_the_first_is_held() {
    let mut slots = Slots::new(16 * MIB);
    let mut place = |epoch, has_let_go: fn(usize, &Lease, Rank) -> bool| {
        slots
            .place(MIB, call(epoch), readers(), has_let_go)
            .map(|plan| (plan.slot, plan.to_reserve.is_some()))
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
    slots.place(MIB, call(0), readers(), held);
    slots.place(MIB, call(1), readers(), held).unwrap();
    let plan = slots.place(MIB, call(2), readers(), |_, _, reader| reader == Rank::ZERO);
    assert_eq!(plan.unwrap().slot, 1);
}

#[test]
fn more_than_the_budget_goes_another_way() {
    let mut slots = Slots::new(2 * MIB);
    for epoch in 0..3 {
        assert_eq!(slots.place(3 * MIB, call(epoch), readers(), gone), None);
    }
    slots.place(MIB, call(3), readers(), held);
    slots.place(MIB, call(4), readers(), held).unwrap();
    slots.place(MIB, call(5), readers(), held).unwrap();
    assert_eq!(slots.place(MIB, call(6), readers(), held), None);
}

#[test]
fn idle_slots_make_room_for_another_size() {
    let mut slots = Slots::new(4 * MIB);
    slots.place(MIB, call(0), readers(), held);
    let small = slots.place(MIB, call(1), readers(), held).unwrap();
    slots.place(4 * MIB, call(2), readers(), gone);
    let large = slots.place(4 * MIB, call(3), readers(), gone).unwrap();
    assert_eq!(large.to_give_back, [(small.start, MIB)]);
    assert_eq!(large.to_reserve, Some(4 * MIB));
}

#[test]
fn what_is_withdrawn_is_free() {
    let mut slots = Slots::new(MIB);
    slots.place(MIB, call(0), readers(), held);
    slots.place(MIB, call(1), readers(), held).unwrap();
    assert_eq!(slots.place(MIB, call(2), readers(), held), None);
    slots.withdraw(call(1));
    assert_eq!(slots.place(MIB, call(3), readers(), held).unwrap().slot, 0);
}

#[test]
fn memory_that_is_refused_is_not_asked_for_again() {
    let mut slots = Slots::new(4 * MIB);
    slots.place(MIB, call(0), readers(), held);
    let plan = slots.place(MIB, call(1), readers(), held).unwrap();
    slots.refuse(plan.slot);
    assert_eq!(slots.place(MIB, call(2), readers(), gone), None);
}

proptest! {
    /// Readers hold on to payloads or let go of them in any order, sizes vary: no two payloads that are held overlap, and
    /// the memory stays within the budget.
    #[test]
    fn payloads_that_are_held_lie_apart(
        steps in prop::collection::vec((1..5 * MIB, prop::collection::vec(any::<bool>(), 8)), 1..40),
    ) {
        const BUDGET: u64 = 12 * MIB;
        let mut slots = Slots::new(BUDGET);
        let mut held: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut reserved: BTreeMap<u64, u64> = BTreeMap::new();
        for (epoch, (len, stays)) in (0..).zip(steps) {
            let mut index = 0;
            held.retain(|_, _| {
                index += 1;
                stays[index % stays.len()]
            });
            let has_let_go = |_: usize, lease: &Lease, _: Rank| !held.contains_key(&lease.generation);
            let Some(plan) = slots.place(len, call(epoch), readers(), has_let_go) else { continue };
            for (start, capacity) in plan.to_give_back {
                prop_assert_eq!(reserved.remove(&start), Some(capacity));
                for (other, length) in held.values() {
                    prop_assert!(start + capacity <= *other || other + length <= start, "somebody reads it");
                }
            }
            if let Some(capacity) = plan.to_reserve {
                reserved.insert(plan.start, capacity);
            }
            prop_assert!(reserved.values().sum::<u64>() <= BUDGET);
            prop_assert!(reserved[&plan.start] >= len);
            for (start, length) in held.values() {
                prop_assert!(plan.start + len <= *start || start + length <= plan.start);
            }
            held.insert(plan.generation, (plan.start, len));
        }
    }
}
