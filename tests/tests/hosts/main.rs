//! Jobs on several hosts, which are network namespaces on this machine. Needs root: `scripts/prove hosts`.

#[path = "../common/mod.rs"]
mod common;
