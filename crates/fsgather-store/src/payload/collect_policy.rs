//! Patience and memory for reading payloads: [`CollectPolicy`].

use std::{path::PathBuf, time::Duration};

/// Patience and memory for reading payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectPolicy {
    /// Maximum time to wait for an announced payload that is not visible, or only in part. Longer than clients of network file
    /// systems keep their caches: 90 s.
    pub visibility: Duration,
    /// True if all ranks run on this host. Then there is no wait for files on a local file system.
    pub single_host: bool,
    /// True, the default, if payloads without checksums are refused.
    pub needs_checksums: bool,
    /// Payloads that cannot be mapped are read into memory up to this length, in bytes, and into a
    /// nameless local file above: 1 GiB.
    pub memory_bound: u64,
    /// The directory for such files: `/tmp`.
    pub spill_directory: PathBuf,
}

impl Default for CollectPolicy {
    fn default() -> Self {
        Self {
            visibility: Duration::from_secs(90),
            single_host: false,
            needs_checksums: true,
            memory_bound: 1 << 30,
            spill_directory: PathBuf::from("/tmp"),
        }
    }
}
