//! Judges what ranks have found out together, or why they could not: [`findings`], [`unmet`].

use std::collections::BTreeMap;

use fsgather_core::{Error, rank_ranges};

use super::{
    files::{CLOCKS, ahead_or_behind, is_off},
    numbers, rank, text,
};
use crate::{
    facts::{RankFacts, ReachFact, TrialFacts, WorldFacts},
    finding::{Finding, Level, Topic},
};

/// What to do about a directory that is not shared.
pub(super) const SHARE: &str = "name a directory on a shared file system with FSGATHER_DIR, or set FSGATHER_TRANSPORT=memory and \
     FSGATHER_RENDEZVOUS=tcp://HOST:PORT";

/// A new file that takes longer to be seen is worth a note, in seconds.
const SLOW: f64 = 1.0;

/// Settings that may differ from rank to rank.
const OWN: [&str; 5] = [
    "FSGATHER_RANK",
    "FSGATHER_LOCAL_RANK",
    "FSGATHER_LOCAL_WORLD_SIZE",
    "FSGATHER_LOG",
    "FSGATHER_PROGRESS",
];

/// Why a rank could not meet the others; or that it has not tried, because of what was found before.
pub(super) fn unmet(facts: &RankFacts, failure: Option<&Error>, before: &[Finding]) -> Finding {
    let Some(failure) = failure else {
        return Finding::note(
            Topic::Meeting,
            "not tried: a process that uses this directory would hang",
        );
    };
    let message = failure.to_string();
    let topic = topic(failure);
    let finding = Finding::error(
        topic,
        &message,
        "see that every rank shows the same directory from the same source",
    );
    let is_known = before.iter().any(|known| {
        known.level == Level::Problem && known.topic == topic && finding.text == known.text
    });
    let is_plain = matches!(failure.root_cause(), Error::Timeout { .. })
        && rank::cannot_be_shared(facts).is_some();
    if is_known || is_plain {
        let text = "the others were not met, since the directory cannot be used for that";
        return Finding::note(Topic::Meeting, text);
    }
    let doubt = match (&facts.directory, failure) {
        (Some(directory), Error::Timeout { .. }) if directory.problem.is_none() => {
            let path = &directory.path;
            let here = directory.file_system.as_ref().map(|file_system| {
                let mounted = rank::mounted(file_system, directory.mount.as_ref());
                format!("; here it is {mounted}")
            });
            format!(
                "; ranks do not find each other if {path} is not the same directory on all hosts{}",
                here.unwrap_or_default()
            )
        }
        _ => String::new(),
    };
    Finding {
        text: format!("{}{doubt}", finding.text),
        ..finding
    }
}

/// Why ranks that have met did not come to an end together.
pub(super) fn broken_off(failure: &Error) -> Finding {
    let advice = match failure.root_cause() {
        Error::Desync { .. } => "start it with the same arguments on all ranks",
        Error::PeerFailed { .. } => "see what that rank, its launcher or its host says of its end",
        _ => "see what the ranks that it names are doing",
    };
    Finding::error(topic(failure), &failure.to_string(), advice)
}

/// What a failure is about.
fn topic(failure: &Error) -> Topic {
    match failure.root_cause() {
        Error::Config { .. } => Topic::Settings,
        Error::Storage { .. } | Error::NotShared { .. } | Error::Corrupt { .. } => Topic::Directory,
        _ => Topic::Meeting,
    }
}

pub(super) fn findings(ranks: &[RankFacts], world: &WorldFacts) -> Vec<Finding> {
    let mut findings = differences(ranks);
    findings.push(meeting(ranks, world));
    findings.extend(reach(ranks, world));
    findings.extend(clocks(ranks));
    if let Some(directory) = &world.directory {
        findings.extend(sharing(ranks, world, directory));
        findings.extend(owners(ranks));
        findings.extend(sources(ranks));
        findings.extend(reading(ranks));
    }
    let all = numbers(ranks);
    findings
        .into_iter()
        .map(|finding| match finding.ranks[..] {
            [] => finding.of(all.iter().copied()),
            _ => finding,
        })
        .collect()
}

/// Settings that hold on some ranks and not on others.
fn differences(ranks: &[RankFacts]) -> Vec<Finding> {
    let mut values: BTreeMap<&str, Vec<(&str, Vec<u32>)>> = BTreeMap::new();
    for facts in ranks {
        for setting in &facts.settings {
            let known = values.entry(&setting.name).or_default();
            match known.iter_mut().find(|(value, _)| *value == setting.value) {
                Some((_, with)) => with.push(facts.rank),
                None => known.push((&setting.value, vec![facts.rank])),
            }
        }
    }
    let differing = values
        .into_iter()
        .filter(|(name, values)| values.len() > 1 && !OWN.contains(name));
    differing
        .map(|(name, values)| {
            let told: Vec<String> = values
                .iter()
                .map(|(value, with)| {
                    let word = if with.len() == 1 { "rank" } else { "ranks" };
                    format!("{value} on {word} {}", rank_ranges(with))
                })
                .collect();
            Finding::warning(
                Topic::Settings,
                format!("{name} differs: {}", told.join("; ")),
                "set it alike on all ranks; where they have to agree, rank 0's counts",
            )
        })
        .collect()
}

