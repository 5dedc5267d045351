//! The system calls of the project's code, answered by a [`Machine`].

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::IoSlice,
    os::fd::{BorrowedFd, OwnedFd, RawFd},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use fsgather_core::sys::{
    Room, Status,
    model::{Files, System},
};
use rustix::{
    fs::{AtFlags, OFlags},
    io::Result,
};

use crate::{
    descriptors::{self, number},
    files::Handle,
    machine::{Effect, Machine},
};

fn is_tracing() -> bool {
    static IS_TRACING: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *IS_TRACING.get_or_init(|| std::env::var_os("LYING_TRACE").is_some())
}

impl System for Machine {
    fn now(&self) -> Instant {
        self.instant()
    }

    fn wall(&self) -> SystemTime {
        self.calendar()
    }

    fn wait(&self, on: usize, limit: Option<Duration>) {
        self.wait_on(on, limit);
    }

    fn wake(&self, on: usize, all: bool) {
        self.wake_at(on, all);
    }

    fn before_lock(&self, is_taken: bool) {
        self.give_way_at_lock(is_taken);
    }

    fn start(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> u64 {
        self.start_thread(name, work)
    }

    fn join(&self, thread: u64) {
        self.join_thread(thread);
    }

    fn draw(&self) -> u64 {
        self.draw_number()
    }

    fn process(&self, pid: u32) -> Option<u64> {
        self.start_of(pid)
    }
}

impl Machine {
    /// Prints a call, for debugging a failing seed.
    fn show<R: std::fmt::Debug>(
        &self,
        what: &str,
        path: &dyn std::fmt::Debug,
        came: Result<R>,
    ) -> Result<R> {
        if is_tracing() {
            let (host, process) = self.here();
            let now = self.now_in_model() as f64 / 1e9;
            println!("{now:.6} host {host} process {process}: {what} {path:?} -> {came:?}");
        }
        came
    }

    fn is_shared(&self, directory: RawFd, path: &Path) -> bool {
        self.inner().files.is_shared(directory, path)
    }

    /// Sends written data to the server, perhaps in two parts.
    fn flush(&self, file: RawFd, effect: Effect) -> Result<()> {
        let Some((_, whole, part)) = self.inner().files.flushing(file) else {
            return Ok(());
        };
        let is_shared = self.is_shared(file, Path::new(""));
        if let Some(part) = part {
            self.call(is_shared, effect, |files, now| {
                files.store(file, &part, false, false, now);
                Ok(())
            })?;
        }
        self.call(is_shared, effect, |files, now| {
            files.store(file, &whole, true, effect == Effect::Syncs, now);
            Ok(())
        })
    }
}

impl Files for Machine {
    fn open(
        &self,
        directory: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
        mode: u32,
    ) -> Result<OwnedFd> {
        let (here, directory) = (self.here(), number(directory));
        let is_shared = self.is_shared(directory, path);
        let effect = if flags.contains(OFlags::CREATE) {
            Effect::Makes
        } else {
            Effect::Looks
        };
        let handle = self.call(is_shared, effect, |files, now| {
            files.open(here, directory, path, flags, mode, now)
        })?;
        let (file, identity) = descriptors::fresh()?;
        let opened = number(std::os::fd::AsFd::as_fd(&file));
        let _ = self.show("open", &(path, flags), Ok(opened));
        let mut inner = self.inner();
        inner.files.opened(opened, Handle { identity, ..handle });
        Ok(file)
    }

