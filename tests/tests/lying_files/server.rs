//! The true state of the files: [`Server`].

use std::{collections::BTreeMap, time::Duration};

use rustix::io::{Errno, Result};

/// The number of a file or directory.
pub(crate) type Inode = u64;

/// A moment, in nanoseconds since the model began.
pub(crate) type Moment = u64;

/// The contents of an inode.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    File { data: Vec<u8>, is_synced: bool },
    Directory(BTreeMap<String, Inode>),
}

/// A file or directory.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) body: Body,
    pub(crate) mode: u32,
    pub(crate) links: u64,
    /// Counts changes of the contents.
    pub(crate) version: u64,
    /// The time stamp of the last change.
    pub(crate) stamp: Moment,
    pub(crate) made: Moment,
    /// The number of its file system.
    pub(crate) mount: usize,
}

/// Several file systems: number 0 is the shared one, each of the others belongs to a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<Inode>,
    /// The granularity of the time stamps of the shared one.
    pub(crate) tick: Duration,
    pub(crate) has_links: bool,
}

impl Server {
    /// Adds an empty file system.
    pub(crate) fn add_root(&mut self) -> Inode {
        let mount = self.roots.len();
        let root = self.add(Body::Directory(BTreeMap::new()), 0o1777, mount, 0);
        self.roots.push(root);
        root
    }

    fn add(&mut self, body: Body, mode: u32, mount: usize, now: Moment) -> Inode {
        let links = if matches!(body, Body::File { .. }) {
            1
        } else {
            2
        };
        let mut node = Node {
            body,
            mode,
            links,
            version: 1,
            stamp: 0,
            made: now,
            mount,
        };
        node.stamp = self.stamp(mount, now);
        self.nodes.push(node);
        self.nodes.len() as Inode - 1
    }

    fn stamp(&self, mount: usize, now: Moment) -> Moment {
        let tick = if mount == 0 {
            self.tick.as_nanos() as u64
        } else {
            0
        };
        if tick == 0 { now } else { now - now % tick }
    }

    pub(crate) fn node(&self, inode: Inode) -> &Node {
        &self.nodes[inode as usize]
    }

    pub(crate) fn node_mut(&mut self, inode: Inode) -> &mut Node {
        &mut self.nodes[inode as usize]
    }

    /// Records that the contents have changed.
    pub(crate) fn change(&mut self, inode: Inode, now: Moment) {
        let stamp = self.stamp(self.node(inode).mount, now);
        let node = self.node_mut(inode);
        node.version += 1;
        node.stamp = stamp;
    }

    /// The value by which clients notice that a directory or file has changed.
    pub(crate) fn change_of(&self, inode: Inode) -> u64 {
        let node = self.node(inode);
        if node.mount == 0 && !self.tick.is_zero() {
            node.stamp
        } else {
            node.version
        }
    }

    pub(crate) fn names(&self, directory: Inode) -> Result<&BTreeMap<String, Inode>> {
        let node = self.node(directory);
        match &node.body {
            Body::Directory(_) if node.links == 0 => Err(Errno::STALE),
            Body::Directory(names) => Ok(names),
            Body::File { .. } => Err(Errno::NOTDIR),
        }
    }

