//! Judges the facts of one rank by themselves: [`findings`].

use crate::doctor::{
    advice::{MEND, NAME_ANOTHER, SHARE},
    facts::{DirectoryFacts, RankFacts},
    finding::{Finding, Level, Topic},
};

pub(super) fn findings(facts: &RankFacts) -> Vec<Finding> {
    let mut findings = settings(facts);
    findings.extend(launcher(facts));
    findings.extend(limits(facts));
    findings.extend(kernel(facts));
    findings.extend(network(facts));
    match &facts.directory {
        Some(directory) => findings.extend(of_directory(directory)),
        None => findings.push(Finding::note(
            Topic::Directory,
            "no directory is used: FSGATHER_TRANSPORT=memory and FSGATHER_RENDEZVOUS=tcp://... are set",
        )),
    }
    findings
}

fn settings(facts: &RankFacts) -> Vec<Finding> {
    let wrong = facts.wrong_settings.iter();
    let mut findings: Vec<Finding> = wrong
        .map(|wrong| Finding::error(Topic::Settings, wrong, MEND))
        .collect();
    let unknown = facts.unknown_variables.iter();
    findings.extend(unknown.map(|unknown| unknown_variable(unknown)));
    if findings.is_empty() {
        findings.push(Finding::ok(Topic::Settings, "every variable is understood"));
    }
    findings
}

pub(super) fn unknown_variable(warning: &str) -> Finding {
    let advice = "unset it, or write the name that was meant";
    Finding::warning(Topic::Settings, warning, advice)
}

fn launcher(facts: &RankFacts) -> Vec<Finding> {
    let launcher = &facts.launcher;
    let is_alone = launcher.family == "none";
    // The rank differs from process to process, and is reported elsewhere.
    let chosen = match launcher.chosen.split_once(", ") {
        Some((who, by)) if who.starts_with("rank ") => {
            let ranks = super::text::counted(facts.world_size as usize, "rank");
            format!("{ranks}, {by}")
        }
        _ => launcher.chosen.clone(),
    };
    let mut findings = vec![Finding::ok(Topic::Launcher, chosen)];
    findings.extend(launcher.notes.iter().map(|note| {
        let finding = Finding::note(Topic::Launcher, note);
        if is_alone && note.starts_with("ignored") {
            finding.advise("if this is to be one of several ranks, start it with the launcher: srun, mpirun, torchrun")
        } else {
            finding
        }
    }));
    findings
}

fn limits(facts: &RankFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let limits = &facts.limits;
    let needed = limits.open_files_needed;
    // Only rank 0 has a connection to all other ranks.
    if let (Some(allowed), 0) = (limits.open_files, facts.rank) {
        findings.push(if allowed < needed {
            Finding::problem(
                Topic::Limits,
                format!(
                    "rank 0 may have {allowed} files open, and needs {needed} in a world of {}",
                    facts.world_size
                ),
                &format!("ulimit -n {needed} before the job is started"),
            )
        } else {
            let most = allowed.saturating_sub(needed - 2 * u64::from(facts.world_size)) / 2;
            Finding::ok(
                Topic::Limits,
                format!("{allowed} open files are enough for a world of up to {most} ranks"),
            )
        });
    }
    if let Some(bytes) = limits.file_bytes {
        findings.push(Finding::warning(
            Topic::Limits,
            format!(
                "no file may become longer than {}: larger payloads go through rank 0, which is slower",
                fsgather_core::bytes_text(bytes)
            ),
            "ulimit -f unlimited before the job is started",
        ));
    }
    if let Some(bytes) = limits.address_bytes {
        findings.push(Finding::note(
            Topic::Limits,
            format!(
                "this process may use {} of address space, of which payloads take a part when they are read",
                fsgather_core::bytes_text(bytes)
            ),
        ));
    }
    findings
}

/// The oldest release of Linux that has all system calls for which there is no replacement.
const OLDEST_KERNEL: (u32, u32) = (3, 2);

/// The first release with `statx`, which asks a file server again.
const STATX_KERNEL: (u32, u32) = (4, 11);

fn kernel(facts: &RankFacts) -> Option<Finding> {
    let release = version(&facts.kernel)?;
    let is_on_server = facts.directory.as_ref().is_some_and(|directory| {
        let class = directory.class.as_deref();
        class == Some("network")
    });
    let kernel = format!("Linux {}", facts.kernel);
    if release < OLDEST_KERNEL {
        let (major, minor) = OLDEST_KERNEL;
        Some(Finding::warning(
            Topic::Limits,
            format!("{kernel} is older than {major}.{minor}, the oldest that is supported"),
            "use hosts with a newer kernel",
        ))
    } else if release < STATX_KERNEL && is_on_server {
        Some(Finding::note(
            Topic::Limits,
            format!("{kernel} has no statx: new files on a file server may be seen seconds later"),
        ))
    } else {
        None
    }
}

/// Reads the first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

