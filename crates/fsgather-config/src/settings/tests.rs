//! The order in which variables, launchers and defaults win, and what is said of wrong values.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::launcher::Family;

fn resolve(pairs: &[(&str, &str)]) -> Settings {
    Settings::resolve(&pairs.iter().copied().collect()).unwrap()
}

fn refused(name: &str, text: &str) -> String {
    Settings::resolve(&Variables::from_iter([(name, text)]))
        .unwrap_err()
        .to_string()
}

#[test]
fn without_variables_the_documented_defaults_hold() {
    let settings = resolve(&[]);
    assert_eq!(settings.directory, Setting::default(None));
    assert_eq!(settings.dir_mode, Setting::default(DirMode::PRIVATE));
    assert_eq!(settings.transport, Setting::default(Transport::Auto));
    assert_eq!(settings.root_only, Setting::default(false));
    assert_eq!(settings.control, Setting::default(Control::Auto));
    assert_eq!(settings.rendezvous, Setting::default(None));
    assert_eq!(settings.job, Setting::default(None));
    assert_eq!(settings.secret, Setting::default(None));
    assert_eq!(settings.encrypt, Setting::default(false));
    assert_eq!(settings.join_timeout.value.as_secs(), 1800);
    assert_eq!(settings.timeout.value.as_secs(), 1800);
    assert_eq!(settings.port, Setting::default(PortRange::ANY));
    assert!(settings.interfaces.value.is_any());
    assert_eq!(settings.inline_limit.value, 65_536);
    assert_eq!(
        settings.compression,
        Setting::default(CompressionSetting::None)
    );
    assert_eq!(settings.verify, Setting::default(Verify::Host));
    assert_eq!(settings.log.value, "warn");
    assert_eq!(settings.stacks, Setting::default(true));
    assert_eq!(settings.progress, Setting::default(ShowProgress::Auto));
    assert_eq!(settings.warnings, [""; 0]);
    assert_eq!(settings.detection.family, Family::Alone);
}

#[test]
fn every_setting_is_taken_from_its_own_variable() {
    let secret = "5a".repeat(32);
    let pairs = [
        ("FSGATHER_DIR", "/x"),
        ("FSGATHER_DIR_MODE", "0770"),
        ("FSGATHER_TRANSPORT", "memory"),
        ("FSGATHER_ROOT_ONLY", "1"),
        ("FSGATHER_CONTROL", "markers"),
        ("FSGATHER_RENDEZVOUS", "tcp://n1:60001"),
        ("FSGATHER_JOB", "nightly"),
        ("FSGATHER_SECRET", secret.as_str()),
        ("FSGATHER_ENCRYPT", "1"),
        ("FSGATHER_RANK", "1"),
        ("FSGATHER_WORLD_SIZE", "4"),
        ("FSGATHER_LOCAL_RANK", "1"),
        ("FSGATHER_LOCAL_WORLD_SIZE", "2"),
        ("FSGATHER_JOIN_TIMEOUT", "30s"),
        ("FSGATHER_TIMEOUT", "2h"),
        ("FSGATHER_PORT", "60001-60999"),
        ("FSGATHER_INTERFACE", "ib,^ib1"),
        ("FSGATHER_INLINE_LIMIT", "4096"),
        ("FSGATHER_SHARED_MEMORY", "1MiB"),
        ("FSGATHER_COMPRESS", "zstd"),
        ("FSGATHER_VERIFY", "off"),
        ("FSGATHER_LOG", "fsgather=debug"),
        ("FSGATHER_STACKS", "0"),
        ("FSGATHER_TRACE", "always"),
        ("FSGATHER_PROGRESS", "off"),
    ];
    let settings = resolve(&pairs);
    let texts: Vec<String> = settings
        .entries()
        .into_iter()
        .map(|(name, text, origin)| {
            assert_eq!(origin, Origin::Variable(name));
            format!("{name} {text}")
        })
        .collect();
    assert_eq!(
        texts,
        [
            "FSGATHER_DIR /x",
            "FSGATHER_DIR_MODE 0770",
            "FSGATHER_TRANSPORT memory",
            "FSGATHER_ROOT_ONLY 1",
            "FSGATHER_CONTROL markers",
            "FSGATHER_RENDEZVOUS tcp://n1:60001",
            "FSGATHER_JOB nightly",
            "FSGATHER_SECRET given",
            "FSGATHER_ENCRYPT 1",
            "FSGATHER_RANK 1",
            "FSGATHER_WORLD_SIZE 4",
            "FSGATHER_LOCAL_RANK 1",
            "FSGATHER_LOCAL_WORLD_SIZE 2",
            "FSGATHER_JOIN_TIMEOUT 30s",
            "FSGATHER_TIMEOUT 2h",
            "FSGATHER_PORT 60001-60999",
            "FSGATHER_INTERFACE ib,^ib1",
            "FSGATHER_INLINE_LIMIT 4.0 KiB",
            "FSGATHER_SHARED_MEMORY 1MiB",
            "FSGATHER_COMPRESS zstd",
            "FSGATHER_VERIFY off",
            "FSGATHER_LOG fsgather=debug",
            "FSGATHER_STACKS 0",
            "FSGATHER_TRACE always",
            "FSGATHER_PROGRESS off",
        ]
    );
    let given = Secret::new([0x5a; 32]);
    assert_eq!(settings.secret.value, Some(SecretSetting::Given(given)));
}

