//! Ranks of several hosts, where the ranks of one host share memory.

use crate::common::{
    Stage, World, assert_nothing_left, everybody,
    hosts::Hosts,
    place,
    shared_memory::{LEN, calls, every_kind_of_call},
};

#[test]
fn of_several_hosts_those_of_the_root_share_memory_with_it() {
    for transport in ["auto", "memory"] {
        let hosts = Hosts::new(2);
        let place = place();
        let world = World::new(5, place.path())
            .sharing_memory()
            .with("FSGATHER_TRANSPORT", transport);
        let mut stage = Stage::new();
        for rank in 0..5 {
            let steps = format!(
                "join job:9 gather_bytes:4:{LEN} gather_bytes:4:{LEN} at:gathered {} job:80 keep:{LEN} job:81 keep:5000 \
                 keep_some:2:{LEN}:3 barrier {} right close",
                every_kind_of_call(),
                calls(4, LEN)
            );
            stage.start(&mut hosts.rank(rank % 2 + 1, &world, rank, &steps));
        }
        stage.wait_at(everybody(5), "gathered");
        // Ranks 0, 2 and 4 run on the first host.
        for rank in 0..5 {
            let shares = stage.shared_by(rank) > u64::from(LEN);
            assert_eq!(shares, rank % 2 == 0, "rank {rank}: {}", stage.transcript());
        }
        stage.go_all(everybody(5));
        stage.succeed(everybody(5));
        assert_nothing_left(place.path());
    }
}

#[test]
fn ranks_of_two_hosts_share_memory_with_no_other_host() {
    let hosts = Hosts::new(2);
    let place = place();
    let world = World::new(4, place.path()).sharing_memory();
    let mut stage = Stage::new();
    for rank in 0..4 {
        stage.start(&mut hosts.rank(
            rank / 2 + 1,
            &world,
            rank,
            &format!("join {} close", calls(5, LEN)),
        ));
    }
    stage.succeed(everybody(4));
    assert_nothing_left(place.path());
}
