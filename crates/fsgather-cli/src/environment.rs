//! The one reader of environment variables in this command.
#![expect(
    clippy::disallowed_methods,
    reason = "the command's only reader of variables; what ranks need, the library reads"
)]

use std::{env, path::PathBuf};

/// The gather directory that the user has set for all jobs: `FSGATHER_DIR`, else `EXP_DIR`.
///
/// Empty variables count as unset.
pub(crate) fn gather_directory() -> Option<PathBuf> {
    ["FSGATHER_DIR", "EXP_DIR"]
        .into_iter()
        .filter_map(env::var_os)
        .find(|value| !value.is_empty())
        .map(PathBuf::from)
}
