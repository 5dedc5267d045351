use std::sync::Arc;

use fsgather_core::Rank;

use super::*;
use crate::{
    meeting::tests::{BUDGET, call, met, place},
    memory::tests::flags,
};

const LEN: usize = 16_000;

/// Hands pieces over in a call of this number to rank 1.
fn hand_over(arena: &Arc<Arena>, pieces: &[&[u8]], epoch: u64) -> Option<Location> {
    let placement = Placement {
        call: call(epoch),
        readers: &[Rank::new(1)],
        is_gone: &|_| false,
    };
    arena.place(pieces, &placement)
}

#[test]
fn what_is_written_there_is_read_there_and_what_is_written_later_is_not() {
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN).unwrap();
    memory.fill(7);
    let location = hand_over(own, &[&memory], 0).unwrap();
    assert_eq!(location.start, memory.part.start, "it is not copied");
    let read = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
    assert_eq!(*read, [7; LEN]);
    memory.fill(8);
    assert_eq!((&*read, &*memory), (&[7; LEN][..], &[8; LEN][..]));
}

#[test]
fn pieces_before_and_after_it_lie_beside_it() {
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN).unwrap();
    memory.fill(7);
    let location = hand_over(own, &[b"head", &memory, b"and tail"], 0).unwrap();
    assert_eq!(location.start, memory.part.start - 4);
    let read = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
    assert_eq!(*read, *[&b"head"[..], &[7; LEN], b"and tail"].concat());
    assert_eq!(*memory, [7; LEN]);
}

#[test]
fn a_part_of_it_is_not_copied_either_unless_something_would_be_written_to_the_rest() {
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN).unwrap();
    memory[..LEN / 2].fill(1);
    memory[LEN / 2..].fill(2);
    let half = &memory[LEN / 2..];
    assert!(memory.part.in_place(&[b"head", half]).is_none());
    assert!(
        memory
            .part
            .in_place(&[&memory[..LEN / 2], b"tail"])
            .is_none()
    );
    assert!(
        memory
            .part
            .in_place(&[&vec![0; page_size() + 1], &memory])
            .is_none()
    );
    assert!(
        memory
            .part
            .in_place(&[&memory, &vec![0; page_size() + 1]])
            .is_none()
    );
    assert!(memory.part.in_place(&[&[0; LEN]]).is_none());
    let location = hand_over(own, &[half], 0).unwrap();
    assert_eq!(location.start, memory.part.start + LEN as u64 / 2);
    let read = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
    assert_eq!(*read, [2; LEN / 2]);
}

#[test]
fn handed_over_again_it_is_copied() {
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN).unwrap();
    memory.fill(7);
    let first = hand_over(own, &[&memory], 0).unwrap();
    memory.fill(8);
    // The first payload of a size goes another way where it has to be copied.
    assert_eq!(hand_over(own, &[&memory], 1), None);
    let second = hand_over(own, &[&memory], 2).unwrap();
    let read = |location, epoch| all[1].lease(Rank::ZERO, location, call(epoch)).unwrap();
    assert_eq!(*read(&second, 2), [8; LEN]);
    assert_eq!(*read(&first, 0), [7; LEN]);
}

#[test]
fn its_place_is_free_once_the_program_and_the_readers_have_let_go() {
    let all = met(2);
    let own = all[0].own();
    let start = |memory: &LentMemory| memory.part.start;
    let memory = own.lend(LEN).unwrap();
    let first = start(&memory);
    let location = hand_over(own, &[&memory], 0).unwrap();
    let read = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
    drop(memory);
    let other = own.lend(LEN).unwrap();
    assert_ne!(start(&other), first, "it is still read");
    drop(read);
    let again = own.lend(LEN).unwrap();
    assert_eq!(start(&again), first);
    let elsewhere = place(&all[0], &[3; LEN], 1, &[Rank::new(1)]);
    assert!(elsewhere.start > start(&other) && elsewhere.start > first);
}

#[test]
fn there_is_no_more_than_a_rank_may_share() {
    let all = met(2);
    let own = all[0].own();
    assert!(own.lend(0).is_none());
    assert!(own.lend(usize::try_from(BUDGET).unwrap()).is_none());
    assert!(own.lend(usize::MAX).is_none());
    let most = usize::try_from(BUDGET).unwrap() / 2 + 1;
    let memory = own.lend(most).unwrap();
    assert!(own.lend(most).is_none());
    drop(memory);
    assert!(own.lend(most).is_some());
}

