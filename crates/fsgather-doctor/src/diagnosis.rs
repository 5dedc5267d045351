//! The whole diagnosis, from settings to a conclusion: [`diagnose`].

use std::time::{Duration, Instant};

use fsgather_config::{
    arguments::Arguments,
    environment::Variables,
    settings::{Origin, RendezvousSetting, Setting, Settings},
};
use fsgather_core::{Error, Interrupt};
use fsgather_rendezvous::{
    join::{Purpose, Request},
    local_context::LocalContext,
    this_process::process_or_unknown,
};

use crate::{
    conformance, examine,
    facts::{DirectoryFacts, RankFacts, WorldFacts},
    finding::{Conclusion, Finding},
    judge,
    met::Met,
    trial,
};

/// How long ranks wait for each other, when nobody says otherwise: long enough for a launcher to start all
/// of them, and for ranks that cannot reach rank 0 to be sure of it.
const JOIN_TIME_LIMIT: Duration = Duration::from_secs(30);

/// The same where it is plain that the directory in which they are to meet is not shared: they may be on one host after
/// all.
const SHORT_TIME_LIMIT: Duration = Duration::from_secs(3);

/// How long nothing may move while they try things together, when nobody says otherwise.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// What a diagnosis has come to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What was found, in the order of [`Topic`](crate::finding::Topic). Empty on ranks that leave it to rank 0 to tell.
    pub findings: Vec<Finding>,
    /// Whether a job could run like this; the same on all ranks that have met.
    pub conclusion: Conclusion,
    /// The facts behind the findings: of all ranks on rank 0 if they have met, else of this one.
    pub ranks: Vec<RankFacts>,
    /// What ranks have found out together; on rank 0 if they have met.
    pub world: Option<WorldFacts>,
    /// Whether this rank is to tell its user: rank 0, and every rank if they have not met.
    pub is_told_here: bool,
    /// Why ranks could not meet, or lost each other.
    pub failure: Option<Error>,
    /// Whether ranks have met, whatever came then.
    pub has_met: bool,
}

impl Diagnosis {
    fn new(findings: Vec<Finding>, ranks: Vec<RankFacts>) -> Self {
        Self {
            conclusion: Conclusion::over(&findings),
            findings,
            ranks,
            world: None,
            is_told_here: true,
            failure: None,
            has_met: false,
        }
    }

    /// Of one rank that could not try anything together with the others.
    fn unmet(facts: RankFacts, failure: Option<Error>) -> Self {
        let diagnosis = Self::new(judge::unmet(&facts, failure.as_ref()), vec![facts]);
        Self {
            failure,
            ..diagnosis
        }
    }

    /// Of one rank that has met the others, but could not try things with them to the end.
    fn broken_off(facts: RankFacts, failure: Error) -> Self {
        let diagnosis = Self::new(judge::broken_off(&facts, &failure), vec![facts]);
        Self {
            failure: Some(failure),
            has_met: true,
            ..diagnosis
        }
    }
}

/// Finds out whether a job could run with the settings of this process, and what the arguments say besides.
///
/// Under a launcher this is collective: all ranks call it. It meets as a communicator does, within 30 seconds
/// if no other time-out is set, or 3 seconds where the launcher says that ranks are on several hosts and the directory in
/// which they are to meet is on a file system of one; and leaves nothing in the directory but `all_gather_via_filesys/`, and
/// not even that when this process is alone. It blocks: async code calls it on a thread of its own.
///
/// With `calls`, ranks that can use the directory then make so many calls in earnest by each way that messages can go, compare
/// every byte, and see that nothing is left: a file system that nobody has tried is tried like this. A minute or two.
///
/// Nothing that is wrong is an error: it is a finding. A file system that does not answer is one after
/// 20 seconds. The interrupt ends waiting for others; that is then the [failure](Diagnosis::failure).
#[must_use]
pub fn diagnose(arguments: &Arguments, calls: Option<u32>, interrupt: &Interrupt) -> Diagnosis {
    let variables = Variables::of_process();
    let settings = match arguments.settle(&variables) {
        Ok(settings) => settings,
        Err(error) => {
            let mut errors = Settings::errors(&variables);
            if !errors.contains(&error) {
                errors.push(error);
            }
            return Diagnosis::new(
                judge::wrong_settings(&errors, &variables.warnings()),
                Vec::new(),
            );
        }
    };
    settings.log();
    let process = process_or_unknown();
    let context = LocalContext::of(&settings, rustix::process::geteuid().as_raw());
    let facts = examine::rank_facts(&settings, &context, &process);
    if settings.detection.world_size.is_solo() {
        return Diagnosis::new(judge::alone(&facts, calls.is_some()), vec![facts]);
    }
    if facts
        .directory
        .as_ref()
        .is_some_and(DirectoryFacts::is_stuck)
    {
        // Whoever met in it would be stuck as well.
        return Diagnosis::unmet(facts, None);
    }
    let since = Instant::now();
    let request = Request {
        settings: with_timeout(settings.clone(), &facts),
        variables: &variables,
        rendezvous: None,
        process,
        interrupt: interrupt.clone(),
        purpose: Purpose::Diagnose,
    };
    match Met::join(request) {
        Err(failure) => Diagnosis::unmet(facts, Some(failure)),
        Ok(met) => try_together(met, &settings, facts, calls, since.elapsed()),
    }
}

/// The settings by which ranks meet for a diagnosis: nobody waits as long as for a job.
fn with_timeout(mut settings: Settings, facts: &RankFacts) -> Settings {
    let meets_in_vain = judge::is_plainly_not_shared(facts)
        && !matches!(
            settings.rendezvous.value,
            Some(RendezvousSetting::Tcp { .. })
        );
    let join_timeout = &mut settings.join_timeout;
    if meets_in_vain && join_timeout.origin != Origin::Argument {
        *join_timeout = Setting::argument(join_timeout.value.min(SHORT_TIME_LIMIT));
    } else if !join_timeout.is_given() {
        *join_timeout = Setting::argument(JOIN_TIME_LIMIT);
    }
    if !settings.timeout.is_given() {
        settings.timeout = Setting::argument(TIME_LIMIT);
    }
    settings
}

fn try_together(
    met: Met,
    settings: &Settings,
    facts: RankFacts,
    calls: Option<u32>,
    took: Duration,
) -> Diagnosis {
    let tried = trial::run(&met, settings, facts.clone(), took).and_then(|mut all| {
        if let Some(calls) = calls {
            let world = all.as_mut().map(|(_, world)| world);
            conformance::run(&met, settings, calls, world)?;
        }
        let mut diagnosis = match all {
            None => Diagnosis {
                is_told_here: false,
                ..Diagnosis::new(Vec::new(), Vec::new())
            },
            Some((ranks, world)) => Diagnosis {
                world: Some(world.clone()),
                ..Diagnosis::new(judge::world(&ranks, &world), ranks)
            },
        };
        diagnosis.has_met = true;
        diagnosis.conclusion = met.communicator.broadcast(&diagnosis.conclusion, 0)?;
        Ok(diagnosis)
    });
    match tried {
        Ok(diagnosis) => {
            if let Err(error) = met.communicator.close() {
                fsgather_core::warn!("ranks did not part in good order: {error}");
            }
            diagnosis
        }
        Err(failure) => {
            drop(met);
            Diagnosis::broken_off(facts, failure)
        }
    }
}
