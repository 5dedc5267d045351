//! Jobs on several hosts, which are network namespaces on this machine. Needs root: `scripts/prove hosts`.

#[path = "../common/mod.rs"]
mod common;

mod cleaning;
mod doctor;
mod errors;
mod inspecting;
mod intruders;
mod network;
mod network_memory;
mod rings_of_hosts;
mod shared_memory;
mod tracing_clocks;
mod tracing_damaged;
