//! Every kind of call by every way, on the world and on groups of all shapes, the first time and later, by one
//! thread and by two. Directories of their own lie in the job's. What is handed in depends on the rank in the world and on the call, so that bytes of another
//! rank, of another call or of another group are noticed.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use bytes::Bytes;
use fsgather::{Communicator, Options, Payload, Pieces, Transport, bindings, codec::Postcard};
use fsgather_tests::Generated;

use crate::{
    Failure,
    values::{count, receive},
};

/// How payloads come to others.
#[derive(Clone, Copy, Debug)]
enum Kind {
    AllGather,
    Bounded,
    Gather,
    Streamed,
    Broadcast,
    StartAllGather,
    StartGather,
}

const KINDS: [Kind; 7] = [
    Kind::AllGather,
    Kind::Bounded,
    Kind::Gather,
    Kind::Streamed,
    Kind::Broadcast,
    Kind::StartAllGather,
    Kind::StartGather,
];

/// The ways that a call may ask for; the last one is a directory of its own for each kind of call.
const WAYS: [&str; 4] = ["default", "memory", "filesys", "directory"];

/// A communicator with the numbers that its ranks have in the world.
struct Part {
    /// Tells it from all others.
    number: u32,
    communicator: Communicator,
    members: Vec<u32>,
}

/// What is done with each part in one way.
struct Combination {
    number: u32,
    kind: Kind,
    way: Way,
}

/// Groups that some ranks have made before anybody has made a call and others make when they use them, from one thread and from
/// several; and the world among them. What is handed in depends on the rank and on the group.
pub(crate) fn numbered_groups(world: &Communicator) -> Result<(), Failure> {
    let size = world.world_size().get();
    let all: Vec<u32> = (0..size).collect();
    let most = &all[..all.len() - 1];
    // Made beforehand on some ranks, so that these know of nothing that calls find out.
    let is_early = world.rank().get().is_multiple_of(2);
    let lists = [&all[..], &all, most, &all, &all, &all, most, &all];
    let make = |number: usize| match lists[number] {
        list if !list.contains(&world.rank().get()) => Ok(None),
        list => bindings::group_agreed_on(world, list, number as u64).map(Some),
    };
    let early = (0..lists.len()).map(|number| if is_early { make(number) } else { Ok(None) });
    let early: Vec<Option<Communicator>> = early.collect::<Result<_, _>>()?;
    let use_group = |number: usize| -> Result<(), Failure> {
        let late = if is_early { None } else { make(number)? };
        let Some(group) = early[number].as_ref().or(late.as_ref()) else {
            return Ok(());
        };
        for round in 0..3 {
            let handed_in = |rank: u32| vec![number * 16 + round; 10_000 + rank as usize];
            let gathered = group.all_gather(&handed_in(group.rank().get()))?;
            if !gathered
                .iter()
                .zip(0..)
                .all(|(part, rank)| *part == handed_in(rank))
            {
                return Err(Failure::Wrong(format!(
                    "group {number} received something else"
                )));
            }
        }
        Ok(())
    };
    let (in_turn, at_once) = (0..4, 4..lists.len());
    in_turn.clone().try_for_each(use_group)?;
    let everybody = world.all_gather(&world.rank().get())?;
    thread::scope(|scope| {
        let running: Vec<_> = at_once
            .map(|number| scope.spawn(move || use_group(number)))
            .collect();
        let ended = running.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|ended| {
                ended.unwrap_or_else(|_| Err(Failure::Wrong("a thread has panicked".into())))
            })
            .collect::<Result<Vec<()>, Failure>>()
    })?;
    if everybody != all {
        return Err(Failure::Wrong("the world received something else".into()));
    }
    Ok(())
}

