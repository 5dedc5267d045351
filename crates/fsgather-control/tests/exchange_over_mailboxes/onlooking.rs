//! Rank 0 reports the activity of ranks.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use fsgather_control::join::Config;
use fsgather_core::{Rank, RollCall, StackFrame, Whereabouts};
use fsgather_testkit::{MemoryMailbox, pace::patience};

use crate::bed::{Bed, Running, start};

fn function(rank: Rank) -> Arc<Whereabouts> {
    let frame = StackFrame {
        file: "train.py".into(),
        line: Some(7),
        function: format!("of_{rank}"),
        is_own: true,
    };
    Arc::new(Whereabouts::own(vec![frame], None))
}

#[test]
fn rank_0_shows_status_reports_while_the_world_lasts() {
    let bed = Bed::new(MemoryMailbox::new(), 3);
    let joining: Vec<_> = (0..3)
        .map(|number| {
            let rank = Rank::new(number);
            let config = Config {
                look: Some(Arc::new(move |neighbour| {
                    neighbour
                        .is_none()
                        .then(|| Whereabouts::clone(&function(rank)))
                })),
                ..bed.config(number, bed.process(number))
            };
            start(config, Result::unwrap)
        })
        .collect();
    let world: Vec<_> = joining.into_iter().map(Running::result).collect();
    assert!(world[1].onlooker().is_none());
    let onlooker = world[0].onlooker().unwrap();
    let asked = [Rank::new(1), Rank::new(2)];
    assert_eq!(onlooker.roll_call(&asked), RollCall::default());
    onlooker.look_at(&asked);
    let deadline = Instant::now() + patience();
    let expected = RollCall {
        groups: asked.map(|rank| (vec![rank], function(rank))).into(),
        left_out: 0,
    };
    // A rank counts as silent until its answer is there.
    while onlooker.roll_call(&asked) != expected {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            onlooker.roll_call(&asked)
        );
        thread::park_timeout(Duration::from_millis(1));
    }
    for exchange in world.iter().rev() {
        exchange.leave(None);
    }
    drop(world);
    onlooker.look_at(&asked);
    assert_eq!(onlooker.roll_call(&asked), RollCall::default());
}
