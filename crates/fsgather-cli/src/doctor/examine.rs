//! Collects the facts that a rank knows by itself, before it meets the others: [`rank_facts`].

use std::{net::IpAddr, path::PathBuf};

use fsgather_control::{descriptors_needed, host_addresses::own_addresses};
use fsgather_core::{
    ProcessId, WorldSize,
    sys::{limits, process::kernel_release},
};

use super::{
    directory::{self, Depth},
    facts::{DirectoryFacts, LauncherFacts, LimitFacts, NetworkFacts, RankFacts, SettingFact},
};
use fsgather::bindings::{LocalContext, secret_file};
use fsgather_config::{
    launcher::Detection,
    settings::{Control, Origin, RendezvousSetting, SecretSetting, Settings, Transport},
};

/// Returns the facts of this rank.
pub(super) fn rank_facts(
    settings: &Settings,
    context: &LocalContext,
    process: &ProcessId,
) -> RankFacts {
    let detection = &settings.detection;
    RankFacts {
        rank: detection.rank.get(),
        world_size: detection.world_size.get(),
        host: process.host.clone(),
        pid: process.pid,
        kernel: kernel_release(),
        launcher: launcher_facts(detection),
        settings: setting_facts(settings),
        unknown_variables: settings.warnings.clone(),
        wrong_settings: wrong_settings(settings),
        limits: limit_facts(detection.world_size),
        network: network(settings),
        directory: directory_facts(settings, context),
    }
}

fn launcher_facts(detection: &Detection) -> LauncherFacts {
    let mut notes = detection.notes.iter().cloned();
    let mut hosts = detection.hosts.clone();
    hosts.sort();
    hosts.dedup();
    LauncherFacts {
        family: detection.family.key().into(),
        chosen: notes.next().unwrap_or_default(),
        notes: notes.collect(),
        local_size: detection.local_size,
        hosts: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
    }
}

fn setting_facts(settings: &Settings) -> Vec<SettingFact> {
    let entries = settings.entries().into_iter();
    entries
        .map(|(name, value, origin)| SettingFact {
            name: name.into(),
            value,
            origin: origin_text(origin),
        })
        .collect()
}

fn origin_text(origin: Origin) -> String {
    match origin {
        Origin::Launcher(family) => family.key().into(),
        other => other.to_string(),
    }
}

/// Settings that are valid on their own, but cannot be used, alone or together.
fn wrong_settings(settings: &Settings) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(RendezvousSetting::Tcp { .. }) = &settings.rendezvous.value {
        if settings.control.value == Control::Markers {
            wrong.push(
                "FSGATHER_CONTROL=markers needs a directory in which ranks meet, but FSGATHER_RENDEZVOUS names \
                 an address; unset one of the two"
                    .into(),
            );
        }
        if let Some(SecretSetting::File(path)) = &settings.secret.value
            && let Err(error) = secret_file::read(path)
        {
            wrong.push(format!(
                "{error}; give a file with what this prints: openssl rand -hex 32"
            ));
        }
    }
    wrong
}

fn limit_facts(world_size: WorldSize) -> LimitFacts {
    LimitFacts {
        // A rank raises its soft limit.
        open_files: limits::open_files().hard,
        open_files_needed: descriptors_needed(world_size),
        file_bytes: limits::file_bytes(),
        address_bytes: limits::address_bytes(),
    }
}

fn network(settings: &Settings) -> NetworkFacts {
    let interfaces = settings.interfaces.value.clone();
    match own_addresses(&move |name: &str, address: IpAddr| interfaces.matches(name, address)) {
        Ok(addresses) => NetworkFacts {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            problem: None,
        },
        Err(error) => NetworkFacts {
            addresses: Vec::new(),
            problem: Some(error.to_string()),
        },
    }
}

