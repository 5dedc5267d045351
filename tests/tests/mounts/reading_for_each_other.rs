//! All-gathers by files over two hosts whose ranks share memory: each file is read once per host, or by every rank if that does not work.
//! Hosts are namespaces with a mount each of one directory, which only root can make.

use std::time::Duration;

use crate::common::{
    PEER_FAILED, Stage, World, assert_nothing_left,
    double_mount::DoubleMount,
    everybody,
    hosts::{Hosts, PLAIN},
    name_on, others,
};

/// Length of each rank's payload.
const LEN: u64 = 900_000;

/// Six ranks, alternating between the two hosts.
const RANKS: u32 = 6;

/// Steps of a warm-up: the first calls of a size find no slot in shared memory.
const WARM: &str = "join all_gather_bytes:900000 all_gather_bytes:900000 barrier at:warm";

struct Bed {
    /// Dropped before the mounts.
    stage: Stage,
    _hosts: Hosts,
    mount: DoubleMount,
}

impl Bed {
    /// Starts ranks that have made calls of this size and wait at `warm`, before they take these steps.
    fn warm(steps: &str, change: impl FnOnce(World) -> World) -> Self {
        let mount = DoubleMount::with("", 1);
        let (hosts_see, from) = (mount.directory(), mount.mount(1));
        let from = from.with_file_name("host$1");
        let before = format!("mount --bind {} {}", from.display(), hosts_see.display());
        let hosts = Hosts::with(2, &before, PLAIN);
        let world = World::new(RANKS, &hosts_see)
            .sharing_memory()
            .with("FSGATHER_JOB", "reading")
            .with("FSGATHER_TRANSPORT", "auto")
            .with("FSGATHER_CONTROL", "tcp");
        let world = change(world);
        let mut stage = Stage::new();
        for rank in 0..RANKS {
            stage.start(&mut hosts.rank(rank % 2 + 1, &world, rank, &format!("{WARM} {steps}")));
        }
        stage.wait_at(everybody(RANKS), "warm");
        Self {
            stage,
            _hosts: hosts,
            mount,
        }
    }

    fn go(&mut self) {
        self.stage.go_all(everybody(RANKS));
    }
}

#[test]
fn each_file_is_opened_and_held_once_per_host() {
    for transport in ["auto", "filesys"] {
        opened_once(transport);
    }
}

fn opened_once(transport: &str) {
    let steps = "keep:900000 at:kept right let_go close";
    let by = |world: World| world.with("FSGATHER_TRANSPORT", transport);
    let mut bed = Bed::warm(steps, by);
    // Further opens would fail the call.
    for host in [1, 2] {
        let once = format!("open payload-* EACCES after={RANKS}");
        bed.mount.rules(host, &once);
    }
    bed.go();
    bed.stage.wait_at(everybody(RANKS), "kept");
    for rank in 0..RANKS {
        let shared = bed.stage.shared_by(rank as usize);
        assert!(
            shared >= u64::from(RANKS) * LEN,
            "rank {rank} has {shared} bytes in shared memory\n{}",
            bed.stage.transcript()
        );
    }
    bed.go();
    bed.stage.succeed(everybody(RANKS));
    assert_nothing_left(&bed.mount.behind());
}

#[test]
fn each_reads_for_itself_where_all_is_to_be_verified() {
    let opens = RANKS * RANKS / 2;
    let steps = "all_gather_bytes:900000 close";
    let always = |world: World| world.with("FSGATHER_VERIFY", "always");
    let mut bed = Bed::warm(steps, always);
    let fewer = format!("open payload-* EACCES after={}", opens - 1);
    bed.mount.rules(1, &fewer);
    bed.go();
    let end = bed.stage.end(0);
    assert_ne!(
        end.code,
        0,
        "somebody has not looked at a file\n{}",
        bed.stage.transcript()
    );
}

#[test]
fn who_is_slow_to_read_for_others_is_not_waited_for() {
    let steps = "all_gather_bytes:900000 all_gather_bytes:900000* keep:900000 right let_go close";
    let mut bed = Bed::warm(steps, |world| world);
    bed.mount.rules(2, "open payload-* delay=2500 count=1");
    bed.go();
    bed.stage.succeed(everybody(RANKS));
    assert_nothing_left(&bed.mount.behind());
}

#[test]
fn reads_of_a_killed_rank_are_done_by_the_others() {
    let steps = "all_gather_bytes:900000 at:got barrier close";
    let mut bed = Bed::warm(steps, |world| world);
    let victim = 3;
    bed.mount.rules(2, "open payload-* hang");
    bed.go();
    // The first host makes progress, so that the call is decided and the second one reads.
    bed.stage.wait_at([0, 2, 4], "got");
    bed.stage.let_pass(Duration::from_millis(300));
    bed.stage.kill(victim);
    bed.mount.rules(2, "");
    bed.stage.wait_at([1, 5], "got");
    let survivors = others(RANKS, victim);
    bed.stage.go_all(survivors.clone());
    let (error, _) = bed.stage.fail_alike(survivors, PEER_FAILED);
    let name = name_on("node2", victim, bed.stage.pid(victim));
    assert!(error.starts_with(&format!("{name} was lost")), "{error}");
    assert_nothing_left(&bed.mount.behind());
}

#[test]
fn what_is_garbled_on_its_way_is_read_again() {
    let mut bed = Bed::warm("all_gather_bytes:900000 close", |world| world);
    bed.mount.rules(2, "read payload-* garbled count=2");
    bed.go();
    bed.stage.succeed(everybody(RANKS));
    assert_nothing_left(&bed.mount.behind());
}
