//! Taking a gather directory away: [`GatherDir::remove`] and what it could not remove, [`Removal`].

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use fsgather_core::{Epoch, Error, Rank};

use crate::{
    gather_dir::GatherDir,
    layout::{self, GatherEntry, PayloadName},
    listing,
    marker_names::{self, HostName, MarkerName},
    patience,
    payload_writer::PayloadId,
    remove,
};

/// What [`GatherDir::remove`] could not remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Removal {
    left: Vec<(PathBuf, String)>,
}

impl Removal {
    /// Whether nothing is left.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// What is left, and why.
    #[must_use]
    pub fn left(&self) -> &[(PathBuf, String)] {
        &self.left
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left.is_empty() {
            return f.write_str("everything was removed");
        }
        f.write_str("could not remove ")?;
        for (i, (path, reason)) in self.left.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} ({reason})", path.display())?;
        }
        f.write_str("; it can be removed by hand once the job is over")
    }
}

/// Pauses before trying again to remove a directory that is in use: names of removed files that are
/// still open somewhere go away when they are closed.
const PAUSES_MS: [u64; 5] = [100, 200, 500, 1000, 2000];

impl GatherDir {
    /// Removes the directory if nobody needs it any more; for the ranks that are left when rank 0, whose
    /// business it would be, is gone. Whether the directory is gone as well.
    ///
    /// As long as somebody writes or has something to read, a payload is there, and nothing is removed;
    /// the last one to leave finds none. What rank 0 was writing does not count: nobody can have been
    /// told of it.
    #[must_use = "a directory that stays should be marked"]
    pub fn remove_if_unused(&self) -> bool {
        let is_free_of = |name: &str, counts: fn(PayloadName) -> bool| {
            let names = listing::names(&self.path().join(name));
            match names {
                Ok(names) => !names
                    .iter()
                    .filter_map(|name| PayloadName::parse(name))
                    .any(counts),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
        };
        is_free_of(layout::PAYLOADS, |_| true)
            && is_free_of(layout::STAGING, |payload| payload.rank() != Rank::ZERO)
            && self.remove().is_complete()
    }

    /// Removes a rank's payload of one call, whatever its attempt; for an owner that has gone. That it is
    /// gone already is success.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when it is there and stays there, or nobody can tell.
    pub fn reclaim_of(&self, id: PayloadId) -> Result<(), Error> {
        let payloads = self.path().join(layout::PAYLOADS);
        let names = match listing::names(&payloads) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| Error::storage("list", &payloads, &error))?,
        };
        names
            .iter()
            .filter_map(|name| PayloadName::parse(name))
            .filter(|name| {
                (name.channel(), name.epoch(), name.rank()) == (id.channel, id.epoch, id.rank)
            })
            .try_for_each(|name| self.reclaim(name))
    }

    /// Removes the payloads of calls after `decided`, or of all calls: those that failed, which nobody
    /// will read. Rank 0 does this when it leaves before the others.
    pub fn discard_undecided(&self, decided: Option<Epoch>) {
        let payloads = self.path().join(layout::PAYLOADS);
        for name in listing::names(&payloads).unwrap_or_default() {
            let is_junk = PayloadName::parse(&name)
                .is_some_and(|payload| decided.is_none_or(|decided| payload.epoch() > decided));
            if is_junk && let Err(error) = remove::unlink(&payloads.join(&name)) {
                tracing::debug!("a payload that nobody reads stays: {error}");
            }
        }
    }

    /// Removes the directory and everything in it that the store writes, deepest first.
    ///
    /// Follows no links and removes nothing of an unknown name. What is gone already counts as removed.
    /// The owner record goes last, so that a removal that is cut short leaves a directory that still
    /// says whose it is. A directory in use is tried again for up to 4 seconds.
    pub fn remove(&self) -> Removal {
        let mut removal = Removal::default();
        for (name, is_ours) in [
            (layout::PAYLOADS, is_payload as fn(&str) -> bool),
            (layout::STAGING, is_payload),
            (layout::PROBES, is_nonce),
            (marker_names::OUT, is_marker),
        ] {
            remove_tree(&self.path().join(name), is_ours, &mut removal);
        }
        for name in [marker_names::IN, marker_names::LIVE] {
            let path = self.path().join(name);
            for host in listing::names(&path).unwrap_or_default() {
                if HostName::parse(&host).is_some() {
                    remove_tree(&path.join(host), is_marker, &mut removal);
                }
            }
            remove_tree(&path, |_| false, &mut removal);
        }
        if removal.is_complete() {
            empty(self.path(), is_mark);
            remove_tree(self.path(), is_mark_or_owner, &mut removal);
        }
        removal
    }
}

/// Removes a directory with the files in it that are ours, trying again while it is in use.
fn remove_tree(path: &Path, is_ours: fn(&str) -> bool, removal: &mut Removal) {
    let mut pauses = PAUSES_MS.iter();
    loop {
        let strangers = empty(path, is_ours);
        let Err(error) = remove::rmdir(path) else {
            return;
        };
        match pauses.next() {
            Some(&pause) if remove::is_in_use(&error) && strangers.is_empty() => {
                let nobody = &mut |_| Ok(());
                // Nobody interrupts it, so that it cannot fail.
                let _ = patience::sleep(Duration::from_millis(pause), nobody);
            }
            _ => {
                let reason = match strangers.first() {
                    None => error.to_string(),
                    Some(stranger) => format!("{error}: {stranger} is not ours"),
                };
                removal.left.push((path.to_owned(), reason));
                return;
            }
        }
    }
}

/// Removes the files in a directory that are ours, and returns the names that are not and do not go
/// away by waiting either.
fn empty(path: &Path, is_ours: fn(&str) -> bool) -> Vec<String> {
    /// Names under which clients keep removed files that are still open.
    const LINGERING: [&str; 3] = [".nfs", ".fuse_hidden", ".smb"];
    let names = listing::names(path).unwrap_or_default();
    let (ours, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_ours(name));
    for name in ours {
        let file = path.join(name);
        if let Err(error) = remove::unlink(&file) {
            tracing::debug!(path = %file.display(), %error, "cannot remove");
        }
    }
    others
        .into_iter()
        .filter(|name| !LINGERING.iter().any(|stem| name.starts_with(stem)))
        .collect()
}

fn is_payload(name: &str) -> bool {
    PayloadName::parse(name).is_some() || layout::is_capability_name(name)
}

fn is_mark(name: &str) -> bool {
    matches!(
        GatherEntry::parse(name),
        Some(GatherEntry::Beat(_) | GatherEntry::Finished | GatherEntry::Aborted)
    )
}

fn is_mark_or_owner(name: &str) -> bool {
    is_mark(name) || name == layout::OWNER
}

fn is_marker(name: &str) -> bool {
    MarkerName::parse(name).is_some()
}

fn is_nonce(name: &str) -> bool {
    layout::parse_nonce_name(name).is_some()
}