    fn read_at(&self, file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let file = number(file);
        let is_shared = self.is_shared(file, Path::new(""));
        let at_once = buffer.len();
        let (count, bytes) = self.call(is_shared, Effect::Looks, |files, _| {
            let mut bytes = vec![0; at_once];
            let count = files.read(file, &mut bytes, offset)?;
            Ok((count, bytes))
        })?;
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write(&self, file: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize> {
        let file = number(file);
        let is_shared = self.is_shared(file, Path::new(""));
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.call(is_shared, Effect::Writes, |files, _| {
            files.write(file, &bytes)
        })
    }

    fn set_len(&self, file: BorrowedFd<'_>, len: u64) -> Result<()> {
        let file = number(file);
        let is_shared = self.is_shared(file, Path::new(""));
        self.call(is_shared, Effect::Writes, |files, _| {
            files.set_len(file, len)
        })
    }

    fn sync(&self, file: BorrowedFd<'_>) -> Result<()> {
        let file = number(file);
        self.flush(file, Effect::Syncs)?;
        self.inner().files.mark_synced(file);
        Ok(())
    }

    fn close(&self, file: File) -> Result<()> {
        let opened = number(std::os::fd::AsFd::as_fd(&file));
        let flushed = self.flush(opened, Effect::Writes);
        drop(file);
        let mut inner = self.inner();
        let now = inner.now;
        if flushed.is_err()
            && let Some(handle) = inner.files.handles.get_mut(&opened)
        {
            // Data that the server has refused is not sent again.
            handle.written = None;
        }
        inner.files.closed(opened, now);
        flushed
    }

    fn duplicate(&self, file: BorrowedFd<'_>) -> Result<OwnedFd> {
        let file = number(file);
        // Closing any descriptor sends written data to the server; closing the duplicate would, and so does this.
        self.flush(file, Effect::Writes)?;
        let (fresh, identity) = descriptors::fresh()?;
        let opened = number(std::os::fd::AsFd::as_fd(&fresh));
        let mut inner = self.inner();
        if let Some(mut handle) = inner.files.handles.get(&file).cloned() {
            handle.written = None;
            handle.identity = identity;
            inner.files.opened(opened, handle);
        }
        Ok(fresh)
    }

    fn look(&self, directory: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> Result<Status> {
        let (host, directory) = (self.here().0, number(directory));
        let is_shared = self.is_shared(directory, path);
        self.call(is_shared, Effect::Looks, |files, now| {
            files.look(host, directory, path, flags, now)
        })
    }

    fn list(&self, directory: BorrowedFd<'_>, show: &mut dyn FnMut(&CStr)) -> Result<()> {
        let directory = number(directory);
        let is_shared = self.is_shared(directory, Path::new(""));
        let names = self.call(is_shared, Effect::Looks, |files, now| {
            files.list(directory, now)
        });
        let names = self.show("list", &directory, names)?;
        for name in names {
            let name = CString::new(name).expect("a name");
            show(&name);
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let host = self.here().0;
        let came = self.call(self.is_shared(-1, from), Effect::Makes, |files, now| {
            files.rename(host, from, to, now)
        });
        self.show("rename", &(from, to), came)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let host = self.here().0;
        self.call(self.is_shared(-1, from), Effect::Makes, |files, now| {
            files.link(host, from, to, now)
        })
    }

    fn unlink(&self, directory: BorrowedFd<'_>, name: &Path, flags: AtFlags) -> Result<()> {
        let (host, directory) = (self.here().0, number(directory));
        let is_shared = self.is_shared(directory, name);
        let came = self.call(is_shared, Effect::Removes, |files, now| {
            files.unlink(host, directory, name, flags, now)
        });
        self.show("unlink", &name, came)
    }

    fn make_directory(&self, path: &Path, mode: u32) -> Result<()> {
        let host = self.here().0;
        let came = self.call(self.is_shared(-1, path), Effect::Makes, |files, now| {
            files.make_directory(host, path, mode, now)
        });
        self.show("mkdir", &path, came)
    }

    fn set_mode(&self, opened: BorrowedFd<'_>, mode: u32) -> Result<()> {
        let opened = number(opened);
        let is_shared = self.is_shared(opened, Path::new(""));
        self.call(is_shared, Effect::Looks, |files, _| {
            files.set_mode(opened, mode)
        })
    }

    fn set_group(&self, opened: BorrowedFd<'_>, _group: u32) -> Result<()> {
        let is_shared = self.is_shared(number(opened), Path::new(""));
        self.call(is_shared, Effect::Looks, |_, _| Ok(()))
    }

    fn touch(&self, opened: BorrowedFd<'_>) -> Result<()> {
        let opened = number(opened);
        let is_shared = self.is_shared(opened, Path::new(""));
        let came = self.call(is_shared, Effect::Looks, |files, now| {
            files.touch(opened, now)
        });
        self.show("touch", &opened, came)
    }

    fn kind(&self, path: &Path) -> Result<u32> {
        let host = self.here().0;
        self.call(self.is_shared(-1, path), Effect::Looks, |files, now| {
            files.kind(host, -1, path, now)
        })
    }

    fn kind_of(&self, opened: BorrowedFd<'_>) -> Result<u32> {
        let (host, opened) = (self.here().0, number(opened));
        let is_shared = self.is_shared(opened, Path::new(""));
        self.call(is_shared, Effect::Looks, |files, now| {
            files.kind(host, opened, Path::new(""), now)
        })
    }

    fn room(&self, path: &Path) -> Result<Room> {
        self.call(self.is_shared(-1, path), Effect::Looks, |_, _| {
            Ok(Room {
                total_bytes: 1 << 40,
                free_bytes: 1 << 30,
                total_inodes: 1 << 20,
                free_inodes: 1 << 19,
            })
        })
    }
}