fn meeting(ranks: &[RankFacts], world: &WorldFacts) -> Finding {
    let hosts = text::hosts(ranks, |_| true).len();
    let who = format!(
        "{} on {} have met within {}",
        text::count(ranks.len(), "rank"),
        text::count(hosts, "host"),
        text::seconds(world.met_seconds)
    );
    if world.carrier == "tcp" {
        return Finding::ok(Topic::Meeting, format!("{who} and talk over TCP"));
    }
    let text = format!("{who} and talk through marker files");
    let asked = ranks.first().is_some_and(|root| {
        let mut settings = root.settings.iter();
        settings.any(|setting| setting.name == "FSGATHER_CONTROL" && setting.value == "markers")
    });
    if asked {
        Finding::ok(Topic::Meeting, text)
    } else {
        Finding::warning(
            Topic::Meeting,
            format!("{text}, since TCP does not work between all of them"),
            "files are slower: set FSGATHER_INTERFACE to the network that all hosts share, or \
             FSGATHER_CONTROL=markers to save the time of trying",
        )
    }
}

fn reach(ranks: &[RankFacts], world: &WorldFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut slowest: Option<f64> = None;
    let mut addresses: Vec<String> = Vec::new();
    for facts in ranks {
        let trial = facts.trial.as_ref();
        let Some(reach) = trial.and_then(|trial| trial.reach.as_ref()) else {
            continue;
        };
        let (open, shut): (Vec<&ReachFact>, Vec<&ReachFact>) =
            reach.iter().partition(|fact| fact.seconds.is_some());
        for fact in &open {
            if !addresses.contains(&fact.address) {
                addresses.push(fact.address.clone());
            }
        }
        let times = open.iter().filter_map(|fact| fact.seconds);
        slowest = times.chain(slowest).reduce(f64::max);
        let list = |facts: &[&ReachFact]| {
            let texts = facts.iter().map(|fact| match &fact.problem {
                Some(problem) => format!("{}: {problem}", fact.address),
                None => fact.address.clone(),
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        if open.is_empty() {
            let tried = if shut.is_empty() {
                "it has no address by which it is known here".to_owned()
            } else {
                format!("tried {}", list(&shut))
            };
            let text = format!("rank 0 cannot be reached over TCP from here: {tried}");
            let advice = "let hosts reach each other on the ports of FSGATHER_PORT, set FSGATHER_INTERFACE to the network \
                          that all share, or FSGATHER_CONTROL=markers";
            findings.push(Finding::warning(Topic::Network, text, advice).of([facts.rank]));
        } else if !shut.is_empty() {
            let text = format!(
                "rank 0 is reached at {}, but not at {}",
                list(&open),
                list(&shut)
            );
            let advice = "set FSGATHER_INTERFACE to the network that all hosts share, so that nothing else is tried";
            let finding = Finding::note(Topic::Network, text).advise(advice);
            findings.push(finding.of([facts.rank]));
        }
    }
    if findings.is_empty()
        && let Some(slowest) = slowest
    {
        let within = text::seconds(slowest);
        let addresses = addresses.join(", ");
        let text = format!("rank 0 is reached at all its addresses within {within}: {addresses}");
        findings.push(Finding::ok(Topic::Network, text));
    }
    if world.tried_other_port && !findings.is_empty() {
        findings.push(Finding::note(
            Topic::Network,
            "addresses were tried at another port than those of FSGATHER_PORT, which the ranks themselves use now",
        ));
    }
    findings
}

fn clocks(ranks: &[RankFacts]) -> Vec<Finding> {
    let clock = |facts: &RankFacts| facts.trial.as_ref()?.clock;
    let root = ranks.first().map_or("rank 0", |facts| facts.host.as_str());
    let off: Vec<Finding> = super::each(ranks, |facts| match clock(facts) {
        Some(clock) if is_off(clock) => {
            let off = ahead_or_behind(clock);
            let text = format!("this host's clock is {off} of that of {root}, where rank 0 is");
            vec![Finding::note(Topic::Network, text).advise(CLOCKS)]
        }
        _ => Vec::new(),
    });
    if !off.is_empty() {
        return off;
    }
    let spans = text::hosts(ranks, |_| true).len() > 1;
    let worst = ranks
        .iter()
        .filter_map(clock)
        .map(|clock| clock.ahead_seconds.abs() + clock.uncertainty_seconds)
        .reduce(f64::max);
    match worst {
        Some(worst) if spans => {
            let within = text::seconds(worst);
            let text = format!("clocks of hosts agree to within {within}");
            vec![Finding::ok(Topic::Network, text)]
        }
        _ => Vec::new(),
    }
}

/// Whether all ranks see one directory, and how soon.
fn sharing(ranks: &[RankFacts], world: &WorldFacts, directory: &str) -> Vec<Finding> {
    if let Some(problem) = &world.problem {
        let finding = Finding::error(Topic::Directory, problem, SHARE);
        return vec![finding.of([0])];
    }
    let blind = |facts: &RankFacts| world.blind.contains(&facts.rank);
    if !world.blind.is_empty() {
        let hosts = text::hosts_of(ranks, blind);
        let reason = world
            .blind_reason
            .as_deref()
            .unwrap_or("files are not seen");
        let text = format!("{directory} is not shared between all ranks: {reason} ({hosts})");
        let finding = Finding::problem(Topic::Directory, text, SHARE);
        return vec![finding.of(world.blind.iter().copied())];
    }
    let mut findings = problems(ranks, |trial| trial.problem.as_ref());
    if world.sees_same_mounts {
        findings.push(Finding::ok(
            Topic::Directory,
            format!("all ranks see the same mounts, and so the same {directory}"),
        ));
        return findings;
    }
    let probers = |facts: &RankFacts| facts.trial.as_ref().is_some_and(|trial| trial.is_prober);
    let hosts = text::hosts_of(ranks, probers);
    findings.push(Finding::ok(
        Topic::Directory,
        format!(
            "{directory} is one directory for all: each of {hosts} has read what the others wrote"
        ),
    ));
    findings.extend(seeing(ranks));
    findings
}

/// How soon new files are seen, once clients have looked at a directory.
fn seeing(ranks: &[RankFacts]) -> Vec<Finding> {
    let others = ranks.iter().filter(|facts| {
        let is_prober = facts.trial.as_ref().is_some_and(|trial| trial.is_prober);
        is_prober && facts.rank > 0
    });
    let mut slowest: Option<f64> = None;
    let mut findings = Vec::new();
    for facts in others {
        let Some(trial) = &facts.trial else { continue };
        let both = [trial.saw_rank_0_seconds, trial.seen_by_rank_0_seconds];
        if both.iter().any(Option::is_none) {
            let text = "new files take longer than 10 s to be seen between here and rank 0, in one direction or both";
            let advice = "readers ask for 90 s, so it works, but slowly: see which attributes the mount caches (actimeo, \
                          lookupcache)";
            findings.push(Finding::warning(Topic::Directory, text, advice).of([facts.rank]));
        }
        slowest = both.into_iter().flatten().chain(slowest).reduce(f64::max);
    }
    if let Some(slowest) = slowest {
        let text = format!(
            "a new file is seen by the other hosts within {}",
            text::seconds(slowest)
        );
        findings.push(if slowest < SLOW {
            Finding::ok(Topic::Directory, text)
        } else {
            Finding::note(Topic::Directory, text)
        });
    }
    findings
}

/// Ranks whose files belong to others would not read each other's.
fn owners(ranks: &[RankFacts]) -> Option<Finding> {
    let mut uids: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for facts in ranks {
        if let Some(own) = facts
            .directory
            .as_ref()
            .and_then(|directory| directory.own_uid)
        {
            uids.entry(own).or_default().push(facts.rank);
        }
    }
    if uids.len() < 2 {
        return None;
    }
    let told: Vec<String> = uids
        .iter()
        .map(|(uid, with)| format!("uid {uid} owns those of ranks {}", rank_ranges(with)))
        .collect();
    Some(Finding::problem(
        Topic::Directory,
        format!(
            "files of ranks belong to different users: {}",
            told.join(", ")
        ),
        "run all ranks as one user, whom the file server knows by one number",
    ))
}

/// Where hosts have the directory from, if that differs.
fn sources(ranks: &[RankFacts]) -> Vec<Finding> {
    let source = |facts: &RankFacts| {
        let directory = facts.directory.as_ref()?;
        let mount = directory.mount.as_ref()?;
        Some((mount.kind.clone(), mount.source.clone()))
    };
    let first = ranks.iter().find_map(source);
    if ranks
        .iter()
        .filter_map(source)
        .all(|found| Some(found) == first)
    {
        return Vec::new();
    }
    let mut told: Vec<(String, String)> = Vec::new();
    for facts in ranks {
        let Some(directory) = &facts.directory else {
            continue;
        };
        let file_system = directory.file_system.as_deref().unwrap_or_default();
        let where_from = rank::mounted(file_system, directory.mount.as_ref());
        let entry = (facts.host.clone(), where_from);
        if !told.contains(&entry) {
            told.push(entry);
        }
    }
    let told: Vec<String> = told
        .iter()
        .map(|(host, text)| format!("{host} {text}"))
        .collect();
    vec![Finding::note(
        Topic::Directory,
        format!(
            "hosts mount the directory from different places: {}",
            told.join("; ")
        ),
    )]
}

fn reading(ranks: &[RankFacts]) -> Vec<Finding> {
    problems(ranks, |trial| trial.read_problem.as_ref())
}

/// What ranks have met with in trying the directory.
fn problems(
    ranks: &[RankFacts],
    problem_of: impl Fn(&TrialFacts) -> Option<&String>,
) -> Vec<Finding> {
    super::each(ranks, |facts| {
        let problem = facts.trial.as_ref().and_then(&problem_of);
        let advice = "name another directory with FSGATHER_DIR";
        problem
            .map(|problem| Finding::error(Topic::Directory, problem, advice))
            .into_iter()
            .collect()
    })
}
