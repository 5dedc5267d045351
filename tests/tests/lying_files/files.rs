//! Calls about files, answered like a host with caches and a remote server: [`FileWorld`].

use std::{collections::BTreeMap, os::fd::RawFd, path::Path, time::Duration};

use fsgather_core::sys::Status;
use rustix::{
    fs::{AtFlags, FileType, OFlags},
    io::{Errno, Result},
};

use crate::{
    client::Client,
    dice::Dice,
    profile::Profile,
    server::{Body, Inode, Moment, Server},
};

/// The file of a descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) inode: Inode,
    pub(crate) host: usize,
    pub(crate) process: usize,
    /// Distinguishes its descriptor from a later one with the same number.
    pub(crate) identity: u64,
    /// Number of files that were opened before.
    pub(crate) opened: u64,
    /// The contents with the written data that the server does not have yet, if this was opened for writing.
    pub(crate) written: Option<Vec<u8>>,
    pub(crate) is_dirty: bool,
    pub(crate) at: usize,
}

/// The date at which the model begins.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);

/// All file systems, the caches of the hosts, and the open files.
pub(crate) struct FileWorld {
    pub(crate) profile: Profile,
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    pub(crate) handles: BTreeMap<RawFd, Handle>,
    opened: u64,
    /// Files that their own host has removed while they were open, and their places.
    pub(crate) hidden: Vec<(Inode, usize, Inode, String)>,
    /// Files that were closed, with the time at which their client learns that.
    pub(crate) closing: Vec<(Inode, usize, Moment)>,
    pub(crate) dice: Dice,
    pub(crate) uid: u32,
    /// The offset of the server's clock from the beginning of the model.
    pub(crate) epoch: Duration,
    /// The offsets of the hosts' clocks from the server's.
    pub(crate) skews: Vec<Duration>,
    pub(crate) breaks: Breaks,
}

/// Deliberate violations of the rules, to test that they are detected.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaks {
    /// A file is shown under its name with a part of the written data, and stays like that.
    pub(crate) loses_the_end_of_files: bool,
    /// Clients never ask the server, as if programs trusted their caches.
    pub(crate) asks_never: bool,
    /// Directories are not touched again after a change.
    pub(crate) touches_nothing: bool,
    /// Removing a file does nothing, and reports success.
    pub(crate) shows_removed_files: bool,
    /// Waiting threads are not woken, as if each had missed the event.
    pub(crate) wakes_nobody: bool,
}

/// The name and place of an entry that may not exist.
type Target = (Inode, String);

impl FileWorld {
    pub(crate) fn new(profile: Profile, hosts: usize, dice: &mut Dice, breaks: Breaks) -> Self {
        let mut server = Server {
            tick: profile.tick,
            has_links: profile.has_links,
            ..Server::default()
        };
        for _ in 0..=hosts {
            server.add_root();
        }
        let clients = (0..hosts)
            .map(|_| Client::new(profile, Dice::new(dice.next(), 1)))
            .collect();
        Self {
            profile,
            server,
            clients,
            handles: BTreeMap::new(),
            opened: 0,
            hidden: Vec::new(),
            closing: Vec::new(),
            dice: Dice::new(dice.next(), 2),
            uid: rustix::process::geteuid().as_raw(),
            epoch: EPOCH,
            skews: vec![Duration::ZERO; hosts],
            breaks,
        }
    }

    /// Returns true if a path or descriptor is on the shared file system.
    pub(crate) fn is_shared(&self, directory: RawFd, path: &Path) -> bool {
        if path.is_absolute() || !self.handles.contains_key(&directory) {
            return path.starts_with("/shared");
        }
        self.handles
            .get(&directory)
            .is_none_or(|handle| self.server.node(handle.inode).mount == 0)
    }

    /// The directory that a path is in, and its last name; no name for the top of a file system.
    fn walk(
        &mut self,
        host: usize,
        directory: RawFd,
        path: &Path,
        now: Moment,
    ) -> Result<(Inode, Option<String>)> {
        let text = path.to_str().ok_or(Errno::INVAL)?;
        let mut parts: Vec<&str> = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        let mut here = if path.is_absolute() {
            if parts.is_empty() {
                return Err(Errno::ACCESS);
            }
            match parts.remove(0) {
                "shared" => self.server.roots[0],
                "tmp" => self.server.roots[1 + host],
                _ => return Err(Errno::NOENT),
            }
        } else {
            self.handles.get(&directory).ok_or(Errno::BADF)?.inode
        };
        let last = parts.pop().map(str::to_owned);
        for part in parts {
            let found = self.clients[host].look_up(&self.server, here, part, now)?;
            here = found.ok_or(Errno::NOENT)?;
        }
        Ok((here, last))
    }

