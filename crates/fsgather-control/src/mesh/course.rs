//! The routes of payloads in a ring of hosts, as one member sees them: [`Course`]. Pure.
//!
//! The members of each host form a ring of their own, in which they pass each other their payloads. Payloads of other hosts
//! go in a chain: the last member of a host sends to the first one of the next host what that host lacks, and each member
//! hands it on to the next one of its host. So a payload enters a host once. On hosts of one member each, and on one host
//! alone, that is a plain ring.
//!
//! Each stream is in the order in which its sender gets the payloads: its own first, then those of members of the host, the
//! nearest first, then those of other hosts. So no member waits for a payload that only comes after it.

use std::ops::Range;

/// The payloads between this member and one neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    /// The neighbour's place.
    pub(super) neighbour: usize,
    /// Places of the payloads' owners, in the order in which the payloads go; never empty.
    pub(super) payloads: Vec<usize>,
}

/// The legs on which one member receives and sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) receives: Vec<Leg>,
    /// At most one for each neighbour.
    pub(super) sends: Vec<Leg>,
}

impl Course {
    /// The course of the member at `place`; `hosts` has the host of each member. The members of one host must follow each
    /// other, or there is no course.
    pub(super) fn of(place: usize, hosts: &[usize]) -> Option<Self> {
        let hosts = runs(hosts)?;
        let at = hosts.iter().position(|host| host.contains(&place))?;
        let mut course = Self::default();
        course.receive(&hosts, at, place);
        course.send(&hosts, at, place);
        Some(course)
    }

    fn receive(&mut self, hosts: &[Range<usize>], at: usize, place: usize) {
        let host = &hosts[at];
        let foreign = lacked_by(hosts, at);
        if place > host.start {
            let mut payloads = within(host, place - 1);
            payloads.extend(foreign);
            self.receives.push(Leg::from(place - 1, payloads));
            return;
        }
        if host.len() > 1 {
            let last = host.end - 1;
            self.receives.push(Leg::from(last, within(host, last)));
        }
        if !foreign.is_empty() {
            let before = &hosts[(at + hosts.len() - 1) % hosts.len()];
            self.receives.push(Leg::from(before.end - 1, foreign));
        }
    }

    fn send(&mut self, hosts: &[Range<usize>], at: usize, place: usize) {
        let host = &hosts[at];
        if place + 1 < host.end {
            let mut payloads = within(host, place);
            payloads.extend(lacked_by(hosts, at));
            self.sends.push(Leg::from(place + 1, payloads));
            return;
        }
        // Other hosts come first: they take longer.
        let next = (at + 1) % hosts.len();
        let foreign = lacked_by(hosts, next);
        if !foreign.is_empty() {
            self.sends.push(Leg::from(hosts[next].start, foreign));
        }
        if host.len() > 1 {
            self.sends.push(Leg::from(host.start, within(host, place)));
        }
    }
}

impl Leg {
    const fn from(neighbour: usize, payloads: Vec<usize>) -> Self {
        Self {
            neighbour,
            payloads,
        }
    }
}

/// The places of each host.
fn runs(hosts: &[usize]) -> Option<Vec<Range<usize>>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for run in hosts.chunk_by(PartialEq::eq) {
        let start = runs.last().map_or(0, |last| last.end);
        if hosts[..start].contains(run.first()?) {
            return None;
        }
        runs.push(start..start + run.len());
    }
    Some(runs)
}

/// Payloads of a host that a member sends to the next one of that host, in the order in which it gets them: all except the
/// next one's own.
fn within(host: &Range<usize>, from: usize) -> Vec<usize> {
    let (count, from) = (host.len(), from - host.start);
    (0..count - 1)
        .map(|distance| host.start + (from + count - distance) % count)
        .collect()
}

