//! Finds what is wrong with a job's settings, its directory or its network, before the job is started:
//! [`diagnose`].
//!
//! The command `fsgather doctor` is made of this. It does what every job does at its start, with the same
//! code, and tells what it meets with: each rank finds out facts by itself, ranks meet, try the directory
//! and the network together, and rank 0 judges the facts of all. Where ranks cannot meet, each judges its
//! own.
//!
//! ```
//! use fsgather::{Communicator, diagnosis::{Conclusion, diagnose}};
//!
//! let place = tempfile::tempdir()?;
//! let diagnosis = diagnose(Communicator::builder().directory(place.path()));
//! assert_eq!(diagnosis.conclusion, Conclusion::Usable, "{:#?}", diagnosis.findings);
//! assert!(diagnosis.findings.iter().all(|finding| !finding.text.is_empty()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// Reads any bytes as what ranks tell each other for a diagnosis, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_reading(body: &bytes::Bytes) {
    trial::try_reading(body);
    let _ = crate::set_up::decode::<RankFacts>(Some(body));
}

mod directory;
mod examine;
mod facts;
mod finding;
mod judge;
mod trial;

pub use facts::{
    AccessFacts, ClockFact, DirectoryFacts, LauncherFacts, LeftoverFacts, LimitFacts, MountFacts,
    NetworkFacts, PayloadFacts, RankFacts, ReachFact, ReadFacts, SettingFact, TrialFacts,
    WorldFacts,
};
pub use finding::{Conclusion, Finding, Level, Topic};
pub use fsgather_store::{Capacity, Mount};

use std::time::{Duration, Instant};

use fsgather_core::Error;

use crate::{
    blocking::step_aside,
    builder::{Builder, process_or_unknown},
    communicator::Communicator,
    meeting,
};
use fsgather_config::{
    environment::Variables,
    settings::{Origin, RendezvousSetting, Settings, Transport},
};

/// How long ranks wait for each other, when nobody says otherwise: long enough for a launcher to start all
/// of them, and for ranks that cannot reach rank 0 to be sure of it.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);

/// The same where it is plain that the directory in which they are to meet is not shared: they may be on one host after
/// all.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);

/// How long nothing may move while they try things together, when nobody says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a diagnosis has come to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What was found, in the order of [`Topic`]. Empty on ranks that leave it to rank 0 to tell.
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
}

/// Finds out whether a job could run with the settings of this process and what the builder says besides.
///
/// Under a launcher this is collective: all ranks call it. It meets as a communicator does, within 30 seconds
/// if no other time-out is set, or 3 seconds where the launcher says that ranks are on several hosts and the directory in
/// which they are to meet is on a file system of one; and leaves nothing in the directory but `all_gather_via_filesys/`, and
/// not even that when this process is alone.
///
/// Nothing that is wrong is an error: it is a finding. A file system that does not answer is one after
/// 20 seconds.
#[must_use]
pub fn diagnose(builder: Builder) -> Diagnosis {
    let mut builder = Some(builder);
    let done = step_aside(|| Ok(builder.take().map(run)));
    match done {
        Ok(Some(diagnosis)) => diagnosis,
        Ok(None) => Diagnosis::new(Vec::new(), Vec::new()),
        Err(error) => Diagnosis::new(judge::wrong_settings(&[error], &[]), Vec::new()),
    }
}

fn run(builder: Builder) -> Diagnosis {
    let variables = Variables::of_process();
    let settings = match builder.settings(&variables) {
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
    let uid = rustix::process::geteuid().as_raw();
    let ground = meeting::ground(&settings, uid);
    let facts = examine::rank_facts(&settings, &ground, &process);
    if settings.detection.world_size.is_solo() {
        return Diagnosis::new(judge::alone(&facts), vec![facts]);
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
    let meets_in_vain = judge::is_plainly_not_shared(&facts)
        && !matches!(
            settings.rendezvous.value,
            Some(RendezvousSetting::Tcp { .. })
        );
    match meet(builder, &settings, meets_in_vain) {
        Err(failure) => Diagnosis::unmet(facts, Some(failure)),
        Ok(communicator) => try_together(communicator, &settings, facts, since.elapsed()),
    }
}

fn meet(builder: Builder, settings: &Settings, meets_in_vain: bool) -> Result<Communicator, Error> {
    let mut builder = builder.transport(Transport::Memory).for_diagnosis();
    if meets_in_vain && settings.join_timeout.origin != Origin::Argument {
        let patience = settings.join_timeout.value.min(SHORT_PATIENCE);
        builder = builder.join_timeout(patience);
    } else if !settings.join_timeout.is_given() {
        builder = builder.join_timeout(JOIN_PATIENCE);
    }
    if !settings.timeout.is_given() {
        builder = builder.timeout(PATIENCE);
    }
    builder.build()
}

fn try_together(
    communicator: Communicator,
    settings: &Settings,
    facts: RankFacts,
    met: Duration,
) -> Diagnosis {
    let tried = trial::run(&communicator, settings, facts.clone(), met).and_then(|all| {
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
        diagnosis.conclusion = communicator.broadcast(&diagnosis.conclusion, 0)?;
        Ok(diagnosis)
    });
    match tried {
        Ok(diagnosis) => {
            if let Err(error) = communicator.close() {
                tracing::warn!("ranks did not part in good order: {error}");
            }
            diagnosis
        }
        Err(failure) => {
            drop(communicator);
            Diagnosis::unmet(facts, Some(failure))
        }
    }
}