    /// The inode of a path.
    fn find(&mut self, host: usize, directory: RawFd, path: &Path, now: Moment) -> Result<Inode> {
        match self.walk(host, directory, path, now)? {
            (here, None) => Ok(here),
            (here, Some(name)) => {
                let found = self.clients[host].look_up(&self.server, here, &name, now)?;
                found.ok_or(Errno::NOENT)
            }
        }
    }

    fn target(
        &mut self,
        host: usize,
        directory: RawFd,
        path: &Path,
        now: Moment,
    ) -> Result<Target> {
        let (here, name) = self.walk(host, directory, path, now)?;
        Ok((here, name.ok_or(Errno::EXIST)?))
    }

    /// Opens a file or directory; returns the state of the new descriptor.
    pub(crate) fn open(
        &mut self,
        (host, process): (usize, usize),
        directory: RawFd,
        path: &Path,
        flags: OFlags,
        mode: u32,
        now: Moment,
    ) -> Result<Handle> {
        let is_new = flags.contains(OFlags::CREATE);
        let inode = if is_new {
            let (here, name) = self.target(host, directory, path, now)?;
            let before = self.server.change_of(here);
            let made = self.server.make(here, &name, false, mode, now)?;
            self.clients[host].has_done(&self.server, (here, &name), Some(made), before, now);
            made
        } else {
            self.find(host, directory, path, now)?
        };
        let node = self.server.node(inode);
        let is_directory = matches!(node.body, Body::Directory(_));
        if flags.contains(OFlags::DIRECTORY) && !is_directory {
            return Err(Errno::NOTDIR);
        }
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if writes && is_directory {
            return Err(Errno::ISDIR);
        }
        if node.links == 0 {
            return Err(Errno::STALE);
        }
        if !is_new && !flags.contains(OFlags::PATH) {
            if self.profile.is_asked_at_open {
                self.clients[host].ask(&self.server, inode, now)?;
            } else if !is_directory {
                self.clients[host].len(&self.server, inode, false, now)?;
            }
        }
        self.opened += 1;
        Ok(Handle {
            inode,
            host,
            process,
            identity: 0,
            opened: self.opened,
            written: writes.then(|| self.server.data(inode).to_vec()),
            is_dirty: false,
            at: 0,
        })
    }

    fn handle(&mut self, file: RawFd) -> Result<&mut Handle> {
        self.handles.get_mut(&file).ok_or(Errno::BADF)
    }

    /// Returns true if a removed file cannot be read any more, even by a process that has it open.
    fn is_gone(&self, inode: Inode) -> bool {
        let node = self.server.node(inode);
        node.links == 0 && node.mount == 0 && self.profile.magic == 0x6969
    }

