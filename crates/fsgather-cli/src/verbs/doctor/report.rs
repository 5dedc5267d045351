//! A diagnosis as one JSON document.

use serde::Serialize;

use crate::doctor::{Conclusion, Diagnosis, Finding, RankFacts, WorldFacts};

/// The document; `docs/reference/json.md` describes it.
#[derive(Serialize)]
pub(super) struct DoctorReport<'a> {
    conclusion: Conclusion,
    exit_code: u8,
    directory: Option<&'a str>,
    rank: Option<u32>,
    world_size: Option<u32>,
    met: bool,
    failure: Option<String>,
    findings: &'a [Finding],
    ranks: &'a [RankFacts],
    world: Option<&'a WorldFacts>,
}

pub(super) fn report(diagnosis: &Diagnosis, exit_code: u8) -> DoctorReport<'_> {
    let first = diagnosis.ranks.first();
    let directory = first.and_then(|facts| facts.directory.as_ref());
    DoctorReport {
        conclusion: diagnosis.conclusion,
        exit_code,
        directory: directory.map(|directory| directory.path.as_str()),
        rank: first.map(|facts| facts.rank),
        world_size: first.map(|facts| facts.world_size),
        met: diagnosis.has_met,
        failure: diagnosis.failure.as_ref().map(ToString::to_string),
        findings: &diagnosis.findings,
        ranks: &diagnosis.ranks,
        world: diagnosis.world.as_ref(),
    }
}