/// The directory of these settings, as far as one rank can know; none if they use none.
fn directory_facts(settings: &Settings, context: &LocalContext) -> Option<DirectoryFacts> {
    let named = settings.directory.origin == Origin::Argument;
    let meets_elsewhere = matches!(
        settings.rendezvous.value,
        Some(RendezvousSetting::Tcp { .. })
    );
    if meets_elsewhere && settings.transport.value == Transport::Memory && !named {
        return None;
    }
    let is_root = settings.detection.rank.get() == 0;
    let depth = match (settings.detection.world_size.is_solo(), is_root) {
        (true, _) => Depth::Alone,
        (false, true) => Depth::Thorough,
        (false, false) => Depth::Brief,
    };
    let path: PathBuf = match context.choose(settings.detection.is_on_one_host()) {
        Ok(path) => path,
        Err(error) => {
            return Some(DirectoryFacts {
                problem: Some(error.to_string()),
                ..DirectoryFacts::default()
            });
        }
    };
    let origin = origin_text(settings.directory.origin);
    Some(directory::examine(&path, origin, context, depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fsgather_config::environment::Variables;

    fn of(pairs: &[(&str, &str)]) -> RankFacts {
        let settings = Settings::resolve(&pairs.iter().copied().collect::<Variables>()).unwrap();
        let context = LocalContext::of(&settings, rustix::process::geteuid().as_raw());
        rank_facts(
            &settings,
            &context,
            &fsgather_store::this_process().unwrap(),
        )
    }

    #[test]
    fn a_rank_tells_who_it_is_and_every_setting_with_its_origin() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_str().unwrap();
        let facts = of(&[
            ("FSGATHER_DIR", path),
            ("RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("SLURM_PROCID", "0"),
            ("FSGATHER_DRI", "/x"),
        ]);
        assert_eq!(
            (facts.rank, facts.world_size, facts.pid),
            (1, 4, std::process::id())
        );
        assert_eq!(facts.launcher.family, "torchrun");
        assert!(facts.launcher.spans_hosts(facts.world_size));
        assert!(
            facts
                .launcher
                .notes
                .iter()
                .any(|note| note.contains("Slurm"))
        );
        assert_eq!(facts.unknown_variables.len(), 1);
        assert_eq!(facts.limits.open_files_needed, 136);
        let shown = |name: &str| {
            let mut settings = facts.settings.iter();
            let found = settings.find(|setting| setting.name == name).unwrap();
            (found.value.as_str(), found.origin.as_str())
        };
        assert_eq!(shown("FSGATHER_DIR"), (path, "FSGATHER_DIR"));
        assert_eq!(shown("FSGATHER_WORLD_SIZE"), ("4", "torchrun"));
        assert_eq!(shown("FSGATHER_TIMEOUT"), ("30m", "default"));
        let directory = facts.directory.unwrap();
        assert_eq!((directory.path.as_str(), directory.problem), (path, None));
        // Only rank 0 tries a payload.
        assert_eq!(directory.payload, None);
    }

    #[test]
    fn what_one_launcher_says_in_the_words_of_two_is_no_news() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_str().unwrap();
        let notes = |world_size: &str| {
            let facts = of(&[
                ("FSGATHER_DIR", path),
                ("FSGATHER_RANK", "1"),
                ("FSGATHER_WORLD_SIZE", "4"),
                ("RANK", "1"),
                ("WORLD_SIZE", world_size),
            ]);
            facts.launcher.notes.join("\n")
        };
        assert_eq!(notes("4"), "");
        assert!(notes("8").contains("torchrun is there too (RANK)"));
    }

    #[test]
    fn settings_that_do_not_go_together_are_told() {
        let facts = of(&[
            ("FSGATHER_CONTROL", "markers"),
            ("FSGATHER_RENDEZVOUS", "tcp://n1:60001"),
            ("FSGATHER_TRANSPORT", "memory"),
            ("FSGATHER_SECRET_FILE", "/nowhere"),
        ]);
        assert_eq!(facts.wrong_settings.len(), 2, "{:?}", facts.wrong_settings);
        // Nor is there a directory to look at.
        assert_eq!(facts.directory, None);
    }

    #[test]
    fn interfaces_without_an_address_are_reported() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_str().unwrap();
        let facts = of(&[("FSGATHER_INTERFACE", "nothing9"), ("FSGATHER_DIR", path)]);
        let any = of(&[("FSGATHER_DIR", path)]).network.addresses;
        let is_loopback = |text: &String| {
            text.parse()
                .is_ok_and(|address: IpAddr| address.is_loopback())
        };
        if any.iter().all(is_loopback) {
            // A host without a network uses its loopback interface, even if another one is set.
            assert_eq!(facts.network.problem, None);
        } else {
            let problem = facts.network.problem.unwrap();
            assert!(problem.contains("FSGATHER_INTERFACE"), "{problem}");
        }
    }
}
