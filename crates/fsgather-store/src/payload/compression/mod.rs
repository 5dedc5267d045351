//! Compressing and decompressing chunks, each alone. Pure, but for the threads of a [`Packer`].
//!
//! Libraries are behind cargo features, one file each: `lz4` and `zstd`. A build without one says so where
//! it is asked for it, and knows what it is that it lacks.

#[cfg(feature = "lz4")]
mod lz4;
mod packer;
mod setting;
#[cfg(test)]
mod tests;
#[cfg(feature = "zstd")]
mod zstd;

pub use setting::CompressionSetting;
#[cfg(test)]
pub(crate) use setting::tests::supported;

pub(crate) use packer::Packer;

use std::fmt;

use fsgather_core::Error;

use crate::payload::format::Compression;

/// What compresses chunks, one after the other.
pub(crate) trait Compressor: Send + Sync {
    /// Compresses a chunk to the beginning of `room`, which is made large enough, and says how many bytes
    /// that takes.
    fn compress(&mut self, raw: &[u8], room: &mut Vec<u8>) -> Result<usize, String>;
}

/// What decompresses chunks, one after the other.
pub(crate) trait Decompressor: Send + Sync {
    /// Decompresses a chunk to the beginning of `raw` and says how many bytes it had. If it has more than
    /// there is room for, that is an error, and so is what no compressor makes.
    fn decompress(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<usize, String>;
}

/// What compresses as the setting says; nothing if it says not to.
pub(crate) fn compressor(
    setting: CompressionSetting,
) -> Result<Option<Box<dyn Compressor>>, Error> {
    setting.check()?;
    Ok(match setting {
        #[cfg(feature = "lz4")]
        CompressionSetting::Lz4 => Some(lz4::compressor()),
        #[cfg(feature = "zstd")]
        CompressionSetting::Zstd { level } => Some(zstd::compressor(level)?),
        _ => None,
    })
}

/// What decompresses such chunks; nothing if this build has nothing for it, or nothing is needed.
pub(crate) fn decompressor(compression: Compression) -> Option<Box<dyn Decompressor>> {
    match compression {
        #[cfg(feature = "lz4")]
        Compression::LZ4 => Some(lz4::decompressor()),
        #[cfg(feature = "zstd")]
        Compression::ZSTD => Some(zstd::decompressor()),
        _ => None,
    }
}

impl Compression {
    /// Whether this build writes and reads it: [`LZ4`](Self::LZ4) needs the cargo feature `lz4`,
    /// [`ZSTD`](Self::ZSTD) the cargo feature `zstd`.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        matches!(self, Self::NONE)
            || (cfg!(feature = "lz4") && matches!(self, Self::LZ4))
            || (cfg!(feature = "zstd") && matches!(self, Self::ZSTD))
    }

    /// What to say of a payload that this build cannot read.
    pub(crate) fn unsupported(self, what: String) -> Error {
        let known: Vec<String> = [Self::NONE, Self::LZ4, Self::ZSTD]
            .into_iter()
            .filter(|known| known.is_supported())
            .map(|known| known.to_string())
            .collect();
        let known = known.join(" and ");
        Error::Incompatible {
            what,
            ours: match self {
                Self::LZ4 | Self::ZSTD => format!("{known} (its cargo feature `{self}` is off)"),
                _ => known,
            },
            theirs: self.to_string(),
        }
    }
}

impl fmt::Display for Compression {
    /// The word for it, or the number of one that this build has never heard of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self::LZ4 => f.write_str("lz4"),
            Self::ZSTD => f.write_str("zstd"),
            Self(number) => number.fmt(f),
        }
    }
}