fn network(facts: &RankFacts) -> Vec<Finding> {
    let network = &facts.network;
    if let Some(problem) = &network.problem {
        let topic = if problem.contains("FSGATHER_INTERFACE") {
            Topic::Settings
        } else {
            Topic::Network
        };
        let advice =
            "name an interface or an address block that this host has with FSGATHER_INTERFACE";
        return vec![Finding::problem(topic, problem, advice)];
    }
    let mut findings = Vec::new();
    let is_loopback = |address: &String| {
        let address: Result<std::net::IpAddr, _> = address.parse();
        address.is_ok_and(|address| address.is_loopback())
    };
    let spans_hosts = facts.launcher.spans_hosts(facts.world_size);
    if network.addresses.iter().all(is_loopback) {
        let text = "this host has no address but its own loopback";
        findings.push(if spans_hosts {
            Finding::warning(
                Topic::Network,
                text,
                "messages will go through files; set FSGATHER_CONTROL=markers to try no other way",
            )
        } else {
            Finding::note(Topic::Network, text)
        });
    } else if facts.rank == 0 {
        let mut addresses: Vec<&str> = network.addresses.iter().map(String::as_str).collect();
        addresses.retain(|address| !is_loopback(&(*address).to_owned()));
        let addresses = addresses.join(", ");
        findings.push(Finding::ok(
            Topic::Network,
            format!("rank 0 can be reached at {addresses} if nothing is in between"),
        ));
    }
    findings
}

fn of_directory(facts: &DirectoryFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let path = &facts.path;
    if let Some(step) = &facts.stuck_at {
        findings.push(Finding::problem(
            Topic::Directory,
            format!("{path} does not answer: {step} has not come back within 20 s"),
            "see whether its file server and the way there are up, or name another directory with FSGATHER_DIR",
        ));
    }
    if let Some(problem) = &facts.problem {
        findings.push(Finding::error(Topic::Directory, problem, NAME_ANOTHER));
    }
    if let (Some(file_system), None) = (&facts.file_system, &facts.problem) {
        findings.push(Finding::ok(
            Topic::Directory,
            format!("{path} is {}", facts.mounted(file_system)),
        ));
    }
    let options = |option: &str| facts.mount.as_ref().is_some_and(|mount| mount.has(option));
    if options("soft") || options("softerr") {
        findings.push(Finding::warning(
            Topic::Directory,
            "it is mounted soft: a server that is slow for a while gives errors, and may lose data",
            "have it mounted with the option hard",
        ));
    }
    findings.extend(super::known::findings(facts));
    // For an unusable directory, the permissions of other users do not matter.
    if let (Some(access), None) = (&facts.access, &facts.problem)
        && access.is_open_to_all
    {
        let advice = if access.uid == facts.effective_uid {
            format!("chmod +t {path}")
        } else {
            let uid = access.uid;
            format!("have its owner, uid {uid}, make it sticky (chmod +t), or {NAME_ANOTHER}")
        };
        findings.push(Finding::warning(
            Topic::Directory,
            format!(
                "anybody may remove or replace what others have in it (mode {})",
                access.mode
            ),
            &advice,
        ));
    }
    if let Some(own) = facts.own_uid
        && own != facts.effective_uid
    {
        let uid = facts.effective_uid;
        findings.push(Finding::note(
            Topic::Directory,
            format!("the file server shows files of uid {uid} as those of uid {own}"),
        ));
    }
    if facts.path.starts_with('/') || facts.path.is_empty() {
        return findings;
    }
    findings.push(
        Finding::note(
            Topic::Directory,
            format!("{path} means another directory wherever ranks have another working directory"),
        )
        .advise("name it by its whole path"),
    );
    findings
}

/// The finding that a directory is on a file system of one host, if the launcher says that ranks run on several.
pub(crate) fn cannot_be_shared(facts: &RankFacts) -> Option<Finding> {
    let directory = facts.directory.as_ref()?;
    let spans_hosts = facts.launcher.spans_hosts(facts.world_size);
    let is_local = directory.class.as_deref() == Some("local");
    not_shared(facts).filter(|_| is_local && spans_hosts)
}

/// The finding that the directory of a rank is on a file system of its host, although other hosts need it.
pub(super) fn not_shared(facts: &RankFacts) -> Option<Finding> {
    let directory = facts.directory.as_ref()?;
    let (path, host) = (&directory.path, &facts.host);
    let file_system = directory.file_system.as_deref().unwrap_or("a file system");
    let text = format!(
        "{path} is on {file_system}, a file system of {host} alone, but ranks run on several hosts"
    );
    Some(Finding::problem(Topic::Directory, text, SHARE))
}

/// Returns true if a finding only names the file system of the directory.
pub(super) fn is_about_file_system(finding: &Finding, facts: &RankFacts) -> bool {
    facts.directory.as_ref().is_some_and(|directory| {
        let stem = format!("{} is on ", directory.path);
        finding.level == Level::Ok && finding.text.starts_with(&stem)
    })
}
