//! Jobs of real processes: one test for each promise. `tests/tests/jobs` has the rest.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod attempts;
mod decided;
mod introductions;
mod lost_ranks;
mod meeting;
mod results;
mod separate_jobs;
mod storage;
mod world_sizes;
