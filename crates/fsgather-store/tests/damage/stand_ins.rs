//! Links, pipes, devices and the like in place of a file: [`StandIn`].

use std::{
    fs, io,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// An entry in place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandIn {
    /// A link to a file elsewhere, with the right contents.
    LinkOutside,
    /// A link to a directory elsewhere.
    LinkToDirectory,
    /// A link to itself.
    LinkToItself,
    /// A link to nothing.
    DanglingLink,
    /// An empty directory.
    Directory,
    /// A directory with a file in it.
    FullDirectory,
    /// A pipe without a writer.
    Pipe,
    /// A socket.
    Socket,
    /// A device that never ends.
    Device,
}

impl StandIn {
    pub(crate) const ALL: [Self; 9] = [
        Self::LinkOutside,
        Self::LinkToDirectory,
        Self::LinkToItself,
        Self::DanglingLink,
        Self::Directory,
        Self::FullDirectory,
        Self::Pipe,
        Self::Socket,
        Self::Device,
    ];

    /// Puts it there, and returns true if that is possible here.
    pub(crate) fn put(self, path: &Path, outside: &Outside) -> bool {
        let made = match self {
            Self::LinkOutside => symlink(&outside.file, path),
            Self::LinkToDirectory => symlink(outside.directory.path(), path),
            Self::LinkToItself => symlink(path, path),
            Self::DanglingLink => symlink(outside.directory.path().join("nothing"), path),
            Self::Directory => fs::create_dir(path),
            Self::FullDirectory => {
                fs::create_dir(path).and_then(|()| fs::write(path.join("thesis.tex"), b"precious"))
            }
            Self::Pipe => node(path, FileType::Fifo, 0),
            Self::Socket => bind(path),
            // As `/dev/zero`.
            Self::Device => node(path, FileType::CharacterDevice, makedev(1, 5)),
        };
        match made {
            Ok(()) => true,
            // Only root can make a device, so another user cannot either.
            Err(error) if self == Self::Device => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                false
            }
            Err(error) => panic!("{self:?} cannot be made at {}: {error}", path.display()),
        }
    }

    /// Returns true if it is there.
    pub(crate) fn is_there(self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
            && (self != Self::FullDirectory || path.join("thesis.tex").exists())
    }

    pub(crate) fn take_away(self, path: &Path) {
        assert!(
            self.is_there(path),
            "{self:?} at {} has gone",
            path.display()
        );
        match self {
            Self::Directory => fs::remove_dir(path).unwrap(),
            Self::FullDirectory => {
                fs::remove_file(path.join("thesis.tex")).unwrap();
                fs::remove_dir(path).unwrap();
            }
            _ => fs::remove_file(path).unwrap(),
        }
    }
}

fn node(path: &Path, kind: FileType, device: rustix::fs::Dev) -> io::Result<()> {
    Ok(mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device)?)
}

/// The path may be too long for a socket's name, which its own directory shortens.
fn bind(path: &Path) -> io::Result<()> {
    let held = fs::File::open(path.parent().unwrap())?;
    let name = path.file_name().unwrap().to_string_lossy();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&held);
    let short = tempfile::Builder::new()
        .prefix("socket")
        .tempdir_in(path.parent().unwrap())?;
    let inner = short
        .path()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    drop(UnixListener::bind(format!("/proc/self/fd/{fd}/{inner}/s"))?);
    fs::rename(short.path().join("s"), path.with_file_name(&*name))
}

/// A directory and a file that must never be changed or removed.
pub(crate) struct Outside {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) file: PathBuf,
    contents: Vec<u8>,
}

impl Outside {
    pub(crate) fn with(contents: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("precious");
        fs::write(&file, contents).unwrap();
        Self {
            directory,
            file,
            contents: contents.to_vec(),
        }
    }

    pub(crate) fn is_untouched(&self, after: StandIn) {
        assert!(fs::read(&self.file).unwrap() == self.contents, "{after:?}");
        assert_eq!(
            fs::read_dir(self.directory.path()).unwrap().count(),
            1,
            "{after:?}"
        );
    }
}
