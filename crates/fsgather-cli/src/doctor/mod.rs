//! Finds what is wrong with the settings, the directory or the network of a job before the job is started: [`diagnose`].
//!
//! Each rank collects facts on its own. Then the ranks meet as a job does, rank 0 gathers and judges the facts of all, and one gather goes
//! through the directory. If the ranks cannot meet, each judges its own facts.
//!
//! | module | contents |
//! |---|---|
//! | `examine`, `directory` | the facts of one rank, and of a directory |
//! | `conformance` | calls through the directory, with every byte compared |
//! | `judge` | facts in, findings out |
//! | `facts`, `finding` | the data |

mod advice;
mod conformance;
mod directory;
mod examine;
mod facts;
mod finding;
mod judge;

use std::time::{Duration, Instant};

use fsgather::bindings::{LocalContext, process_or_unknown};
use fsgather::{Communicator, Rank, Transport};
use fsgather_config::{
    arguments::Arguments,
    environment::Variables,
    settings::{RendezvousSetting, Setting, Settings},
    words::Word,
};
use fsgather_core::{Error, Interrupt};

pub(crate) use facts::{ConformanceFacts, RankFacts, SettingFact, WayFacts, WorldFacts};
#[cfg(test)]
pub(crate) use finding::Topic;
pub(crate) use finding::{Conclusion, Finding, Level};
pub(crate) use judge::counted;

use conformance::Plan;

/// Time for which ranks wait for each other by default: long enough for a launcher to start all of them, and for a rank that cannot reach
/// rank 0 to be certain of that.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The same if the directory of the meeting is on a file system of one host, but ranks run on several.
const NOT_SHARED_JOIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for which calls may then wait without progress, by default.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// The call site that messages show.
const CALL_SITE: &str = "`fsgather doctor`";

/// The result of a diagnosis.
#[derive(Clone, Debug)]
pub(crate) struct Diagnosis {
    /// The findings, in the order of [`Topic`](finding::Topic).
    pub(crate) findings: Vec<Finding>,
    /// The conclusion about the job; the same on all ranks that have met.
    pub(crate) conclusion: Conclusion,
    /// The facts behind the findings: those of all ranks on rank 0 if they have met, otherwise those of this rank.
    pub(crate) ranks: Vec<RankFacts>,
    /// Facts that the ranks have found together; on rank 0 if they have met.
    pub(crate) world: Option<WorldFacts>,
    /// True if this rank reports: on rank 0, and on every rank if they have not met.
    pub(crate) is_reported_here: bool,
    /// The reason why ranks could not meet, or lost each other.
    pub(crate) failure: Option<Error>,
    /// True if the ranks have met.
    pub(crate) has_met: bool,
}

impl Diagnosis {
    fn new(findings: Vec<Finding>, ranks: Vec<RankFacts>) -> Self {
        Self {
            conclusion: Conclusion::over(&findings),
            findings,
            ranks,
            world: None,
            is_reported_here: true,
            failure: None,
            has_met: false,
        }
    }

    /// The diagnosis of one rank that could not meet the others, or lost them.
    fn of_one(facts: RankFacts, failure: Option<Error>, has_met: bool) -> Self {
        let findings = judge::one_of_several(&facts, failure.as_ref(), has_met);
        Self {
            failure,
            has_met,
            ..Self::new(findings, vec![facts])
        }
    }
}

