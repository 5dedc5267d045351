//! Processes that another launcher or user has started.

use fsgather_core::{ProcessId, Start, Starter};

use super::*;
use crate::{
    coordinator::{Coordinator, departures::RETURN_LIMIT},
    fixtures,
    join::job_credentials::JobFingerprint,
};

fn join(rank: u32, nonce: u128, host: &str, starter: Option<u32>) -> Join {
    Join {
        process: ProcessId {
            host: host.into(),
            boot_id: host.into(),
            pid_namespace: 1,
            pid: u32::try_from(nonce).unwrap(),
            ..ProcessId::default()
        },
        start: starter.map(|pid| Start {
            starter: Some(Starter { pid, start_time: 1 }),
            session: pid,
            is_whole: false,
        }),
        ..fixtures::join(rank, 3, nonce)
    }
}

fn world(now: Instant, starter: Option<u32>) -> Coordinator {
    world_of(fixtures::world(3), now, starter)
}

fn world_of(world: World, now: Instant, starter: Option<u32>) -> Coordinator {
    let mut coordinator = Coordinator::new(world, now);
    let _ = coordinator.join(join(0, 100, "n1", starter), now);
    coordinator
}

fn is_sent_elsewhere(answer: &Result<(), RefusalReason>) -> bool {
    matches!(answer, Err(RefusalReason::OtherStart(_)))
}

#[test]
fn a_process_of_an_earlier_attempt_is_refused() {
    let now = Instant::now();
    let of_attempt = |nonce, attempt| Join {
        attempt: Some(attempt),
        ..join(1, nonce, "n1", None)
    };
    let mut coordinator = world(now, None);
    let first = coordinator.join(of_attempt(201, 2), now);
    assert_eq!(first, Ok(()));
    let is_told = |answer: Result<(), RefusalReason>| {
        matches!(answer, Err(RefusalReason::Failed(cause))
            if cause.to_string().contains("after 1 restarts"))
    };
    assert!(is_told(coordinator.join(of_attempt(202, 1), now)));
    assert!(coordinator.failure().is_none());
    let _ = coordinator.join(join(2, 203, "n1", None), now);
    assert!(coordinator.is_open());
    assert!(is_told(coordinator.join(of_attempt(202, 1), now)));
    // A process of a later attempt, or with a count of another host, continues to look.
    let elsewhere = Join {
        process: join(1, 205, "n2", None).process,
        ..of_attempt(205, 1)
    };
    for late in [of_attempt(204, 3), elsewhere] {
        let answer = coordinator.join(late, now);
        let is_formed = matches!(answer, Err(RefusalReason::AlreadyFormed { .. }));
        assert!(is_formed, "{answer:?}");
    }
}

#[test]
fn a_process_of_another_start_is_sent_away_and_the_world_forms() {
    let now = Instant::now();
    let mut coordinator = world(now, Some(7));
    let stranger = join(1, 201, "n1", Some(8));
    assert!(is_sent_elsewhere(&coordinator.join(stranger.clone(), now)));
    for rank in [1, 2] {
        let answer = coordinator.join(join(rank, 101 + u128::from(rank), "n1", Some(7)), now);
        assert_eq!(answer, Ok(()));
    }
    assert!(coordinator.is_open() && coordinator.failure().is_none());
    // Also once it has formed.
    assert!(is_sent_elsewhere(&coordinator.join(stranger, now)));
}

#[test]
fn rank_0_that_waits_in_vain_speaks_of_the_stranger() {
    let now = Instant::now();
    let mut coordinator = world(now, Some(7));
    let _ = coordinator.join(join(1, 201, "n1", Some(8)), now);
    coordinator.tick(now + fixtures::LONG_TIMEOUT);
    let failure = coordinator.failure().unwrap().to_string();
    assert!(failure.contains("n1, pid 201"), "{failure}");
    assert!(failure.contains("FSGATHER_JOB"), "{failure}");
}

#[test]
fn two_starts_on_a_host_without_rank_0_fail_the_world() {
    let now = Instant::now();
    let mut coordinator = world(now, Some(7));
    let first = coordinator.join(join(1, 101, "n2", Some(7)), now);
    assert_eq!(first, Ok(()));
    let second = coordinator.join(join(2, 102, "n2", Some(8)), now);
    assert!(matches!(second, Err(RefusalReason::Failed(_))));
    let failure = coordinator.failure().unwrap().to_string();
    assert!(failure.contains("FSGATHER_JOB"), "{failure}");
}

