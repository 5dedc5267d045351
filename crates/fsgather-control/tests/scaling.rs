//! Counts, on the bare machines, the messages of a world of a given size: the formulas of `docs/scaling.md`.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

use std::time::{Duration, Instant};

use fsgather_control::{
    coordinator::{Action, Coordinator, World},
    job_credentials::JobFingerprint,
    member::{Member, MemberAction},
    message::{Join, JoinReply, JoinRequest, ToCoordinator, ToMember, Welcome},
    wire,
};
use fsgather_core::{
    Call, ChannelId, Contribution, Operation, Peer, ProcessId, Rank, Round, Site, WorldSize,
};
use serde::Serialize;
use uuid::Uuid;

/// Messages between rank 0 and all others, and their bytes as they are before they are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traffic {
    messages: u64,
    bytes: u64,
}

impl Traffic {
    fn add<M: Serialize>(&mut self, message: &M, times: u64) {
        let frame = wire::encode_frame(message, 0).unwrap();
        self.messages += times;
        self.bytes += frame.len() as u64 * times;
    }
}

/// Traffic to rank 0, and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Both {
    to_root: Traffic,
    from_root: Traffic,
}

/// A process like those of clusters.
fn process(rank: Rank) -> ProcessId {
    ProcessId {
        host: format!("node{:05}", rank.get() / 8),
        pid: 100_000 + rank.get(),
        machine_id: Uuid::from_u128(u128::from(rank.get() / 8) + (9 << 100)).to_string(),
        boot_id: Uuid::from_u128(u128::from(rank.get() / 8) + (7 << 100)).to_string(),
        pid_namespace: 4_026_531_836,
        start_time: 1_234_567,
        ..ProcessId::default()
    }
}

/// A world that forms, and the messages until all know of it.
fn meet(ranks: u32, now: Instant) -> (Coordinator, Both) {
    let world_size = WorldSize::new(ranks).unwrap();
    let timeout = Duration::from_secs(1800);
    let world = World {
        world_size,
        communicator: Uuid::nil(),
        job: "evaluation".into(),
        timeout,
        join_timeout: timeout,
        idle_limit: None,
        fingerprint: JobFingerprint::default(),
        lead: None,
        is_introduced: false,
        is_named: false,
        is_patient: false,
    };
    let mut coordinator = Coordinator::new(world, now);
    let mut said = Both::default();
    for rank in world_size.ranks() {
        let join = Join {
            rank,
            world_size,
            nonce: u128::MAX - u128::from(rank.get()),
            process: process(rank),
            timeout,
            start: None,
            attempt: None,
            fingerprint: JobFingerprint::default(),
        };
        if rank != Rank::ZERO {
            said.to_root
                .add(&ToCoordinator::Join(JoinRequest::Join(join.clone())), 1);
        }
        coordinator.join(join, now).unwrap();
        for (to, message) in sent(&mut coordinator) {
            said.from_root.add(&message, others(&to));
        }
    }
    (coordinator, said)
}

fn sent(coordinator: &mut Coordinator) -> Vec<(Vec<Rank>, ToMember)> {
    let actions = coordinator.take_actions().into_iter();
    let sent = actions.filter_map(|action| match action {
        Action::Send { to, message } => Some((to, message)),
        _ => None,
    });
    sent.collect()
}

/// Number of these ranks that have a connection.
fn others(to: &[Rank]) -> u64 {
    to.iter().filter(|rank| **rank != Rank::ZERO).count() as u64
}

/// A call in which every rank contributes `body` bytes in its message; returns the traffic that brings them to `root`, or to all.
fn call(ranks: u32, operation: Operation, root: Option<Rank>, body: usize) -> Both {
    let now = Instant::now();
    let (mut coordinator, _) = meet(ranks, now);
    let rank_0 = Peer {
        rank: Rank::ZERO,
        host: "here".into(),
        pid: 1,
    };
    let mut said = Both::default();
    for rank in (0..ranks).map(Rank::new) {
        let mut member = Member::new(rank_0.clone(), Duration::from_secs(1800), now);
        let mut call = Call::new(operation, Site::named(SITE));
        call.root = root;
        let ticket = member.begin(ChannelId::WORLD, call).unwrap();
        let contribution = Contribution::inline(vec![7; body]);
        member
            .contribute(&ticket, Round::VERDICT, contribution, now)
            .unwrap();
        for action in member.take_actions() {
            let MemberAction::Send(message) = action else {
                continue;
            };
            if rank != Rank::ZERO {
                said.to_root.add(&message, 1);
            }
            coordinator.on_message(rank, message, now);
        }
    }
    for (to, message) in sent(&mut coordinator) {
        said.from_root.add(&message, others(&to));
    }
    said
}

