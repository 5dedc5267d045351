//! Tests facts in, findings out.

use std::time::Duration;

use fsgather_config::{environment::Variables, settings::Settings};
use fsgather_core::{Missing, Rank, RollCall};
use fsgather_store::Capacity;

use super::*;
use crate::doctor::{
    facts::{
        AccessFacts, DirectoryFacts, LauncherFacts, LimitFacts, MountFacts, NetworkFacts,
        PayloadFacts, ReadFacts,
    },
    finding::Conclusion,
};

/// A rank without problems, on host `n1` or `n2` with two ranks each.
fn rank(rank: u32) -> RankFacts {
    let host = rank / 2 + 1;
    RankFacts {
        rank,
        world_size: 4,
        host: format!("n{host}"),
        pid: 100 + rank,
        launcher: LauncherFacts {
            family: "slurm".into(),
            chosen: format!("rank {rank} of 4, by Slurm (SLURM_PROCID)"),
            notes: Vec::new(),
            local_size: Some(2),
            hosts: 2,
        },
        limits: LimitFacts {
            open_files: Some(1024),
            open_files_needed: 136,
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
            options: ["rw", "vers=4.2", "hard"].map(Into::into).into(),
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
        capacity: Some(Capacity {
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            total_inodes: 1_000_000,
            free_inodes: 900_000,
        }),
        payload: Some(PayloadFacts {
            publish: "rename".into(),
            has_links: true,
            bytes: 3 << 19,
            write_seconds: 0.01,
            read: Some(ReadFacts {
                seconds: 0.002,
                mapped: false,
            }),
            problem: None,
        }),
        ..DirectoryFacts::default()
    }
}

/// The one finding that contains a text.
#[track_caller]
fn only<'a>(findings: &'a [Finding], text: &str) -> &'a Finding {
    let mut matching = findings
        .iter()
        .filter(|finding| finding.text.contains(text));
    let first = matching.next();
    assert!(matching.next().is_none(), "`{text}` twice in {findings:#?}");
    first.unwrap_or_else(|| panic!("no `{text}` in {findings:#?}"))
}

/// Judges four ranks on two hosts after a change to their facts.
fn judged(change: impl FnOnce(&mut Vec<RankFacts>)) -> Vec<Finding> {
    let mut ranks: Vec<RankFacts> = (0..4).map(rank).collect();
    change(&mut ranks);
    let met = WorldFacts {
        met_seconds: 0.3,
        conformance: None,
    };
    let findings = world(&ranks, &met);
    check(&findings);
    findings
}

/// Checks that every finding names its ranks, and that every problem has advice.
fn check(findings: &[Finding]) {
    for finding in findings {
        assert!(!finding.ranks.is_empty(), "{finding:?}");
        let needs_advice = finding.level >= Level::Warning;
        assert!(!needs_advice || finding.advice.is_some(), "{finding:?}");
    }
}

#[test]
fn ranks_without_problems_have_none() {
    let findings = judged(|_| {});
    for text in [
        "every variable is understood",
        "4 ranks, by Slurm (SLURM_PROCID)",
        "4 ranks on 2 hosts have met within 300 ms",
        "/shared is on nfs4 from srv:/export, mounted at /shared (vers=4.2,hard)",
        "512.0 GiB of 1.0 TiB are free",
        "renaming works, hard links can be made; a payload of 1.5 MiB was published in 10 ms and read into memory",
    ] {
        assert_eq!(only(&findings, text).level, Level::Ok);
    }
    assert!(findings.iter().all(|finding| finding.level == Level::Ok));
    assert_eq!(only(&findings, "nfs4 from").ranks, [0, 1, 2, 3]);
    assert_eq!(Conclusion::over(&findings), Conclusion::Usable);
}

