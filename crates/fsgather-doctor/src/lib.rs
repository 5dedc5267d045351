//! Finds what is wrong with a job's settings, its directory or its network, before the job is started:
//! [`diagnose`].
//!
//! The command `fsgather doctor` is made of this. It does what every job does at its start, with the same
//! code, and tells what it meets with: each rank finds out facts by itself, ranks meet, try the directory
//! and the network together, and rank 0 judges the facts of all. Where ranks cannot meet, each judges its
//! own.
//!
//! ```
//! use fsgather_config::arguments::Arguments;
//! use fsgather_core::Interrupt;
//! use fsgather_doctor::{Conclusion, diagnose};
//!
//! let place = std::env::temp_dir();
//! let arguments = Arguments { directory: Some(place), ..Arguments::default() };
//! let diagnosis = diagnose(&arguments, None, &Interrupt::default());
//! assert_ne!(diagnosis.conclusion, Conclusion::WrongSettings, "{:#?}", diagnosis.findings);
//! assert!(diagnosis.findings.iter().all(|finding| !finding.text.is_empty()));
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `diagnosis` | the whole, from settings to a conclusion |
//! | `examine`, `directory` | the facts that a rank finds out by itself, and what a directory is like and can do |
//! | `conformance` | calls in earnest, by each way that messages can go |
//! | `met`, `trial` | a world that has formed for a diagnosis, and what its ranks try together |
//! | `judge` | facts in, findings out |
//! | `facts`, `finding` | what is found, and what is said of it |

mod conformance;
mod diagnosis;
mod directory;
mod examine;
mod facts;
mod finding;
mod judge;
mod met;
mod trial;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use diagnosis::{Diagnosis, diagnose};
pub use facts::{
    AccessFacts, ClockFact, ConformanceFacts, DirectoryFacts, LauncherFacts, LeftoverFacts,
    LimitFacts, MountFacts, NetworkFacts, PayloadFacts, RankFacts, ReachFact, ReadFacts,
    SettingFact, TrialFacts, WayFacts, WorldFacts,
};
pub use finding::{Conclusion, Finding, Level, Topic};
pub use fsgather_store::{Capacity, Mount};
