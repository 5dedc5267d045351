//! Fetches payloads of other hosts before they are requested: [`fetch_ahead`].
//!
//! A request to another host takes a round trip, and a new connection needs several round trips until it is fast. So
//! payloads are requested while this rank waits for those before them, or works on them. At most the first [`MAX_PREFETCH_BYTES`]
//! bytes of each are in this process; the rest stays with its owner, except the part that the operating system buffers
//! for a connection. Within a host it would save nothing.

use fsgather_core::Rank;

use crate::{group_state::GroupState, payload::part::IncomingPart};

/// Maximum number of concurrent prefetches.
const MAX_PREFETCHES: usize = 64;

/// Maximum number of bytes of all prefetches together.
const MAX_PREFETCHED_BYTES: u64 = 16 << 20;

/// Maximum number of bytes of each prefetch.
const MAX_PREFETCH_BYTES: u64 = 1 << 20;

/// Maximum number of parts that are searched for those of other hosts.
const MAX_SEARCHED_PARTS: usize = 256;

/// Begins to fetch those of these parts that come from other hosts. `next` has the parts in the order in which they are
/// read, with their ranks in the group. Does nothing if the next part is in memory, because there is no wait for it.
pub(crate) fn fetch_ahead<'p>(
    inner: &GroupState,
    next: impl IntoIterator<Item = (Rank, &'p mut IncomingPart)>,
) {
    let mut next = next.into_iter().peekable();
    if !matches!(next.peek(), Some((_, IncomingPart::Linked(_)))) {
        return;
    }
    let mut far: Vec<_> = next
        .take(MAX_SEARCHED_PARTS)
        .filter_map(|(rank, part)| match part {
            IncomingPart::Linked(linked) if linked.is_far(inner, rank) => Some((rank, linked)),
            _ => None,
        })
        .collect();
    let count = how_many(far.iter().map(|(_, linked)| linked.len));
    for (rank, linked) in far.iter_mut().take(count) {
        linked.begin(inner, *rank);
    }
}

/// Returns the number of payloads of these lengths, in the order in which they are read, that are fetched at the same
/// time.
fn how_many(lens: impl Iterator<Item = u64>) -> usize {
    let mut together = 0;
    lens.take(MAX_PREFETCHES)
        .take_while(|len| {
            together += (*len).min(MAX_PREFETCH_BYTES);
            together <= MAX_PREFETCHED_BYTES
        })
        .count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_payloads_are_many_and_long_ones_are_few() {
        assert_eq!(how_many([].into_iter()), 0);
        assert_eq!(how_many([7; 5].into_iter()), 5);
        assert_eq!(how_many([7; 500].into_iter()), 64);
        assert_eq!(how_many([1 << 19; 500].into_iter()), 32);
        assert_eq!(how_many([u64::MAX; 500].into_iter()), 16);
        assert_eq!(how_many([1 << 20, 1, u64::MAX].into_iter()), 3);
    }

    proptest! {
        #[test]
        fn the_next_one_is_among_them_and_all_keep_within_the_limits(
            lens in prop::collection::vec(prop_oneof![0..5000_u64, 0..u64::MAX], 1..200),
        ) {
            let count = how_many(lens.iter().copied());
            prop_assert!((1..=MAX_PREFETCHES).contains(&count));
            let held: u64 = lens[..count].iter().map(|len| (*len).min(MAX_PREFETCH_BYTES)).sum();
            prop_assert!(held <= MAX_PREFETCHED_BYTES);
            // A prefetch continues after a payload before it has been read.
            prop_assert!(how_many(lens[1..].iter().copied()) + 1 >= count);
        }
    }
}
