//! The head of each file of samples: [`SampleFileHeader`]. Pure.
//!
//! ```text
//! "fsgather samples"    u32 version    u64 length    u64 check    header, in postcard    expected samples
//! ```

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fsgather_core::{Error, ProcessId, hash::Hash64, read_value};
use serde::{Deserialize, Serialize};

use crate::layout::SampleFileName;

/// The first bytes of every version of these files.
const TITLE: &[u8; 16] = b"fsgather samples";
/// The version that this build writes and reads.
const VERSION: u32 = 1;
/// Length of what precedes the header.
pub(crate) const PREAMBLE_BYTES: usize = 36;
/// Longest header, in bytes. A configuration must fit.
pub(crate) const MAX_HEADER_BYTES: usize = 4 << 20;

/// The origin of a file of samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleFileHeader {
    /// Name of the encoding of the results.
    pub encoding: String,
    /// Configuration of the evaluation, if one was stated: setting and value.
    pub config: Option<BTreeMap<String, String>>,
    /// Number of ranks of the attempt.
    pub world_size: u32,
    /// The process that writes the file.
    pub process: ProcessId,
    /// The job, if its launcher names it.
    pub job: Option<String>,
    /// Start of the attempt, in seconds since 1970 by the clock of its host. Shown, and never compared.
    pub began: u64,
}

impl SampleFileHeader {
    /// The beginning of all files of a process: the header, and the expected samples if they are stated there.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a configuration that does not fit.
    pub(crate) fn to_bytes(
        &self,
        name: SampleFileName,
        expectation: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut body = postcard::to_allocvec(self)
            .map_err(|error| Error::config(format!("samples cannot be described: {error}")))?;
        if body.len() > MAX_HEADER_BYTES {
            return Err(Error::config(format!(
                "the configuration of these samples takes {}, at most {} are possible; give its hash instead",
                fsgather_core::bytes_text(body.len() as u64),
                fsgather_core::bytes_text(MAX_HEADER_BYTES as u64),
            )));
        }
        body.extend_from_slice(expectation);
        let preamble = Preamble::new(VERSION, body.len() as u64, Hash64::of(&body), name);
        let mut bytes = preamble.to_bytes().to_vec();
        bytes.append(&mut body);
        Ok(bytes)
    }

    /// Reads the header, and returns its length.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<(Self, usize)> {
        let (header, rest) = read_value(bytes).ok()?;
        Some((header, bytes.len() - rest.len()))
    }

    /// Returns the start of the attempt.
    #[must_use]
    pub fn began(&self) -> SystemTime {
        UNIX_EPOCH
            .checked_add(Duration::from_secs(self.began))
            .unwrap_or(UNIX_EPOCH)
    }
}

/// The first bytes of a file. No version changes their places or the check, which proves that a file is one of another version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preamble {
    version: u32,
    /// Length of the header and the expected samples.
    pub(crate) body_len: u64,
    check: u64,
}

impl Preamble {
    fn new(version: u32, body_len: u64, body_hash: u64, name: SampleFileName) -> Self {
        let mut preamble = Self {
            version,
            body_len,
            check: 0,
        };
        preamble.check = preamble.check_for(body_hash, name);
        preamble
    }

    fn to_bytes(self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..16].copy_from_slice(TITLE);
        bytes[16..20].copy_from_slice(&self.version.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[28..].copy_from_slice(&self.check.to_le_bytes());
        bytes
    }

    /// Reads the first bytes of a file; `None` for files of other programs.
    pub(crate) fn from_bytes(bytes: &[u8; PREAMBLE_BYTES]) -> Option<Self> {
        let rest = bytes.strip_prefix(TITLE)?;
        let (version, rest) = rest.split_first_chunk()?;
        let (body_len, rest) = rest.split_first_chunk()?;
        let (check, _) = rest.split_first_chunk()?;
        Some(Self {
            version: u32::from_le_bytes(*version),
            body_len: u64::from_le_bytes(*body_len),
            check: u64::from_le_bytes(*check),
        })
    }

    /// The hash of everything before the check, of the process that writes the file, and of what follows.
    fn check_for(self, body_hash: u64, name: SampleFileName) -> u64 {
        let mut hash = Hash64::new();
        hash.write(&self.to_bytes()[..28]);
        hash.write(&name.attempt.to_le_bytes());
        hash.write(&name.rank.get().to_le_bytes());
        hash.write(&name.nonce.to_le_bytes());
        hash.write(&body_hash.to_le_bytes());
        hash.finish()
    }

    /// Whether this is the beginning of the file of that name.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] if another version wrote the file, whose results must not count as missing.
    pub(crate) fn belongs_to(
        self,
        body_hash: u64,
        name: SampleFileName,
        path: &Path,
    ) -> Result<bool, Error> {
        if self.check_for(body_hash, name) != self.check {
            return Ok(false);
        }
        if self.version == VERSION {
            return Ok(true);
        }
        Err(Error::incompatible(
            format!("the file of samples {}", path.display()),
            VERSION.to_string(),
            self.version.to_string(),
        ))
    }
}

/// Makes the beginning of a file of another version. For tests.
#[cfg(test)]
pub(crate) fn preamble_of_version(version: u32, body: &[u8], name: SampleFileName) -> Vec<u8> {
    let len = body.len() as u64;
    Preamble::new(version, len, Hash64::of(body), name)
        .to_bytes()
        .to_vec()
}
