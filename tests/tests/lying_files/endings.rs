//! Ends of open files, of processes and of hosts, as the kernel and the server see to them.

use std::os::fd::RawFd;

use crate::{
    descriptors,
    files::{FileWorld, Handle},
    server::{Inode, Moment},
};

impl FileWorld {
    /// Notes that a descriptor was closed; a hidden file that nobody has open any more goes.
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

    /// Removes hidden files that nobody has open any more.
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

    /// Lets everything come that needs nobody any more: a daemon learns of what the last process had open only after its end.
    pub(crate) fn settle(&mut self) {
        self.reap(Moment::MAX);
    }

    /// Notes what a new descriptor stands for. One of its number was closed, which its process is asked about at its next call.
    pub(crate) fn opened(&mut self, file: RawFd, handle: Handle) {
        if let Some(before) = self.handles.insert(file, handle) {
            self.handles.insert(-2 - before.opened as RawFd, before);
        }
    }

    /// Notes that a descriptor was closed without a word.
    pub(crate) fn dropped(&mut self, file: RawFd, now: Moment) {
        if let Some((_, whole, _)) = self.flushing(file) {
            self.store(file, &whole, true, false, now);
        }
        self.closed(file, now);
    }

    /// Notes which descriptors of a process were closed without a word since its last call.
    pub(crate) fn notice_closed(&mut self, process: usize, now: Moment) {
        let mut gone: Vec<(u64, RawFd)> = self
            .handles
            .iter()
            .filter(|(_, handle)| handle.process == process)
            .filter(|(file, handle)| !descriptors::is_open(**file, handle.identity))
            .map(|(file, handle)| (handle.opened, *file))
            .collect();
        // The numbers of descriptors are not the seed's.
        gone.sort_unstable();
        for (_, file) in gone {
            self.dropped(file, now);
        }
    }

    /// Ends all that a process has open; its host goes on, and brings to the server what was written.
    pub(crate) fn end_process(&mut self, process: usize, now: Moment) -> Vec<(RawFd, u64)> {
        self.notice_closed(process, now);
        let open: Vec<(RawFd, u64)> = self
            .handles
            .iter()
            .filter(|(_, handle)| handle.process == process)
            .map(|(file, handle)| (*file, handle.identity))
            .collect();
        // As they were made.
        let mut open = open;
        open.sort_by_key(|(_, identity)| *identity);
        for (file, _) in &open {
            self.dropped(*file, now);
        }
        open
    }

    /// Forgets what a host had not brought to the server; hidden files stay for ever.
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
