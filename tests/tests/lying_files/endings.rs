//! Ends of open files, of processes and of hosts, as the kernel and the server handle them.

use std::os::fd::RawFd;

use crate::{
    descriptors,
    files::{FileWorld, Handle},
    server::{Inode, Moment},
};

impl FileWorld {
    /// Records that a descriptor was closed; a hidden file that no process has open any more is removed.
    pub(crate) fn closed(&mut self, file: RawFd, now: Moment) {
        let Some(handle) = self.handles.remove(&file) else {
            return;
        };
        if self.profile.magic == 0x6573_5546 && self.server.node(handle.inode).mount == 0 {
            let late = now + self.dice.below(5_000_000);
            self.closing.push((handle.inode, handle.host, late));
        }
        self.reap(now);
    }

    pub(crate) fn is_open(&self, inode: Inode, host: usize, now: Moment) -> bool {
        let is_closing = self
            .closing
            .iter()
            .any(|(closing, its, until)| (*closing, *its) == (inode, host) && *until > now);
        is_closing
            || self
                .handles
                .values()
                .any(|handle| handle.inode == inode && handle.host == host)
    }

    /// Removes hidden files that no process has open any more.
    pub(crate) fn reap(&mut self, now: Moment) {
        self.closing.retain(|(.., until)| *until > now);
        let hidden = std::mem::take(&mut self.hidden);
        for (inode, host, directory, name) in hidden {
            if self.is_open(inode, host, now) {
                self.hidden.push((inode, host, directory, name));
            } else {
                let _ = self.server.unlink(directory, &name, now);
            }
        }
    }

    /// Completes all delayed effects: a daemon learns only after the end of the last process which files it had open.
    pub(crate) fn settle(&mut self) {
        self.reap(Moment::MAX);
    }

    /// Records the file of a new descriptor. If an old descriptor had its number, that one was closed, which is handled at the next call of
    /// its process.
    pub(crate) fn opened(&mut self, file: RawFd, handle: Handle) {
        if let Some(before) = self.handles.insert(file, handle) {
            self.handles.insert(-2 - before.opened as RawFd, before);
        }
    }

    /// Records that a descriptor was closed without a call.
    pub(crate) fn dropped(&mut self, file: RawFd, now: Moment) {
        if let Some((_, whole, _)) = self.flushing(file) {
            self.store(file, &whole, true, false, now);
        }
        self.closed(file, now);
    }

    /// Finds the descriptors of a process that were closed without a call since its last call.
    pub(crate) fn notice_closed(&mut self, process: usize, now: Moment) {
        let mut gone: Vec<(u64, RawFd)> = self
            .handles
            .iter()
            .filter(|(_, handle)| handle.process == process)
            .filter(|(file, handle)| !descriptors::is_open(**file, handle.identity))
            .map(|(file, handle)| (handle.opened, *file))
            .collect();
        // The order must not depend on the numbers of descriptors, which the seed does not determine.
        gone.sort_unstable();
        for (_, file) in gone {
            self.dropped(file, now);
        }
    }

    /// Closes everything that a process has open; its host continues, and sends written data to the server.
    pub(crate) fn end_process(&mut self, process: usize, now: Moment) -> Vec<(RawFd, u64)> {
        self.notice_closed(process, now);
        let open: Vec<(RawFd, u64)> = self
            .handles
            .iter()
            .filter(|(_, handle)| handle.process == process)
            .map(|(file, handle)| (*file, handle.identity))
            .collect();
        // In the order of creation.
        let mut open = open;
        open.sort_by_key(|(_, identity)| *identity);
        for (file, _) in &open {
            self.dropped(*file, now);
        }
        open
    }

    /// Discards data that a host had not sent to the server; hidden files stay for ever.
    pub(crate) fn end_host(&mut self, host: usize) -> Vec<(RawFd, u64)> {
        let open: Vec<(RawFd, u64)> = self
            .handles
            .iter()
            .filter(|(_, handle)| handle.host == host)
            .map(|(file, handle)| (*file, handle.identity))
            .collect();
        self.handles.retain(|_, handle| handle.host != host);
        self.hidden.retain(|(_, its, ..)| *its != host);
        self.clients[host].forget();
        open
    }
}
