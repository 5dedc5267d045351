//! Jobs on file systems that are full, slow, faulty or mounted twice. Needs root and libfuse: `scripts/prove mounts`.

#[path = "../common/mod.rs"]
mod common;

mod doctor;
mod hanging;
mod storage;
mod tracing;
mod without_files;