fn whole(mut join: Join, is_whole: bool) -> Join {
    join.start = join.start.map(|start| Start { is_whole, ..start });
    join
}

/// The same of a job with a name; `is_whole` of the start of rank 0.
fn named_world(now: Instant, is_whole: bool) -> Coordinator {
    let world = World {
        is_named: true,
        ..fixtures::world(3)
    };
    let mut coordinator = Coordinator::new(world, now);
    let _ = coordinator.join(whole(join(0, 100, "n1", Some(7)), is_whole), now);
    coordinator
}

fn says_that_it_waits(coordinator: &mut Coordinator) -> bool {
    let actions = coordinator.take_actions();
    actions
        .iter()
        .any(|action| matches!(action, Action::Warn(text) | Action::Note(text) if text.contains("waiting 2 s")))
}

#[test]
fn several_starts_of_one_name_wait_for_late_claims() {
    let now = Instant::now();
    // Another terminal, and another host.
    for (host, starter) in [("n1", 8), ("n2", 7)] {
        let mut coordinator = named_world(now, false);
        for rank in [1, 2] {
            let answer =
                coordinator.join(join(rank, 200 + u128::from(rank), host, Some(starter)), now);
            assert_eq!(answer, Ok(()));
        }
        assert!(!coordinator.is_open() && says_that_it_waits(&mut coordinator));
        let opens = now + LATE_CLAIMS;
        assert_eq!(coordinator.next_tick(), Some(opens));
        coordinator.tick(opens);
        assert!(coordinator.is_open());
    }
}

#[test]
fn threads_of_one_program_are_of_one_job() {
    let now = Instant::now();
    let mut coordinator = named_world(now, false);
    for rank in [1, 2] {
        let thread = Join {
            process: join(0, 100, "n1", None).process,
            ..join(rank, 200 + u128::from(rank), "n1", Some(7))
        };
        let _ = coordinator.join(thread, now);
    }
    assert!(coordinator.is_open());
}

#[test]
fn a_late_claim_fails_a_full_world() {
    let now = Instant::now();
    let mut coordinator = named_world(now, false);
    for rank in [1, 2] {
        let _ = coordinator.join(join(rank, 200 + u128::from(rank), "n1", Some(8)), now);
    }
    let late = now + LATE_CLAIMS / 2;
    let answer = coordinator.join(join(1, 301, "n1", Some(9)), late);
    let failure = coordinator.failure().unwrap();
    for pid in ["pid 201", "pid 301"] {
        assert!(failure.to_string().contains(pid), "{failure}");
    }
    assert_eq!(answer, Err(failure.into()));
    coordinator.tick(now + LATE_CLAIMS);
    assert!(!coordinator.is_open());
}

#[test]
fn a_whole_start_opens_at_once() {
    let now = Instant::now();
    let mut coordinator = named_world(now, true);
    let stranger = whole(join(1, 301, "n1", Some(8)), true);
    assert!(is_sent_elsewhere(&coordinator.join(stranger, now)));
    for rank in [1, 2] {
        let member = whole(join(rank, 200 + u128::from(rank), "n1", Some(7)), true);
        let _ = coordinator.join(member, now);
    }
    assert!(coordinator.is_open() && !says_that_it_waits(&mut coordinator));
}

#[test]
fn a_session_alone_may_have_had_several_starts() {
    let now = Instant::now();
    let mut coordinator = world(now, Some(7));
    for rank in [1, 2] {
        // It looked before the others were started.
        let mut alone = join(rank, 200 + u128::from(rank), "n1", Some(7));
        alone.start = alone.start.map(|start| Start {
            starter: None,
            ..start
        });
        let _ = coordinator.join(alone, now);
    }
    assert!(!coordinator.is_open() && says_that_it_waits(&mut coordinator));
}

#[test]
fn two_hosts_without_id_and_name_wait_too() {
    let now = Instant::now();
    let mut coordinator = world(now, Some(7));
    for rank in [1, 2] {
        let _ = coordinator.join(join(rank, 200 + u128::from(rank), "n2", Some(8)), now);
    }
    assert!(!coordinator.is_open() && says_that_it_waits(&mut coordinator));
    coordinator.disconnected(Rank::new(1), "its connection closed", now);
    coordinator.tick(now + RETURN_LIMIT);
    assert!(!coordinator.is_open() && coordinator.failure().is_some());
}