    pub(crate) fn read(&mut self, file: RawFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let handle = self.handle(file)?;
        let (inode, host) = (handle.inode, handle.host);
        if self.is_gone(inode) {
            return Err(Errno::STALE);
        }
        let data = match &self.handle(file)?.written {
            Some(written) => written.clone(),
            None => self.clients[host].data(&self.server, inode),
        };
        let rest = data.get(offset as usize..).unwrap_or_default();
        let mut count = rest.len().min(buffer.len());
        if count > 1 && self.dice.one_in(50) {
            count = 1 + self.dice.below(count as u64 - 1) as usize;
        }
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Writes into the cache of the host.
    pub(crate) fn write(&mut self, file: RawFd, bytes: &[u8]) -> Result<usize> {
        let is_short = bytes.len() > 1 && self.dice.one_in(50);
        let count = if is_short {
            1 + self.dice.below(bytes.len() as u64 - 1) as usize
        } else {
            bytes.len()
        };
        let handle = self.handle(file)?;
        let at = handle.at;
        let written = handle.written.as_mut().ok_or(Errno::BADF)?;
        let end = at + count;
        if written.len() < end {
            written.resize(end, 0);
        }
        written[at..end].copy_from_slice(&bytes[..count]);
        handle.at = end;
        handle.is_dirty = true;
        Ok(count)
    }

    pub(crate) fn set_len(&mut self, file: RawFd, len: u64) -> Result<()> {
        let handle = self.handle(file)?;
        let written = handle.written.as_mut().ok_or(Errno::BADF)?;
        written.resize(len as usize, 0);
        handle.is_dirty = true;
        Ok(())
    }

    /// The contents of a file that must be flushed, if any, and a part of them that may be visible first.
    pub(crate) fn flushing(&mut self, file: RawFd) -> Option<(Inode, Vec<u8>, Option<Vec<u8>>)> {
        let handle = self.handles.get(&file)?;
        let whole = handle.written.clone().filter(|_| handle.is_dirty)?;
        let inode = handle.inode;
        let part = (whole.len() > 1 && self.dice.one_in(6)).then(|| {
            let cut = self.dice.between(0, whole.len() as u64 - 1) as usize;
            whole[..cut].to_vec()
        });
        Some((inode, whole, part))
    }

    /// Stores written contents at the server.
    pub(crate) fn store(
        &mut self,
        file: RawFd,
        contents: &[u8],
        is_whole: bool,
        is_synced: bool,
        now: Moment,
    ) {
        let Some(handle) = self.handles.get_mut(&file) else {
            return;
        };
        let (inode, host) = (handle.inode, handle.host);
        if is_whole {
            handle.is_dirty = false;
        }
        let mut contents = contents;
        if self.breaks.loses_the_end_of_files
            && is_whole
            && contents.len() > 100
            && self.dice.one_in(4)
        {
            contents = &contents[..contents.len() - 1];
        }
        self.server.store(inode, contents, is_synced, now);
        self.clients[host].has_written(&self.server, inode, now);
    }

    /// Marks the contents at the server as synced.
    pub(crate) fn mark_synced(&mut self, file: RawFd) {
        if let Some(handle) = self.handles.get(&file)
            && let Body::File { is_synced, .. } = &mut self.server.node_mut(handle.inode).body
        {
            *is_synced = true;
        }
    }

    pub(crate) fn look(
        &mut self,
        host: usize,
        directory: RawFd,
        path: &Path,
        flags: AtFlags,
        now: Moment,
    ) -> Result<Status> {
        let inode = if path.as_os_str().is_empty() {
            self.handle(directory)?.inode
        } else {
            self.find(host, directory, path, now)?
        };
        let is_asked = flags.contains(AtFlags::STATX_FORCE_SYNC) && !self.breaks.asks_never;
        if is_asked {
            self.clients[host].ask(&self.server, inode, now)?;
        }
        if self.is_gone(inode) {
            return Err(Errno::STALE);
        }
        let node = self.server.node(inode);
        let is_directory = matches!(node.body, Body::Directory(_));
        let (mode, links, stamp, made) = (node.mode, node.links, node.stamp, node.made);
        let own = self
            .handles
            .get(&directory)
            .filter(|_| path.as_os_str().is_empty());
        let len = match own.and_then(|handle| handle.written.as_ref()) {
            Some(written) => written.len() as u64,
            None if is_directory => 4096,
            None => self.clients[host].len(&self.server, inode, false, now)?,
        };
        let mount = self.server.node(inode).mount;
        let skew = mount
            .checked_sub(1)
            .map_or(Duration::ZERO, |host| self.skews[host]);
        let time =
            |moment| std::time::UNIX_EPOCH + self.epoch + skew + Duration::from_nanos(moment);
        Ok(Status {
            kind: if is_directory {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            mode,
            uid: self.uid,
            gid: 0,
            len,
            links,
            device: (0, mount as u32),
            inode,
            changed: time(stamp),
            born: Some(time(made)),
        })
    }

    pub(crate) fn list(&mut self, file: RawFd, now: Moment) -> Result<Vec<String>> {
        let handle = self.handle(file)?;
        let (inode, host) = (handle.inode, handle.host);
        self.reap(now);
        let names = self.clients[host].list(&self.server, inode, now)?;
        Ok(names)
    }

    pub(crate) fn make_directory(
        &mut self,
        host: usize,
        path: &Path,
        mode: u32,
        now: Moment,
    ) -> Result<()> {
        let (here, name) = self.target(host, -1, path, now)?;
        let before = self.server.change_of(here);
        let made = self.server.make(here, &name, true, mode, now)?;
        self.clients[host].has_done(&self.server, (here, &name), Some(made), before, now);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        host: usize,
        from: &Path,
        to: &Path,
        now: Moment,
    ) -> Result<()> {
        let (old, new) = (
            self.target(host, -1, from, now)?,
            self.target(host, -1, to, now)?,
        );
        self.clients[host]
            .look_up(&self.server, old.0, &old.1, now)?
            .ok_or(Errno::NOENT)?;
        let before = (self.server.change_of(old.0), self.server.change_of(new.0));
        let moved = self.server.rename((old.0, &old.1), (new.0, &new.1), now)?;
        let client = &mut self.clients[host];
        client.has_done(&self.server, (old.0, &old.1), None, before.0, now);
        client.has_done(&self.server, (new.0, &new.1), Some(moved), before.1, now);
        Ok(())
    }

    pub(crate) fn link(&mut self, host: usize, from: &Path, to: &Path, now: Moment) -> Result<()> {
        let (old, new) = (
            self.target(host, -1, from, now)?,
            self.target(host, -1, to, now)?,
        );
        let before = self.server.change_of(new.0);
        let linked = self.server.link((old.0, &old.1), (new.0, &new.1), now)?;
        self.clients[host].has_done(&self.server, (new.0, &new.1), Some(linked), before, now);
        Ok(())
    }

    pub(crate) fn unlink(
        &mut self,
        host: usize,
        directory: RawFd,
        name: &Path,
        flags: AtFlags,
        now: Moment,
    ) -> Result<()> {
        self.reap(now);
        let (here, name) = self.target(host, directory, name, now)?;
        // The client does not ask about names that it knows to be absent.
        let found = self.clients[host].look_up(&self.server, here, &name, now)?;
        let found = found.ok_or(Errno::NOENT)?;
        let before = self.server.change_of(here);
        if self.breaks.shows_removed_files && !flags.contains(AtFlags::REMOVEDIR) {
            return Ok(());
        }
        if flags.contains(AtFlags::REMOVEDIR) {
            self.server.remove_directory(here, &name, now)?;
        } else if self.profile.hides_open_files
            && self.server.node(here).mount == 0
            && self.is_open(found, host, now)
            && !name.starts_with('.')
        {
            let prefix = if self.profile.magic == 0x6969 {
                ".nfs"
            } else {
                ".fuse_hidden"
            };
            let other = format!("{prefix}{found:016x}");
            self.server.rename((here, &name), (here, &other), now)?;
            self.hidden.push((found, host, here, other.clone()));
            self.clients[host].has_done(&self.server, (here, &other), Some(found), before, now);
        } else {
            self.server.unlink(here, &name, now)?;
        }
        self.clients[host].has_done(&self.server, (here, &name), None, before, now);
        Ok(())
    }

    pub(crate) fn set_mode(&mut self, file: RawFd, mode: u32) -> Result<()> {
        let inode = self.handle(file)?.inode;
        self.server.node_mut(inode).mode = mode;
        Ok(())
    }

    pub(crate) fn touch(&mut self, file: RawFd, now: Moment) -> Result<()> {
        let handle = self.handle(file)?;
        let (inode, host) = (handle.inode, handle.host);
        if self.server.node(inode).links == 0 {
            return Err(Errno::STALE);
        }
        if !self.breaks.touches_nothing {
            self.server.change(inode, now);
        }
        self.clients[host].ask(&self.server, inode, now)
    }

    /// The type of the file system of a path.
    pub(crate) fn kind(
        &mut self,
        host: usize,
        directory: RawFd,
        path: &Path,
        now: Moment,
    ) -> Result<u32> {
        let inode = if path.as_os_str().is_empty() {
            self.handle(directory)?.inode
        } else {
            self.find(host, directory, path, now)?
        };
        let is_shared = self.server.node(inode).mount == 0;
        Ok(if is_shared {
            self.profile.magic
        } else {
            0xf2f5_2010
        })
    }
}