#[test]
fn a_local_file_system_is_a_problem_for_several_hosts() {
    let local = |facts: &mut RankFacts| {
        let directory = facts.directory.as_mut().unwrap();
        (directory.class, directory.file_system) = (Some("local".into()), Some("ext4".into()));
    };
    let findings = judged(|ranks| ranks.iter_mut().for_each(local));
    let text = "/shared is on ext4, a file system of n1 alone";
    assert_eq!(only(&findings, text).level, Level::Problem);
    let mut facts = rank(0);
    local(&mut facts);
    let findings = one_of_several(&facts, None, false);
    check(&findings);
    assert_eq!(only(&findings, text).level, Level::Problem);
    assert_eq!(Conclusion::over(&findings), Conclusion::BadDirectory);
    // The launcher says that all ranks run on one host.
    facts.launcher.hosts = 1;
    facts.launcher.local_size = Some(4);
    let findings = one_of_several(&facts, None, false);
    assert_eq!(Conclusion::over(&findings), Conclusion::Usable);
}

#[test]
fn room_is_that_of_the_rank_that_sees_least() {
    let with = |free_bytes, free_inodes| {
        judged(|ranks| {
            let capacity = &mut ranks[3].directory.as_mut().unwrap().capacity;
            *capacity = Some(Capacity {
                free_bytes,
                free_inodes,
                ..capacity.unwrap()
            });
        })
    };
    let findings = with(10 << 20, 900_000);
    assert_eq!(only(&findings, "10.0 MiB of").level, Level::Warning);
    let findings = with(1 << 30, 12);
    let text = "12 of 1000000 inodes";
    assert_eq!(only(&findings, text).level, Level::Warning);
    // A file was written there.
    let findings = with(1 << 30, 0);
    assert_eq!(only(&findings, "inodes are not counted").level, Level::Ok);
}

#[test]
fn each_failure_of_a_directory_is_reported_with_advice() {
    type Change = fn(&mut DirectoryFacts);
    let changes: [(Change, &str, Level); 4] = [
        (
            |facts| {
                facts.problem =
                    Some("cannot write in /shared: Disk quota exceeded; remove something".into());
            },
            "Disk quota",
            Level::Problem,
        ),
        (
            |facts| facts.stuck_at = Some("looking at it".into()),
            "does not answer",
            Level::Problem,
        ),
        (
            |facts| facts.mount.as_mut().unwrap().options.push("soft".into()),
            "mounted soft",
            Level::Warning,
        ),
        (
            |facts| facts.access.as_mut().unwrap().is_open_to_all = true,
            "anybody may remove",
            Level::Warning,
        ),
    ];
    for (change, text, level) in changes {
        let mut facts = rank(1);
        change(facts.directory.as_mut().unwrap());
        let findings = one_of_several(&facts, None, false);
        check(&findings);
        assert_eq!(only(&findings, text).level, level);
    }
}

#[test]
fn limits_are_those_of_rank_0_if_only_it_needs_them() {
    let findings = judged(|ranks| {
        for facts in ranks.iter_mut() {
            facts.limits.open_files = Some(100);
        }
        ranks[1].limits.file_bytes = Some(1 << 20);
    });
    let finding = only(&findings, "may have 100 files open, and needs 136");
    assert_eq!(
        (finding.level, &finding.ranks[..]),
        (Level::Problem, &[0][..])
    );
    let text = "no file may become longer than 1.0 MiB";
    assert_eq!(only(&findings, text).ranks, [1]);
    assert_eq!(Conclusion::over(&findings), Conclusion::WrongSettings);
}

#[test]
fn kernels_that_lack_system_calls_are_reported() {
    let on = |kernel: &str| judged(|ranks| ranks[1].kernel = kernel.to_owned());
    let found = on("2.6.32-754.el6.x86_64");
    let old = only(&found, "Linux 2.6.32-754.el6.x86_64 is older than 3.2");
    assert_eq!(
        (old.level, old.ranks.as_slice()),
        (Level::Warning, &[1][..])
    );
    let found = on("3.10.0-1160.el7.x86_64");
    assert_eq!(only(&found, "has no statx").level, Level::Note);
    for recent in ["4.11.0", "6.1.0-18-amd64", ""] {
        let found = on(recent);
        assert!(found.iter().all(|finding| !finding.text.contains("Linux")));
    }
}

