//! Jobs that torchrun restarts: each of its agents, one on each host, counts restarts on its own.

use crate::common::{
    agents::{Job, a_newcomer_to_a_running_world},
    place,
};

#[test]
fn a_later_attempt_meets_after_an_earlier_world_was_killed() {
    let place = place();
    let job = Job::patient(place.path());
    let (mut stage, newcomer) = a_newcomer_to_a_running_world(&job, 1);
    stage.kill(0);
    stage.kill(1);
    let rank0 = stage.start(&mut job.rank(0, 0, "join barrier close"));
    stage.succeed([newcomer, rank0]);
}
