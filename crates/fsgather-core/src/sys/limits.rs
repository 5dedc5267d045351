//! Limits of this process (`ulimit`), as far as the system shows them: [`Limits::of`] and [`raise_open_files`].

use std::io;

use nix::{
    errno::Errno,
    sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit},
};

/// The two limits of a resource. `None` is no limit, or one that a sandbox hides by refusing `prlimit64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit that counts.
    pub soft: Option<u64>,
    /// The limit up to which this process may raise it.
    pub hard: Option<u64>,
}

impl Limits {
    /// Returns the limits of a resource.
    #[must_use]
    pub fn of(resource: Resource) -> Self {
        let limited = |value| (value != RLIM_INFINITY).then_some(value);
        match getrlimit(resource) {
            Ok((soft, hard)) => Self {
                soft: limited(soft),
                hard: limited(hard),
            },
            Err(errno) => {
                tracing::debug!(%errno, ?resource, "prlimit64 fails; going on as if there were no limit");
                Self {
                    soft: None,
                    hard: None,
                }
            }
        }
    }
}

/// Raises the soft limit of open files to `wanted` if it is lower, as far as the hard limit allows, and returns the soft limit.
///
/// It goes no further: a program that waits with `select` breaks on descriptors above 1023.
#[must_use]
pub fn raise_open_files(wanted: u64) -> Option<u64> {
    let Limits { soft, hard } = open_files();
    if soft? < wanted {
        // A sandbox may refuse it: then the limit stays as it is.
        let raised = hard.map_or(wanted, |hard| hard.min(wanted));
        let _ = setrlimit(
            Resource::RLIMIT_NOFILE,
            raised,
            hard.unwrap_or(RLIM_INFINITY),
        );
    }
    open_files().soft
}

/// Returns the number of files that this process may have open (`ulimit -n`).
#[must_use]
pub fn open_files() -> Limits {
    Limits::of(Resource::RLIMIT_NOFILE)
}

/// Returns the advice for an error, if it means that this process may not open more files.
#[must_use]
pub fn open_files_advice(error: &io::Error) -> Option<String> {
    if error.raw_os_error() != Some(Errno::EMFILE as i32) {
        return None;
    }
    let allowed = open_files().soft;
    let allowed = allowed.map_or_else(String::new, |allowed| format!(" (now {allowed})"));
    Some(format!(
        "raise the limit of open files with `ulimit -n`{allowed} before the job starts"
    ))
}

/// Returns the maximum length of a file of this process, in bytes (`ulimit -f`). The kernel answers a longer file with
/// a signal.
#[must_use]
pub fn file_bytes() -> Option<u64> {
    Limits::of(Resource::RLIMIT_FSIZE).soft
}

/// Returns the maximum size of the address space of this process, in bytes (`ulimit -v`).
#[must_use]
pub fn address_bytes() -> Option<u64> {
    Limits::of(Resource::RLIMIT_AS).soft
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_of_open_files_is_raised_only_on_need() {
        let Limits {
            soft: Some(soft),
            hard,
        } = open_files()
        else {
            return;
        };
        assert!(hard.is_none_or(|hard| soft <= hard));
        assert_eq!(raise_open_files(1), Some(soft));
    }
}