#[test]
fn a_failed_meeting_is_reported_once() {
    let timeout = Error::timed_out(
        "meeting",
        Duration::from_secs(30),
        vec![Missing {
            rank: Rank::ZERO,
            process: None,
            last_seen: None,
        }],
        RollCall::default(),
        "see whether it was started",
    );
    let findings = one_of_several(&rank(1), Some(&timeout), false);
    check(&findings);
    let finding = only(&findings, "waiting for rank 0 (never joined)");
    let doubt = "if /shared is not the same directory on all hosts; here it is on ";
    assert!(finding.text.contains(doubt), "{finding:?}");
    let advice = finding.advice.as_deref();
    assert_eq!(advice, Some("see whether it was started"));
    assert_eq!(Conclusion::over(&findings), Conclusion::NoMeeting);

    let mut facts = rank(1);
    let problem = Error::storage("use", "/shared", &std::io::Error::from_raw_os_error(2));
    facts.directory.as_mut().unwrap().problem = Some(problem.to_string());
    let findings = one_of_several(&facts, Some(&problem), false);
    check(&findings);
    assert_eq!(only(&findings, "No such file").level, Level::Problem);
    assert_eq!(Conclusion::over(&findings), Conclusion::BadDirectory);

    let wrong = Error::config("FSGATHER_CONTROL=markers needs a directory; name one");
    let findings = one_of_several(&rank(1), Some(&wrong), false);
    assert_eq!(Conclusion::over(&findings), Conclusion::WrongSettings);
}

#[test]
fn a_process_alone_claims_nothing_about_other_hosts() {
    let mut facts = rank(0);
    facts.launcher = LauncherFacts {
        family: "none".into(),
        chosen: "a world of one: no launcher says both rank and world size".into(),
        notes: vec!["ignored Slurm: this is a batch or interactive shell".into()],
        ..LauncherFacts::default()
    };
    let directory = facts.directory.as_mut().unwrap();
    directory.origin = "argument".into();
    facts.unknown_variables = vec!["FSGATHER_DRI is not a known variable".into()];
    let findings = alone(&facts, false);
    check(&findings);
    let advice = |text| only(&findings, text).advice.as_deref().unwrap();
    let alone = advice("only several ranks can find out");
    assert!(alone.contains("srun fsgather doctor /shared"), "{alone}");
    assert!(advice("ignored Slurm").contains("srun"));
    assert_eq!(only(&findings, "FSGATHER_DRI").level, Level::Warning);
    assert_eq!(Conclusion::over(&findings), Conclusion::Usable);
}

#[test]
fn variables_that_cannot_be_read_are_reported_with_an_example() {
    let variables = [("FSGATHER_TIMEOUT", "30"), ("FSGATHER_DRI", "x")];
    let variables: Variables = variables.into_iter().collect();
    let errors = Settings::errors(&variables);
    let findings = wrong_settings(&errors, &variables.warnings());
    assert_eq!(only(&findings, "FSGATHER_DRI").level, Level::Warning);
    let finding = only(&findings, "FSGATHER_TIMEOUT=\"30\"");
    let advice = finding.advice.as_deref();
    assert_eq!(advice, Some("a right one is FSGATHER_TIMEOUT=30m"));
    assert_eq!(Conclusion::over(&findings), Conclusion::WrongSettings);
}

#[test]
fn missing_facts_are_judged_without_a_panic() {
    let empty = RankFacts {
        directory: Some(DirectoryFacts::default()),
        ..RankFacts::default()
    };
    check(&judged(|ranks| ranks[2] = empty.clone()));
    check(&alone(&empty, true));
    check(&one_of_several(&RankFacts::default(), None, false));
    assert_eq!(world(&[], &WorldFacts::default()), []);
}
