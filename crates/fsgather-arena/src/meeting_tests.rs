use std::{sync::Arc, thread};

use fsgather_core::{CallId, ChannelId, Epoch, lock};
use std::sync::Mutex;

use super::*;
use crate::{Arena, Placement};

pub(crate) const BUDGET: u64 = 4 << 20;

fn arenas(rank: u32, world_size: usize) -> Arc<Arenas> {
    let own = Arena::new(Rank::new(rank), world_size, BUDGET).unwrap();
    Arc::new(Arenas::new(own, world_size))
}

/// Connects and receives.
fn join(point: &MeetingPoint, arenas: &Arenas, ranks: usize, heed: Heed<'_>) -> Result<(), Error> {
    Visitor::come(point, arenas)?.receive(arenas, ranks, heed)
}

fn random() -> [u8; 80] {
    let mut random = [0; 80];
    let own = format!("{:?}{:?}", thread::current().id(), Instant::now());
    for (byte, from) in random.iter_mut().zip(own.bytes().rev()) {
        *byte = from;
    }
    random
}

/// All ranks of a world, each of which knows all arenas.
pub(crate) fn met(world_size: u32) -> Vec<Arc<Arenas>> {
    let count = world_size as usize;
    let all: Vec<_> = (0..world_size).map(|rank| arenas(rank, count)).collect();
    let host = Host::listen(random()).unwrap();
    let others: Vec<Rank> = (1..world_size).map(Rank::new).collect();
    thread::scope(|scope| {
        for arenas in &all[1..] {
            scope.spawn(|| join(host.point(), arenas, count, &|| Ok(())).unwrap());
        }
        host.serve(&all[0], &others, &|| Ok(())).unwrap();
    });
    all
}

pub(crate) fn call(epoch: u64) -> CallId {
    CallId {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(epoch),
    }
}

/// Places a payload for all, as the second one of its size.
pub(crate) fn place(
    arenas: &Arenas,
    bytes: &[u8],
    epoch: u64,
    readers: &[Rank],
) -> crate::Location {
    let placement = Placement {
        call: call(epoch),
        readers,
        is_gone: &|_| false,
    };
    let own = arenas.own();
    own.place(&[bytes], &placement)
        .or_else(|| own.place(&[bytes], &placement))
        .unwrap()
}

#[test]
fn everybody_reads_what_everybody_has_placed_where_it_lies() {
    let all = met(5);
    let readers: Vec<Rank> = (0..5).map(Rank::new).collect();
    let payloads: Vec<Vec<u8>> = (0..5_u8)
        .map(|rank| vec![rank; 300_000 + usize::from(rank)])
        .collect();
    let places: Vec<_> = all
        .iter()
        .zip(&payloads)
        .map(|(arenas, bytes)| place(arenas, bytes, 7, &readers))
        .collect();
    for arenas in &all {
        for ((owner, location), bytes) in readers.iter().zip(&places).zip(&payloads) {
            let leased = arenas.lease(*owner, location, call(7)).unwrap();
            assert_eq!(&*leased, bytes);
        }
    }
}

#[test]
fn a_place_is_used_again_once_all_have_let_go_of_it() {
    let all = met(3);
    let readers = [Rank::new(1), Rank::new(2)];
    let first = place(&all[0], &[1; 10_000], 0, &readers);
    let held: Vec<_> = all[1..]
        .iter()
        .map(|arenas| arenas.lease(Rank::ZERO, &first, call(0)).unwrap())
        .collect();
    let second = place(&all[0], &[2; 10_000], 1, &readers);
    assert_ne!(second.start, first.start);
    assert!(held.iter().all(|held| **held == [1; 10_000]));
    drop(held);
    assert_eq!(place(&all[0], &[3; 10_000], 2, &readers).start, first.start);
    // The new payload is not mistaken for the old one.
    assert!(all[1].lease(Rank::ZERO, &first, call(0)).is_none());
}

#[test]
fn calls_that_were_given_up_free_their_places() {
    let all = met(2);
    let readers = [Rank::new(1)];
    let first = place(&all[0], &[1; 10_000], 0, &readers);
    all[1].give_up(call(0), &[]);
    assert_eq!(place(&all[0], &[2; 10_000], 1, &readers).start, first.start);
}

#[test]
fn calls_given_up_long_before_their_owner_free_places() {
    let all = met(2);
    let readers = [Rank::new(1)];
    for epoch in 0..40 {
        all[1].give_up(call(epoch), &[]);
    }
    for epoch in 0..40 {
        place(&all[0], &[1; 10_000], epoch, &readers);
    }
    let nearly_all = vec![3; usize::try_from(BUDGET / 4 * 3).unwrap()];
    // The first payload of a size goes another way.
    let has_room = |epoch| {
        let placement = Placement {
            call: call(epoch),
            readers: &readers,
            is_gone: &|_| false,
        };
        (0..2).any(|_| all[0].own().place(&[&nearly_all], &placement).is_some())
    };
    assert!(!has_room(50), "some keep theirs");
    let next = place(&all[0], &[2; 10_000], 40, &readers);
    let held = all[1].lease(Rank::ZERO, &next, call(40)).unwrap();
    assert!(has_room(51));
    assert_eq!(*held, [2; 10_000]);
}

#[test]
fn what_was_taken_of_a_call_that_was_given_up_keeps_its_place() {
    let all = met(2);
    let readers = [Rank::ZERO, Rank::new(1)];
    let first = place(&all[0], &[1; 10_000], 0, &readers);
    let held: Vec<_> = all
        .iter()
        .map(|arenas| arenas.lease(Rank::ZERO, &first, call(0)).unwrap())
        .collect();
    for arenas in &all {
        arenas.give_up(call(0), &[Rank::ZERO]);
    }
    let second = place(&all[0], &[2; 10_000], 1, &readers);
    assert_ne!(second.start, first.start);
    assert!(held.iter().all(|held| **held == [1; 10_000]));
    drop(held);
    assert_eq!(place(&all[0], &[3; 10_000], 2, &readers).start, first.start);
}

