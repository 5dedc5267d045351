//! Selects the network interfaces to publish: [`InterfaceFilter`].

use std::{fmt, net::IpAddr};

/// A rule that network interfaces and their addresses pass or do not.
///
/// It is a comma list. An entry is a name, the first part of a name, or an address block:
///
/// - `ib` is every interface whose name begins so; `eth1` is `eth1`, `eth1.100` and `eth1:0`, but not
///   `eth10`, for a number is never cut in two;
/// - `10.1.0.0/16` or `fd00::/8` is every address in that block, `10.1.0.7` that one address;
/// - `^` before an entry leaves out what it names. Before the first entry it leaves out what any entry
///   names, as is usual with this notation: `^docker,lo` is all but those two.
///
/// An address passes when no entry leaves it out and, if there are entries that take in, one of those does.
///
/// ```
/// use fsgather_config::settings::InterfaceFilter;
///
/// let filter = InterfaceFilter::parse("ib,10.0.0.0/8,^10.9.0.0/16").unwrap();
/// assert!(filter.matches("ib0", "192.168.0.1".parse()?));
/// assert!(filter.matches("eth0", "10.1.2.3".parse()?));
/// assert!(!filter.matches("eth0", "10.9.2.3".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFilter {
    take_in: Vec<Entry>,
    leave_out: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Name(String),
    Block { network: IpAddr, length: u8 },
}

impl InterfaceFilter {
    /// A rule that everything passes.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Reads a rule; `None` when the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (text, all_left_out) = match text.trim().strip_prefix('^') {
            Some(rest) if rest.starts_with('^') => return None,
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let mut filter = Self::any();
        for item in text.split(',') {
            let item = item.trim();
            match item.strip_prefix('^') {
                Some(item) => filter.leave_out.push(Entry::parse(item)?),
                None if all_left_out => filter.leave_out.push(Entry::parse(item)?),
                None => filter.take_in.push(Entry::parse(item)?),
            }
        }
        Some(filter)
    }

    /// Whether everything passes.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.take_in.is_empty() && self.leave_out.is_empty()
    }

    /// Whether an address of an interface passes.
    #[must_use]
    pub fn matches(&self, name: &str, address: IpAddr) -> bool {
        let names = |entry: &Entry| entry.names(name, address);
        let taken_in = self.take_in.is_empty() || self.take_in.iter().any(names);
        taken_in && !self.leave_out.iter().any(names)
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if let Some((network, length)) = text.split_once('/') {
            let network: IpAddr = network.parse().ok()?;
            let plain = length.bytes().all(|b| b.is_ascii_digit());
            let length = length.parse().ok().filter(|_| plain)?;
            return (length <= bits(network)).then_some(Self::Block { network, length });
        }
        if let Ok(network) = text.parse() {
            let length = bits(network);
            return Some(Self::Block { network, length });
        }
        let misplaced = |c: char| c.is_whitespace() || c.is_control() || c == '^';
        (!text.is_empty() && !text.contains(misplaced)).then(|| Self::Name(text.into()))
    }

    fn names(&self, name: &str, address: IpAddr) -> bool {
        match self {
            Self::Name(prefix) => name.strip_prefix(prefix.as_str()).is_some_and(|rest| {
                let cuts_a_number = prefix.ends_with(|c: char| c.is_ascii_digit())
                    && rest.starts_with(|c: char| c.is_ascii_digit());
                !cuts_a_number
            }),
            Self::Block { network, length } => match (network, address) {
                (IpAddr::V4(network), IpAddr::V4(address)) => agree(
                    u128::from(network.to_bits()),
                    u128::from(address.to_bits()),
                    32 - u32::from(*length),
                ),
                (IpAddr::V6(network), IpAddr::V6(address)) => agree(
                    network.to_bits(),
                    address.to_bits(),
                    128 - u32::from(*length),
                ),
                _ => false,
            },
        }
    }
}

/// Number of bits that an address of this kind has.
const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Whether two numbers agree but for so many of their last bits.
fn agree(one: u128, other: u128, but_for: u32) -> bool {
    (one ^ other).checked_shr(but_for).unwrap_or(0) == 0
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Block { network, length } => write!(f, "{network}/{length}"),
        }
    }
}

