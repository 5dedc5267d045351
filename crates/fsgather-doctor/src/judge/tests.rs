//! Facts in, findings out.

use std::time::Duration;

use fsgather_core::{Missing, Rank, RollCall};
use fsgather_store::Capacity;
use proptest::prelude::*;

use super::{
    samples::{met, rank, reached, setting, shut},
    *,
};
use crate::{
    facts::{ClockFact, DirectoryFacts, LauncherFacts, LeftoverFacts, PayloadFacts, ReachFact},
    finding::{Conclusion, Level},
};

/// The one finding that has this text in it.
#[track_caller]
fn only<'a>(findings: &'a [Finding], text: &str) -> &'a Finding {
    let mut fitting = findings
        .iter()
        .filter(|finding| finding.text.contains(text));
    let first = fitting.next();
    assert!(fitting.next().is_none(), "`{text}` twice in {findings:#?}");
    first.unwrap_or_else(|| panic!("no `{text}` in {findings:#?}"))
}

fn levels(findings: &[Finding]) -> Vec<Level> {
    let levels = findings.iter().map(|finding| finding.level);
    let mut levels: Vec<Level> = levels.filter(|level| *level != Level::Ok).collect();
    levels.sort();
    levels
}

/// Judges two hosts after a change to their facts.
fn judged(change: impl FnOnce(&mut Vec<RankFacts>, &mut WorldFacts)) -> Vec<Finding> {
    let (mut ranks, mut facts) = met();
    change(&mut ranks, &mut facts);
    let findings = world(&ranks, &facts);
    check(&findings);
    findings
}

/// What holds for any findings.
fn check(findings: &[Finding]) {
    for finding in findings {
        assert!(!finding.ranks.is_empty(), "of nobody: {finding:?}");
        let needs_advice = finding.level >= Level::Warning;
        assert!(
            !needs_advice || finding.advice.is_some(),
            "what to do: {finding:?}"
        );
    }
}

#[test]
fn where_nothing_is_wrong_nothing_is_said_to_be() {
    let findings = judged(|_, _| {});
    assert_eq!(levels(&findings), [], "{findings:#?}");
    for text in [
        "every variable is understood",
        "4 ranks, by Slurm (SLURM_PROCID)",
        "4 ranks on 2 hosts have met within 300 ms and talk over TCP",
        "rank 0 is reached at all its addresses within 1.0 ms: 10.0.0.1",
        "/shared is on nfs4 from srv:/export, mounted at /shared (vers=4.2,hard)",
        "512.0 GiB of 1.0 TiB are free",
        "renaming works, hard links can be made; a payload of 1.5 MiB was published in 10 ms and read into memory",
        "/shared is one directory for all: each of n1, n2 has read what the others wrote",
        "a new file is seen by the other hosts within 12 ms",
        "clocks of hosts agree",
        "no earlier run has left anything",
    ] {
        assert_eq!(only(&findings, text).level, Level::Ok);
    }
    assert_eq!(only(&findings, "nfs4 from").ranks, [0, 1, 2, 3]);
    assert_eq!(Conclusion::over(&findings), Conclusion::Usable);
}

#[test]
fn a_directory_that_is_not_shared_names_its_hosts() {
    let findings = judged(|_, world| {
        world.blind = vec![2];
        world.blind_reason = Some("files written by rank 0 are not seen there".into());
    });
    let finding = only(&findings, "is not shared between all ranks");
    assert_eq!(
        (finding.level, &finding.ranks[..]),
        (Level::Problem, &[2][..])
    );
    assert!(finding.text.ends_with("(n2)"), "{finding:?}");
    assert_eq!(Conclusion::over(&findings), Conclusion::BadDirectory);
}

