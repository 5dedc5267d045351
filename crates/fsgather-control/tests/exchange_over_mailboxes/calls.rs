//! Bounds of the files that a world leaves in its mailboxes.

use std::thread;

use fsgather_core::Site;
use fsgather_testkit::{MemoryMailbox, pace::cases};

use crate::bed::Bed;

#[test]
fn the_more_ranks_the_less_each_may_contribute() {
    let limit = |ranks| Bed::new(MemoryMailbox::new(), ranks).world()[0].body_limit();
    let (of_two, of_four) = (limit(2), limit(4));
    assert!(of_four > 0);
    assert_eq!(of_two / 2, of_four);
}

#[test]
fn messages_are_taken_back_however_long_the_job_runs() {
    // Each side mentions what it has read after 32 messages at the latest.
    const BOUND_FOR_EACH_RANK: usize = 80;
    let bed = Bed::new(MemoryMailbox::new(), 3);
    thread::scope(|scope| {
        for exchange in bed.world() {
            let post = &bed.post;
            scope.spawn(move || {
                for turn in 0..cases(100, 2000) {
                    exchange.barrier(Site::named("here")).unwrap();
                    let held = post.held();
                    assert!(held < 3 * BOUND_FOR_EACH_RANK, "{held} after {turn}");
                }
                exchange.close(Site::named("end")).unwrap();
            });
        }
    });
    assert_eq!(bed.post.places(), 0);
}
