//! The head of each file of samples: [`SampleFileHeader`]. Pure.
//!
//! ```text
//! "fsgather samples"    u32 version    u32 length    u64 XXH3 of what follows    header, in postcard
//! ```

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fsgather_core::{Error, ProcessId, hash::Hash64, read_message};
use serde::{Deserialize, Serialize};

/// The first bytes of every version of these files.
const TITLE: &[u8; 16] = b"fsgather samples";
/// The version that this build writes and reads.
const VERSION: u32 = 1;
/// Length of what precedes the header.
pub(crate) const PREAMBLE_BYTES: usize = 32;
/// Longest header, in bytes. A configuration must fit.
const MAX_HEADER_BYTES: u32 = 4 << 20;

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
    /// The header as bytes, with all that precedes it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a configuration that does not fit.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let body = postcard::to_allocvec(self)
            .map_err(|error| Error::config(format!("samples cannot be described: {error}")))?;
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if len > MAX_HEADER_BYTES {
            return Err(Error::config(format!(
                "the configuration of these samples takes {}, at most {} are possible; give its hash instead",
                fsgather_core::bytes_text(body.len() as u64),
                fsgather_core::bytes_text(MAX_HEADER_BYTES.into()),
            )));
        }
        let mut bytes = Vec::with_capacity(PREAMBLE_BYTES + body.len());
        bytes.extend_from_slice(TITLE);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&Hash64::of(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Reads what follows the preamble; `None` if it is damaged.
    pub(crate) fn from_bytes(bytes: &[u8], hash: u64) -> Option<Self> {
        if Hash64::of(bytes) != hash {
            return None;
        }
        read_message(bytes).ok()
    }

    /// Returns the start of the attempt.
    #[must_use]
    pub fn began(&self) -> SystemTime {
        UNIX_EPOCH
            .checked_add(Duration::from_secs(self.began))
            .unwrap_or(UNIX_EPOCH)
    }
}

/// Reads the first [`PREAMBLE_BYTES`] of the file at `path`: length and hash of the header, or `None` for another file.
///
/// # Errors
///
/// [`Error::Incompatible`] for a file of another version, whose results must not count as missing.
pub(crate) fn read_preamble(
    bytes: &[u8; PREAMBLE_BYTES],
    path: &Path,
) -> Result<Option<(usize, u64)>, Error> {
    let preamble = (|| {
        let rest = bytes.strip_prefix(TITLE)?;
        let (version, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (hash, _) = rest.split_first_chunk()?;
        Some((
            u32::from_le_bytes(*version),
            u32::from_le_bytes(*len),
            u64::from_le_bytes(*hash),
        ))
    })();
    match preamble {
        Some((VERSION, len, hash)) if len <= MAX_HEADER_BYTES => Ok(Some((len as usize, hash))),
        None | Some((VERSION, ..)) => Ok(None),
        Some((theirs, ..)) => Err(Error::incompatible(
            format!("the file of samples {}", path.display()),
            VERSION.to_string(),
            theirs.to_string(),
        )),
    }
}