#[test]
fn every_variable_is_shown_with_its_setting() {
    let shown: BTreeSet<&str> = resolve(&[]).entries().iter().map(|entry| entry.0).collect();
    let known: BTreeSet<&str> = environment::own_names()
        // Shown as the origin of the secret.
        .filter(|name| *name != environment::SECRET_FILE)
        .collect();
    assert_eq!(shown, known);
}

#[test]
fn wrong_values_are_named_with_an_example_that_works() {
    for (name, wrong) in [
        ("FSGATHER_DIR_MODE", "0777"),
        ("FSGATHER_TRANSPORT", "nfs"),
        ("FSGATHER_ROOT_ONLY", "true"),
        ("FSGATHER_CONTROL", "udp"),
        ("FSGATHER_ENCRYPT", "yes"),
        ("FSGATHER_RENDEZVOUS", "node1:5"),
        ("FSGATHER_JOIN_TIMEOUT", "30"),
        ("FSGATHER_JOIN_TIMEOUT", "0"),
        ("FSGATHER_TIMEOUT", "0s"),
        ("FSGATHER_TIMEOUT", "5 parsecs"),
        ("FSGATHER_PORT", "60999-60001"),
        ("FSGATHER_INTERFACE", "10.0.0.0/64"),
        ("FSGATHER_INLINE_LIMIT", "64 pages"),
        ("FSGATHER_COMPRESS", "gzip"),
        ("FSGATHER_VERIFY", "never"),
        ("FSGATHER_COMPRESS", "zstd:3"),
        ("FSGATHER_STACKS", "off"),
        ("FSGATHER_TRACE", "on"),
        ("FSGATHER_PROGRESS", "on"),
    ] {
        let message = refused(name, wrong);
        assert!(
            message.starts_with(&format!("{name}={wrong:?} ")),
            "{message}"
        );
        let (_, example) = message.split_once("; a right one is ").unwrap();
        let pair = example.split_once('=').unwrap();
        assert_eq!(pair.0, name);
        let settings = resolve(&[pair]);
        assert!(
            settings
                .entries()
                .iter()
                .any(|entry| entry.2 == Origin::Variable(known(name))),
            "{example}"
        );
    }
}

fn known(name: &str) -> &'static str {
    environment::own_names().find(|own| *own == name).unwrap()
}

