//! The setting that compresses payload files: [`CompressionSetting`].

use std::fmt;

/// The compression of the payload files of a rank.
///
/// Compression takes time and saves bytes. It pays on a network file system that all ranks write to at once, but not if
/// files are mapped from memory. A chunk that does not become shorter is stored as it is. Readers need no setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompressionSetting {
    /// Payloads are stored as they are.
    #[default]
    None,
    /// Payloads are compressed with Zstandard. Needs the cargo feature `zstd`.
    Zstd,
}

impl fmt::Display for CompressionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Zstd => "zstd",
        })
    }
}