/// `scripts/prove strict-memory` runs it on a kernel of its own.
#[test]
#[ignore = "needs vm.overcommit_memory=2: scripts/prove strict-memory"]
fn where_no_private_mapping_is_to_be_had_it_is_copied() {
    let policy = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    assert_eq!(policy.trim(), "2", "vm.overcommit_memory");
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN * 100).unwrap();
    memory.fill(7);
    let bytes = memory.to_vec();
    let mut all_that_is_left = Vec::new();
    for size in [LEN * 100, LEN, page_size()] {
        while let Ok(some) = memmap2::MmapMut::map_anon(size) {
            all_that_is_left.push(some);
        }
    }
    let location = hand_over(own, &[&memory], 0);
    assert_eq!(location, None, "it would have to be copied");
    memory[0] = 8;
    drop(all_that_is_left);
    memory[0] = 7;
    assert_eq!(*memory, *bytes);
    let location = hand_over(own, &[&memory], 1).unwrap();
    let read = all[1].lease(Rank::ZERO, &location, call(1)).unwrap();
    assert_eq!(*read, *bytes);
}

#[test]
fn what_is_frozen_keeps_its_mapping_and_the_next_in_its_place_has_it() {
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN).unwrap();
    memory.fill(7);
    let address = memory.as_ptr();
    let start = memory.part.start;
    let frozen = memory.freeze();
    let location = hand_over(own, &[frozen.as_ref()], 0).unwrap();
    assert_eq!(location.start, start, "it is not copied");
    let read = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
    drop(frozen);
    let mut other = own.lend(LEN).unwrap();
    assert_ne!(other.as_ptr(), address, "it is still read");
    other.fill(9);
    assert_eq!(*read, [7; LEN]);
    drop(read);
    let mut again = own.lend(LEN - 1).unwrap();
    assert_eq!((again.as_ptr(), again.len()), (address, LEN - 1));
    again.fill(8);
    let location = hand_over(own, &[&again], 1).unwrap();
    again.fill(9);
    let read = all[1].lease(Rank::ZERO, &location, call(1)).unwrap();
    assert_eq!(*read, [8; LEN - 1], "nobody sees what is written later");
    drop(again);
    drop(read);
    let longer = own.lend(LEN + page_size()).unwrap();
    assert_eq!(longer.part.start, start);
    assert_eq!(longer.len(), LEN + page_size());
}

#[test]
fn frozen_memory_is_handed_over_once_and_copied_then() {
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN).unwrap();
    memory.fill(7);
    let frozen = memory.freeze();
    let half = &frozen.as_ref()[LEN / 2..];
    let first = hand_over(own, &[half], 0).unwrap();
    assert_eq!(hand_over(own, &[frozen.as_ref()], 1), None);
    let second = hand_over(own, &[frozen.as_ref()], 2).unwrap();
    assert_ne!(first.slot(), second.slot());
    let read = |location, epoch| all[1].lease(Rank::ZERO, location, call(epoch)).unwrap();
    assert_eq!(*read(&second, 2), [7; LEN]);
    assert_eq!(*read(&first, 0), [7; LEN / 2]);
}

#[test]
fn what_was_handed_over_before_it_was_frozen_leaves_no_mapping() {
    let all = met(2);
    let own = all[0].own();
    let mut memory = own.lend(LEN).unwrap();
    memory.fill(7);
    let location = hand_over(own, &[&memory], 0).unwrap();
    memory.fill(8);
    let frozen = memory.freeze();
    let read = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
    assert_eq!((&*read, frozen.as_ref()), (&[7; LEN][..], &[8; LEN][..]));
    drop((read, frozen));
    assert!(lock(&own.left_mappings).is_empty());
    let mut again = own.lend(LEN).unwrap();
    again.fill(6);
    let location = hand_over(own, &[&again], 1).unwrap();
    let read = all[1].lease(Rank::ZERO, &location, call(1)).unwrap();
    assert_eq!(*read, [6; LEN]);
}

#[test]
fn a_mapping_goes_with_the_slot_that_it_is_of() {
    let all = met(2);
    let own = all[0].own();
    let most = usize::try_from(BUDGET).unwrap() / 2 + 1;
    let large = own.lend(most).unwrap();
    let start = large.part.start;
    drop(large.freeze());
    assert_eq!(lock(&own.left_mappings).len(), 1);
    let mut small = Vec::new();
    while small
        .last()
        .is_none_or(|last: &LentMemory| last.part.start != start)
    {
        small.push(own.lend(page_size()).unwrap());
    }
    for one in &small {
        assert_eq!(one.part.map.len(), page_size(), "beyond it others' begin");
    }
    assert!(lock(&own.left_mappings).is_empty());
}

#[test]
fn what_is_left_is_in_no_core_file_until_a_program_has_it_again() {
    let all = met(2);
    let own = all[0].own();
    let is_kept_out = |map: &MmapRaw| flags(map).split_whitespace().any(|flag| flag == "dd");
    let memory = own.lend(LEN).unwrap();
    let address = memory.as_ptr();
    assert!(!is_kept_out(&memory.part.map));
    drop(memory.freeze());
    assert!(is_kept_out(&lock(&own.left_mappings)[0].map));
    let again = own.lend(LEN).unwrap();
    assert_eq!(again.as_ptr(), address);
    assert!(!is_kept_out(&again.part.map));
}
