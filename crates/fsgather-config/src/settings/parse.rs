//! Plain values from text: durations, sizes, switches, modes and places to meet.
//!
//! Each parser says only whether the text is one; the caller names the variable in its error.

use std::{fmt, path::PathBuf, time::Duration};

use bytesize::ByteSize;
use fsgather_core::{ANY_MODE, Error};

/// A duration with units, such as `30s` or `1h 30m`; neither a bare number nor nothing at all.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let duration = humantime::parse_duration(text.trim()).ok()?;
    (!duration.is_zero()).then_some(duration)
}

/// A number of bytes, bare or with a unit: `4096`, `64KiB`, `1 GiB`; `kB` and its like are thousands.
pub(super) fn size(text: &str) -> Option<u64> {
    let ByteSize(bytes) = text.trim().parse().ok()?;
    // What is too large for the type comes back as the largest number there is.
    (bytes != u64::MAX).then_some(bytes)
}

/// The shortest text for a number of bytes.
pub(super) fn typed_size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = |(unit, _): &&(u64, &str)| bytes > 0 && bytes.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// `1` or `0`.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

/// The permission bits of gather directories: all for the owner, none for strangers; or any that the file system gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DirMode(u32);

impl DirMode {
    /// Nobody but the owner: `0700`.
    pub const PRIVATE: Self = Self(0o700);

    /// `any`: `0700`, where the file system has modes; otherwise whoever it lets read what is there is trusted.
    pub const ANY: Self = Self(ANY_MODE);

    /// Takes permission bits if they give everything to the owner and nothing to strangers: `0700`, `0750`
    /// (the group may read) and `0770` (the group may do everything).
    #[must_use]
    pub const fn new(bits: u32) -> Option<Self> {
        match bits {
            0o700 | 0o750 | 0o770 => Some(Self(bits)),
            _ => None,
        }
    }

    /// What a program says; see [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for bits that are none of these.
    pub(crate) fn of_bits(bits: u32) -> Result<Self, Error> {
        Self::new(bits).ok_or_else(|| {
            Error::config(format!(
                "directory mode {bits:04o} does not give everything to the owner and nothing to strangers; \
                 use 0700 or 0770"
            ))
        })
    }

    /// The permission bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 & 0o777
    }

    /// The permission bits as the store takes them, with its mark for file systems that have none.
    #[must_use]
    pub const fn mode(self) -> u32 {
        self.0
    }

    /// Whether anybody else may share in anything.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.0 != Self::PRIVATE.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "any" {
            return Some(Self::ANY);
        }
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        if !digits {
            return None;
        }
        Self::new(u32::from_str_radix(text, 8).ok()?)
    }
}

impl fmt::Display for DirMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY {
            return f.write_str("any");
        }
        write!(f, "{:04o}", self.0)
    }
}

/// Where ranks meet, when it is not the gather directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RendezvousSetting {
    /// A directory that all ranks can see: `file://DIR`.
    File(PathBuf),
    /// A port on the host of rank 0: `tcp://HOST:PORT`.
    Tcp {
        /// The host, as a name or an address, without brackets.
        host: String,
        /// The port, never 0.
        port: u16,
    },
    /// An engine that has started the ranks and introduces them, by its name: `NAME:`. Programs in Python have such.
    Engine(String),
}

impl RendezvousSetting {
    /// Host and port of an address `HOST:PORT` that a program names.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with an example, where it is none.
    pub fn host_and_port(address: &str) -> Result<(String, u16), Error> {
        split_address(address).ok_or_else(|| {
            Error::config(format!(
                "FSGATHER_RENDEZVOUS: tcp://{address} is no address such as tcp://node1:60001"
            ))
        })
    }

    /// Reads `file://DIR`, `tcp://HOST:PORT` or `NAME:`; nothing where it is none of them.
    ///
    /// ```
    /// use fsgather_config::settings::RendezvousSetting;
    ///
    /// let shared = RendezvousSetting::parse("file:///shared");
    /// assert_eq!(shared, Some(RendezvousSetting::File("/shared".into())));
    /// assert_eq!(RendezvousSetting::parse("ray:"), Some(RendezvousSetting::Engine("ray".into())));
    /// assert_eq!(RendezvousSetting::parse("2nd.engine:"), Some(RendezvousSetting::Engine("2nd.engine".into())));
    /// assert_eq!(RendezvousSetting::parse("tcp://[::1]:0"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(directory) = text.strip_prefix("file://") {
            return (!directory.is_empty()).then(|| Self::File(directory.into()));
        }
        if let Some(address) = text.strip_prefix("tcp://") {
            let (host, port) = split_address(address)?;
            return Some(Self::Tcp { host, port });
        }
        text.strip_suffix(':')
            .filter(|name| is_name(name))
            .map(|name| Self::Engine(name.to_owned()))
    }
}

/// Whether a text may name an engine.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(is_part)
}

/// Takes `HOST:PORT` apart. An address with colons is in brackets, for nobody could tell where it ends.
fn split_address(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = super::ports::port(port)?;
    let bare = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let misplaced = |c: char| c.is_whitespace() || matches!(c, '/' | '[' | ']');
    (!bare.is_empty() && !bare.contains(misplaced)).then(|| (bare.to_owned(), port))
}