/// Diagnoses whether a job could run with the settings of this process and these arguments.
///
/// Under a launcher all ranks call this. They meet as a job does, within 30 seconds unless another time-out is set, and leave nothing in
/// the directory except `all_gather_via_filesys/`, and not even that if this process is alone. With `calls`, they make that number of calls
/// over each carrier of messages, and compare every byte; the number on rank 0 counts.
///
/// Problems are findings, not errors. A file system that does not answer becomes a finding after 20 seconds. The interrupt ends the wait
/// for other ranks, and is then the [failure](Diagnosis::failure).
pub(crate) fn diagnose(
    arguments: &Arguments,
    calls: Option<u32>,
    interrupt: &Interrupt,
) -> Diagnosis {
    let variables = Variables::of_process();
    let settings = match arguments.settle(&variables) {
        Ok(settings) => settings,
        Err(error) => {
            let mut errors = Settings::errors(&variables);
            if !errors.contains(&error) {
                errors.push(error);
            }
            let findings = judge::wrong_settings(&errors, &variables.warnings());
            return Diagnosis::new(findings, Vec::new());
        }
    };
    settings.log();
    let process = process_or_unknown();
    let context = LocalContext::of(&settings, rustix::process::geteuid().as_raw());
    let facts = examine::rank_facts(&settings, &context, &process);
    if settings.detection.world_size.is_solo() {
        return Diagnosis::new(judge::alone(&facts, calls.is_some()), vec![facts]);
    }
    let directory = facts.directory.as_ref();
    if directory.is_some_and(|directory| directory.stuck_at.is_some()) {
        // A rank that meets the others in this directory would hang too.
        return Diagnosis::of_one(facts, None, false);
    }
    let since = Instant::now();
    let world = match meet(arguments, &settings, &facts, interrupt) {
        Ok(world) => world,
        Err(failure) => return Diagnosis::of_one(facts, Some(failure), false),
    };
    let met_seconds = since.elapsed().as_secs_f64();
    match try_together(&world, &settings, &facts, calls, met_seconds, interrupt) {
        Ok(diagnosis) => {
            if diagnosis.failure.is_none()
                && let Err(error) = world.close()
            {
                fsgather_core::warn!("the ranks did not end together: {error}");
            }
            diagnosis
        }
        Err(failure) => Diagnosis::of_one(facts, Some(failure), true),
    }
}

/// Meets the other ranks. Their facts do not go through the directory.
fn meet(
    arguments: &Arguments,
    settings: &Settings,
    facts: &RankFacts,
    interrupt: &Interrupt,
) -> Result<Communicator, Error> {
    let by_address = matches!(
        settings.rendezvous.value,
        Some(RendezvousSetting::Tcp { .. })
    );
    let given = |setting: &Setting<Duration>, default| {
        if setting.is_given() {
            setting.value
        } else {
            default
        }
    };
    let mut join_timeout = given(&settings.join_timeout, JOIN_TIMEOUT);
    let is_plain = judge::cannot_be_shared(facts).is_some() && !by_address;
    if is_plain && arguments.join_timeout.is_none() {
        join_timeout = join_timeout.min(NOT_SHARED_JOIN_TIMEOUT);
    }
    let mut builder = Communicator::builder()
        .transport(Transport::Memory)
        .join_timeout(join_timeout)
        .timeout(given(&settings.timeout, CALL_TIMEOUT))
        .interrupt(interrupt)
        .call_site(CALL_SITE)
        .argument("trace", Word::Text("off".into()))?;
    if let Some(directory) = &arguments.directory {
        builder = builder.directory(directory);
    }
    builder.build()
}

fn try_together(
    world: &Communicator,
    settings: &Settings,
    facts: &RankFacts,
    calls: Option<u32>,
    met_seconds: f64,
    interrupt: &Interrupt,
) -> Result<Diagnosis, Error> {
    let is_root = world.rank() == Rank::ZERO;
    let mut ranks: Vec<RankFacts> = Vec::new();
    for part in world.gather(facts, 0)?.into_iter().flatten() {
        ranks.push(part?.1);
    }
    let mut found = WorldFacts {
        met_seconds,
        conformance: None,
    };
    let mut findings = judge::world(&ranks, &found);
    let plan = Plan::of(&ranks, settings, calls);
    let (mut conclusion, plan): (Conclusion, Option<Plan>) =
        world.broadcast(&(Conclusion::over(&findings), plan), 0)?;
    let mut failure = None;
    if let Some(plan) = plan {
        match conformance::try_directory(world, &plan) {
            Ok(()) => {
                if plan.calls > 0 {
                    found.conformance = conformance::run(world, &plan, interrupt)?;
                }
                findings = judge::world(&ranks, &found);
                findings.push(judge::shared(&ranks, &plan.directory));
                conclusion = world.broadcast(&Conclusion::over(&findings), 0)?;
            }
            // The same on all ranks.
            Err(error) => {
                let finding = judge::failure(&error).of(facts::numbers(&ranks));
                conclusion = conclusion.max(Conclusion::over(std::slice::from_ref(&finding)));
                findings.push(finding);
                failure = Some(error);
            }
        }
    }
    Ok(Diagnosis {
        findings: judge::in_order(findings),
        conclusion,
        ranks,
        world: is_root.then_some(found),
        is_reported_here: is_root,
        failure,
        has_met: true,
    })
}
