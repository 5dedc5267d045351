//! Evaluations that survive: results by name, on disk as they come, gathered at the end.
//!
//! - `handle.rs`: the handle of a rank, [`Samples`].
//! - `options.rs`: what a program expects, [`SampleOptions`].
//! - `opening.rs`, `gathering.rs`: what ranks agree on at both ends; `agreement.rs` is how.
//! - `travelling.rs`: files that the gathering rank does not see.
//! - `report.rs`: what was found, counted, and in words. Pure.
//! - `results.rs`: the gathered results, [`SampleResults`].

mod agreement;
mod gathering;
mod handle;
mod opening;
mod options;
mod report;
mod results;
mod travelling;

pub use fsgather_store::SampleId;
pub use gathering::{GatherOptions, GatherSamplesError, gather_encoded, gather_samples};
pub use handle::Samples;
pub use options::SampleOptions;
pub use report::SampleReport;
pub use results::SampleResults;

/// Name of the encoding of results that Python adds.
#[doc(hidden)]
pub const PLAIN_DATA: &str = "plain data";

/// Name of the encoding of results that shell jobs add.
#[doc(hidden)]
pub const JSON_LINES: &str = "json";

#[cfg(test)]
mod tests;
