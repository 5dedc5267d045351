//! Files that `fsgather run` makes for its ranks: [`open`].

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
};

/// Opens a file of this name that `fsgather run` has made, and nothing else.
///
/// Its path, `/proc/PID/fd/N`, is in a variable, which may outlive `run`, or reach another host: then it leads to any
/// file that some other process of this user has open. So the opened file must be one without a name that was called
/// this when it was made.
///
/// # Errors
///
/// If the file is gone, or is another one.
pub fn open(path: &Path, name: &str, options: &mut OpenOptions) -> io::Result<File> {
    // Opening a pipe would wait for a process at its other end.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = options.custom_flags(nonblocking).open(path)?;
    let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if opened != Path::new(&format!("/memfd:{name} (deleted)")) {
        let problem = format!("{} is no file of fsgather run", opened.display());
        return Err(io::Error::other(problem));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn nothing_is_opened_but_what_run_has_made() {
        let made = File::from(memfd_create("fsgather-errors", MemfdFlags::CLOEXEC).unwrap());
        let other = tempfile::NamedTempFile::new().unwrap();
        let without_a_name = tempfile::tempfile().unwrap();
        let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let opens = |path: &str, name| {
            let opened = open(Path::new(path), name, OpenOptions::new().append(true));
            opened.is_ok()
        };
        assert!(opens(&path(&made), "fsgather-errors"));
        assert!(!opens(&path(&made), "fsgather-progress"));
        for file in [other.as_file(), &without_a_name] {
            assert!(!opens(&path(file), "fsgather-errors"));
        }
        assert!(!opens(&other.path().to_string_lossy(), "fsgather-errors"));
    }
}
