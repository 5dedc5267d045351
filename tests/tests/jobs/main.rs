//! Jobs of real processes: results, errors and leftovers of ranks, with any kind of disturbance.
//!
//! A single program, as most tests spend most of their time waiting: tests of one program wait at the same time, whereas programs run one
//! after the other.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod attempts;
mod cleaning;
mod codecs;
mod command;
mod decided;
mod denied_calls;
mod doctor;
mod family;
mod hanging;
mod inspecting;
mod introductions;
mod intruders;
mod json_documents;
mod lost_ranks;
mod meeting;
mod other_users;
mod pieces;
mod results;
mod routes;
mod runtimes;
mod separate_jobs;
mod settings;
mod shared_memory;
mod stalls;
mod tracing;
mod tracing_damaged;
mod tracing_forming;
mod without_files;
mod world_sizes;
