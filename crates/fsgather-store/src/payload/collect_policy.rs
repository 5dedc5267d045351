//! The patience and the memory with which payloads are read: [`CollectPolicy`].

use std::{path::PathBuf, time::Duration};

/// How patiently, and into what, payloads are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectPolicy {
    /// How long to go on asking for what was announced but is not seen, or not seen whole. Longer than
    /// clients of network file systems trust their memory: 90 s.
    pub visibility: Duration,
    /// Whether all ranks run on this host. Then nothing on a local file system is waited for.
    pub single_host: bool,
    /// Whether a payload without checksums is refused: true.
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
