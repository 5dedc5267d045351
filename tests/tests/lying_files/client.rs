//! A host's memory of the server: [`Client`].

use std::collections::BTreeMap;

use rustix::io::{Errno, Result};

use crate::{
    dice::Dice,
    profile::Profile,
    server::{Body, Inode, Moment, Server},
};

/// A cached target of a name.
#[derive(Clone, Copy, Debug)]
struct KnownName {
    leads_to: Option<Inode>,
    until: Moment,
}

#[derive(Clone, Copy, Debug)]
struct KnownFile {
    len: u64,
    change: u64,
    until: Moment,
}

#[derive(Clone, Debug)]
struct KnownListing {
    names: Vec<String>,
    /// The state of the directory that it shows.
    change: u64,
    until: Moment,
}

/// The cache of a host.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    profile: Profile,
    dice: Dice,
    names: BTreeMap<(Inode, String), KnownName>,
    files: BTreeMap<Inode, KnownFile>,
    /// The state that each directory seems to have.
    changes: BTreeMap<Inode, u64>,
    /// The time until which that state is trusted without asking.
    believed: BTreeMap<Inode, Moment>,
    listings: BTreeMap<Inode, KnownListing>,
    /// Data that was read, and the state of the file at that time.
    pages: BTreeMap<Inode, (u64, Vec<u8>)>,
}

impl Client {
    pub(crate) fn new(profile: Profile, dice: Dice) -> Self {
        Self {
            profile,
            dice,
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            changes: BTreeMap::new(),
            believed: BTreeMap::new(),
            listings: BTreeMap::new(),
            pages: BTreeMap::new(),
        }
    }

    /// Forgets everything, like a host that has booted.
    pub(crate) fn forget(&mut self) {
        let fresh = Self::new(self.profile, self.dice.clone());
        *self = fresh;
    }

    fn is_shared(server: &Server, inode: Inode) -> bool {
        server.node(inode).mount == 0
    }

    /// The time until which an entry will be cached, `worst` at most.
    fn until(&mut self, worst: std::time::Duration, now: Moment) -> Moment {
        let worst = worst.as_nanos() as u64;
        let kept = if self.dice.one_in(2) {
            worst
        } else {
            self.dice.below(worst + 1)
        };
        now + kept
    }

    /// Fetches the state of a directory or file.
    pub(crate) fn ask(&mut self, server: &Server, inode: Inode, now: Moment) -> Result<()> {
        if !Self::is_shared(server, inode) {
            return Ok(());
        }
        let node = server.node(inode);
        if node.links == 0 {
            return Err(Errno::STALE);
        }
        let change = server.change_of(inode);
        if let Body::File { data, .. } = &node.body {
            let until = self.until(self.profile.attributes, now);
            let len = data.len() as u64;
            self.files.insert(inode, KnownFile { len, change, until });
            return Ok(());
        }
        let until = self.until(self.profile.attributes, now);
        self.believed.insert(inode, until);
        if self.changes.insert(inode, change) != Some(change) && self.profile.changes_are_news {
            self.names
                .retain(|(directory, _), known| *directory != inode || known.leads_to.is_some());
        }
        Ok(())
    }

    /// The target of a name, as this host sees it.
    pub(crate) fn look_up(
        &mut self,
        server: &Server,
        directory: Inode,
        name: &str,
        now: Moment,
    ) -> Result<Option<Inode>> {
        if !Self::is_shared(server, directory) {
            return server.child(directory, name);
        }
        let key = (directory, name.to_owned());
        if let Some(known) = self.names.get(&key).copied()
            && known.until > now
        {
            return match known.leads_to {
                Some(gone) if self.profile.goes_by_names && server.node(gone).links == 0 => {
                    let instead = server.child(directory, name)?;
                    if let (Some(instead), Some(file)) = (instead, self.files.get(&gone).copied()) {
                        self.files.insert(instead, file);
                        self.names.insert(
                            key,
                            KnownName {
                                leads_to: Some(instead),
                                ..known
                            },
                        );
                    }
                    Ok(instead)
                }
                leads_to => Ok(leads_to),
            };
        }
        let leads_to = server.child(directory, name)?;
        // The answer includes the state of the directory.
        self.ask(server, directory, now)?;
        let worst = match leads_to {
            Some(_) => self.profile.names,
            None => self.profile.missing_names,
        };
        let until = self.until(worst, now);
        self.names.insert(key, KnownName { leads_to, until });
        Ok(leads_to)
    }

