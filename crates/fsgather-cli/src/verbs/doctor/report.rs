//! A diagnosis as one JSON document.

use fsgather_doctor::{Conclusion, Diagnosis, Finding, RankFacts, WorldFacts};
use serde::Serialize;

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
    let teller = diagnosis.ranks.first();
    DoctorReport {
        conclusion: diagnosis.conclusion,
        exit_code,
        directory: directory(diagnosis),
        rank: teller.map(|facts| facts.rank),
        world_size: teller.map(|facts| facts.world_size),
        met: diagnosis.world.is_some(),
        failure: diagnosis.failure.as_ref().map(ToString::to_string),
        findings: &diagnosis.findings,
        ranks: &diagnosis.ranks,
        world: diagnosis.world.as_ref(),
    }
}

/// The directory that the diagnosis is of.
fn directory(diagnosis: &Diagnosis) -> Option<&str> {
    let tried = diagnosis
        .world
        .as_ref()
        .and_then(|world| world.directory.as_deref());
    let named = || {
        let facts = diagnosis.ranks.first()?.directory.as_ref()?;
        Some(facts.path.as_str())
    };
    tried.or_else(named)
}
