//! The names of marker files, parsed both ways: [`HostName`], [`MarkerName`]. Pure.

use std::fmt;

use fsgather_core::{Rank, WorldSize};

use crate::layout::{decimal, hex};

/// `host-<label>`: a directory of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostName(pub(crate) u64);

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host-{:016x}", self.0)
    }
}

impl HostName {
    /// Parses a name; `None` for names that are not ours.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        hex(name.strip_prefix("host-")?, 16).map(Self)
    }
}

/// The name of a marker file. The nonce makes every attempt a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MarkerName {
    /// `letter-r<rank>-s<sender>-n<number>-<nonce>`, in `in/<host>/`.
    Letter {
        from: Rank,
        sender: u64,
        number: u64,
        nonce: u32,
    },
    /// `bulletin-n<number>-all-<nonce>` or `bulletin-n<number>-r<rank>-<nonce>`, in `out/`.
    Bulletin {
        number: u64,
        to: Option<Rank>,
        nonce: u32,
    },
    /// `reserve-r<rank>-<nonce>`, beside a rank's messages: space for its last ones on a full disk.
    Reserve { from: Rank, nonce: u32 },
    /// `beat-r<rank>-n<number>-<nonce>`, in `live/<host>/`.
    Beat { from: Rank, number: u64, nonce: u32 },
}

impl fmt::Display for MarkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Letter {
                from,
                sender,
                number,
                nonce,
            } => write!(
                f,
                "letter-r{:05}-s{sender:016x}-n{number:020}-{nonce:08x}",
                from.get()
            ),
            Self::Bulletin {
                number,
                to: None,
                nonce,
            } => write!(f, "bulletin-n{number:020}-all-{nonce:08x}"),
            Self::Bulletin {
                number,
                to: Some(rank),
                nonce,
            } => write!(f, "bulletin-n{number:020}-r{:05}-{nonce:08x}", rank.get()),
            Self::Reserve { from, nonce } => {
                write!(f, "reserve-r{:05}-{nonce:08x}", from.get())
            }
            Self::Beat {
                from,
                number,
                nonce,
            } => write!(f, "beat-r{:05}-n{number:020}-{nonce:08x}", from.get()),
        }
    }
}

impl MarkerName {
    /// Parses a name; `None` for names that are not ours.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let kind = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let (nonce, rest) = rest.split_last()?;
        let nonce = u32::try_from(hex(nonce, 8)?).ok()?;
        match (kind, rest) {
            ("letter", [from, sender, number]) => Some(Self::Letter {
                from: rank(from)?,
                sender: hex(sender.strip_prefix('s')?, 16)?,
                number: count(number)?,
                nonce,
            }),
            ("bulletin", [number, to]) => Some(Self::Bulletin {
                number: count(number)?,
                to: match *to {
                    "all" => None,
                    other => Some(rank(other)?),
                },
                nonce,
            }),
            ("reserve", [from]) => Some(Self::Reserve {
                from: rank(from)?,
                nonce,
            }),
            ("beat", [from, number]) => Some(Self::Beat {
                from: rank(from)?,
                number: count(number)?,
                nonce,
            }),
            _ => None,
        }
    }
}

fn rank(text: &str) -> Option<Rank> {
    let rank = decimal(text.strip_prefix('r')?, 5)?;
    let is_valid = rank < u64::from(WorldSize::MAX);
    is_valid.then(|| u32::try_from(rank).ok().map(Rank::new))?
}

fn count(text: &str) -> Option<u64> {
    decimal(text.strip_prefix('n')?, 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::MAX_NAME_LEN;

    #[test]
    fn names_explain_themselves_and_parse_both_ways() {
        let (from, nonce) = (Rank::new(3), 0xbeef);
        let names = [
            (
                MarkerName::Letter {
                    from,
                    sender: 0x1234,
                    number: 7,
                    nonce,
                },
                "letter-r00003-s0000000000001234-n00000000000000000007-0000beef",
            ),
            (
                MarkerName::Bulletin {
                    number: u64::MAX,
                    to: None,
                    nonce,
                },
                "bulletin-n18446744073709551615-all-0000beef",
            ),
            (
                MarkerName::Bulletin {
                    number: 8,
                    to: Some(from),
                    nonce,
                },
                "bulletin-n00000000000000000008-r00003-0000beef",
            ),
            (
                MarkerName::Reserve { from, nonce },
                "reserve-r00003-0000beef",
            ),
            (
                MarkerName::Beat {
                    from,
                    number: 9,
                    nonce,
                },
                "beat-r00003-n00000000000000000009-0000beef",
            ),
        ];
        for (name, text) in names {
            assert_eq!(name.to_string(), text);
            assert_eq!(MarkerName::parse(text), Some(name));
            assert!(text.len() <= MAX_NAME_LEN);
        }
        assert_eq!(HostName::parse(&HostName(7).to_string()), Some(HostName(7)));
    }

    #[test]
    fn foreign_names_are_not_ours() {
        for name in [
            "",
            "letter",
            "letter-r00003-s0000000000001234-n00000000000000000007",
            "letter-r3-s0000000000001234-n00000000000000000007-0000beef",
            "letter-r99999-s0000000000001234-n00000000000000000007-0000beef",
            "LETTER-r00003-s0000000000001234-n00000000000000000007-0000beef",
            "bulletin-n00000000000000000008-none-0000beef",
            "bulletin-n00000000000000000008-all-0000beef-x",
            "beat-00000000000000000009",
            ".nfs000000000000000100000001",
        ] {
            assert_eq!(MarkerName::parse(name), None, "{name}");
        }
        assert_eq!(HostName::parse("host-7"), None);
    }
}