    /// Records a change of a name by this host itself, in a directory that was in the state `before`.
    pub(crate) fn has_done(
        &mut self,
        server: &Server,
        (directory, name): (Inode, &str),
        leads_to: Option<Inode>,
        before: u64,
        now: Moment,
    ) {
        if !Self::is_shared(server, directory) {
            return;
        }
        let worst = match leads_to {
            Some(_) => self.profile.names,
            None => self.profile.missing_names,
        };
        let until = self.until(worst, now);
        let known = KnownName { leads_to, until };
        self.names.insert((directory, name.to_owned()), known);
        let after = server.change_of(directory);
        // It takes the change for its own, and with it any changes by others meanwhile.
        if self.changes.get(&directory) == Some(&before) {
            self.changes.insert(directory, after);
        }
        if let Some(listing) = self.listings.get_mut(&directory) {
            listing.names.retain(|listed| listed != name);
            if leads_to.is_some() {
                listing.names.push(name.to_owned());
            }
            if listing.change == before {
                listing.change = after;
            }
        }
    }

    /// The names in a directory, as this host sees them.
    pub(crate) fn list(
        &mut self,
        server: &Server,
        directory: Inode,
        now: Moment,
    ) -> Result<Vec<String>> {
        if !Self::is_shared(server, directory) {
            return Ok(server.names(directory)?.keys().cloned().collect());
        }
        if self
            .believed
            .get(&directory)
            .is_none_or(|until| *until <= now)
        {
            self.ask(server, directory, now)?;
        }
        let believed = self.changes.get(&directory).copied();
        if let Some(listing) = self.listings.get(&directory)
            && !self.profile.is_local()
            && (self.profile.keeps_listings && believed == Some(listing.change)
                || now < listing.until)
        {
            return Ok(listing.names.clone());
        }
        let names: Vec<String> = server.names(directory)?.keys().cloned().collect();
        let change = server.change_of(directory);
        self.changes.insert(directory, change);
        let until = self.until(self.profile.listings, now);
        let listing = KnownListing {
            names: names.clone(),
            change,
            until,
        };
        self.listings.insert(directory, listing);
        Ok(names)
    }

    /// The length of a file, as this host sees it.
    pub(crate) fn len(
        &mut self,
        server: &Server,
        inode: Inode,
        is_asked: bool,
        now: Moment,
    ) -> Result<u64> {
        if !Self::is_shared(server, inode) {
            return Ok(server.data(inode).len() as u64);
        }
        let is_known = self
            .files
            .get(&inode)
            .is_some_and(|known| known.until > now);
        if is_asked || !is_known {
            self.ask(server, inode, now)?;
        }
        Ok(self.files.get(&inode).map_or(0, |known| known.len))
    }

    /// The contents of a file, as this host sees them.
    pub(crate) fn data(&mut self, server: &Server, inode: Inode) -> Vec<u8> {
        if !Self::is_shared(server, inode) {
            return server.data(inode).to_vec();
        }
        let Some(known) = self.files.get(&inode).copied() else {
            return server.data(inode).to_vec();
        };
        let state = known.change ^ known.len.rotate_left(32);
        if let Some((kept, pages)) = self.pages.get(&inode)
            && *kept == state
        {
            return pages.clone();
        }
        let mut pages = server.data(inode).to_vec();
        pages.truncate(known.len as usize);
        self.pages.insert(inode, (state, pages.clone()));
        pages
    }

    /// Records data that this host has written itself.
    pub(crate) fn has_written(&mut self, server: &Server, inode: Inode, now: Moment) {
        self.pages.remove(&inode);
        let _ = self.ask(server, inode, now);
    }
}