    fn names_mut(&mut self, directory: Inode) -> Result<&mut BTreeMap<String, Inode>> {
        self.names(directory)?;
        match &mut self.node_mut(directory).body {
            Body::Directory(names) => Ok(names),
            Body::File { .. } => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn child(&self, directory: Inode, name: &str) -> Result<Option<Inode>> {
        Ok(self.names(directory)?.get(name).copied())
    }

    fn enter(&mut self, directory: Inode, name: &str, inode: Inode, now: Moment) -> Result<()> {
        self.names_mut(directory)?.insert(name.to_owned(), inode);
        self.change(directory, now);
        Ok(())
    }

    /// Makes a file or directory that does not exist yet.
    pub(crate) fn make(
        &mut self,
        directory: Inode,
        name: &str,
        is_directory: bool,
        mode: u32,
        now: Moment,
    ) -> Result<Inode> {
        if self.child(directory, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        let body = if is_directory {
            Body::Directory(BTreeMap::new())
        } else {
            Body::File {
                data: Vec::new(),
                is_synced: false,
            }
        };
        let mount = self.node(directory).mount;
        let made = self.add(body, mode, mount, now);
        self.enter(directory, name, made, now)?;
        Ok(made)
    }

    pub(crate) fn unlink(&mut self, directory: Inode, name: &str, now: Moment) -> Result<Inode> {
        let found = self.child(directory, name)?.ok_or(Errno::NOENT)?;
        if matches!(self.node(found).body, Body::Directory(_)) {
            return Err(Errno::ISDIR);
        }
        self.names_mut(directory)?.remove(name);
        self.node_mut(found).links -= 1;
        self.change(directory, now);
        Ok(found)
    }

    pub(crate) fn remove_directory(
        &mut self,
        directory: Inode,
        name: &str,
        now: Moment,
    ) -> Result<()> {
        let found = self.child(directory, name)?.ok_or(Errno::NOENT)?;
        if !self.names(found)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.names_mut(directory)?.remove(name);
        self.node_mut(found).links = 0;
        self.change(directory, now);
        Ok(())
    }

    /// Renames an entry, and replaces an existing one of the new name.
    pub(crate) fn rename(
        &mut self,
        (from, old): (Inode, &str),
        (to, new): (Inode, &str),
        now: Moment,
    ) -> Result<Inode> {
        let moved = self.child(from, old)?.ok_or(Errno::NOENT)?;
        self.names(to)?;
        if let Some(replaced) = self.child(to, new)? {
            if replaced == moved {
                return Ok(moved);
            }
            self.node_mut(replaced).links -= 1;
        }
        self.names_mut(from)?.remove(old);
        self.change(from, now);
        self.enter(to, new, moved, now)?;
        Ok(moved)
    }

    pub(crate) fn link(
        &mut self,
        (from, old): (Inode, &str),
        (to, new): (Inode, &str),
        now: Moment,
    ) -> Result<Inode> {
        let linked = self.child(from, old)?.ok_or(Errno::NOENT)?;
        if !self.has_links && self.node(from).mount == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if self.child(to, new)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.node_mut(linked).links += 1;
        self.enter(to, new, linked, now)?;
        Ok(linked)
    }

    /// Stores the new contents of a file.
    pub(crate) fn store(&mut self, inode: Inode, contents: &[u8], is_whole: bool, now: Moment) {
        if let Body::File { data, is_synced } = &mut self.node_mut(inode).body {
            if data == contents {
                *is_synced |= is_whole;
                return;
            }
            *data = contents.to_vec();
            *is_synced = is_whole;
        }
        self.change(inode, now);
    }

    pub(crate) fn data(&self, inode: Inode) -> &[u8] {
        match &self.node(inode).body {
            Body::File { data, .. } => data,
            Body::Directory(_) => &[],
        }
    }

    /// Loses data that was not synced.
    pub(crate) fn forget_unsynced(&mut self, now: Moment) {
        for inode in 0..self.nodes.len() as Inode {
            let node = self.node_mut(inode);
            if node.mount == 0
                && let Body::File {
                    data,
                    is_synced: false,
                } = &mut node.body
                && !data.is_empty()
            {
                data.truncate(data.len() / 2);
                self.change(inode, now);
            }
        }
    }

    /// All names on a file system, as paths from its top.
    pub(crate) fn tree(&self, mount: usize) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(self.roots[mount], "", &mut paths);
        paths
    }

    fn collect(&self, directory: Inode, prefix: &str, paths: &mut Vec<String>) {
        for (name, inode) in self.names(directory).into_iter().flatten() {
            let path = format!("{prefix}{name}");
            if matches!(self.node(*inode).body, Body::Directory(_)) {
                paths.push(format!("{path}/"));
                self.collect(*inode, &format!("{path}/"), paths);
            } else {
                paths.push(path);
            }
        }
    }
}