#[test]
fn a_running_world_is_told_from_an_ending_one() {
    let now = Instant::now();
    let mut coordinator = world(now, None);
    for rank in [1, 2] {
        let _ = coordinator.join(join(rank, 200 + u128::from(rank), "n1", None), now);
    }
    let is_live = |coordinator: &mut Coordinator| {
        let answer = coordinator.join(join(1, 301, "n1", None), now);
        match answer {
            Err(RefusalReason::AlreadyFormed { is_live, .. }) => is_live,
            other => unreachable!("{other:?}"),
        }
    };
    assert!(is_live(&mut coordinator));
    coordinator.lost(Rank::new(1), "its process has ended");
    assert!(!is_live(&mut coordinator));
}

#[test]
fn rank_that_does_not_ask_again_is_lost_after_the_grace() {
    let now = Instant::now();
    let mut coordinator = world(now, None);
    let _ = coordinator.join(join(1, 201, "n1", None), now);
    coordinator.disconnected(Rank::new(1), "its connection closed", now);
    assert!(coordinator.is_missed(Rank::new(1)).is_some());
    coordinator.tick(now + Duration::from_millis(4999));
    assert!(coordinator.failure().is_none());
    coordinator.tick(now + Duration::from_secs(5));
    let failure = coordinator.failure().unwrap().to_string();
    assert!(failure.contains("its connection closed"), "{failure}");
}

#[test]
fn only_the_process_that_has_joined_as_a_rank_watches_as_it() {
    let now = Instant::now();
    let mut coordinator = world(now, None);
    assert!(!coordinator.is_watched_by(Rank::new(1), 201));
    let _ = coordinator.join(join(1, 201, "n1", None), now);
    assert!(coordinator.is_watched_by(Rank::new(1), 201));
    assert!(!coordinator.is_watched_by(Rank::new(1), 202));
    assert!(!coordinator.is_watched_by(Rank::new(2), 201));
}

#[test]
fn jobs_with_an_id_may_be_started_by_anybody() {
    let now = Instant::now();
    let mut coordinator = world(now, None);
    for rank in [1, 2] {
        let answer = coordinator.join(join(rank, 101, "n1", None), now);
        assert_eq!(answer, Ok(()));
    }
    assert!(coordinator.is_open());
}

#[test]
fn other_secrets_fail_and_other_starts_belong_elsewhere() {
    let now = Instant::now();
    let with_another = |starter| Join {
        fingerprint: JobFingerprint {
            key: 0,
            secret: Some([1; 16]),
        },
        ..join(1, 200, "n1", starter)
    };
    let mut coordinator = world(now, Some(7));
    assert!(is_sent_elsewhere(
        &coordinator.join(with_another(Some(8)), now)
    ));
    assert_eq!(coordinator.failure(), None);
    let told = coordinator.report_mismatch(&with_another(Some(7)));
    let failure = coordinator.failure().unwrap();
    assert!(failure.to_string().contains("FSGATHER_SECRET"), "{failure}");
    assert!(matches!(told, RefusalReason::Failed(cause) if cause == failure));
    // A process with the same secret does no harm.
    let mut coordinator = world(now, None);
    coordinator.report_mismatch(&join(1, 200, "n1", None));
    assert_eq!(coordinator.failure(), None);
}

fn told_of(ranks: u32, join: Join) -> Join {
    Join {
        world_size: WorldSize::new(ranks).unwrap(),
        ..join
    }
}

#[test]
fn ranks_that_were_told_different_world_sizes_all_fail_at_once() {
    let now = Instant::now();
    // More, fewer, and a rank that there is not here.
    for (asks, ranks) in [(1, 4), (1, 2), (3, 4)] {
        for starter in [None, Some(7)] {
            let mut coordinator = world(now, starter);
            let answer = coordinator.join(told_of(ranks, join(asks, 200, "n1", starter)), now);
            let failure = coordinator.failure().unwrap();
            let wanted = format!(
                "was told that there are {ranks} ranks, rank 0 (n1, pid 100) that there are 3"
            );
            assert!(failure.to_string().contains(&wanted), "{failure}");
            assert_eq!(answer, Err(failure.into()));
        }
    }
}

#[test]
fn a_size_from_perhaps_another_job_warns_and_waits() {
    let now = Instant::now();
    let other = || told_of(4, join(1, 200, "n2", Some(7)));
    let mut coordinator = world(now, Some(7));
    assert!(matches!(
        coordinator.join(other(), now),
        Err(RefusalReason::Failed(_))
    ));
    assert_eq!(coordinator.failure(), None);
    let warnings = |coordinator: &mut Coordinator| {
        let actions = coordinator.take_actions();
        actions
            .iter()
            .filter(
                |action| matches!(action, Action::Warn(text) if text.contains("there are 4 ranks")),
            )
            .count()
    };
    assert_eq!(warnings(&mut coordinator), 1);
    let _ = coordinator.join(other(), now);
    assert_eq!(warnings(&mut coordinator), 0);
    coordinator.tick(now + fixtures::LONG_TIMEOUT);
    let failure = coordinator.failure().unwrap().to_string();
    assert!(
        failure.contains("there are 4 ranks") && failure.contains("rank 2"),
        "{failure}"
    );
}