/// Every kind of call by one way, or one kind by each; whether the world takes a way before groups do is said by
/// `order`.
pub(crate) fn every(world: &Communicator, order: &str, way: &str) -> Result<(), Failure> {
    let world_first = match order {
        "world_first" => true,
        "groups_first" => false,
        other => return Err(Failure::Wrong(format!("{other} is no order"))),
    };
    let place = job_directory()?;
    let all: Vec<u32> = (0..world.world_size().get()).collect();
    let whole = Part {
        number: 0,
        communicator: world.with_codec(Postcard),
        members: all.clone(),
    };
    let mut number = 0;
    let (ways, kinds) = match WAYS.iter().position(|known| *known == way) {
        Some(at) => (&WAYS[at..=at], &KINDS[..]),
        None => (&WAYS[..], &KINDS[..1]),
    };
    for way in ways {
        for kind in kinds {
            number += 1;
            let combination = Combination {
                number,
                kind: *kind,
                way: Way::new(way, &place.join(format!("named-{number}")))?,
            };
            if world_first {
                combination.twice(&whole)?;
            }
            let groups = groups(world)?;
            for group in &groups {
                combination.twice(group)?;
            }
            let reversed: Vec<u32> = all.iter().rev().copied().collect();
            let (one, other) = (part(world, 5, &reversed)?, part(world, 6, &reversed)?);
            thread::scope(|scope| {
                let beside = scope.spawn(|| combination.twice(&other));
                let here = combination.twice(&one);
                let there = beside.join();
                here.and(there.unwrap_or_else(|_| Err(Failure::Wrong("a thread panicked".into()))))
            })?;
            if !world_first {
                combination.twice(&whole)?;
            }
            // The others are dropped, each rank in its own time.
            for ended in groups.into_iter().chain([one]) {
                ended.communicator.close()?;
            }
        }
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is a program, and its directory is told by that variable"
)]
fn job_directory() -> Result<PathBuf, Failure> {
    let place = std::env::var_os("FSGATHER_DIR").map(PathBuf::from);
    place.ok_or_else(|| Failure::Wrong("no directory".into()))
}

/// The way that large payloads take.
#[derive(Debug, Default)]
struct Way {
    transport: Option<Transport>,
    directory: Option<PathBuf>,
}

impl Way {
    fn new(way: &str, place: &Path) -> Result<Self, Failure> {
        Ok(match way {
            "memory" => Self {
                transport: Some(Transport::Memory),
                directory: None,
            },
            "filesys" => Self {
                transport: Some(Transport::Filesys),
                directory: None,
            },
            "directory" => {
                let made = fs::create_dir_all(place);
                made.map_err(|error| Failure::Wrong(format!("{}: {error}", place.display())))?;
                Self {
                    transport: Some(Transport::Filesys),
                    directory: Some(place.to_owned()),
                }
            }
            _ => Self::default(),
        })
    }

    /// A handle whose payloads take this way.
    fn handle(&self, communicator: &Communicator) -> Communicator {
        let mut options = Options::new();
        if let Some(transport) = self.transport {
            options = options.transport(transport);
        }
        if let Some(directory) = &self.directory {
            options = options.directory(directory);
        }
        communicator.with(options)
    }
}

/// Groups that this rank is a member of: all in another order, every other one, some of the first of these, and
/// itself alone.
fn groups(world: &Communicator) -> Result<Vec<Part>, Failure> {
    let (me, size) = (world.rank().get(), world.world_size().get());
    let turned: Vec<u32> = (0..size).map(|place| (place + size / 2) % size).collect();
    let alike: Vec<u32> = (0..size).rev().filter(|rank| rank % 2 == me % 2).collect();
    let turned = part(world, 1, &turned)?;
    let mut groups = Vec::new();
    // By their places in that group; who is last in it is not in this one.
    let places: Vec<u32> = (0..size - 1).rev().collect();
    if places.contains(&turned.communicator.rank().get()) {
        groups.push(Part {
            number: 4,
            communicator: turned.communicator.group(&places)?,
            members: places
                .iter()
                .map(|place| turned.members[*place as usize])
                .collect(),
        });
    }
    groups.extend([turned, part(world, 2, &alike)?, part(world, 3, &[me])?]);
    Ok(groups)
}

fn part(world: &Communicator, number: u32, members: &[u32]) -> Result<Part, Failure> {
    Ok(Part {
        number,
        communicator: world.group(members)?,
        members: members.to_vec(),
    })
}

