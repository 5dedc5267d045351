//! Ports to listen on: [`PortRange`].

use std::{fmt, ops::RangeInclusive};

/// The ports that may be listened on.
///
/// ```
/// use fsgather_config::settings::PortRange;
///
/// let range = PortRange::new(60001, 60003).unwrap();
/// assert_eq!(range.ports().collect::<Vec<_>>(), [60001, 60002, 60003]);
/// // Any free port: the system chooses one when asked for port 0.
/// assert_eq!(PortRange::ANY.ports().collect::<Vec<_>>(), [0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Whichever port is free.
    pub const ANY: Self = Self { first: 0, last: 0 };

    /// The ports from `first` to `last`, both included; `None` when that is none or includes port 0.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || last < first {
            None
        } else {
            Some(Self { first, last })
        }
    }

    /// Whether any port will do.
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.first == 0
    }

    /// The ports to try, in order; port 0, by which the system chooses, when any will do.
    #[must_use]
    pub fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::ANY);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::new(port(first)?, port(last)?)
    }
}

impl Default for PortRange {
    fn default() -> Self {
        Self::ANY
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// One port in plain digits, not 0.
pub(super) fn port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_are_any_one_or_a_range() {
        assert_eq!(PortRange::parse("0"), Some(PortRange::ANY));
        assert_eq!(PortRange::parse("80"), PortRange::new(80, 80));
        assert_eq!(
            PortRange::parse("60001-60999"),
            PortRange::new(60001, 60999)
        );
        for text in [
            "", "-", "-1", "1-", "0-5", "9-8", "65536", "1-65536", "+5", "1-2-3", "a", " 1",
        ] {
            assert_eq!(PortRange::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn ranges_print_and_parse_both_ways(first: u16, last: u16) {
            if let Some(range) = PortRange::new(first, last) {
                prop_assert_eq!(PortRange::parse(&range.to_string()), Some(range));
                prop_assert!(!range.is_any() && !range.ports().contains(&0));
            }
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "[0-9-]{0,12}|\\PC{0,12}") {
            if let Some(range) = PortRange::parse(&text) {
                prop_assert_eq!(PortRange::parse(&range.to_string()), Some(range));
            }
        }
    }
}
