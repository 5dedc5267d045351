//! Judges facts, and gives advice. Pure: facts in, findings out.
//!
//! A finding that holds for several ranks in the same words is reported once, with all of them.

mod calls;
mod files;
mod known;
mod rank;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use fsgather_core::Error;

use super::{
    advice::{MEND, NAME_ANOTHER, SHARE},
    facts::{RankFacts, WorldFacts, hosts, is_on_one_host_only, numbers},
    finding::{Finding, Level, Topic},
};

pub(super) use rank::cannot_be_shared;
pub(crate) use text::counted;

/// Judges variables that cannot be read, and unknown ones.
pub(super) fn wrong_settings(errors: &[Error], unknown: &[String]) -> Vec<Finding> {
    let errors = errors.iter().map(ToString::to_string);
    errors
        .map(|error| Finding::error(Topic::Settings, &error, MEND))
        .chain(
            unknown
                .iter()
                .map(|unknown| rank::unknown_variable(unknown)),
        )
        .collect()
}

/// Judges a process that runs alone.
pub(super) fn alone(facts: &RankFacts, is_to_make_calls: bool) -> Vec<Finding> {
    let ranks = std::slice::from_ref(facts);
    let mut findings = of_ranks(ranks);
    let place = match &facts.directory {
        Some(directory) => format!("other hosts see {}", directory.path),
        None => "other hosts can be reached".into(),
    };
    let named = match &facts.directory {
        Some(directory) if directory.origin == "argument" => format!(" {}", directory.path),
        _ => String::new(),
    };
    if is_to_make_calls {
        findings.push(calls::alone().of([facts.rank]));
    }
    findings.push(
        Finding::note(
            Topic::Meeting,
            format!(
                "this process is alone: only several ranks can find out whether {place}, and whether ranks \
                 reach each other"
            ),
        )
        .advise(format!(
            "start it as the job is started: srun fsgather doctor{named}, mpirun fsgather doctor{named}, \
             or on this host fsgather run -n 2 -- fsgather doctor{named}"
        ))
        .of([facts.rank]),
    );
    in_order(findings)
}

/// Judges a rank that could not meet the others or lost them, and the failure if there was one.
pub(super) fn one_of_several(
    facts: &RankFacts,
    failure: Option<&Error>,
    has_met: bool,
) -> Vec<Finding> {
    let mut findings = of_ranks(std::slice::from_ref(facts));
    if let Some(finding) = cannot_be_shared(facts).filter(|_| !has_met) {
        findings.retain(|known| !rank::is_about_file_system(known, facts));
        findings.push(finding.of([facts.rank]));
    }
    let last = match failure {
        None => Finding::note(
            Topic::Meeting,
            "not tried: a process that uses this directory would hang",
        ),
        Some(failure) => {
            let finding = self::failure(failure);
            let is_known = findings
                .iter()
                .any(|known| known.level == Level::Problem && known.topic == Topic::Directory);
            if !has_met && is_known {
                let text = "the ranks did not meet, because the directory cannot be used";
                Finding::note(Topic::Meeting, text)
            } else if !has_met && matches!(failure.root_cause(), Error::Timeout { .. }) {
                in_doubt(finding, facts)
            } else {
                finding
            }
        }
    };
    findings.push(last.of([facts.rank]));
    in_order(findings)
}

/// Adds to a failed meeting that the directory may differ between hosts.
fn in_doubt(finding: Finding, facts: &RankFacts) -> Finding {
    let Some(directory) = &facts.directory else {
        return finding;
    };
    let path = &directory.path;
    let here = directory.file_system.as_ref().map(|file_system| {
        let mounted = directory.mounted(file_system);
        format!("; here it is {mounted}")
    });
    let text = format!(
        "{}; ranks do not find each other if {path} is not the same directory on all hosts{}",
        finding.text,
        here.unwrap_or_default()
    );
    Finding { text, ..finding }
}

/// The problem that an error describes.
pub(super) fn failure(failure: &Error) -> Finding {
    let (topic, advice) = match failure.root_cause() {
        Error::Config { .. } => (Topic::Settings, MEND),
        Error::NotShared { .. } => (Topic::Directory, SHARE),
        Error::Storage { .. } | Error::Corrupt { .. } => (Topic::Directory, NAME_ANOTHER),
        Error::PeerFailed { .. } => (
            Topic::Meeting,
            "see what that rank, its launcher or its host reports about its end",
        ),
        _ => (
            Topic::Meeting,
            "see that every rank shows the same directory from the same source",
        ),
    };
    Finding::error(topic, &failure.to_string(), advice)
}

/// Judges all ranks of a world that has met.
pub(super) fn world(ranks: &[RankFacts], world: &WorldFacts) -> Vec<Finding> {
    let mut findings = of_ranks(ranks);
    if let Some(first) = ranks.first() {
        let all = || numbers(ranks);
        let met = format!(
            "{} on {} have met within {}",
            counted(ranks.len(), "rank"),
            counted(hosts(ranks).len(), "host"),
            text::seconds(world.met_seconds)
        );
        findings.push(Finding::ok(Topic::Meeting, met).of(all()));
        if is_on_one_host_only(ranks) {
            findings.extend(rank::not_shared(first).map(|finding| finding.of(all())));
        }
    }
    findings.extend(calls::findings(ranks, world));
    in_order(findings)
}

/// The finding after a gather through the directory.
pub(super) fn shared(ranks: &[RankFacts], directory: &Path) -> Finding {
    let text = format!(
        "{} is one directory for all: a gather through it was right",
        directory.display()
    );
    Finding::ok(Topic::Directory, text).of(numbers(ranks))
}

/// Judges the facts that each rank finds on its own.
fn of_ranks(ranks: &[RankFacts]) -> Vec<Finding> {
    let of_rank = |facts: &RankFacts| {
        let (rank, findings) = (facts.rank, rank::findings(facts));
        findings.into_iter().map(move |finding| finding.of([rank]))
    };
    let findings = ranks.iter().flat_map(of_rank);
    findings.chain(files::findings(ranks)).collect()
}

/// Sorts findings by topic, and joins equal ones.
pub(super) fn in_order(findings: Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for finding in findings {
        let same =
            |known: &&mut Finding| known.level == finding.level && known.text == finding.text;
        match all.iter_mut().find(same) {
            Some(known) => {
                known.ranks.extend(&finding.ranks);
                known.ranks.sort_unstable();
                known.ranks.dedup();
            }
            None => all.push(finding),
        }
    }
    all.sort_by_key(|finding| finding.topic);
    all
}
