//! Leaves the errors of this rank in the file that `fsgather run` names: [`record`], [`record_own`].

use std::{path::PathBuf, sync::OnceLock};

use fsgather_core::{Error, Rank, last_error::LastError};

use crate::environment::{self, Variables};

/// The file for errors, and the rank that this process is.
struct ErrorFile {
    path: PathBuf,
    rank: Rank,
}

/// The file, if the process was started with one. Variables do not change, so that they are read once.
fn error_file() -> Option<&'static ErrorFile> {
    static FILE: OnceLock<Option<ErrorFile>> = OnceLock::new();
    let find = || {
        let variables = Variables::of_process();
        Some(ErrorFile {
            path: variables.get(environment::ERROR_FILE)?.into(),
            rank: Rank::new(variables.get(environment::RANK)?.trim().parse().ok()?),
        })
    };
    FILE.get_or_init(find).as_ref()
}

/// Leaves an error of this rank.
pub fn record(error: &Error) {
    leave(|rank| LastError::of(rank, error));
}

/// Leaves an error that the library does not know of, such as an exception that the program does not catch.
pub fn record_own(text: &str) {
    leave(|rank| LastError::own(rank, text));
}

fn leave(error: impl FnOnce(Rank) -> LastError) {
    if let Some(ErrorFile { path, rank }) = error_file()
        && let Err(failed) = error(*rank).append_to(path)
    {
        tracing::debug!(path = %path.display(), %failed, "an error cannot be left for `fsgather run`");
    }
}
