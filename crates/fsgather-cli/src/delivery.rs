//! Writes received data: to files that appear only when they are complete, or to one stream.

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Write},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use tempfile::NamedTempFile;

use crate::{
    failure::Failure,
    output::{self, Stream},
};

/// A file that appears under its name only when it is complete; or an existing device or FIFO, which receives bytes as they arrive.
pub(crate) struct NewFile {
    path: PathBuf,
    force: bool,
    place: DeliveryPlace,
}

enum DeliveryPlace {
    Staged(NamedTempFile),
    There(File),
}

impl NewFile {
    /// Begins a file; its directory is created if necessary. A link is followed, and its target replaced.
    pub(crate) fn begin(path: &Path, force: bool) -> Result<Self, Failure> {
        let path = &target_of(path);
        let place = if takes_what_comes(path) {
            DeliveryPlace::There(open_there(path).map_err(Failure::file("open", path))?)
        } else {
            let parent = parent_of(path);
            fs::create_dir_all(parent).map_err(Failure::file("make directory", parent))?;
            let staged = tempfile::Builder::new()
                .prefix(".fsgather-")
                .permissions(default_permissions())
                .tempfile_in(parent)
                .map_err(Failure::file("make a file in", parent))?;
            DeliveryPlace::Staged(staged)
        };
        Ok(Self {
            path: path.to_owned(),
            force,
            place,
        })
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &mut self.place {
            DeliveryPlace::Staged(staged) => staged.write_all(bytes),
            DeliveryPlace::There(file) => file.write_all(bytes),
        };
        written.map_err(Failure::file("write", &self.path))
    }

    /// Completes the file: it appears under its name.
    pub(crate) fn finish(self) -> Result<PathBuf, Failure> {
        let Self { path, force, place } = self;
        if let DeliveryPlace::Staged(staged) = place {
            let placed = if force {
                staged.persist(&path)
            } else {
                staged.persist_noclobber(&path)
            };
            placed.map_err(|refused| Failure::file("place", &path)(refused.error))?;
        }
        Ok(path)
    }
}

/// Follows links from a path, also to a file that is not there.
fn target_of(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    // As many as the kernel follows.
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&target) else {
            break;
        };
        target = parent_of(&target).join(next);
    }
    target
}

/// Opens an existing device or FIFO. It is checked first: another user may have put it there to read the data, or to make this process wait
/// for a reader.
fn open_there(path: &Path) -> io::Result<File> {
    let found = File::from(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    if let Some(uid) = stranger(&found.metadata()?) {
        return Err(io::Error::other(whose(uid)));
    }
    File::options()
        .write(true)
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Returns the owner if that is another user and not root, unless the file is a standard stream of this process.
fn stranger(there: &fs::Metadata) -> Option<u32> {
    let is_given = |stream: BorrowedFd<'_>| {
        rustix::fs::fstat(stream)
            .is_ok_and(|given| (given.st_dev, given.st_ino) == (there.dev(), there.ino()))
    };
    let trusted = [rustix::process::geteuid().as_raw(), 0];
    let is_ours = trusted.contains(&there.uid())
        || is_given(io::stdin().as_fd())
        || is_given(io::stdout().as_fd())
        || is_given(io::stderr().as_fd());
    (!is_ours).then(|| there.uid())
}

fn whose(uid: u32) -> String {
    format!(
        "it is no file and belongs to uid {uid}, who could read what is written; name another file"
    )
}

/// Returns true if a path exists and is neither a file nor a directory.
fn takes_what_comes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// The reason why a file must not be written, if there is one.
pub(crate) fn objection(path: &Path, force: bool) -> Option<String> {
    let name = path.display();
    if path.is_dir() {
        return Some(format!("{name} is a directory; name a file"));
    }
    if takes_what_comes(path)
        && let Ok(there) = fs::metadata(path)
        && let Some(uid) = stranger(&there)
    {
        return Some(format!("cannot write {name}: {}", whose(uid)));
    }
    // A dangling link counts as an existing file.
    let is_in_the_way = !force && !takes_what_comes(path) && fs::symlink_metadata(path).is_ok();
    is_in_the_way.then(|| format!("{name} exists; use --force to replace it"))
}

/// Writes to standard output. Binary data is not written to a terminal.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    if io::stdout().is_terminal() && !is_text(bytes) {
        return Err(Failure::usage(
            "binary data would go to the terminal; redirect standard output or use --out",
        ));
    }
    output::write(Stream::Stdout, bytes).map_err(Failure::system("write standard output"))
}

/// Returns true if these bytes are a piece of a text; it may begin and end within a character.
fn is_text(bytes: &[u8]) -> bool {
    let begun = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xc0 == 0x80);
    let bytes = &bytes[begun.count()..];
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(cut) if cut.error_len().is_none() => {
            std::str::from_utf8(&bytes[..cut.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    text.is_some_and(|text| {
        !text
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
    })
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The permissions of any new file: read and write for all, less the umask.
fn default_permissions() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn what_is_not_a_file_takes_what_comes_and_is_never_replaced() {
        let place = tempfile::tempdir().unwrap();
        let [fifo, link, nowhere] = ["fifo", "link", "nowhere"].map(|name| place.path().join(name));
        rustix::fs::mkfifoat(CWD, &fifo, Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", &nowhere).unwrap();
        // Opened for both directions, so that no side has to wait for the other.
        let mut reader = File::options().read(true).write(true).open(&fifo).unwrap();
        for path in [&fifo, &link] {
            for force in [false, true] {
                assert_eq!(objection(path, force), None);
                let mut file = NewFile::begin(path, force).unwrap();
                file.write(b"whole").unwrap();
                file.finish().unwrap();
            }
            assert!(takes_what_comes(path), "{}", path.display());
        }
        let mut got = [0; 10];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"wholewhole");
        assert!(objection(place.path(), true).is_some_and(|said| said.contains("directory")));
        assert!(objection(&nowhere, false).is_some_and(|said| said.contains("--force")));
        assert_eq!(objection(&nowhere, true), None);
    }

    #[test]
    fn another_users_pipe_in_place_of_a_file_gets_nothing() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("fifo");
        rustix::fs::mkfifoat(CWD, &fifo, Mode::RWXU).unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(&fifo, Some(54_342), None).is_err() {
            return;
        }
        let said = objection(&fifo, true).unwrap();
        assert!(said.contains("54342"), "{said}");
        // It does not wait for a reader either.
        assert!(NewFile::begin(&fifo, true).is_err());
    }

    #[test]
    fn files_appear_whole_and_replace_nothing_unasked() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/rank-00000");
        let mut file = NewFile::begin(&path, false).unwrap();
        file.write(b"one").unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert!(objection(&path, false).is_some());
        assert!(objection(&path, true).is_none());
        let again = NewFile::begin(&path, false).unwrap();
        assert!(again.finish().is_err());
        let mut forced = NewFile::begin(&path, true).unwrap();
        forced.write(b"two").unwrap();
        forced.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let link = place.path().join("link");
        std::os::unix::fs::symlink("new/rank-00000", &link).unwrap();
        let mut linked = NewFile::begin(&link, true).unwrap();
        linked.write(b"three").unwrap();
        linked.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
    }

    #[test]
    fn text_is_told_from_binary_data() {
        let text = "größer\n\tals".as_bytes();
        for cut in 0..text.len() {
            assert!(is_text(&text[cut..]) && is_text(&text[..cut]), "{cut}");
        }
        assert!(!is_text(b"\x1b[2J"));
        assert!(!is_text(&[0xff, 0xfe]));
    }
}
