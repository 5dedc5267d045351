//! The compression that a user asks for: [`CompressionSetting`]. Pure.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use fsgather_core::Error;

use crate::payload::format::Compression;

/// How the payloads of a rank are to be compressed.
///
/// Compressing takes time and saves bytes: it pays where bytes are dear, such as on a network file system
/// that all ranks write to at once, and not where a file is mapped from memory. What cannot be compressed
/// is stored as it is, chunk by chunk. Readers find out from the payload; they need no setting.
///
/// ```
/// use fsgather_store::CompressionSetting;
///
/// assert_eq!("zstd:7".parse(), Ok(CompressionSetting::Zstd { level: 7 }));
/// assert_eq!("zstd".parse(), Ok(CompressionSetting::Zstd { level: 3 }));
/// assert!("zstd:23".parse::<CompressionSetting>().is_err());
/// assert_eq!(CompressionSetting::default().to_string(), "none");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompressionSetting {
    /// Not at all.
    #[default]
    None,
    /// With LZ4: fast, for what is easily compressed. Needs the cargo feature `lz4`.
    Lz4,
    /// With Zstandard: smaller. Needs the cargo feature `zstd`.
    Zstd {
        /// How hard to try: one of [`LEVELS`](CompressionSetting::LEVELS); 0 means the default.
        level: i32,
    },
}

impl CompressionSetting {
    /// The levels of Zstandard, from the fastest to the one that makes the smallest files.
    pub const LEVELS: RangeInclusive<i32> = -131_072..=22;

    /// The level of Zstandard that holds when nobody says otherwise.
    pub const DEFAULT_LEVEL: i32 = 3;

    /// What a payload file says of it.
    #[must_use]
    pub const fn compression(self) -> Compression {
        match self {
            Self::None => Compression::NONE,
            Self::Lz4 => Compression::LZ4,
            Self::Zstd { .. } => Compression::ZSTD,
        }
    }

    /// Checks that this build can compress so.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the cargo feature that is off, or the levels that there are.
    pub fn check(self) -> Result<(), Error> {
        if let Self::Zstd { level } = self
            && !Self::LEVELS.contains(&level)
        {
            return Err(Error::config(format!(
                "{level} is not a level of zstd, which go from {} to {}; {} is a good one",
                Self::LEVELS.start(),
                Self::LEVELS.end(),
                Self::DEFAULT_LEVEL
            )));
        }
        if self.compression().is_supported() {
            return Ok(());
        }
        let name = self.compression();
        Err(Error::config(format!(
            "this build of fsgather cannot compress with {name}, since its cargo feature `{name}` is off; switch \
             that on, or choose another compression"
        )))
    }
}

impl fmt::Display for CompressionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zstd { level } => write!(f, "zstd:{level}"),
            Self::None | Self::Lz4 => self.compression().fmt(f),
        }
    }
}

impl FromStr for CompressionSetting {
    type Err = Error;

    /// Reads `none`, `lz4`, `zstd` or `zstd:LEVEL`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with an example of a right one. Whether the build knows it is not asked here, but
    /// by [`check`](Self::check).
    fn from_str(text: &str) -> Result<Self, Error> {
        let level = |text: &str| {
            let level: i32 = text.parse().ok()?;
            (Self::LEVELS.contains(&level) && !text.starts_with('+')).then_some(level)
        };
        let read = match text.split_once(':') {
            None => match text {
                "none" => Some(Self::None),
                "lz4" => Some(Self::Lz4),
                "zstd" => Some(Self::Zstd {
                    level: Self::DEFAULT_LEVEL,
                }),
                _ => None,
            },
            Some(("zstd", text)) => level(text).map(|level| Self::Zstd { level }),
            Some(_) => None,
        };
        read.ok_or_else(|| {
            Error::config(format!(
                "{text:?} is not none, lz4, zstd or zstd:LEVEL with a level from {} to {}; a right one is zstd:{}",
                Self::LEVELS.start(),
                Self::LEVELS.end(),
                Self::DEFAULT_LEVEL
            ))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All ways of compressing that this build has.
    pub(crate) fn supported() -> Vec<CompressionSetting> {
        let all = [
            CompressionSetting::None,
            CompressionSetting::Lz4,
            CompressionSetting::Zstd { level: -50 },
            CompressionSetting::Zstd { level: 1 },
            CompressionSetting::Zstd { level: 3 },
        ];
        all.into_iter()
            .filter(|setting| setting.check().is_ok())
            .collect()
    }

    proptest! {
        #[test]
        fn levels_print_and_parse_both_ways(level in prop_oneof![-30..30, any::<i32>()]) {
            let setting = CompressionSetting::Zstd { level };
            let parsed = setting.to_string().parse();
            prop_assert_eq!(parsed.is_ok(), CompressionSetting::LEVELS.contains(&level));
            prop_assert!(parsed.is_err() || parsed == Ok(setting));
        }

        #[test]
        fn no_text_is_read_in_two_ways(text in "(none|lz4|zstd|[a-z]{0,3})[:+ ]{0,2}[+-]?[0-9]{0,3}") {
            if let Ok(setting) = text.parse::<CompressionSetting>() {
                prop_assert_eq!(setting.to_string().parse(), Ok(setting));
            }
        }
    }

    #[test]
    fn words_and_levels_are_read_and_nothing_else() {
        for (text, setting) in [
            ("none", CompressionSetting::None),
            ("lz4", CompressionSetting::Lz4),
            ("zstd", CompressionSetting::Zstd { level: 3 }),
            ("zstd:22", CompressionSetting::Zstd { level: 22 }),
            ("zstd:-5", CompressionSetting::Zstd { level: -5 }),
        ] {
            assert_eq!(text.parse(), Ok(setting));
        }
        for text in [
            "", "gzip", "LZ4", "lz4:1", "zstd:", "zstd:23", "zstd:+1", "zstd: 1", "zstd:3:3",
        ] {
            let error = text.parse::<CompressionSetting>().unwrap_err().to_string();
            let example = error.split(' ').next_back().unwrap();
            assert!(example.parse::<CompressionSetting>().is_ok(), "{error}");
        }
    }

    #[test]
    fn levels_that_do_not_exist_are_refused_with_those_that_do() {
        let error = CompressionSetting::Zstd { level: 23 }.check().unwrap_err();
        assert!(error.to_string().contains("from -131072 to 22"), "{error}");
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn the_levels_are_those_of_the_library() {
        assert_eq!(zstd::compression_level_range(), CompressionSetting::LEVELS);
        assert_eq!(
            zstd::DEFAULT_COMPRESSION_LEVEL,
            CompressionSetting::DEFAULT_LEVEL
        );
    }

    #[test]
    fn what_the_build_lacks_is_told_with_the_cargo_feature() {
        for (setting, feature) in [
            (CompressionSetting::Lz4, "lz4"),
            (CompressionSetting::Zstd { level: 3 }, "zstd"),
        ] {
            let compression = setting.compression();
            if compression.is_supported() {
                assert_eq!(setting.check(), Ok(()));
                continue;
            }
            let named = format!("cargo feature `{feature}`");
            let writing = setting.check().unwrap_err();
            assert!(matches!(writing, Error::Config { .. }), "{writing}");
            assert!(writing.to_string().contains(&named), "{writing}");
            let reading = compression.unsupported("a payload".into());
            assert!(matches!(reading, Error::Incompatible { .. }), "{reading}");
            assert!(reading.to_string().contains(&named), "{reading}");
        }
    }
}