#[test]
fn other_sizes_of_earlier_attempts_or_late_ones_are_harmless() {
    let now = Instant::now();
    let mut coordinator = world(now, None);
    let _ = coordinator.join(
        Join {
            attempt: Some(2),
            ..join(0, 100, "n1", None)
        },
        now,
    );
    for rank in [1, 2] {
        let _ = coordinator.join(join(rank, 200 + u128::from(rank), "n1", None), now);
    }
    let _ = coordinator.join(told_of(4, join(3, 300, "n1", None)), now);
    assert!(coordinator.is_open() && coordinator.failure().is_none());
    let mut coordinator = Coordinator::new(fixtures::world(3), now);
    let _ = coordinator.join(
        Join {
            attempt: Some(2),
            ..join(0, 100, "n1", None)
        },
        now,
    );
    let _ = coordinator.join(
        told_of(
            4,
            Join {
                attempt: Some(1),
                ..join(1, 200, "n1", None)
            },
        ),
        now,
    );
    assert_eq!(coordinator.failure(), None);
}

#[test]
fn a_world_that_has_formed_warns_of_no_other_size() {
    let now = Instant::now();
    let fingerprint = |key| JobFingerprint { key, secret: None };
    let keyed = |rank, nonce, key| Join {
        fingerprint: fingerprint(key),
        ..join(rank, nonce, "n1", None)
    };
    let mut own = fixtures::world(3);
    own.fingerprint = fingerprint(0x1_0000_0001);
    let mut coordinator = Coordinator::new(own, now);
    for rank in 0..3 {
        let _ = coordinator.join(keyed(rank, 100 + u128::from(rank), 0x1_0000_0001), now);
    }
    assert!(coordinator.is_open());
    coordinator.take_actions();
    let late = told_of(4, keyed(1, 200, 0x1_0000_0002));
    let answer = coordinator.join(late, now);
    assert!(matches!(answer, Err(RefusalReason::OtherSize(_))));
    assert_eq!(coordinator.take_actions(), []);
}

#[test]
fn another_size_is_reported_even_if_its_number_is_taken() {
    let now = Instant::now();
    let keyed = |join: Join, key| Join {
        fingerprint: JobFingerprint { key, secret: None },
        ..join
    };
    let mut world = fixtures::world(3);
    world.fingerprint.key = 0x1_0000_0001;
    let mut coordinator = Coordinator::new(world, now);
    for rank in [0, 1] {
        let _ = coordinator.join(keyed(join(rank, 100, "n1", None), 0x1_0000_0001), now);
    }
    let other = told_of(2, keyed(join(1, 200, "n1", None), 0x1_0000_0002));
    let _ = coordinator.join(other, now);
    coordinator.tick(now + fixtures::LONG_TIMEOUT);
    let failure = coordinator.failure().unwrap().to_string();
    let told = "waiting for rank 2 (never joined); rank 1 (n1, pid 200) was told that there are 2 ranks, rank 0 (";
    assert!(failure.contains(told), "{failure}");
}

