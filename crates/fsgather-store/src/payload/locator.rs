//! Describes a payload for its readers: [`Locator`]. Pure.

use fsgather_core::{Error, bytes_text};
use serde::{Deserialize, Serialize};

use crate::{
    layout::PayloadName,
    payload::format::{self, Compression, Encoding, Footer, Header},
};

/// Name, lengths and digest of a payload.
///
/// A file is accepted only if all of it agrees with the locator. Deserialisation checks the name, so that it cannot lead out of
/// the gather directory; [`Locator::check`] checks the lengths, which are also compared with the file before memory is
/// allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locator {
    /// Name of the file in `payloads/`, with channel, epoch and rank.
    pub name: PayloadName,
    /// Encoding of the payload.
    pub encoding: Encoding,
    /// Compression of the payload.
    pub compression: Compression,
    /// Length in bytes.
    pub raw_len: u64,
    /// Length in the file, in bytes.
    pub stored_len: u64,
    /// Number of chunks.
    pub chunk_count: u64,
    /// The digest of header, chunk table and lengths.
    pub digest: u128,
}

impl Locator {
    /// Makes the locator of a payload file with this header and footer.
    pub(crate) const fn new(header: &Header, footer: &Footer) -> Self {
        Self {
            name: header.name,
            encoding: header.encoding,
            compression: header.compression,
            raw_len: footer.raw_len,
            stored_len: footer.stored_len,
            chunk_count: footer.chunk_count,
            digest: footer.digest,
        }
    }

    /// Checks that the lengths are consistent, and returns the length of the file in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] for a compression that this build does not know, with the missing cargo feature, and
    /// [`Error::Corrupt`] for lengths that no writer announces.
    pub fn check(&self) -> Result<u64, Error> {
        if !self.compression.is_supported() {
            return Err(self.unsupported());
        }
        let implausible =
            |reason: String| Error::corrupt(self.name.to_string(), reason, None, None);
        let chunks = format::chunk_count(self.raw_len);
        // A chunk takes at least one byte, and never more than its raw length.
        let is_right = if self.compression == Compression::NONE {
            self.stored_len == self.raw_len
        } else {
            (chunks..=self.raw_len).contains(&self.stored_len)
        };
        if self.chunk_count != chunks || !is_right {
            return Err(implausible(format!(
                "{} bytes in {} chunks, stored as {} bytes, were announced, which do not fit together",
                self.raw_len, self.chunk_count, self.stored_len
            )));
        }
        format::file_len(self.stored_len, self.chunk_count).ok_or_else(|| {
            implausible(format!(
                "{} were announced, more than a file can hold",
                bytes_text(self.raw_len)
            ))
        })
    }

    /// Returns the error of a build that cannot decompress the payload.
    pub(crate) fn unsupported(&self) -> Error {
        self.compression.unsupported(format!(
            "the compression of the payload of rank {}",
            self.name.rank()
        ))
    }

    /// Returns true if the payload is in its file unchanged and contiguous: without compression, or if no chunk became shorter.
    pub(crate) const fn is_contiguous(&self) -> bool {
        self.stored_len == self.raw_len
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{ChannelId, Epoch, Rank};
    use proptest::prelude::*;

    use super::*;
    use crate::payload::compression::supported;

    fn locator(raw_len: u64) -> Locator {
        Locator {
            name: PayloadName::new(ChannelId::WORLD, Epoch::new(1), Rank::new(2), 3),
            encoding: Encoding(4),
            compression: Compression::NONE,
            raw_len,
            stored_len: raw_len,
            chunk_count: format::chunk_count(raw_len),
            digest: u128::MAX / 3,
        }
    }

    proptest! {
        #[test]
        fn locators_travel(raw_len: u64) {
            let locator = locator(raw_len);
            let bytes = postcard::to_stdvec(&locator).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Locator>(&bytes).unwrap(), locator);
            prop_assert!(bytes.len() < 150, "{} bytes", bytes.len());
        }

        #[test]
        fn lengths_that_do_not_fit_together_are_refused(raw_len: u64, stored_len: u64, chunk_count: u64) {
            let announced = Locator { stored_len, chunk_count, ..locator(raw_len) };
            prop_assert_eq!(
                announced.check().is_ok(),
                announced == locator(raw_len) && format::file_len(stored_len, chunk_count).is_some()
            );
        }

        #[test]
        fn compressed_payloads_are_announced_shorter_or_not_at_all(
            raw_len in prop_oneof![0_u64..5_000_000, any::<u64>()],
            stored_len in prop_oneof![0_u64..5_000_000, any::<u64>()],
        ) {
            for setting in supported() {
                let announced = Locator {
                    compression: setting.into(),
                    stored_len,
                    ..locator(raw_len)
                };
                if let Ok(len) = announced.check() {
                    prop_assert!((announced.chunk_count..=raw_len).contains(&stored_len));
                    prop_assert!(len > stored_len);
                }
            }
        }
    }

    #[test]
    fn a_locator_cannot_lead_out_of_the_directory() {
        let mut bytes = postcard::to_stdvec(&locator(9)).unwrap();
        // The name comes first, after one byte of length.
        bytes[1..4].copy_from_slice(b"../");
        let error = postcard::from_bytes::<Locator>(&bytes).unwrap_err();
        assert!(!error.to_string().is_empty());
    }

    #[test]
    fn unknown_compression_is_incompatible() {
        let announced = Locator {
            compression: Compression(9),
            ..locator(1)
        };
        assert!(matches!(announced.check(), Err(Error::Incompatible { .. })));
    }

    #[test]
    fn missing_compression_is_reported_with_its_cargo_feature() {
        let announced = Locator {
            compression: Compression::ZSTD,
            ..locator(1)
        };
        match announced.check() {
            Ok(_) => assert!(Compression::ZSTD.is_supported()),
            Err(error) => {
                assert!(matches!(error, Error::Incompatible { .. }), "{error}");
                assert!(
                    error.to_string().contains("cargo feature `zstd`"),
                    "{error}"
                );
                assert!(!Compression::ZSTD.is_supported());
            }
        }
    }

    #[test]
    fn payloads_above_four_gib_have_files_above_four_gib() {
        let len = locator(6 << 30).check().unwrap();
        assert_eq!(len, (6 << 30) + 6 * 1024 * 16 + 176);
    }
}
