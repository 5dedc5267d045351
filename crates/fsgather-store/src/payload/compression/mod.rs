//! Compresses and decompresses chunks, each alone. Pure.
//!
//! Zstandard is behind the cargo feature `zstd`. A build without it refuses compressed payloads and names the feature.

#[cfg(test)]
mod tests;

use std::fmt;

#[cfg(feature = "zstd")]
use ::zstd::bulk;
use fsgather_core::{CompressionSetting, Error};

use crate::payload::format::Compression;

#[cfg(test)]
pub(crate) use tests::supported;

/// Level of Zstandard: fast, because each payload is written and read about once.
#[cfg(feature = "zstd")]
const LEVEL: i32 = 1;

/// Checks that this build can compress as a setting asks.
///
/// # Errors
///
/// [`Error::Config`] that names the cargo feature that is off.
pub fn check_compression(setting: CompressionSetting) -> Result<(), Error> {
    if Compression::from(setting).is_supported() {
        return Ok(());
    }
    Err(Error::config(
        "this build of fsgather cannot compress, since its cargo feature `zstd` is off; switch that on, or choose no \
         compression",
    ))
}

impl From<CompressionSetting> for Compression {
    fn from(setting: CompressionSetting) -> Self {
        match setting {
            CompressionSetting::None => Self::NONE,
            CompressionSetting::Zstd => Self::ZSTD,
        }
    }
}

#[cfg_attr(
    not(feature = "zstd"),
    expect(
        unused_variables,
        clippy::unused_self,
        clippy::ptr_arg,
        reason = "there is nothing to compress with"
    )
)]
impl Compression {
    /// Returns true if this build writes and reads it: [`ZSTD`](Self::ZSTD) needs the cargo feature `zstd`.
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
        Error::incompatible(
            what,
            if Self::ZSTD.is_supported() {
                "none and zstd"
            } else {
                "none (its cargo feature `zstd` is off)"
            },
            self.to_string(),
        )
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