impl Combination {
    fn twice(&self, part: &Part) -> Result<(), Failure> {
        for time in 0..2 {
            self.call(part, time).map_err(|failure| match failure {
                ended @ Failure::Ended(_) => ended,
                Failure::Wrong(what) => Failure::Wrong(format!(
                    "{what} in {:?} of part {} of the {} by {:?}",
                    self.kind,
                    part.number,
                    part.members.len(),
                    self.way
                )),
                library @ Failure::Library(_) => library,
            })?;
        }
        Ok(())
    }

    /// What a rank of the world hands in.
    fn payload(&self, part: &Part, rank: u32, time: u32) -> Generated {
        let call = (self.number * 8 + part.number) * 2 + time;
        // Later some are small and one is empty, so that payloads of one call take several ways.
        let len = match (time, rank % 4) {
            (1, 1) => 0,
            (1, 2) => 100 + rank,
            _ => 90_000 + rank * 1000,
        };
        Generated::new(call * 64 + rank, len as usize)
    }

    fn check(&self, part: &Part, place: u32, time: u32, got: &[u8]) -> Result<(), Failure> {
        let rank = part.members[place as usize];
        if self.payload(part, rank, time).matches(got) {
            return Ok(());
        }
        let len = got.len();
        Err(Failure::Wrong(format!(
            "wrong payload of rank {rank}: {len} bytes, call {time}"
        )))
    }

    fn check_all(&self, part: &Part, time: u32, got: &[Payload]) -> Result<(), Failure> {
        count(got.len(), part.communicator.world_size().get())?;
        (0..)
            .zip(got)
            .try_for_each(|(place, got)| self.check(part, place, time, got))
    }

    fn call(&self, part: &Part, time: u32) -> Result<(), Failure> {
        let communicator = self.way.handle(&part.communicator);
        let place = communicator.rank().get();
        let root = (self.number + time) % communicator.world_size().get();
        let own = || {
            let payload = self.payload(part, part.members[place as usize], time);
            let mut bytes = Bytes::from(payload.bytes());
            let head = bytes.split_to(bytes.len() / 3);
            Pieces::new(Pieces::PYTHON, vec![head, bytes])
        };
        let check = |place, got: Payload| self.check(part, place, time, &got);
        match self.kind {
            Kind::AllGather => {
                let got = communicator.all_gather(own())?;
                self.check_all(part, time, &got)
            }
            Kind::Bounded => {
                let call = communicator.with(Options::new().bound(1 << 20));
                let got = call.all_gather(own())?;
                self.check_all(part, time, &got)
            }
            Kind::Gather => {
                let got = communicator.gather(own(), root)?;
                receive(got, "", check)
            }
            Kind::Streamed => {
                let Some(parts) = communicator.gather(own(), root)? else {
                    return Ok(());
                };
                for (place, reader) in (0..).zip(parts.into_readers()) {
                    let mut got = Vec::new();
                    let read = std::io::Read::read_to_end(&mut reader?, &mut got);
                    read.map_err(|error| Failure::Wrong(format!("a stream: {error}")))?;
                    self.check(part, place, time, &got)?;
                }
                Ok(())
            }
            Kind::Broadcast => {
                let got = communicator.broadcast(own(), root)?;
                self.check(part, root, time, &got)
            }
            Kind::StartAllGather => {
                let pending = communicator.start_all_gather(own())?;
                self.check_all(part, time, &pending.wait()?)
            }
            Kind::StartGather => {
                let pending = communicator.start_gather(own(), root)?;
                receive(pending.wait()?, "", check)
            }
        }
    }
}

/// The same between threads of this process.
pub(crate) fn every_in_threads(ranks: u32, order: &str, way: &str) -> Result<(), Failure> {
    let world = Communicator::threads(ranks)?;
    thread::scope(|scope| {
        let ranks: Vec<_> = world
            .into_iter()
            .map(|rank| {
                scope.spawn(move || {
                    every(&rank, order, way)?;
                    rank.close().map_err(Failure::from)
                })
            })
            .collect();
        ranks.into_iter().try_for_each(|rank| {
            let ended = rank.join();
            ended.unwrap_or_else(|_| Err(Failure::Wrong("a thread panicked".into())))
        })
    })
}
