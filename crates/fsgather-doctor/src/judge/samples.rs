//! Facts with nothing wrong, for tests to change.

use fsgather_store::Capacity;

use crate::facts::{
    AccessFacts, ClockFact, DirectoryFacts, LauncherFacts, LeftoverFacts, LimitFacts, MountFacts,
    NetworkFacts, PayloadFacts, RankFacts, ReachFact, ReadFacts, SettingFact, TrialFacts,
    WorldFacts,
};

/// A rank with nothing wrong, on host `n1`, `n2`, ... with two ranks each.
pub(super) fn rank(rank: u32, world_size: u32) -> RankFacts {
    let host = rank / 2 + 1;
    RankFacts {
        rank,
        world_size,
        host: format!("n{host}"),
        pid: 100 + rank,
        launcher: LauncherFacts {
            family: "slurm".into(),
            chosen: format!("rank {rank} of {world_size}, by Slurm (SLURM_PROCID)"),
            notes: Vec::new(),
            local_size: Some(2.min(world_size)),
            hosts: world_size.div_ceil(2),
        },
        settings: vec![
            setting("FSGATHER_TIMEOUT", "30m"),
            setting("FSGATHER_RANK", &rank.to_string()),
        ],
        limits: LimitFacts {
            open_files: Some(1024),
            open_files_needed: 128 + 2 * u64::from(world_size),
            ..LimitFacts::default()
        },
        network: NetworkFacts {
            addresses: vec![format!("10.0.0.{host}"), "127.0.0.1".into()],
            ..NetworkFacts::default()
        },
        directory: Some(directory()),
        ..RankFacts::default()
    }
}

pub(super) fn setting(name: &str, value: &str) -> SettingFact {
    SettingFact {
        name: name.into(),
        value: value.into(),
        origin: "default".into(),
    }
}

fn directory() -> DirectoryFacts {
    DirectoryFacts {
        path: "/shared".into(),
        origin: "FSGATHER_DIR".into(),
        file_system: Some("nfs".into()),
        class: Some("network".into()),
        mount: Some(MountFacts {
            point: "/shared".into(),
            source: "srv:/export".into(),
            kind: "nfs4".into(),
            options: ["rw", "vers=4.2", "hard", "addr=10.0.0.9"]
                .map(Into::into)
                .into(),
        }),
        access: Some(AccessFacts {
            uid: 1000,
            gid: 1000,
            mode: "2770".into(),
            is_open_to_all: false,
        }),
        effective_uid: 1000,
        own_uid: Some(1000),
        write_seconds: Some(0.004),
        server_clock: Some(ClockFact {
            ahead_seconds: 0.002,
            uncertainty_seconds: 0.003,
        }),
        capacity: Some(Capacity {
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            total_inodes: 1_000_000,
            free_inodes: 900_000,
        }),
        ..DirectoryFacts::default()
    }
}

/// Four ranks on two hosts that have met, with nothing wrong.
pub(super) fn met() -> (Vec<RankFacts>, WorldFacts) {
    let mut ranks: Vec<RankFacts> = (0..4).map(|number| rank(number, 4)).collect();
    for facts in &mut ranks {
        let is_prober = facts.rank % 2 == 0;
        let seconds = (is_prober && facts.rank > 0).then_some(0.012);
        facts.trial = Some(TrialFacts {
            is_prober,
            saw_rank_0_seconds: seconds,
            seen_by_rank_0_seconds: seconds,
            clock: (facts.rank > 0).then_some(ClockFact {
                ahead_seconds: 0.1,
                uncertainty_seconds: 0.01,
            }),
            reach: (facts.rank == 2).then(|| vec![reached("10.0.0.1")]),
            ..TrialFacts::default()
        });
    }
    if let Some(directory) = &mut ranks[0].directory {
        directory.leftovers = Some(LeftoverFacts::default());
        directory.payload = Some(PayloadFacts {
            publish: "rename".into(),
            has_links: true,
            bytes: 3 << 19,
            write_seconds: 0.01,
            read: Some(ReadFacts {
                seconds: 0.002,
                mapped: false,
            }),
            problem: None,
        });
    }
    let world = WorldFacts {
        met_seconds: 0.3,
        carrier: "tcp".into(),
        directory: Some("/shared".into()),
        ..WorldFacts::default()
    };
    (ranks, world)
}

pub(super) fn reached(address: &str) -> ReachFact {
    ReachFact {
        address: address.into(),
        seconds: Some(0.001),
        problem: None,
    }
}

pub(super) fn shut(address: &str) -> ReachFact {
    ReachFact {
        address: address.into(),
        seconds: None,
        problem: Some("Connection refused (os error 111)".into()),
    }
}
