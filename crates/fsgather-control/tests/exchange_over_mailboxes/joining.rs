//! Tests of meetings, and of obstacles to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use fsgather_control::{
    job_credentials::JobCredentials,
    join::{Config, Meeting},
    record::{MarkerPlace, RendezvousRecord},
};
use fsgather_core::{Error, PeerFailure, ProcessId, Rank, RendezvousBackend, Site, WorldSize};
use fsgather_testkit::{
    MemoryBackend, MemoryMailbox,
    exchange_conformance::RankExchange,
    pace::{cases, rest, within_patience},
};
use uuid::Uuid;

use crate::bed::{Bed, Running, on_threads, start};

fn wait_until(it_is_so: impl Fn() -> bool) {
    within_patience(|| {
        while !it_is_so() {
            rest();
        }
    });
}

fn wait_for_messages(post: &MemoryMailbox, count: usize) {
    wait_until(|| post.held() >= count);
}

fn barrier(exchange: &RankExchange) -> Result<(), Error> {
    exchange.barrier(Site::named("here"))
}

fn barrier_and_close(world: Vec<RankExchange>) {
    thread::scope(|scope| {
        for exchange in world {
            scope.spawn(move || {
                barrier(&exchange).unwrap();
                exchange.close(Site::named("end")).unwrap();
            });
        }
    });
}

/// Leaves the record of another world's rank 0, which processes in its place find.
fn leave_stale(bed: &Bed, process: ProcessId, number: u128) {
    let communicator = Uuid::from_u128(number);
    let factory = bed.post.factory(&process);
    let (facts, mailbox) = factory.open(communicator, bed.world_size).unwrap();
    drop(mailbox);
    let record = RendezvousRecord {
        communicator,
        secret: [7; 32],
        addresses: Vec::new(),
        host: process.host.clone(),
        boot_id: process.boot_id.clone(),
        markers: Some(MarkerPlace { facts, process }),
        refusal: None,
        refuser: None,
        world_size: bed.world_size,
        network_namespace: 0,
        fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
    };
    bed.board.post(&record.to_bytes()).unwrap();
}

/// The records of a job whose ranks were given different sizes, as those of one of these worlds see them.
struct OneOfTwo {
    own: MemoryBackend,
    other: Arc<MemoryBackend>,
}

impl RendezvousBackend for OneOfTwo {
    fn post(&self, record: &[u8]) -> Result<(), Error> {
        self.own.post(record)
    }

    fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
        self.own.records()
    }

    fn records_of_other_sizes(&self) -> Vec<Vec<u8>> {
        self.other.records().unwrap()
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

/// Lets rank 0 wait for a rank 1 that was given another world size, and returns the errors of both.
fn join_by_two_sizes(join_timeout: Duration) -> [String; 2] {
    let bed = Bed {
        join_timeout,
        ..Bed::new(MemoryMailbox::new(), 3)
    };
    let keyed = |config: Config, size: u64| Config {
        job_credentials: JobCredentials {
            key: 0x1_0000_0000 + size,
            secret: None,
        },
        ..config
    };
    let board = OneOfTwo {
        own: MemoryBackend::default(),
        other: Arc::clone(&bed.board),
    };
    let misled = Config {
        meeting: Meeting::Board(Arc::new(board)),
        world_size: WorldSize::new(4).unwrap(),
        // It looks for other sizes at half of it, when rank 0 still waits.
        join_timeout: join_timeout * 2 / 3,
        ..keyed(bed.config(1, bed.process(1)), 4)
    };
    let join = |config| start(config, |joined| joined.err().unwrap().to_string());
    let root = join(keyed(bed.config(0, bed.process(0)), 3));
    wait_until(|| !bed.board.records().unwrap().is_empty());
    [root, join(misled)].map(Running::result)
}

#[test]
fn a_rank_that_was_told_another_size_says_so_at_its_end() {
    // On a busy machine they may not learn of each other before their time is over.
    let mut said = [3, 12, 48]
        .map(Duration::from_secs)
        .into_iter()
        .map(join_by_two_sizes);
    let is_named = |text: &String| text.contains("was told that there are 4 ranks");
    assert!(said.any(|both| both.iter().all(is_named)));
}

/// A process on a host that cannot be observed.
fn elsewhere(which: u64) -> ProcessId {
    ProcessId {
        host: "far away".into(),
        boot_id: "another boot".into(),
        pid_namespace: 9,
        pid: std::process::id(),
        start_time: which,
        ..ProcessId::default()
    }
}

#[test]
fn places_of_earlier_worlds_neither_capture_nor_hang_a_world() {
    for seed in 51..=cases(51, 53) {
        let bed = Bed::new(MemoryMailbox::with_faults(seed), 3);
        // Its rank 0 is gone, and so is the place of another one.
        let ended = bed.twin(0, 1);
        leave_stale(&bed, ended.clone(), 1 << 100);
        bed.post.kill(&ended);
        // Rank 0 of this one cannot be observed and never answers.
        leave_stale(&bed, elsewhere(1), 2 << 100);
        barrier_and_close(bed.world());
    }
}

#[test]
fn two_processes_of_one_rank_end_the_world_for_all() {
    for seed in 61..=cases(61, 64) {
        let bed = Bed::new(MemoryMailbox::with_faults(seed), 3);
        let join = |rank, which| {
            let config = bed.config(rank, bed.twin(rank, which));
            start(config, |exchange: Result<RankExchange, Error>| {
                exchange.map(drop).unwrap_err()
            })
        };
        let running = [join(0, 0), join(1, 0), join(1, 1)];
        let told = running.map(Running::result);
        for error in &told {
            assert_eq!(error, &told[0], "seed {seed}");
            let text = error.to_string();
            assert!(
                text.contains("two processes say that they are rank 1"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_latecomer_to_a_formed_world_fails_and_disturbs_none() {
    on_threads(71..=71 + cases(0, 2), |seed| {
        let bed = Bed::new(MemoryMailbox::with_faults(seed), 3);
        let world = bed.world();
        let late = Bed {
            join_timeout: Duration::from_secs(2),
            ..bed.clone()
        };
        let config = late.config(2, late.twin(2, 1));
        let was_told = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&was_told);
        let latecomer = start(config, move |exchange: Result<RankExchange, Error>| {
            its.store(true, Ordering::SeqCst);
            exchange.map(drop).unwrap_err()
        });
        thread::scope(|scope| {
            for exchange in world {
                let was_told = &was_told;
                scope.spawn(move || {
                    let mut last = false;
                    while !last {
                        last = was_told.load(Ordering::SeqCst);
                        let body = vec![u8::from(last)];
                        let call = fsgather_core::Call::new(
                            fsgather_core::Operation::AllGather,
                            Site::named("here"),
                        );
                        let table = exchange.exchange(call, body.into()).unwrap().unwrap();
                        last = table.bodies.iter().any(|body| body.as_ref() == [1]);
                    }
                    exchange.close(Site::named("end")).unwrap();
                });
            }
        });
        let text = latecomer.result().to_string();
        assert!(text.contains("formed without it"), "seed {seed}: {text}");
    });
}

#[test]
fn two_worlds_that_form_in_one_place_are_told_of_each_other() {
    for seed in 81..=cases(81, 83) {
        let bed = Bed::new(MemoryMailbox::with_faults(seed), 3);
        let join = |rank, which| {
            let config = bed.config(rank, bed.twin(rank, which));
            start(config, |exchange: Result<RankExchange, Error>| {
                exchange.map(drop).unwrap_err()
            })
        };
        // Rank 1 could belong to either; rank 2 never comes.
        let running = [join(0, 0), join(0, 1), join(1, 0)];
        for told in running.map(Running::result) {
            let text = told.to_string();
            assert!(
                text.contains("two worlds of the same job"),
                "seed {seed}: {text}"
            );
            // Both have the same number.
            assert!(
                text.contains(" of another pid namespace; rank 1 "),
                "seed {seed}: {text}"
            );
        }
    }
}

#[test]
fn a_rank_that_gives_up_before_its_answer_is_not_awaited() {
    for seed in 91..=91 + cases(0, 2) {
        let bed = Bed::new(MemoryMailbox::with_faults(seed), 3);
        let running = [bed.start(0, rank_1_is_gone), bed.start(2, rank_1_is_gone)];
        // It sees no answer, and its process continues.
        let hasty = Bed {
            join_timeout: Duration::from_secs(1),
            ..bed.clone()
        };
        bed.post.set_blind(&bed.process(1), true);
        let gives_up = hasty.start(1, |exchange| exchange.map(drop).unwrap_err());
        gives_up.result();
        running.into_iter().for_each(Running::result);
    }
}

fn rank_1_is_gone(exchange: Result<RankExchange, Error>) {
    let error = match exchange {
        Ok(exchange) => barrier(&exchange).unwrap_err(),
        Err(error) => error,
    };
    let Error::PeerFailed { peer, failure, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(peer.rank, Rank::new(1));
    assert!(matches!(failure, PeerFailure::Raised { .. }), "{error}");
}

#[test]
fn what_rank_0_says_right_after_the_welcome_is_heard() {
    let bed = Bed::new(MemoryMailbox::new(), 2);
    let process = bed.process(1);
    // It leaves its request, but sees nothing until rank 0 has welcomed it, failed and said goodbye.
    bed.post.set_blind(&process, true);
    let post = bed.post.clone();
    let root = bed.start(0, move |exchange| {
        let exchange = exchange.unwrap();
        wait_for_messages(&post, 2);
        exchange.leave(Some(Error::config("no such model")));
    });
    let member = bed.start(1, |exchange| barrier(&exchange.unwrap()).unwrap_err());
    wait_for_messages(&bed.post, 4);
    bed.post.set_blind(&process, false);
    root.result();
    let error = member.result();
    let Error::PeerFailed { peer, failure, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(peer.rank, Rank::ZERO);
    assert!(error.to_string().contains("no such model"), "{failure:?}");
}

#[test]
fn ranks_of_different_world_sizes_are_told() {
    let bed = Bed::new(MemoryMailbox::with_faults(95), 2);
    let other = Bed {
        world_size: WorldSize::new(3).unwrap(),
        ..bed.clone()
    };
    let root = bed.start(0, |exchange| exchange.map(drop).unwrap_err());
    let member = other.start(1, |exchange| exchange.map(drop).unwrap_err());
    for text in [member.result().to_string(), root.result().to_string()] {
        let told = text.contains("was told that there are 3 ranks, rank 0")
            && text.contains("that there are 2");
        assert!(told, "{text}");
    }
}
