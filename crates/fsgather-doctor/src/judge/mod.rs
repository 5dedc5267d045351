//! Judges the facts, and says what to do. Pure: facts in, findings out.
//!
//! What holds for several ranks in the same words is said once, with all of them; so findings name no
//! figure that differs from rank to rank without need, but the worst one of all.

mod calls;
mod files;
mod known;
mod rank;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
mod text;
mod together;

use fsgather_core::Error;

use crate::{
    facts::{RankFacts, WorldFacts},
    finding::{Finding, Topic},
};

/// Of variables that could not even be read, and of those that are not known.
pub(super) fn wrong_settings(errors: &[Error], unknown: &[String]) -> Vec<Finding> {
    let errors = errors.iter().map(ToString::to_string);
    errors
        .map(|error| Finding::error(Topic::Settings, &error, rank::MEND))
        .chain(
            unknown
                .iter()
                .map(|unknown| rank::unknown_variable(unknown)),
        )
        .collect()
}

/// Of a rank that is alone.
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

/// Whether ranks are on several hosts, and their directory on a file system of one.
pub(super) fn is_plainly_not_shared(facts: &RankFacts) -> bool {
    rank::cannot_be_shared(facts).is_some()
}

/// Of a rank that could not try anything together with the others, and why not, if that was tried.
pub(super) fn unmet(facts: &RankFacts, failure: Option<&Error>) -> Vec<Finding> {
    let ranks = std::slice::from_ref(facts);
    let mut findings = of_ranks(ranks);
    if let Some(is_local) = rank::cannot_be_shared(facts) {
        // What it is on is said there.
        findings.retain(|known| !rank::is_about_file_system(known, facts));
        findings.push(is_local.of([facts.rank]));
    }
    findings.push(together::unmet(facts, failure, &findings).of([facts.rank]));
    in_order(findings)
}

/// Of a rank that has met the others, and why they did not come to an end together.
pub(super) fn broken_off(facts: &RankFacts, failure: &Error) -> Vec<Finding> {
    let mut findings = of_ranks(std::slice::from_ref(facts));
    findings.push(together::broken_off(failure).of([facts.rank]));
    in_order(findings)
}

/// Of all ranks, after they have met.
pub(super) fn world(ranks: &[RankFacts], world: &WorldFacts) -> Vec<Finding> {
    let mut findings = of_ranks(ranks);
    findings.extend(together::findings(ranks, world));
    findings.extend(calls::findings(ranks, world));
    in_order(findings)
}

/// What can be said of ranks whether or not they have met.
fn of_ranks(ranks: &[RankFacts]) -> Vec<Finding> {
    let mut findings = each(ranks, rank::findings);
    findings.extend(files::findings(ranks));
    findings
}

/// Judges each rank by itself, and says once what is the same for several.
fn each(ranks: &[RankFacts], judge: impl Fn(&RankFacts) -> Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for facts in ranks {
        for finding in judge(facts) {
            let same = |known: &&mut Finding| {
                known.level == finding.level
                    && known.topic == finding.topic
                    && known.text == finding.text
                    && known.advice == finding.advice
            };
            match all.iter_mut().find(same) {
                Some(known) => known.ranks.push(facts.rank),
                None => all.push(finding.of([facts.rank])),
            }
        }
    }
    all
}

/// By topic, and nothing twice: what a rank has found by itself may come up again when all try it.
fn in_order(findings: Vec<Finding>) -> Vec<Finding> {
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

/// The numbers of all these ranks.
fn numbers(ranks: &[RankFacts]) -> Vec<u32> {
    ranks.iter().map(|facts| facts.rank).collect()
}