#[test]
fn a_wrong_secret_is_not_shown() {
    let message = refused("FSGATHER_SECRET", "hunter2-hunter2");
    assert!(message.contains("FSGATHER_SECRET"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    let settings = resolve(&[("FSGATHER_SECRET", &"5a".repeat(32))]);
    assert!(!format!("{settings:?}{:?}", settings.entries()).contains("5a5a"));
}

#[test]
fn a_secret_wins_over_a_file_with_one() {
    let file = ("FSGATHER_SECRET_FILE", "/run/secret");
    let settings = resolve(&[file]);
    assert_eq!(
        settings.secret,
        Setting::variable(
            Some(SecretSetting::File("/run/secret".into())),
            environment::SECRET_FILE
        )
    );
    let both = resolve(&[file, ("FSGATHER_SECRET", &"00".repeat(32))]);
    assert_eq!(both.secret.origin, Origin::Variable("FSGATHER_SECRET"));
}

#[test]
fn our_own_names_win_over_the_originals() {
    let settings = resolve(&[
        ("EXP_DIR", "/old"),
        ("MDETR_FILESYS_REDUCE", "1"),
        ("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1"),
    ]);
    assert_eq!(
        settings.directory,
        Setting::variable(Some("/old".into()), "EXP_DIR")
    );
    assert_eq!(
        settings.transport,
        Setting::variable(Transport::Filesys, "MDETR_FILESYS_REDUCE")
    );
    assert_eq!(
        settings.root_only,
        Setting::variable(true, "MDETR_FILESYS_REDUCE_RANK_0_ONLY")
    );
    let settings = resolve(&[
        ("EXP_DIR", "/old"),
        ("FSGATHER_DIR", "/new"),
        ("MDETR_FILESYS_REDUCE", "1"),
        ("MDETR_CPU_REDUCE", "1"),
        ("FSGATHER_TRANSPORT", "auto"),
        ("MDETR_FILESYS_REDUCE_RANK_0_ONLY", "1"),
        ("FSGATHER_ROOT_ONLY", "0"),
    ]);
    assert_eq!(
        settings.directory,
        Setting::variable(Some("/new".into()), "FSGATHER_DIR")
    );
    assert_eq!(
        settings.transport,
        Setting::variable(Transport::Auto, "FSGATHER_TRANSPORT")
    );
    assert_eq!(
        settings.root_only,
        Setting::variable(false, "FSGATHER_ROOT_ONLY")
    );
}

#[test]
fn of_the_originals_switches_the_file_system_goes_first() {
    let both = [("MDETR_CPU_REDUCE", "1"), ("MDETR_FILESYS_REDUCE", "1")];
    assert_eq!(resolve(&both).transport.value, Transport::Filesys);
    assert_eq!(resolve(&both[..1]).transport.value, Transport::Memory);
}

#[test]
fn empty_values_count_as_not_set() {
    let all: Variables = environment::known().map(|(_, name)| (name, "")).collect();
    assert_eq!(Settings::resolve(&all).unwrap(), resolve(&[]));
}

#[test]
fn the_job_is_ours_or_else_the_launchers() {
    let flux = [
        ("FLUX_TASK_RANK", "0"),
        ("FLUX_JOB_SIZE", "2"),
        ("FLUX_JOB_ID", "f9"),
    ];
    let settings = resolve(&flux);
    assert_eq!(settings.job.value.as_deref(), Some("f9"));
    assert_eq!(settings.job.origin, Origin::Launcher(Family::Flux));
    let mut named = flux.to_vec();
    named.push(("FSGATHER_JOB", "mine"));
    let settings = resolve(&named);
    assert_eq!(
        settings.job,
        Setting::variable(Some("mine".into()), "FSGATHER_JOB")
    );
    let settings = resolve(&[("FSGATHER_JOB", "none")]);
    assert_eq!(settings.job, Setting::variable(None, "FSGATHER_JOB"));
}

#[test]
fn local_numbers_are_shown_by_who_said_them() {
    let settings = resolve(&[
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("FSGATHER_LOCAL_WORLD_SIZE", "4"),
    ]);
    let origins: Vec<(&str, Origin)> = settings
        .entries()
        .into_iter()
        .filter(|(name, _, _)| name.ends_with("RANK") || name.ends_with("SIZE"))
        .map(|(name, _, origin)| (name, origin))
        .collect();
    let torchrun = Origin::Launcher(Family::Torchrun);
    assert_eq!(
        origins,
        [
            (environment::RANK, torchrun),
            (environment::WORLD_SIZE, torchrun),
            (environment::LOCAL_RANK, torchrun),
            (
                environment::LOCAL_WORLD_SIZE,
                Origin::Variable(environment::LOCAL_WORLD_SIZE)
            ),
        ]
    );
}

#[test]
fn keys_hold_what_all_ranks_know_alike() {
    let of_rank = |rank: &str| {
        resolve(&[
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", rank),
            ("MASTER_ADDR", "n1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("TORCHELASTIC_RESTART_COUNT", "1"),
        ])
        .job_key(1000, 3)
    };
    assert_eq!(of_rank("0"), of_rank("1"));
    assert_eq!(
        of_rank("0"),
        JobKey {
            uid: 1000,
            family: "torchrun".into(),
            job: None,
            launch: None,
            attempt: None,
            world_size: WorldSize::new(2).unwrap(),
            number: 3,
            master: Some("n1:29500".into()),
        }
    );
}

#[test]
fn torchrun_agents_with_different_restarts_share_a_key() {
    let key = |rank: u32, count: u32| {
        resolve(&[
            ("RANK", rank.to_string().as_str()),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "n1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "job"),
            ("TORCHELASTIC_RESTART_COUNT", count.to_string().as_str()),
        ])
        .job_key(1000, 0)
    };
    // Every order in which four restarts are counted by one agent, the other, or both.
    for order in 0..3_u32.pow(4) {
        let mut counts = [0, 0];
        let mut rest = order;
        for _ in 0..4 {
            match rest % 3 {
                0 => counts[0] += 1,
                1 => counts[1] += 1,
                _ => counts = counts.map(|count| count + 1),
            }
            rest /= 3;
            assert_eq!(key(0, counts[0]), key(1, counts[1]), "{counts:?}");
        }
    }
}

#[test]
fn only_ids_of_one_job_at_a_time_are_its_own() {
    for (expected, variables) in [
        (false, "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=2"),
        // Somebody has given another job this name, perhaps.
        (
            false,
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=2 FSGATHER_JOB=j",
        ),
        (
            false,
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=2 FSGATHER_JOB=none",
        ),
        (false, "PMI_RANK=0 PMI_SIZE=2"),
        (false, "PMI_RANK=0 PMI_SIZE=2 SLURM_JOB_ID=3"),
        (true, "PMI_RANK=0 PMI_SIZE=2 I_MPI_HYDRA_UUID=u"),
        (false, "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2"),
        (
            true,
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=n",
        ),
        (false, "RANK=0 WORLD_SIZE=2"),
        (
            false,
            "RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500",
        ),
        (
            true,
            "RANK=0 WORLD_SIZE=2 MASTER_ADDR=job-master-0 MASTER_PORT=23456",
        ),
        (
            true,
            "RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 TORCHELASTIC_RUN_ID=none",
        ),
        // Passed on under another name.
        (
            true,
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=n",
        ),
        (
            false,
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=n",
        ),
    ] {
        let pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
        let pairs: Vec<_> = pairs.collect();
        assert_eq!(
            resolve(&pairs).detection.has_own_id,
            expected,
            "{variables}"
        );
    }
}

#[test]
fn explicit_ranks_need_no_launcher() {
    let variables = Variables::from_iter([("WORLD_SIZE", "8"), ("FSGATHER_TIMEOUT", "1h")]);
    assert!(Settings::resolve(&variables).is_err());
    let world_size = WorldSize::new(2).unwrap();
    let settings = Settings::resolve_as(Rank::new(1), world_size, &variables).unwrap();
    assert_eq!(settings.detection.rank, Rank::new(1));
    assert_eq!(settings.timeout.value.as_secs(), 3600);
    let entries = settings.entries();
    let rank = entries.iter().find(|entry| entry.0 == environment::RANK);
    assert_eq!(rank.unwrap().2, Origin::Argument);
}

#[test]
fn explicit_ranks_of_a_launcher_with_one_host_are_on_that_host() {
    let torchrun = |local: &'static str| {
        Variables::from_iter([
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", local),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("MASTER_ADDR", "n1"),
            ("MASTER_PORT", "29500"),
        ])
    };
    let group = |ranks, local| {
        let world_size = WorldSize::new(ranks).unwrap();
        let settings = Settings::resolve_as(Rank::new(1), world_size, &torchrun(local));
        settings.unwrap().detection.is_on_one_host()
    };
    assert!(group(4, "4") && group(2, "4"));
    assert!(!group(4, "2") && !group(5, "4"));
}

#[test]
fn inline_payloads_of_all_ranks_together_are_bounded() {
    let world = |ranks| WorldSize::new(ranks).unwrap();
    let settings = resolve(&[]);
    assert_eq!(settings.inline_bound(world(1)), 65_536);
    assert_eq!(settings.inline_bound(world(64)), 65_536);
    assert_eq!(settings.inline_bound(world(128)), 32_768);
    let settings = resolve(&[("FSGATHER_INLINE_LIMIT", "1GiB")]);
    assert_eq!(settings.inline_bound(world(2)), 2 << 20);
    let settings = resolve(&[("FSGATHER_INLINE_LIMIT", "0")]);
    assert_eq!(settings.inline_bound(world(2)), 0);
    let shown = |ranks| {
        let settings = Settings::resolve_as(Rank::ZERO, world(ranks), &Variables::default());
        let entries = settings.unwrap().entries().into_iter();
        let mut limits = entries.filter(|entry| entry.0 == environment::INLINE_LIMIT);
        limits.next().unwrap().1
    };
    assert_eq!(shown(64), "64.0 KiB");
    assert_eq!(shown(128), "64.0 KiB, but 32.0 KiB in a world of 128");
}

#[test]
fn unknown_names_are_worth_a_warning_and_no_error() {
    let settings = resolve(&[
        ("FSGATHER_DRI", "/x"),
        ("FSGATHER_PATCH", "torch"),
        ("FSGATHER_PICKLE", "0"),
    ]);
    assert_eq!(settings.warnings.len(), 1, "{:?}", settings.warnings);
}

proptest! {
    #[test]
    fn any_environment_resolves_or_is_refused_by_name(
        at in 0..environment::own_names().count(),
        text in "\\PC{1,16}|[0-9]{1,6}[a-zA-Z]{0,3}",
    ) {
        let name = environment::own_names().nth(at).unwrap();
        if let Err(error) = Settings::resolve(&Variables::from_iter([(name, text)])) {
            let config = matches!(error, Error::Config { .. });
            prop_assert!(config);
            prop_assert!(error.to_string().contains(name), "{}", error);
        }
    }
}