const SITE: &str = "/home/user/project/eval.py:1234";

/// Maximum size of a message besides its payload and the place of its call, in bytes.
const MESSAGE: u64 = 32;

#[test]
fn a_barrier_takes_one_message_each_way_per_other_rank() {
    for ranks in [2, 8, 1_000, 60_000] {
        let said = call(ranks, Operation::Barrier, None, 0);
        let others = u64::from(ranks) - 1;
        assert_eq!(said.to_root.messages, others);
        assert!(
            said.to_root.bytes <= others * (MESSAGE + SITE.len() as u64),
            "{said:?}"
        );
        assert_eq!(said.from_root.messages, others);
        assert!(said.from_root.bytes <= others * MESSAGE, "{said:?}");
    }
}

#[test]
fn a_gather_brings_every_payload_to_the_root_once() {
    for (root, body) in [(Rank::ZERO, 64), (Rank::new(1), 3_000)] {
        for ranks in [2, 8, 1_000] {
            let said = call(ranks, Operation::Gather, Some(root), body);
            let (others, body) = (u64::from(ranks) - 1, body as u64);
            let share = body + MESSAGE + SITE.len() as u64;
            assert_eq!(said.to_root.messages, others);
            assert!(
                (others * body..=others * share).contains(&said.to_root.bytes),
                "{said:?}"
            );
            assert_eq!(said.from_root.messages, others);
            let passed_on = if root == Rank::ZERO {
                0
            } else {
                u64::from(ranks) * (body + 2)
            };
            assert!(
                said.from_root.bytes <= others * MESSAGE + passed_on,
                "{said:?}"
            );
        }
    }
}

#[test]
fn a_small_all_gather_brings_all_payloads_through_rank_0() {
    for ranks in [2, 8, 1_000, 10_000] {
        let (all, others, body) = (u64::from(ranks), u64::from(ranks) - 1, 64);
        let said = call(ranks, Operation::AllGather, None, 64);
        assert_eq!(
            (said.to_root.messages, said.from_root.messages),
            (others, others)
        );
        let least = others * all * body;
        assert!(
            (least..=least + others * (2 * all + MESSAGE)).contains(&said.from_root.bytes),
            "{said:?}"
        );
    }
}

#[test]
fn whoever_joins_is_told_of_all() {
    for ranks in [2, 8, 1_000, 10_000] {
        let said = meet(ranks, Instant::now()).1;
        let (all, others) = (u64::from(ranks), u64::from(ranks) - 1);
        assert_eq!(said.to_root.messages, others);
        assert_eq!(said.from_root.messages, 2 * others);
        assert!(said.to_root.bytes <= others * 150, "{said:?}");
        assert!(
            said.from_root.bytes <= others * (120 * all + 2 * MESSAGE),
            "{said:?}"
        );
    }
}

#[test]
fn the_largest_world_forms_on_hosts_with_the_longest_names() {
    let process = ProcessId {
        host: "h".repeat(64),
        start_time: u64::MAX,
        mount_namespace: u64::MAX,
        time_namespace: u64::MAX,
        ..process(Rank::new(WorldSize::MAX - 1))
    };
    let welcome = ToMember::Join(JoinReply::Welcome(Welcome {
        nonces: vec![u128::MAX; WorldSize::MAX as usize],
        communicator: Uuid::max(),
        processes: vec![process; WorldSize::MAX as usize],
        timeout: Duration::MAX,
    }));
    assert!(wire::encode_frame(&welcome, 0).is_ok());
}
