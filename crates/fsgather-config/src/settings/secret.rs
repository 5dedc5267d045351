//! The secret that members must know to join: [`Secret`], and where it is: [`SecretSetting`].

use std::{fmt, path::PathBuf};

/// 32 bytes that all ranks know and nobody else should. Its debug form does not show them.
///
/// ```
/// use fsgather_config::settings::Secret;
///
/// let hex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// let base64 = "ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8=";
/// assert_eq!(Secret::parse(hex), Secret::parse(base64));
/// assert!(Secret::parse("password").is_none());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Number of bytes that a secret has.
    pub const LEN: usize = 32;

    /// Takes the bytes as they are.
    #[must_use]
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Reads 64 hexadecimal digits, or base64 of either alphabet with or without its padding; white space
    /// around it, such as the end of a line in a file, is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        if text.len() == 2 * Self::LEN {
            from_digits(text, 4, hex_digit)
        } else {
            // 43 digits of 6 bits each are two bits more than 32 bytes, which must be zero.
            let digits = text.strip_suffix(b"=").unwrap_or(text);
            (digits.len() == 43)
                .then(|| from_digits(digits, 6, base64_digit))
                .flatten()
        }
        .map(Self)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Joins digits of `width` bits, the highest first; bits left over at the end must be zero.
fn from_digits(
    digits: &[u8],
    width: u32,
    value: impl Fn(u8) -> Option<u8>,
) -> Option<[u8; Secret::LEN]> {
    let mut bytes = [0; Secret::LEN];
    let mut filled = 0;
    let (mut bits, mut held) = (0_u32, 0_u32);
    for &digit in digits {
        bits = (bits << width) | u32::from(value(digit)?);
        held += width;
        if held >= 8 {
            held -= 8;
            *bytes.get_mut(filled)? = u8::try_from(bits >> held).ok()?;
            filled += 1;
            bits &= (1 << held) - 1;
        }
    }
    (filled == Secret::LEN && bits == 0).then_some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

fn base64_digit(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

/// The secret as variables give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSetting {
    /// The secret itself.
    Given(Secret),
    /// A file that holds it, in a form that [`Secret::parse`] reads. It has not been opened yet.
    File(PathBuf),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.concat()
    }

    /// Base64 written out by arithmetic on one long number, unlike the parser.
    fn base64(bytes: &[u8; 32], alphabet: &[u8; 64]) -> String {
        let bit = |at: usize| {
            bytes
                .get(at / 8)
                .map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1))
        };
        (0..43)
            .map(|digit| (0..6).fold(0, |value, at| value << 1 | bit(digit * 6 + at)))
            .map(|value| char::from(alphabet[value]))
            .collect()
    }

    const PLAIN: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const FOR_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    proptest! {
        #[test]
        fn secrets_are_read_in_every_usual_form(bytes: [u8; 32]) {
            let right = Some(Secret::new(bytes));
            let plain = base64(&bytes, PLAIN);
            for text in [
                hex(&bytes),
                hex(&bytes).to_uppercase(),
                format!(" {}\n", hex(&bytes)),
                format!("{plain}="),
                format!("{plain}=\n"),
                base64(&bytes, FOR_URLS),
                plain,
            ] {
                prop_assert_eq!(Secret::parse(&text), right.clone(), "{}", text);
            }
        }

        #[test]
        fn other_lengths_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let parsed = Secret::parse(&hex(&bytes));
            prop_assert_eq!(parsed.is_some(), bytes.len() == 32);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,70}|[A-Za-z0-9+/=]{43,44}") {
            let _ = Secret::parse(&text);
        }
    }

    #[test]
    fn near_misses_are_refused() {
        let digits = "A".repeat(42);
        assert!(Secret::parse(&format!("{digits}A=")).is_some());
        // Bits beyond the last byte: two texts must not mean one secret.
        assert!(Secret::parse(&format!("{digits}B=")).is_none());
        assert!(Secret::parse(&format!("{digits}A==")).is_none());
        assert!(Secret::parse(&format!("{digits}*=")).is_none());
        assert!(Secret::parse(&"g".repeat(64)).is_none());
    }

    #[test]
    fn the_debug_form_tells_nothing() {
        assert_eq!(format!("{:?}", Secret::new([7; 32])), "Secret(..)");
    }
}
