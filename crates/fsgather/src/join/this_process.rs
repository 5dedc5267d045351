//! The identity of this process for other ranks: [`network_namespace`], [`process_or_unknown`].

use fsgather_core::ProcessId;
use fsgather_store::this_process;

/// Returns the inode of this process's network namespace; 0 when unknown.
#[must_use]
pub(crate) fn network_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino())
}

/// Returns the identity of this process, as far as it is known.
#[must_use]
pub fn process_or_unknown() -> ProcessId {
    this_process().unwrap_or_else(|error| {
        tracing::debug!("this process is not fully known: {error}");
        ProcessId {
            host: "this host".into(),
            pid: std::process::id(),
            ..ProcessId::default()
        }
    })
}
