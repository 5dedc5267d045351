//! Jobs on several hosts, which are network namespaces on this machine. Needs root: `scripts/prove hosts`.

#[path = "../common/mod.rs"]
mod common;

mod cleaning;
mod doctor;
mod inspecting;
mod shared_memory;
mod tracing_damaged;
