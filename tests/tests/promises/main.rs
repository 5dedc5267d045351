//! Jobs of real processes: one test for each promise. `tests/tests/jobs` has the rest.

#[path = "../common/mod.rs"]
mod common;