#[test]
fn what_one_host_has_from_elsewhere_is_told() {
    let findings = judged(|ranks, _| {
        for facts in &mut ranks[2..] {
            let mount = facts.directory.as_mut().unwrap().mount.as_mut().unwrap();
            mount.source = "/dev/sda1".into();
            mount.kind = "ext4".into();
        }
    });
    assert_eq!(
        only(&findings, "/shared is on nfs4 from srv:/export").ranks,
        [0, 1]
    );
    let finding = only(&findings, "hosts mount the directory from different places");
    assert!(
        finding.text.contains("n2 on ext4 from /dev/sda1"),
        "{finding:?}"
    );
}

#[test]
fn one_host_of_a_local_file_system_is_no_way_for_several() {
    let mut facts = rank(0, 4);
    let directory = facts.directory.as_mut().unwrap();
    (directory.class, directory.file_system) = (Some("local".into()), Some("ext4".into()));
    let findings = unmet(&facts, None);
    check(&findings);
    let finding = only(&findings, "a file system of n1 alone");
    assert_eq!(finding.level, Level::Problem);
    assert_eq!(Conclusion::over(&findings), Conclusion::BadDirectory);
    // Where the launcher says that all are here it serves.
    facts.launcher.hosts = 1;
    facts.launcher.local_size = Some(4);
    assert_eq!(Conclusion::over(&unmet(&facts, None)), Conclusion::Usable);
}

#[test]
fn late_files_are_told_by_how_late() {
    let findings = judged(|ranks, _| {
        ranks[2].trial.as_mut().unwrap().saw_rank_0_seconds = Some(3.2);
    });
    assert_eq!(only(&findings, "within 3.2 s").level, Level::Note);
    let findings = judged(|ranks, _| {
        ranks[2].trial.as_mut().unwrap().seen_by_rank_0_seconds = None;
    });
    let finding = only(&findings, "take longer than 10 s");
    assert_eq!(
        (finding.level, &finding.ranks[..]),
        (Level::Warning, &[2][..])
    );
    assert_eq!(Conclusion::over(&findings), Conclusion::Usable);
}

#[test]
fn addresses_that_cannot_be_reached_are_named() {
    let with = |facts: Vec<ReachFact>| {
        judged(|ranks, _| ranks[2].trial.as_mut().unwrap().reach = Some(facts))
    };
    let findings = with(vec![shut("172.17.0.1"), reached("10.0.0.1")]);
    let finding = only(
        &findings,
        "rank 0 is reached at 10.0.0.1, but not at 172.17.0.1",
    );
    assert_eq!(finding.level, Level::Note);
    let findings = with(vec![shut("10.0.0.1")]);
    let finding = only(
        &findings,
        "cannot be reached over TCP from here: tried 10.0.0.1: Connection refused",
    );
    assert_eq!(
        (finding.level, &finding.ranks[..]),
        (Level::Warning, &[2][..])
    );
    let findings = with(Vec::new());
    assert_eq!(
        only(&findings, "no address by which it is known here").level,
        Level::Warning
    );
}

#[test]
fn files_that_carry_messages_unasked_are_a_warning() {
    let findings = judged(|_, world| world.carrier = "markers".into());
    assert_eq!(
        only(&findings, "talk through marker files").level,
        Level::Warning
    );
    let findings = judged(|ranks, world| {
        world.carrier = "markers".into();
        ranks[0]
            .settings
            .push(setting("FSGATHER_CONTROL", "markers"));
        for facts in &mut ranks[1..] {
            facts.settings.push(setting("FSGATHER_CONTROL", "markers"));
        }
    });
    assert_eq!(
        only(&findings, "talk through marker files").level,
        Level::Ok
    );
}

#[test]
fn settings_that_differ_are_told_with_who_has_which() {
    let findings = judged(|ranks, _| ranks[3].settings[0].value = "5m".into());
    let finding = only(&findings, "FSGATHER_TIMEOUT differs");
    assert_eq!(
        finding.text,
        "FSGATHER_TIMEOUT differs: 30m on ranks 0-2; 5m on rank 3"
    );
    assert_eq!(finding.level, Level::Warning);
}

