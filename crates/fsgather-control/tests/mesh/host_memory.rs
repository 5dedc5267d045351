//! Rings whose members share memory with the others of their host.

use std::{ops::Range, sync::Arc, thread};

use fsgather_arena::{Arena, Arenas, Filling, Host, Leased, Location, Placement, Visitor};
use fsgather_control::mesh::{Halted, HostMemory, Mesh, Passed, RingPart};
use fsgather_core::{CallId, Error, Rank};
use fsgather_testkit::pace::cases;
use proptest::prelude::*;

use crate::bed::{Bed, call, on_all, payload, ranks};

/// Memory that each rank may share, in bytes.
const BUDGET: u64 = 64 << 20;

/// A host: its members.
#[derive(Clone, Debug)]
struct Members {
    /// Length of the payload of each member, and true if it is in memory that the others share.
    payloads: Vec<(usize, bool)>,
    /// True if they share memory.
    shares: bool,
}

/// Ranks on several hosts.
struct World {
    meshes: Vec<Mesh>,
    hosts: Vec<usize>,
    lens: Vec<u64>,
    /// The arenas of ranks that share memory.
    arenas: Vec<Option<Arc<Arenas>>>,
    is_placed: Vec<bool>,
}

/// The ranks of each host.
fn ranges(hosts: &[Members]) -> impl Iterator<Item = (Range<usize>, &Members)> {
    hosts.iter().scan(0, |start, host| {
        let range = *start..*start + host.payloads.len();
        *start = range.end;
        Some((range, host))
    })
}

/// Lets the ranks of a host share memory.
fn meet(members: Range<usize>, world_size: usize) -> Vec<Arc<Arenas>> {
    let all: Vec<Arc<Arenas>> = ranks(members.end)[members.start..]
        .iter()
        .map(|rank| {
            let own = Arena::new(*rank, world_size, BUDGET).unwrap();
            Arc::new(Arenas::new(own, world_size))
        })
        .collect();
    let mut random = [0; 80];
    random[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let host = Host::listen(random).unwrap();
    thread::scope(|scope| {
        for arenas in &all[1..] {
            scope.spawn(|| {
                let visitor = Visitor::come(host.point(), arenas).unwrap();
                visitor.receive(arenas, all.len(), &|| Ok(())).unwrap();
            });
        }
        let others = &ranks(members.end)[members.start + 1..];
        host.serve(&all[0], others, &|| Ok(())).unwrap();
    });
    all
}

impl World {
    fn new(hosts: &[Members]) -> Self {
        let payloads: Vec<_> = hosts
            .iter()
            .flat_map(|host| host.payloads.clone())
            .collect();
        let mut arenas = vec![None; payloads.len()];
        let mut is_placed = vec![false; payloads.len()];
        for (range, host) in ranges(hosts).filter(|(range, host)| host.shares && range.len() > 1) {
            for (rank, its) in range.clone().zip(meet(range, payloads.len())) {
                arenas[rank] = Some(its);
                is_placed[rank] = payloads[rank].1 && payloads[rank].0 > 0;
            }
            assert!(host.shares);
        }
        let host_of = ranges(hosts).enumerate();
        Self {
            meshes: Bed::new(u32::try_from(payloads.len()).unwrap()).meshes(),
            hosts: host_of
                .flat_map(|(host, (range, _))| vec![host; range.len()])
                .collect(),
            lens: payloads.iter().map(|(len, _)| *len as u64).collect(),
            arenas,
            is_placed,
        }
    }

    /// The ranks on the host of a rank.
    fn beside(&self, rank: usize) -> Vec<Rank> {
        let all = ranks(self.hosts.len()).into_iter();
        all.filter(|other| self.hosts[other.index()] == self.hosts[rank])
            .collect()
    }

    fn own(&self, rank: u32) -> Vec<u8> {
        payload(rank, usize::try_from(self.lens[rank as usize]).unwrap())
    }

    /// The location of each rank's payload, if it has placed it.
    fn place(&self, call: CallId) -> Vec<Option<Location>> {
        let place = |rank: u32| {
            let arenas = self.arenas[rank as usize].as_ref()?;
            self.is_placed[rank as usize].then_some(())?;
            let placement = Placement {
                call,
                readers: &self.beside(rank as usize),
                is_gone: &|_| false,
            };
            let own = self.own(rank);
            // As the second one of its size.
            let place = || arenas.own().place(&[&own], &placement);
            place().or_else(place)
        };
        (0..).take(self.lens.len()).map(place).collect()
    }

    /// The payloads that the others of its host have placed for a rank, by the locations that they have reported.
    fn find(&self, rank: usize, located: &[Option<Location>], call: CallId) -> Vec<Option<Leased>> {
        let found = (0..).zip(located).map(|(other, location)| {
            let is_here = self.hosts[other as usize] == self.hosts[rank];
            let (arenas, location) = self.arenas[rank].as_ref().zip(location.as_ref())?;
            let found = arenas.lease(Rank::new(other), location, call);
            is_here.then(|| found.unwrap())
        });
        found.collect()
    }

    /// A rank's part in a call, with the payloads that others have placed for it. `room` finds places for payloads of other hosts.
    fn turn(
        &self,
        mesh: &Mesh,
        rank: u32,
        call: CallId,
        found: &[Option<Leased>],
        room: &dyn Fn(u64) -> Option<Filling>,
    ) -> Result<Vec<Passed>, Halted> {
        let placed: Vec<Option<&[u8]>> = found.iter().map(Option::as_deref).collect();
        let part = RingPart {
            members: &ranks(self.lens.len()),
            hosts: &self.hosts,
            own: &self.own(rank),
            lens: &self.lens,
            has_checksums: true,
            host_memory: self.arenas[rank as usize]
                .as_deref()
                .map(|arenas| HostMemory {
                    arenas,
                    placed: &placed,
                    begin: room,
                }),
        };
        let mut moved = 0;
        let passed = mesh.ring_within(mesh.timeout(), call, &part, Vec::new(), &mut |bytes| {
            moved += bytes;
            Ok(())
        });
        // Each payload arrives once, is handed on once, and may go through memory, with its checks.
        let most = 3 * self.lens.iter().sum::<u64>() + 1000 * self.lens.len() as u64;
        assert!(moved <= most, "{moved} of {most}");
        passed
    }

    /// One call on all ranks, each of which has found the payloads that the others of its host have placed. `has_room`
    /// selects the ranks with room for payloads of other hosts.
    fn ring(
        &self,
        call: CallId,
        has_room: impl Fn(u32) -> bool + Sync,
    ) -> Vec<Result<Vec<Vec<u8>>, Halted>> {
        let located = self.place(call);
        on_all(&self.meshes, |rank, mesh| {
            let me = rank as usize;
            let found = self.find(me, &located, call);
            let room = |len| self.begin(me, call, len).filter(|_| has_room(rank));
            let passed = self.turn(mesh, rank, call, &found, &room)?;
            // A placed payload is where it was found.
            let all = passed.into_iter().zip(&found);
            Ok(all
                .map(|(passed, found)| match (passed, found) {
                    (Passed::Bytes(bytes), Some(found)) if bytes.is_empty() => found.to_vec(),
                    (passed, _) => passed.into_bytes(),
                })
                .collect())
        })
    }

    fn begin(&self, rank: usize, call: CallId, len: u64) -> Option<Filling> {
        let placement = Placement {
            call,
            readers: &self.beside(rank),
            is_gone: &|_| false,
        };
        self.arenas[rank].as_ref()?.own().begin(len, &placement)
    }

    fn check(&self, got: Vec<Result<Vec<Vec<u8>>, Halted>>) {
        for (rank, got) in got.into_iter().enumerate() {
            for (other, got) in (0..).zip(got.unwrap()) {
                let is_own = other as usize == rank && !self.is_placed[rank];
                let expected = if is_own { Vec::new() } else { self.own(other) };
                assert!(
                    got == expected,
                    "rank {rank} got something else than rank {other} has"
                );
            }
        }
    }
}

fn any_host() -> impl Strategy<Value = Members> {
    let len = prop_oneof![
        Just(0),
        1..1000_usize,
        1_048_570..1_048_580_usize,
        0..cases(300_000, 3_000_000_usize)
    ];
    let payloads = prop::collection::vec((len, any::<bool>()), 1..=3);
    (payloads, prop::bool::weighted(0.8))
        .prop_map(|(payloads, shares)| Members { payloads, shares })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(4, 16)))]

    #[test]
    fn what_comes_to_a_host_comes_to_all_its_members(
        hosts in prop::collection::vec(any_host(), 1..=4),
        has_room: [[bool; 12]; 3],
    ) {
        let world = World::new(&hosts);
        for (epoch, has_room) in (0..).zip(has_room) {
            world.check(world.ring(call(epoch), |rank| has_room[rank as usize]));
        }
    }
}

