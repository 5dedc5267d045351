//! Compresses and decompresses chunks, each alone. Pure.
//!
//! Zstandard is behind the cargo feature `zstd`. A build without it refuses compressed payloads and names the feature.

#[cfg(test)]
mod tests;

use std::fmt;

#[cfg(feature = "zstd")]
use ::zstd::bulk;
use fsgather_core::Error;

use crate::payload::format::Compression;

#[cfg(test)]
pub(crate) use tests::supported;

/// Level of Zstandard: fast, since each payload is written and read about once.
#[cfg(feature = "zstd")]
const LEVEL: i32 = 1;

/// Whether the payload files of a rank are compressed.
///
/// Compression takes time and saves bytes. It pays on a network file system that all ranks write to at once, and not where a
/// file is mapped from memory. A chunk that compression does not make shorter is stored as it is. Readers need no setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompressionSetting {
    /// Payloads are stored as they are.
    #[default]
    None,
    /// Payloads are compressed with Zstandard. Needs the cargo feature `zstd`.
    Zstd,
}

impl CompressionSetting {
    /// Returns the compression that payload files name.
    #[must_use]
    pub const fn compression(self) -> Compression {
        match self {
            Self::None => Compression::NONE,
            Self::Zstd => Compression::ZSTD,
        }
    }

    /// Checks that this build can compress so.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the cargo feature that is off.
    pub fn check(self) -> Result<(), Error> {
        if self.compression().is_supported() {
            return Ok(());
        }
        Err(Error::config(
            "this build of fsgather cannot compress, since its cargo feature `zstd` is off; switch that on, or choose no \
             compression",
        ))
    }
}

impl fmt::Display for CompressionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.compression().fmt(f)
    }
}

#[cfg_attr(
    not(feature = "zstd"),
    expect(unused_variables, reason = "there is nothing to compress with")
)]
impl Compression {
    /// Whether this build writes and reads it: [`ZSTD`](Self::ZSTD) needs the cargo feature `zstd`.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        matches!(self, Self::NONE) || (cfg!(feature = "zstd") && matches!(self, Self::ZSTD))
    }

    /// Compresses a chunk into `room` if that makes it shorter, and returns its new length.
    pub(crate) fn compress(self, raw: &[u8], room: &mut Vec<u8>) -> Option<usize> {
        #[cfg(feature = "zstd")]
        if self == Self::ZSTD {
            // A longer result is an error.
            room.resize(raw.len().checked_sub(1)?, 0);
            return bulk::compress_to_buffer(raw, room.as_mut_slice(), LEVEL).ok();
        }
        None
    }

    /// Decompresses a chunk to the beginning of `raw` and returns its length. A longer chunk is an error.
    pub(crate) fn decompress(self, stored: &[u8], raw: &mut [u8]) -> Result<usize, String> {
        #[cfg(feature = "zstd")]
        if self == Self::ZSTD {
            return bulk::decompress_to_buffer(stored, raw).map_err(|error| error.to_string());
        }
        Err(format!("this build cannot decompress {self}"))
    }

    /// Returns the error for a payload that this build cannot read.
    pub(crate) fn unsupported(self, what: String) -> Error {
        Error::Incompatible {
            what,
            ours: if Self::ZSTD.is_supported() {
                "none and zstd".into()
            } else {
                "none (its cargo feature `zstd` is off)".into()
            },
            theirs: self.to_string(),
        }
    }
}

impl fmt::Display for Compression {
    /// Writes the name of a known compression, or the number of an unknown one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self::ZSTD => f.write_str("zstd"),
            Self(number) => number.fmt(f),
        }
    }
}
