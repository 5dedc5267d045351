//! Jobs of real processes: one test for each promise. `tests/tests/jobs` has the rest.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod attempts;
mod cleaning;
mod command;
mod damaged_places;
mod decided;
mod doctor;
mod hanging;
mod introductions;
mod intruders;
mod lost_ranks;
mod meeting;
mod network;
mod results;
mod routes;
mod separate_jobs;
mod shared_memory;
mod storage;
mod tracing;
mod verifying;
mod warnings;
mod world_sizes;