impl fmt::Display for RendezvousSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(directory) => write!(f, "file://{}", directory.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Engine(name) => write!(f, "{name}:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_need_a_unit_and_may_not_be_zero() {
        for (text, seconds) in [
            ("30s", 30),
            ("5m", 300),
            ("2h", 7200),
            ("1h 30m", 5400),
            (" 1day ", 86_400),
        ] {
            assert_eq!(duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        for text in [
            "",
            "30",
            "0",
            "0s",
            "0m 0s",
            "-5s",
            "5x",
            "s",
            "99999999999999999999s",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_bare_or_have_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 64 << 10),
            ("64kib", 64 << 10),
            ("1 GiB", 1 << 30),
            ("1.5MiB", 3 << 19),
            ("64kB", 64_000),
            ("9007199254740993B", 9_007_199_254_740_993),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "KiB",
            "-1",
            "64Kib/s",
            "1e3",
            "64 pages",
            "99999999999EiB",
            "99999999999999999999",
            "nan",
            "inf",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn switches_are_one_or_zero() {
        assert_eq!((switch("1"), switch("0")), (Some(true), Some(false)));
        for text in ["", "true", "01", " 1", "yes"] {
            assert_eq!(switch(text), None);
        }
    }

    #[test]
    fn modes_give_nothing_to_strangers_and_everything_to_the_owner() {
        for (text, bits, shared) in [
            ("0700", 0o700, false),
            ("700", 0o700, false),
            ("0750", 0o750, true),
            ("0770", 0o770, true),
            ("any", 0o700, true),
        ] {
            let mode = DirMode::parse(text).unwrap();
            assert_eq!((mode.bits(), mode.is_shared()), (bits, shared));
            assert_eq!(DirMode::parse(&mode.to_string()), Some(mode));
        }
        for text in [
            "", "0755", "0777", "0600", "0570", "2770", "0o700", "+700", "rwx", "Any", "0o100700",
            "100700",
        ] {
            assert_eq!(DirMode::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_modes_without_strangers_can_be_made() {
        let made: Vec<u32> = (0..=0o7777)
            .filter(|bits| DirMode::new(*bits).is_some())
            .collect();
        assert_eq!(made, [0o700, 0o750, 0o770]);
    }

    #[test]
    fn places_to_meet_are_directories_or_ports() {
        let tcp = |host: &str, port| RendezvousSetting::Tcp {
            host: host.into(),
            port,
        };
        for (text, place) in [
            ("file:///x/y", RendezvousSetting::File("/x/y".into())),
            ("file://y", RendezvousSetting::File("y".into())),
            ("tcp://node1:29500", tcp("node1", 29500)),
            ("tcp://10.0.0.1:1", tcp("10.0.0.1", 1)),
            ("tcp://[fe80::1]:65535", tcp("fe80::1", 65535)),
        ] {
            let parsed = RendezvousSetting::parse(text).unwrap();
            assert_eq!(parsed, place);
            assert_eq!(parsed.to_string(), text);
        }
        for text in [
            "",
            "/x/y",
            "file://",
            "node1:29500",
            "tcp://node1",
            "tcp://:29500",
            "tcp://node1:0",
            "tcp://node1:65536",
            "tcp://node1:+5",
            "tcp://fe80::1:29500",
            "tcp://[fe80::1:29500",
            "tcp://[]:29500",
            "tcp://node 1:29500",
            "tcp://node1/x:29500",
            "http://node1:29500",
        ] {
            assert_eq!(RendezvousSetting::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn durations_print_and_parse_both_ways(millis in 1..10_u64.pow(15)) {
            let value = Duration::from_millis(millis);
            let text = fsgather_core::typed_duration_text(value);
            prop_assert_eq!(duration(&text), Some(value));
        }

        #[test]
        fn sizes_print_and_parse_both_ways(bytes in 0..u64::MAX, kibibytes in 0..1_u64 << 54) {
            prop_assert_eq!(size(&typed_size(bytes)), Some(bytes));
            prop_assert_eq!(size(&typed_size(kibibytes << 10)), Some(kibibytes << 10));
            prop_assert_eq!(size(&bytes.to_string()), Some(bytes));
            prop_assert_eq!(size(&format!("{kibibytes}KiB")), Some(kibibytes << 10));
        }

        #[test]
        fn places_print_and_parse_both_ways(text in "(file|tcp)://[a-z0-9:/.\\[\\]]{0,12}:[0-9]{1,5}") {
            if let Some(place) = RendezvousSetting::parse(&text) {
                prop_assert_eq!(RendezvousSetting::parse(&place.to_string()), Some(place));
            }
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC{0,24}", number in "[0-9.]{0,24}[a-zA-Z]{0,3}") {
            for text in [text, number] {
                let _ = (duration(&text), size(&text), switch(&text), DirMode::parse(&text));
                let _ = RendezvousSetting::parse(&format!("tcp://{text}"));
            }
        }
    }
}
