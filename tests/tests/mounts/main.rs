//! Jobs on file systems that are full, slow, faulty or mounted twice. Needs root and libfuse: `scripts/prove mounts`.

#[path = "../common/mod.rs"]
mod common;

mod doctor;
mod faulty_mounts;
mod hanging;
mod intruders;
mod reading_for_each_other;
mod storage;
mod tracing;
mod without_files;