impl fmt::Display for InterfaceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("all");
        }
        let take_in = self.take_in.iter().map(ToString::to_string);
        let leave_out = self.leave_out.iter().map(|entry| format!("^{entry}"));
        let entries: Vec<String> = take_in.chain(leave_out).collect();
        f.write_str(&entries.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passes(rule: &str, name: &str, address: &str) -> bool {
        InterfaceFilter::parse(rule)
            .unwrap()
            .matches(name, address.parse().unwrap())
    }

    #[test]
    fn names_and_their_first_parts_take_in() {
        for (rule, name, passing) in [
            ("eth0", "eth0", true),
            ("eth", "eth0", true),
            ("eth0", "eth", false),
            ("eth0", "veth0", false),
            ("eth1", "eth10", false),
            ("eth1", "eth1.100", true),
            ("eth1", "eth1:0", true),
            ("enp1", "enp1s0", true),
            ("enp1", "enp12s0", false),
            ("ib,eth", "eth0", true),
            ("ib, eth", "eth0", true),
            ("ib,eth", "lo", false),
        ] {
            assert_eq!(passes(rule, name, "10.0.0.1"), passing, "{rule} {name}");
        }
    }

    #[test]
    fn a_caret_leaves_out_and_before_the_first_entry_all_of_them() {
        for (rule, name, passing) in [
            ("^lo", "lo", false),
            ("^lo", "eth0", true),
            ("^docker,lo", "docker0", false),
            ("^docker,lo", "lo", false),
            ("^docker,lo", "eth0", true),
            ("^docker,^lo", "lo", false),
            ("eth,^eth1", "eth0", true),
            ("eth,^eth1", "eth1", false),
            ("eth,^eth1", "ib0", false),
        ] {
            assert_eq!(passes(rule, name, "10.0.0.1"), passing, "{rule} {name}");
        }
    }

    #[test]
    fn address_blocks_take_in_and_leave_out() {
        for (rule, address, passing) in [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.2.3/16", "10.1.9.9", true),
            ("10.1.0.7", "10.1.0.7", true),
            ("10.1.0.7", "10.1.0.8", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "fe80::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::1/128", "::2", false),
            ("^10.1.0.0/16", "10.1.0.1", false),
            ("^10.1.0.0/16", "10.2.0.1", true),
            ("10.0.0.0/8,^10.1.0.0/16", "10.1.0.1", false),
        ] {
            assert_eq!(passes(rule, "eth0", address), passing, "{rule} {address}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            " ",
            ",",
            "eth0,",
            "^",
            "^^lo",
            "eth0,^",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "eth0/24",
            "a b",
            "10.0.0/8",
        ] {
            assert_eq!(InterfaceFilter::parse(text), None, "{text}");
        }
    }

    #[test]
    fn without_a_rule_everything_passes() {
        assert!(InterfaceFilter::any().is_any());
        assert!(InterfaceFilter::any().matches("lo", [127, 0, 0, 1].into()));
    }

    proptest! {
        #[test]
        fn rules_print_and_parse_both_ways(text in "[a-z0-9^,./:]{1,24}") {
            if let Some(filter) = InterfaceFilter::parse(&text) {
                let shown = filter.to_string();
                prop_assert_eq!(InterfaceFilter::parse(&shown), Some(filter));
            }
        }

        #[test]
        fn an_address_is_in_every_block_it_begins(bits: u32, length in 0..=32_u32, other: u32) {
            let (address, other) = (IpAddr::V4(bits.into()), IpAddr::V4(other.into()));
            let filter = InterfaceFilter::parse(&format!("{address}/{length}")).unwrap();
            prop_assert!(filter.matches("x", address));
            let IpAddr::V4(beside) = other else { unreachable!() };
            let same = (bits ^ beside.to_bits()).leading_zeros() >= length;
            prop_assert_eq!(filter.matches("x", other), same);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,24}") {
            let _ = InterfaceFilter::parse(&text);
        }
    }
}
