//! Checks and messages for the limit of open files of this process: [`check`], [`explain`].

use std::io;

use fsgather_core::{
    Error, WorldSize,
    sys::{
        explain_denial,
        limits::{open_files, raise_open_files},
    },
};
use rustix::io::Errno;

/// Number of descriptors that a process has open besides the connections of one world.
const OTHERS: u64 = 128;

/// Number of descriptors of a world besides its members' connections: listeners, and connections that are not accepted yet.
const SPARE: u64 = 8;

/// Number of files that rank 0 of such a world must be allowed to have open (`ulimit -n`): two connections for each member,
/// and some more.
#[must_use]
pub fn descriptors_needed(world_size: WorldSize) -> u64 {
    2 * u64::from(world_size.get()) + OTHERS
}

/// Checks that rank 0 can have as many connections as its world needs, before others count on that.
///
/// Raises the soft limit for them, within the hard limit.
pub(crate) fn check(world_size: WorldSize) -> Result<(), Error> {
    let needed = descriptors_needed(world_size);
    let Some(allowed) = raise_open_files(needed) else {
        return Ok(());
    };
    if allowed < needed {
        return Err(Error::config(format!(
            "rank 0 of a world of {world_size} needs {needed} open files, the limit is {allowed}; raise it \
             with `ulimit -n {needed}` before the job starts"
        )));
    }
    let more = 2 * u64::from(world_size.get().saturating_sub(1)) + SPARE;
    let mut left = count_left(more);
    if left < more {
        let _ = raise_open_files(allowed + more - left);
        left = count_left(more);
    }
    if left < more {
        return Err(Error::config(format!(
            "out of file descriptors (`ulimit -n` is {allowed}): rank 0 of a world of {world_size} needs {more} more, \
             and {left} are left; raise the limit with `ulimit -n {}` or higher before the job starts",
            2 * allowed
        )));
    }
    Ok(())
}

/// Returns the text of an error of the system. It has the limit if descriptors are missing, and `calls`, those that were
/// tried, if one is denied.
pub(crate) fn explain(error: &io::Error, calls: &str) -> String {
    if !is_exhausted(error) {
        return explain_denial(error, calls);
    }
    match open_files().soft {
        Some(allowed) => format!(
            "out of file descriptors (`ulimit -n` is {allowed}); raise the limit with `ulimit -n {}` or higher before \
             the job starts",
            2 * allowed
        ),
        None => format!("out of file descriptors ({error})"),
    }
}

/// Returns true if an error means that this process may not open more files.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw_os_error) == Some(Errno::MFILE)
}

/// Number of files that this process may still open, up to `enough`; found out by opening them.
fn count_left(enough: u64) -> u64 {
    let (held, other) = match io::pipe() {
        Ok(both) => both,
        Err(error) if is_exhausted(&error) => return 0,
        // The error of a sandbox says nothing about the limit.
        Err(_) => return enough,
    };
    let copies: Vec<_> = (2..enough).map_while(|_| held.try_clone().ok()).collect();
    drop(other);
    copies.len() as u64 + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_world_fits_and_a_huge_one_is_told_how_much_it_needs() {
        assert_eq!(check(WorldSize::new(2).unwrap()), Ok(()));
        let Some(allowed) = open_files().hard else {
            return;
        };
        let Ok(ranks) = u32::try_from(allowed / 2) else {
            return;
        };
        let huge = WorldSize::new(ranks).unwrap();
        let error = check(huge).unwrap_err().to_string();
        assert!(
            error.contains(&format!("the limit is {allowed}")),
            "{error}"
        );
    }

    #[test]
    fn as_many_are_left_as_can_be_opened() {
        assert_eq!(count_left(40), 40);
    }

    #[test]
    fn only_a_lack_of_descriptors_is_told_with_the_limit() {
        let lack = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        assert!(explain(&lack, "socket").contains("`ulimit -n`"));
        let other = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(explain(&other, "socket"), other.to_string());
    }
}
