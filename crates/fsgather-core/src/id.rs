//! The name of one gather directory: [`GatherId`], a time stamp and a salt.

use std::{
    fmt,
    ops::Range,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A number of 31 bits that keeps two ids of the same second apart; random except for a tag that it may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Salt(u32);

impl Salt {
    /// Takes the low 31 bits of a random number.
    #[must_use]
    pub const fn from_random(random: u32) -> Self {
        Self(random & 0x7fff_ffff)
    }

    /// Like [`from_random`](Self::from_random), but the first [`TAG_BITS`](Self::TAG_BITS) bits are those of a tag, so
    /// that a name shows its owner.
    #[must_use]
    pub const fn tagged(tag: u16, random: u32) -> Self {
        let rest = 31 - Self::TAG_BITS;
        Self::from_random((tag as u32) << rest | random & ((1 << rest) - 1))
    }

    /// Number of bits that a tag has.
    pub const TAG_BITS: u32 = 10;

    /// The tag: the first bits.
    #[must_use]
    pub const fn tag(self) -> u16 {
        // Ten bits are left.
        (self.0 >> (31 - Self::TAG_BITS)) as u16
    }

    /// The number itself, below 2^31.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Time stamp (whole seconds, UTC) and salt, drawn by rank 0, that name one gather directory.
///
/// The text form is fixed-width, lower-case and sorts by time: `20261121t033336z-5f3a9c01`. Text and
/// value convert both ways without loss. Times outside the years 1970 to 9999 cannot be written.
///
/// ```
/// use fsgather_core::{GatherId, Salt};
/// use std::time::{Duration, UNIX_EPOCH};
///
/// let id = GatherId::new(UNIX_EPOCH + Duration::from_secs(1_795_232_016), Salt::from_random(7));
/// assert_eq!(id.to_string(), "20261121t033336z-00000007");
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GatherId {
    seconds: u64,
    salt: Salt,
}

/// The last second of the year 9999, the last that four digits of year can name.
const LAST_SECOND: u64 = 253_402_300_799;

impl GatherId {
    /// The length of the text form, in bytes.
    pub const TEXT_LEN: usize = 25;

    /// Joins a time, cut to whole seconds, and a salt.
    ///
    /// Times before 1970 or after 9999 are moved to the nearest one that can be written.
    #[must_use]
    pub fn new(time: SystemTime, salt: Salt) -> Self {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs().min(LAST_SECOND));
        Self { seconds, salt }
    }

    /// Returns the time at which the id was drawn, by rank 0's clock.
    #[must_use]
    pub fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.seconds)
    }

    /// The salt.
    #[must_use]
    pub const fn salt(self) -> Salt {
        self.salt
    }
}

impl fmt::Display for GatherId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // RFC 3339 without its separators, which are awkward in file names.
        let stamp = humantime::format_rfc3339_seconds(self.time()).to_string();
        for part in stamp.split(['-', ':']) {
            f.write_str(&part.to_ascii_lowercase())?;
        }
        write!(f, "-{:08x}", self.salt.get())
    }
}

/// The reason why a text is not a [`GatherId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a gather id such as 20261121t033336z-5f3a9c01")]
pub struct ParseGatherIdError {
    text: String,
}

impl FromStr for GatherId {
    type Err = ParseGatherIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseGatherIdError {
            text: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<GatherId> {
    let (stamp, salt) = text.split_once('-')?;
    let part = |range| stamp.get::<Range<usize>>(range);
    let rfc3339 = format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0..4)?,
        part(4..6)?,
        part(6..8)?,
        part(9..11)?,
        part(11..13)?,
        part(13..15)?,
    );
    let id = GatherId::new(
        humantime::parse_rfc3339(&rfc3339).ok()?,
        Salt::from_random(u32::from_str_radix(salt, 16).ok()?),
    );
    // One id has one spelling: a text that differs from the printed id is refused.
    (id.to_string() == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_value_convert_both_ways(seconds in 0..=LAST_SECOND, random: u32) {
            let id = GatherId::new(
                UNIX_EPOCH + Duration::from_secs(seconds),
                Salt::from_random(random),
            );
            let text = id.to_string();
            prop_assert_eq!(text.len(), GatherId::TEXT_LEN);
            prop_assert!(text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')));
            prop_assert_eq!(text.parse(), Ok(id));
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC{0,40}") {
            if let Ok(id) = text.parse::<GatherId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }

    proptest! {
        #[test]
        fn a_salt_keeps_its_tag(tag in 0_u16..1 << Salt::TAG_BITS, random: u32) {
            let salt = Salt::tagged(tag, random);
            prop_assert_eq!(salt.tag(), tag);
            prop_assert!(salt.get() <= 0x7fff_ffff);
        }
    }

    #[test]
    fn near_misses_are_refused() {
        for text in [
            "",
            "20261121t033336z",
            "20261121t033336z-5f3a9c0",
            "20261121T033336z-5f3a9c01",
            "20261121t033336z-5F3A9C01",
            "20261321t033336z-5f3a9c01",
            "20261121t033336z-ff3a9c01",
            "20261121x033336z-5f3a9c01",
            "20261121t033336z-5f3a9c012",
            "20261121t033336z-+f3a9c01",
            "20261121t033336z5-5f3a9c01",
            "20261121t03333éz-5f3a9c01",
            "2026112-t033336z-5f3a9c01",
        ] {
            assert!(text.parse::<GatherId>().is_err(), "{text}");
        }
    }
}