#[test]
fn clocks_count_from_two_seconds_on() {
    let with = |ahead_seconds| {
        judged(|ranks, _| {
            for facts in &mut ranks[2..] {
                let clock = ClockFact {
                    ahead_seconds,
                    uncertainty_seconds: 0.01,
                };
                facts.trial.as_mut().unwrap().clock = Some(clock);
                facts.directory.as_mut().unwrap().server_clock = Some(ClockFact {
                    ahead_seconds: -ahead_seconds,
                    ..clock
                });
            }
        })
    };
    assert_eq!(levels(&with(1.9)), []);
    let findings = with(-119.3);
    let finding = only(
        &findings,
        "this host's clock is 119.0 s behind of that of n1",
    );
    assert_eq!(
        (finding.level, &finding.ranks[..]),
        (Level::Note, &[2, 3][..])
    );
    let finding = only(
        &findings,
        "the clock that stamps files is 119.0 s ahead of this host's",
    );
    assert_eq!(finding.ranks, [2, 3]);
}

#[test]
fn room_is_that_of_the_rank_that_sees_least() {
    let with = |free_bytes, free_inodes| {
        judged(|ranks, _| {
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
    assert_eq!(
        only(&findings, "12 of 1000000 inodes").level,
        Level::Warning
    );
    // A file was written there.
    let findings = with(1 << 30, 0);
    assert_eq!(only(&findings, "inodes are not counted").level, Level::Ok);
}

#[test]
fn each_way_in_which_a_directory_fails_is_a_problem_with_what_to_do() {
    type Change = fn(&mut DirectoryFacts);
    let changes: [(Change, &str, Level); 5] = [
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
            |facts| facts.stuck_at = Some(crate::facts::SURVEYING.into()),
            "takes longer than 20 s",
            Level::Warning,
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
        let mut facts = rank(1, 4);
        change(facts.directory.as_mut().unwrap());
        let findings = unmet(&facts, None);
        check(&findings);
        assert_eq!(only(&findings, text).level, level);
    }
}

#[test]
fn different_owners_of_files_are_a_problem() {
    let findings = judged(|ranks, _| {
        for facts in &mut ranks[2..] {
            facts.directory.as_mut().unwrap().own_uid = Some(65534);
        }
    });
    let finding = only(&findings, "belong to different users");
    assert_eq!(finding.level, Level::Problem);
    assert!(
        finding
            .text
            .ends_with("uid 1000 owns those of ranks 0 1, uid 65534 owns those of ranks 2 3"),
        "{finding:?}"
    );
    // What each sees for itself is a note.
    assert_eq!(
        only(&findings, "shows files of uid 1000 as those of uid 65534").ranks,
        [2, 3]
    );
}

#[test]
fn limits_are_those_of_rank_0_where_it_alone_needs_them() {
    let findings = judged(|ranks, _| {
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
    assert_eq!(
        only(&findings, "no file may become longer than 1.0 MiB").ranks,
        [1]
    );
    assert_eq!(Conclusion::over(&findings), Conclusion::WrongSettings);
}

#[test]
fn a_failed_meeting_says_what_was_the_matter_once() {
    let facts = rank(1, 4);
    let timeout = Error::Timeout {
        during: "meeting".into(),
        timeout: Duration::from_secs(30),
        missing: vec![Missing {
            rank: Rank::ZERO,
            process: None,
            last_seen: None,
        }],
        stacks: RollCall::default(),
        hint: "see whether it was started".into(),
    };
    let findings = unmet(&facts, Some(&timeout));
    check(&findings);
    let finding = only(&findings, "waiting for rank 0 (never joined)");
    assert!(
        finding
            .text
            .contains("if /shared is not the same directory on all hosts; here it is on "),
        "{finding:?}"
    );
    assert_eq!(
        finding.advice.as_deref(),
        Some("see whether it was started")
    );
    assert_eq!(Conclusion::over(&findings), Conclusion::NoMeeting);

    let mut facts = facts;
    let problem = Error::storage("use", "/shared", &std::io::Error::from_raw_os_error(2));
    facts.directory.as_mut().unwrap().problem = Some(problem.to_string());
    let findings = unmet(&facts, Some(&problem));
    check(&findings);
    assert_eq!(only(&findings, "No such file").level, Level::Problem);
    assert_eq!(Conclusion::over(&findings), Conclusion::BadDirectory);

    let wrong = Error::config("FSGATHER_CONTROL=markers needs a directory; name one");
    assert_eq!(
        Conclusion::over(&unmet(&rank(1, 4), Some(&wrong))),
        Conclusion::WrongSettings
    );
}

#[test]
fn alone_nothing_is_claimed_of_other_hosts() {
    let mut facts = rank(0, 1);
    facts.launcher = LauncherFacts {
        family: "none".into(),
        chosen: "a world of one: no launcher says both rank and world size".into(),
        notes: vec!["ignored Slurm: this is a batch or interactive shell".into()],
        ..LauncherFacts::default()
    };
    let directory = facts.directory.as_mut().unwrap();
    directory.origin = "argument".into();
    directory.leftovers = Some(LeftoverFacts {
        live: 1,
        unknown: 2,
        removable: 3,
        removable_bytes: 5 << 20,
    });
    facts.unknown_variables = vec!["FSGATHER_DRI is not a known variable".into()];
    let findings = alone(&facts, false);
    check(&findings);
    let finding = only(&findings, "only several ranks can find out");
    let advice = finding.advice.as_ref().unwrap();
    assert!(advice.contains("srun fsgather doctor /shared"), "{advice}");
    let passed_over = only(&findings, "ignored Slurm");
    assert!(
        passed_over
            .advice
            .as_ref()
            .is_some_and(|advice| advice.contains("srun"))
    );
    let left = only(&findings, "earlier runs have left 3 things, 5.0 MiB in all");
    assert!(
        left.advice
            .as_ref()
            .is_some_and(|advice| advice.contains("fsgather clean /shared"))
    );
    assert_eq!(only(&findings, "FSGATHER_DRI").level, Level::Warning);
    assert_eq!(Conclusion::over(&findings), Conclusion::Usable);
}

#[test]
fn variables_that_cannot_be_read_are_told_with_a_right_one() {
    let variables = [("FSGATHER_TIMEOUT", "30"), ("FSGATHER_DRI", "x")];
    let variables: fsgather_config::environment::Variables = variables.into_iter().collect();
    let errors = fsgather_config::settings::Settings::errors(&variables);
    let findings = wrong_settings(&errors, &variables.warnings());
    assert_eq!(levels(&findings), [Level::Warning, Level::Problem]);
    let finding = only(&findings, "FSGATHER_TIMEOUT=\"30\"");
    assert_eq!(
        finding.advice.as_deref(),
        Some("a right one is FSGATHER_TIMEOUT=30m")
    );
    assert_eq!(Conclusion::over(&findings), Conclusion::WrongSettings);
}

proptest! {
    #[test]
    fn whatever_is_missing_is_judged_without_a_panic(
        cut in prop::collection::vec(0..12_usize, 0..12),
        seconds in -1e12..1e12_f64,
    ) {
        let (mut ranks, mut facts) = met();
        for (at, cut) in cut.into_iter().enumerate() {
            let rank = &mut ranks[at % 4];
            let directory = rank.directory.get_or_insert_default();
            let clock = ClockFact { ahead_seconds: seconds, uncertainty_seconds: seconds };
            match cut {
                0 => directory.mount = None,
                1 => directory.capacity = None,
                2 => directory.server_clock = Some(clock),
                3 => directory.write_seconds = Some(seconds),
                4 => directory.payload = Some(PayloadFacts::default()),
                5 => directory.file_system = None,
                6 => rank.trial = None,
                7 => rank.directory = None,
                8 => rank.settings.clear(),
                9 => rank.network.addresses.clear(),
                10 => facts.directory = None,
                _ => rank.trial.get_or_insert_default().clock = Some(clock),
            }
        }
        check(&world(&ranks, &facts));
        for facts in &ranks {
            check(&alone(facts, false));
            check(&unmet(facts, None));
        }
        let _ = world(&[], &facts);
    }
}