/// Two hosts of `members` members each, which share memory and have placed payloads of length `len`.
fn two_hosts(members: usize, len: usize) -> World {
    let host = Members {
        payloads: vec![(len, true); members],
        shares: true,
    };
    World::new(&[host.clone(), host])
}

#[test]
fn payloads_that_are_held_stay_as_they_are_while_others_come() {
    let world = two_hosts(2, 1_500_000);
    let mut held: Vec<Vec<Vec<Passed>>> = Vec::new();
    for epoch in 0..6 {
        let located = world.place(call(epoch));
        let passed = on_all(&world.meshes, |rank, mesh| {
            let me = rank as usize;
            let found = world.find(me, &located, call(epoch));
            let room = |len| world.begin(me, call(epoch), len);
            world.turn(mesh, rank, call(epoch), &found, &room).unwrap()
        });
        held.push(passed);
        for passed in &held {
            for (rank, passed) in passed.iter().enumerate() {
                let foreign = (0..)
                    .zip(passed)
                    .filter(|(other, _)| world.hosts[*other as usize] != world.hosts[rank]);
                for (other, passed) in foreign {
                    let expected = world.own(other);
                    match passed {
                        Passed::Bytes(bytes) => assert!(*bytes == expected),
                        Passed::Shared(leased) => assert!(**leased == *expected),
                    }
                }
            }
        }
    }
    // The first of a size arrives as bytes.
    let is_shared = |passed: &&Passed| matches!(passed, Passed::Shared(_));
    let shared = held.iter().flatten().flatten().filter(is_shared).count();
    assert!(
        shared >= 4 * 6,
        "{shared} payloads of other hosts lie in shared memory"
    );
}

#[test]
fn what_is_not_where_it_is_said_to_be_is_told() {
    let world = two_hosts(2, 1_500_000);
    // The first member of a host puts it in the place of another call.
    let halted = on_all(&world.meshes, |rank, mesh| {
        let room = |len| world.begin(rank as usize, call(7), len);
        world.turn(mesh, rank, call(1), &[const { None }; 4], &room)
    });
    let told = halted.iter().filter_map(|halted| halted.as_ref().err());
    let corrupt: Vec<String> = told
        .filter(|halted| matches!(halted.cause, Error::Corrupt { .. }))
        .map(|halted| halted.cause.to_string())
        .collect();
    assert!(
        corrupt
            .iter()
            .any(|text| text.contains("it is not where it is said to be (handed on by rank")),
        "{corrupt:?}"
    );
}
