//! Paths that other ranks open: they travel byte for byte, whereas texts are made plain when they are read.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes a path as its bytes; for `#[serde(with = "exact_path")]`.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(path.as_os_str().as_bytes())
}

/// Reads a path from its bytes.
///
/// # Errors
///
/// Those of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<PathBuf, D::Error> {
    let bytes = Bytes::deserialize(source)?;
    Ok(OsStr::from_bytes(&bytes).into())
}