#[test]
fn another_size_of_the_job_warns_and_fails_only_by_time() {
    let now = Instant::now();
    let of_key = |key| JobFingerprint { key, secret: None };
    let keyed = |join: Join, key| Join {
        fingerprint: of_key(key),
        ..join
    };
    for (starter, other) in [(None, None), (Some(7), Some(7))] {
        let mut world = fixtures::world(3);
        world.fingerprint = of_key(0x1_0000_0001);
        let mut coordinator = Coordinator::new(world, now);
        let _ = coordinator.join(keyed(join(0, 100, "n1", starter), 0x1_0000_0001), now);
        let asks = |rank| told_of(4, keyed(join(rank, 200, "n1", other), 0x1_0000_0002));
        for rank in [1, 3] {
            let answer = coordinator.join(asks(rank), now);
            let wanted = format!(
                "rank {rank} (n1, pid 200) was told that there are 4 ranks, rank 0 (n1, pid 100) that there are 3"
            );
            assert_eq!(answer, Err(RefusalReason::OtherSize(wanted)));
        }
        let warned = |action: &&Action| matches!(action, Action::Warn(_));
        assert_eq!(coordinator.take_actions().iter().filter(warned).count(), 1);
        assert_eq!(coordinator.failure(), None);
        coordinator.tick(now + fixtures::LONG_TIMEOUT);
        let failure = coordinator.failure().unwrap().to_string();
        let all = "rank 1 (n1, pid 200) was told that there are 4 ranks, rank 3 (n1, pid 200) that there are 4, \
                   rank 0 (n1, pid 100) that there are 3; if they";
        assert!(failure.contains(all), "{failure}");
    }
    // Another job is refused as before, and one of another start is sent away.
    let mut world = fixtures::world(3);
    world.fingerprint = of_key(0x1_0000_0001);
    let mut coordinator = Coordinator::new(world, now);
    let _ = coordinator.join(keyed(join(0, 100, "n1", Some(7)), 0x1_0000_0001), now);
    let other_job = coordinator.join(keyed(join(1, 200, "n1", Some(7)), 0x2_0000_0002), now);
    let is_refused = matches!(other_job, Err(RefusalReason::Failed(_)));
    assert!(is_refused, "{other_job:?}");
    let other_start = keyed(join(1, 200, "n1", Some(8)), 0x1_0000_0002);
    assert!(is_sent_elsewhere(
        &coordinator.join(told_of(4, other_start), now)
    ));
    coordinator.tick(now + fixtures::LONG_TIMEOUT);
    let failure = coordinator.failure().unwrap().to_string();
    assert!(
        !failure.contains("there are 4 ranks") && !failure.contains("pid 200"),
        "{failure}"
    );
}

#[test]
fn at_most_four_processes_of_another_size_are_named() {
    let now = Instant::now();
    let keyed = |join: Join, key| Join {
        fingerprint: JobFingerprint { key, secret: None },
        ..join
    };
    let mut world = fixtures::world(3);
    world.fingerprint.key = 0x1_0000_0001;
    let mut coordinator = Coordinator::new(world, now);
    let _ = coordinator.join(keyed(join(0, 100, "n1", None), 0x1_0000_0001), now);
    for rank in 1..=6 {
        let other = told_of(8, join(rank, 200 + u128::from(rank), "n1", None));
        let _ = coordinator.join(keyed(other, 0x1_0000_0002), now);
    }
    coordinator.tick(now + fixtures::LONG_TIMEOUT);
    let failure = coordinator.failure().unwrap().to_string();
    let named = "rank 4 (n1, pid 204) that there are 8, 2 more other numbers, rank 0 (n1, pid 100) that there are 3";
    assert!(failure.contains(named), "{failure}");
}

#[test]
fn duplicate_ranks_get_advice_that_fits_how_they_met() {
    let now = Instant::now();
    for is_introduced in [false, true] {
        let world = World {
            is_introduced,
            ..fixtures::world(3)
        };
        let mut world = world_of(world, now, None);
        let _ = world.join(join(1, 11, "n7", None), now);
        let answer = world.join(join(1, 12, "n8", None), now);
        let Err(RefusalReason::Failed(cause)) = answer else {
            unreachable!("{answer:?}");
        };
        let text = cause.to_string();
        assert!(
            text.contains("two processes say that they are rank 1"),
            "{text}"
        );
        assert_eq!(text.contains("FSGATHER_JOB"), !is_introduced, "{text}");
        assert_eq!(text.contains("be_rank"), is_introduced, "{text}");
    }
}

#[test]
fn idle_ranks_end_only_a_meeting_that_they_have_not_joined() {
    let now = Instant::now();
    let idle = |rank| [(Rank::new(rank), Error::rendezvous("no sign of work"))];
    let world = World {
        idle_limit: Some(Duration::from_secs(10)),
        ..fixtures::world(3)
    };
    let mut coordinator = world_of(world, now, None);
    let _ = coordinator.join(join(1, 101, "n1", None), now);
    coordinator.give_up_idle(&idle(1));
    assert_eq!(coordinator.failure(), None);
    coordinator.tick(now + Duration::from_secs(30));
    let warning = "still waiting for rank 2 to join, for 30 s now; \
                   fails once a missing rank shows no sign of work for 10 s, and times out in 30 s";
    let warned = coordinator.take_actions();
    assert!(warned.contains(&Action::Warn(warning.into())), "{warned:?}");
    coordinator.give_up_idle(&idle(2));
    let failure = coordinator.failure().unwrap();
    assert!(failure.to_string().contains("no sign of work"), "{failure}");
}
