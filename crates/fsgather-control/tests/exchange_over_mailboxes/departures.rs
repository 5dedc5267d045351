//! Ranks that leave know whether any other rank stays behind.

use fsgather_core::{Departure, Rank, Site};
use fsgather_testkit::MemoryMailbox;

use crate::bed::{Bed, Running};

/// Lets all ranks of a world meet once and leave; one of them vanishes before that.
fn depart(vanished: Option<u32>) -> Vec<(Rank, Departure)> {
    let bed = Bed::new(MemoryMailbox::new(), 3);
    let running: Vec<Running<Option<(Rank, Departure)>>> = (0..3)
        .map(|rank| {
            let its = bed.clone();
            bed.start(rank, move |exchange| {
                let exchange = exchange.unwrap();
                exchange.barrier(Site::named("here")).unwrap();
                assert!(!exchange.has_failed());
                if vanished == Some(rank) {
                    its.post.kill(&its.process(rank));
                    std::mem::forget(exchange);
                    return None;
                }
                if vanished.is_some() {
                    // Rank 0 may vanish while its last verdict is not seen yet: then that call has failed.
                    exchange.barrier(Site::named("here")).unwrap_err();
                    assert!(exchange.has_failed());
                }
                let departure = exchange.leave(None);
                assert_eq!(departure, exchange.leave(None));
                Some((exchange.rank(), departure))
            })
        })
        .collect();
    running.into_iter().filter_map(Running::result).collect()
}

#[test]
fn all_is_in_good_hands_where_all_have_left() {
    let departures = depart(None);
    assert_eq!(departures.len(), 3);
    for (rank, departure) in departures {
        assert!(departure.in_good_hands, "rank {rank}");
    }
}

#[test]
fn a_rank_that_has_vanished_needs_nothing_any_more() {
    let departures = depart(Some(2));
    assert_eq!(departures.len(), 2);
    for (rank, departure) in departures {
        assert!(departure.in_good_hands, "rank {rank}");
    }
}

#[test]
fn without_rank_0_nothing_is_in_good_hands() {
    let departures = depart(Some(0));
    assert_eq!(departures.len(), 2);
    for (rank, departure) in departures {
        assert!(!departure.in_good_hands, "rank {rank}");
    }
}