#[test]
fn what_is_of_another_call_is_not_leased() {
    let all = met(2);
    let location = place(&all[0], &[1; 10_000], 4, &[Rank::new(1)]);
    assert!(all[1].lease(Rank::ZERO, &location, call(5)).is_none());
    let longer = crate::Location {
        len: 10_001,
        ..location
    };
    assert!(all[1].lease(Rank::ZERO, &longer, call(4)).is_none());
    assert!(all[1].lease(Rank::new(1), &location, call(4)).is_none());
    assert!(all[1].lease(Rank::ZERO, &location, call(4)).is_some());
}

#[test]
fn what_is_held_outlives_its_owner() {
    let mut all = met(2);
    let location = place(&all[0], &[9; 10_000], 0, &[Rank::new(1)]);
    let held = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
    all.clear();
    assert_eq!(*held, [9; 10_000]);
}

#[test]
fn what_is_written_to_a_private_payload_shows_nowhere_else() {
    let all = met(2);
    let location = place(&all[0], &[9; 10_000], 0, &[Rank::new(1)]);
    let held = Arc::new(all[1].lease(Rank::ZERO, &location, call(0)).unwrap());
    let mut private = held.private().unwrap();
    private[..5000].fill(1);
    assert_eq!(**held, [9; 10_000]);
    drop(held);
    // It is still leased.
    let next = place(&all[0], &[2; 10_000], 1, &[Rank::new(1)]);
    assert_ne!(next, location);
    assert_eq!(
        (&private[..5000], &private[5000..]),
        (&[1; 5000][..], &[9; 5000][..])
    );
    drop(private);
    place(&all[0], &[3; 10_000], 2, &[Rank::new(1)]);
    assert!(all[1].lease(Rank::ZERO, &location, call(0)).is_none());
}

#[test]
fn strangers_are_given_nothing_and_disturb_nobody() {
    let host = Host::listen(random()).unwrap();
    let (own, other) = (arenas(0, 2), arenas(1, 2));
    let mut wrong = host.point().clone();
    wrong.password[0] ^= 1;
    let refused = Mutex::new(None);
    thread::scope(|scope| {
        let stranger = scope.spawn(|| *lock(&refused) = Some(join(&wrong, &other, 2, &|| Ok(()))));
        let silent =
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(host.point().name()).unwrap())
                .unwrap();
        let served = scope.spawn(|| host.serve(&own, &[Rank::new(1)], &|| Ok(())));
        stranger.join().unwrap();
        join(host.point(), &other, 2, &|| Ok(())).unwrap();
        served.join().unwrap().unwrap();
        drop(silent);
    });
    assert!(matches!(lock(&refused).take(), Some(Err(_))));
    assert!(own.knows(Rank::new(1)) && other.knows(Rank::ZERO));
}

#[test]
fn who_comes_where_nobody_listens_is_told_so_at_once() {
    let host = Host::listen(random()).unwrap();
    let point = host.point().clone();
    drop(host);
    let error = Visitor::come(&point, &arenas(1, 2)).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn who_is_told_to_stop_stops() {
    let host = Host::listen(random()).unwrap();
    let stop = || Err(Error::closed());
    assert_eq!(
        host.serve(&arenas(0, 2), &[Rank::new(1)], &stop),
        Err(Error::closed())
    );
    join(host.point(), &arenas(1, 2), 2, &stop).unwrap_err();
}

/// Calls of groups and of the world are given up in turn, and owners do not check after each.
#[test]
fn what_is_given_up_of_several_groups_has_its_place_free_again() {
    let all = met(2);
    let key = |channel, epoch| CallId {
        channel: ChannelId::new(channel),
        epoch: Epoch::new(epoch),
    };
    let own = all[0].own();
    let payload = vec![7; 100_000];
    let start = |call| {
        let placement = Placement {
            call,
            readers: &[Rank::new(1)],
            is_gone: &|_| false,
        };
        let placed = own.place(&[&payload], &placement);
        placed.map(|location| location.start)
    };
    assert_eq!(start(key(0, 0)), None);
    let mut before = None;
    for epoch in 0..40 {
        // The world has the smallest number, and a group that is made later the smallest epochs.
        let calls = [key(9, epoch + 100), key(7, epoch), key(0, epoch + 50)];
        let starts = calls.map(start);
        assert!(starts.iter().all(Option::is_some));
        for call in calls {
            all[1].give_up(call, &[]);
        }
        assert_eq!(*before.get_or_insert(starts), starts);
    }
}

/// The words of a reader record only some of these calls while payloads are placed; places of payloads that are already there
/// are free at once.
#[test]
fn any_number_of_calls_given_up_at_once_frees_places() {
    const CALLS: u64 = 40;
    let all = met(2);
    let readers = [Rank::new(1)];
    let places = |first: u64| -> Vec<u64> {
        let epochs = first..first + CALLS;
        epochs
            .map(|epoch| place(&all[0], &[1; 10_000], epoch, &readers).start)
            .collect()
    };
    let before = places(0);
    let held = place(&all[0], &[2; 10_000], CALLS, &readers);
    let leased = all[1].lease(Rank::ZERO, &held, call(CALLS)).unwrap();
    for epoch in 0..CALLS {
        all[1].give_up(call(epoch), &[]);
    }
    assert_eq!(places(100), before);
    assert_eq!(*leased, [2; 10_000]);
}
