//! The order in which payloads go round a group: [`RingOrder`]. Pure.

use std::collections::BTreeMap;

use fsgather_control::mesh::neighbours;
use fsgather_core::Rank;

/// The order in which the members of a group form a ring: host by host, to minimise the traffic between hosts.
///
/// It is for one group only: another group has other places, even if it has the same members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RingOrder {
    /// The places of members in the group, in the order of the ring.
    places: Vec<usize>,
    /// The host of each of these, by a number.
    hosts: Vec<usize>,
}

impl RingOrder {
    /// Returns the order of members of these hosts, in the order of their group: hosts by their first members.
    pub(crate) fn of<H: PartialEq>(hosts: &[H]) -> Self {
        let first = numbered(hosts);
        let mut places: Vec<usize> = (0..hosts.len()).collect();
        // Members of one host stay in the order of the group.
        places.sort_by_key(|place| first.get(*place));
        let hosts = places.iter().filter_map(|place| first.get(*place).copied());
        Self {
            hosts: hosts.collect(),
            places,
        }
    }

    /// Returns the order of a group, whose members are named by their numbers in the world, as `hosts` are.
    pub(crate) fn of_group(members: &[Rank], hosts: &BTreeMap<Rank, usize>) -> Self {
        let hosts: Vec<Option<&usize>> = members.iter().map(|member| hosts.get(member)).collect();
        Self::of(&hosts)
    }

    /// Returns the places in the group to which a member sends in the ring; the next host before its own.
    pub(crate) fn after(&self, place: usize) -> Vec<usize> {
        let own = self.places.iter().position(|other| *other == place);
        let next = own.map_or_else(Vec::new, |own| neighbours(own, &self.hosts));
        next.into_iter()
            .filter_map(|next| self.places.get(next).copied())
            .collect()
    }

    /// Returns the places of members in the group, in the order of the ring.
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Returns the host of each, by a number, in the order of the ring.
    pub(crate) fn hosts(&self) -> &[usize] {
        &self.hosts
    }

    /// Returns values that are in the order of the group in the order of the ring.
    pub(crate) fn arrange<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let arranged = self.places.iter().filter_map(|place| all.get(*place));
        arranged.copied().collect()
    }
}

/// Returns a number for each host, the same for the same host: the place of its first member.
pub(crate) fn numbered<H: PartialEq>(hosts: &[H]) -> Vec<usize> {
    let first = |host: &H| hosts.iter().position(|other| other == host);
    hosts.iter().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranks(numbers: &[u32]) -> Vec<Rank> {
        numbers.iter().copied().map(Rank::new).collect()
    }

    #[test]
    fn hosts_come_one_after_the_other() {
        let order = RingOrder::of(&["a", "b", "a", "c", "b"]);
        assert_eq!(order.places, [0, 2, 1, 4, 3]);
        assert_eq!(order.hosts, [0, 0, 1, 1, 3]);
        let after: Vec<Vec<usize>> = (0..5).map(|place| order.after(place)).collect();
        assert_eq!(after, [vec![2], vec![4], vec![1, 0], vec![0], vec![3, 1]]);
        assert_eq!(order.arrange(&[10, 11, 12, 13, 14]), [10, 12, 11, 14, 13]);
        assert_eq!(RingOrder::of(&["a"]).after(0), [0; 0]);
    }

    #[test]
    fn a_group_goes_by_its_own_places() {
        // Ranks 0, 2 and 4 on one host, 1, 3 and 5 on another.
        let hosts: BTreeMap<Rank, usize> = ranks(&[0, 1, 2, 3, 4, 5])
            .into_iter()
            .zip([0, 1, 0, 1, 0, 1])
            .collect();
        let order = RingOrder::of_group(&ranks(&[5, 2, 3]), &hosts);
        assert_eq!(order.places, [0, 2, 1]);
        assert_eq!(order.arrange(&ranks(&[5, 2, 3])), ranks(&[5, 3, 2]));
        assert_eq!(order.hosts, [0, 0, 1]);
        let after: Vec<Vec<usize>> = (0..3).map(|place| order.after(place)).collect();
        // The first to the second of its host, that to the other host and back.
        assert_eq!(after, [vec![2], vec![0], vec![1, 0]]);
    }

    proptest! {
        #[test]
        fn everybody_is_in_it_once_and_every_host_is_left_once(hosts in prop::collection::vec(0..9_u8, 1..40)) {
            let order = RingOrder::of(&hosts);
            let mut all = order.places.clone();
            all.sort_unstable();
            prop_assert_eq!(all, (0..hosts.len()).collect::<Vec<_>>());
            let leaving = (0..hosts.len())
                .flat_map(|place| order.after(place).into_iter().map(move |next| (place, next)))
                .filter(|(place, next)| hosts[*place] != hosts[*next]);
            let count = hosts.iter().collect::<BTreeSet<_>>().len();
            prop_assert_eq!(leaving.count(), if count > 1 { count } else { 0 });
        }

        /// The group may be any part of a world, in any order.
        #[test]
        fn ring_of_any_group_is_complete_and_goes_host_by_host(
            (hosts, members) in prop::collection::vec(0..6_usize, 1..30).prop_flat_map(|hosts| {
                let all: Vec<u32> = (0..).take(hosts.len()).collect();
                let group = prop::sample::subsequence(all, 1..=hosts.len()).prop_shuffle();
                (Just(hosts), group)
            }),
        ) {
            let members = ranks(&members);
            let hosts: BTreeMap<Rank, usize> = (0..).map(Rank::new).zip(hosts).collect();
            let order = RingOrder::of_group(&members, &hosts);
            let in_ring = order.arrange(&members);
            prop_assert_eq!(in_ring.len(), members.len());
            prop_assert_eq!(order.hosts.len(), members.len());
            prop_assert_eq!(in_ring.iter().collect::<BTreeSet<_>>(), members.iter().collect::<BTreeSet<_>>());
            for (place, rank) in order.places.iter().zip(&in_ring) {
                prop_assert_eq!(members[*place], *rank);
            }
            // Its hosts are those of the world, each one run.
            let runs = in_ring.chunk_by(|one, other| hosts[one] == hosts[other]).count();
            prop_assert_eq!(runs, in_ring.iter().map(|rank| hosts[rank]).collect::<BTreeSet<_>>().len());
            for (one, its) in in_ring.iter().zip(&order.hosts) {
                for (other, others) in in_ring.iter().zip(&order.hosts) {
                    prop_assert_eq!(hosts[one] == hosts[other], its == others);
                }
            }
            // Each member receives from some other member.
            let next = |place| order.after(place).into_iter().map(|next| members[next]);
            let reached: BTreeSet<Rank> = (0..members.len()).flat_map(next).collect();
            prop_assert_eq!(reached.len(), if members.len() > 1 { members.len() } else { 0 });
        }
    }
}