/// Payloads that a host lacks, in the order in which they arrive: those of the host before it first. The last member of
/// each host has its own, then those from the member before it.
fn lacked_by(hosts: &[Range<usize>], at: usize) -> Vec<usize> {
    let count = hosts.len();
    (1..count)
        .flat_map(|distance| hosts[(at + count - distance) % count].clone().rev())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// The host of each member, for these numbers of members on each host.
    fn hosts(members: &[usize]) -> Vec<usize> {
        let each = (0..).zip(members);
        each.flat_map(|(host, count)| vec![host; *count]).collect()
    }

    #[test]
    fn a_payload_enters_a_host_once() {
        let hosts = hosts(&[2, 3]);
        let course = |place| Course::of(place, &hosts).unwrap();
        let leg = Leg::from;
        assert_eq!(course(1).sends, [leg(2, vec![1, 0]), leg(0, vec![1])]);
        assert_eq!(course(2).receives, [leg(4, vec![4, 3]), leg(1, vec![1, 0])]);
        assert_eq!(course(2).sends, [leg(3, vec![2, 4, 1, 0])]);
        assert_eq!(course(4).sends, [leg(0, vec![4, 3, 2]), leg(2, vec![4, 3])]);
    }

    #[test]
    fn on_one_host_and_on_hosts_of_one_member_it_is_a_plain_ring() {
        for hosts in [vec![5; 4], vec![3, 1, 0, 2]] {
            let course = Course::of(2, &hosts).unwrap();
            assert_eq!(course.receives, [Leg::from(1, vec![1, 0, 3])]);
            assert_eq!(course.sends, [Leg::from(3, vec![2, 1, 0])]);
        }
        assert_eq!(Course::of(0, &[0]), Some(Course::default()));
    }

    #[test]
    fn hosts_that_are_mixed_and_places_that_are_none_have_no_course() {
        assert_eq!(Course::of(0, &[0, 1, 0]), None);
        assert_eq!(Course::of(2, &[0, 1]), None);
        assert_eq!(Course::of(0, &[]), None);
    }

    proptest! {
        #[test]
        fn everything_comes_to_everybody_and_enters_each_host_once(
            members in prop::collection::vec(1..6_usize, 1..7),
        ) {
            let hosts = hosts(&members);
            let courses: Vec<Course> = (0..hosts.len())
                .map(|place| Course::of(place, &hosts).unwrap())
                .collect();
            let mut links = BTreeMap::new();
            for (place, course) in courses.iter().enumerate() {
                for leg in &course.sends {
                    prop_assert!(!leg.payloads.is_empty());
                    let is_new = links.insert((place, leg.neighbour), &leg.payloads).is_none();
                    prop_assert!(is_new, "two streams to one neighbour");
                }
            }
            // The payloads that are sent are those that are expected.
            let expected: BTreeMap<_, _> = (0..)
                .zip(&courses)
                .flat_map(|(place, course)| course.receives.iter().map(move |leg| ((leg.neighbour, place), &leg.payloads)))
                .collect();
            prop_assert_eq!(&links, &expected);
            for (place, course) in courses.iter().enumerate() {
                let mut got: Vec<usize> = course.receives.iter().flat_map(|leg| leg.payloads.clone()).collect();
                got.sort_unstable();
                let others: Vec<usize> = (0..hosts.len()).filter(|other| *other != place).collect();
                prop_assert_eq!(got, others);
            }
            let entering = |host: usize| -> Vec<usize> {
                let crossing = links.iter().filter(|((from, to), _)| hosts[*to] == host && hosts[*from] != host);
                let mut all: Vec<usize> = crossing.flat_map(|(_, payloads)| (*payloads).clone()).collect();
                all.sort_unstable();
                all
            };
            for host in 0..members.len() {
                let foreign: Vec<usize> = (0..hosts.len()).filter(|place| hosts[*place] != host).collect();
                prop_assert_eq!(entering(host), foreign);
            }
        }

        /// Payloads that move as a whole, each when its sender has it and its turn has come: no member waits forever.
        #[test]
        fn no_order_of_arrivals_comes_to_a_stop(
            members in prop::collection::vec(1..6_usize, 1..7),
            choices in prop::collection::vec(0..1000_usize, 1..50),
        ) {
            let hosts = hosts(&members);
            let mut has: Vec<BTreeSet<usize>> = (0..hosts.len()).map(|place| BTreeSet::from([place])).collect();
            let mut streams: Vec<(usize, usize, Vec<usize>)> = (0..hosts.len())
                .flat_map(|place| {
                    let course = Course::of(place, &hosts).unwrap();
                    course.sends.into_iter().map(move |leg| {
                        (place, leg.neighbour, leg.payloads.into_iter().rev().collect())
                    })
                })
                .collect();
            let mut choices = choices.iter().cycle();
            while streams.iter().any(|(_, _, rest)| !rest.is_empty()) {
                let ready: Vec<usize> = (0..streams.len())
                    .filter(|at| {
                        let (from, _, rest) = &streams[*at];
                        rest.last().is_some_and(|payload| has[*from].contains(payload))
                    })
                    .collect();
                prop_assert!(!ready.is_empty(), "everybody waits: {streams:?}");
                let chosen = ready[choices.next().unwrap() % ready.len()];
                let (_, to, rest) = &mut streams[chosen];
                has[*to].extend(rest.pop());
            }
            prop_assert!(has.iter().all(|has| has.len() == hosts.len()));
        }
    }
}
